// SPDX-License-Identifier: GPL-2.0
//! `completions`: a script for a shell, made from the grammar.

use clap_complete::Shell;
use serde_json::json;

use crate::cli;
use crate::output::{Answer, SCHEMA};

pub fn print(shell: Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "socksplice", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let json = json!({ "schema": SCHEMA, "script": script });
    Answer::new(script, json)
}
