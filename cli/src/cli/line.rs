// SPDX-License-Identifier: GPL-2.0
//! The grammar as a whole, and what it makes of a command line that is not understood.

use std::ffi::OsStr;

use clap::{ColorChoice, Command, CommandFactory, ValueEnum};

use super::{Cli, examples};

/// The grammar with the examples of each command.
pub fn command() -> Command {
    examples::add(Cli::command(), "")
}

/// What arguments without the program's name ask for by --color, also if the rest of them is
/// not understood.
pub fn color_of(arguments: &[impl AsRef<OsStr>]) -> ColorChoice {
    let texts: Vec<&str> = arguments
        .iter()
        .map(|a| a.as_ref().to_str().unwrap_or_default())
        .collect();
    let apart = texts.windows(2).filter(|two| two[0] == "--color");
    let joined = texts
        .iter()
        .filter_map(|text| text.strip_prefix("--color="));
    let mut asked = apart.map(|two| two[1]).chain(joined);
    let asked = asked.find_map(|when| ColorChoice::from_str(when, false).ok());
    asked.unwrap_or(ColorChoice::Auto)
}

/// The command that arguments without the program's name begin with, as far as they are one.
pub fn command_of(arguments: &[impl AsRef<OsStr>]) -> String {
    let top = command();
    let mut command = &top;
    let mut words = vec!["socksplice"];
    for argument in arguments {
        if let Some(next) = command.find_subcommand(argument) {
            words.push(next.get_name());
            command = next;
        }
    }
    words.join(" ")
}
