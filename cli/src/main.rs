// SPDX-License-Identifier: GPL-2.0
//! socksplice: control local TCP acceleration by the kernel module of the
//! same name.

mod cli;
mod commands;
mod containers;
mod error;
mod kernel;
mod output;
mod pcap;
mod policy;
mod system;
mod uapi;
mod values;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

use anstream::ColorChoice;
use clap::FromArgMatches;

use cli::Cli;
use error::{Error, FAILED};
use output::color;

fn main() -> ExitCode {
    cli::answer_shell();
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    color::choose(match cli::color_of(&arguments) {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    });
    let cli = match parse(&arguments) {
        Ok(cli) => cli,
        // Help and version are errors to clap, but not to the caller.
        Err(e) if !e.use_stderr() => {
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            let error = Error::from_clap(&e, &cli::command_of(&arguments));
            return fail(&error, arguments.iter().any(|a| asks_for_json(a)));
        }
    };
    match commands::run(cli.object, cli.json) {
        Ok(answer) => match answer.print(cli.json) {
            // A reader that closed the pipe has all that it wanted.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => fail(
                &Error::new(format!("cannot write the answer: {e}"))
                    .remedy("what was asked for is done"),
                false,
            ),
            _ if answer.failed => FAILED.into(),
            _ => ExitCode::SUCCESS,
        },
        Err(e) => fail(&e, cli.json),
    }
}

fn parse(arguments: &[OsString]) -> std::result::Result<Cli, clap::Error> {
    let all = std::iter::once(OsStr::new("socksplice")).chain(arguments.iter().map(|a| &**a));
    Cli::from_arg_matches(&cli::command().try_get_matches_from(all)?)
}

/// Whether an argument of a command line that was not understood asks for JSON. The flag may
/// stand anywhere.
fn asks_for_json(argument: &OsStr) -> bool {
    let bytes = argument.as_encoded_bytes();
    let among_flags =
        |flags: &[u8]| flags.iter().all(u8::is_ascii_alphanumeric) && flags.contains(&b'j');
    bytes == b"--json" || bytes.strip_prefix(b"-").is_some_and(among_flags)
}

/// Prints an error: its lines on stderr, or JSON on stdout, where a program looks for the answer.
fn fail(error: &Error, json: bool) -> ExitCode {
    let _ = if json {
        writeln!(io::stdout(), "{}", output::error_to_json(error))
    } else {
        let head = color::paint_error(color::BAD, "socksplice:");
        let lines = error.each().map(|e| format!("{head} {e}\n"));
        io::stderr().write_all(lines.collect::<String>().as_bytes())
    };
    error.status.into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// The rooms from the top floor down. A file uses rooms of lower floors and its own.
    const FLOORS: [&[&str]; 8] = [
        &["main"],
        &["commands"],
        &["cli"],
        &["policy", "pcap"],
        &["kernel", "containers"],
        &["system", "values"],
        &["output"],
        &["error", "uapi"],
    ];

    fn floor(room: &str) -> usize {
        let floor = FLOORS.iter().position(|rooms| rooms.contains(&room));
        floor.unwrap_or_else(|| panic!("no room is called '{room}'"))
    }

    /// Panics at a path of `crate` that leads to another room of the same floor or above.
    fn check(room: &str, path: &Path) {
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                check(room, &entry.unwrap().path());
            }
            return;
        }
        let text = fs::read_to_string(path).unwrap();
        for used in text.split("crate::").skip(1) {
            let end = used.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let used = &used[..end.unwrap_or(used.len())];
            assert!(
                used == room || floor(used) > floor(room),
                "{} uses crate::{used}, which is not below {room}",
                path.display()
            );
        }
    }

    #[test]
    fn rooms_use_only_what_is_below_them() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for entry in fs::read_dir(sources).unwrap() {
            let path = entry.unwrap().path();
            let room = path.file_stem().unwrap().to_str().unwrap();
            if room != "main" {
                check(room, &path);
            }
        }
    }
}
