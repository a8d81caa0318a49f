// SPDX-License-Identifier: GPL-2.0
//! socksplice: control local TCP acceleration by the kernel module of the
//! same name.

mod cli;
mod commands;
mod error;
mod kernel;
mod output;
mod pcap;
mod policy;
mod system;
mod uapi;
mod values;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, FeatureCommand, Object, PairCommand, PolicyCommand, SpliceCommand, StatsCommand};
use commands::{capture, doctor, drain, exporter, feature, man, monitor, stats, top};
use error::{Error, FAILED};
use kernel::{pair, splice};
use output::Answer;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are errors to clap, but not to the caller.
        Err(e) if !e.use_stderr() => {
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            let mut arguments = std::env::args_os().skip(1);
            return fail(&e.into(), arguments.any(|a| asks_for_json(&a)));
        }
    };
    match run(cli.object, cli.json) {
        Ok(answer) => match answer.print(cli.json) {
            // The reader went away: it has what it wanted.
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

/// Of a command line that was not understood; where the flag stands does not matter.
fn asks_for_json(argument: &OsStr) -> bool {
    let bytes = argument.as_encoded_bytes();
    let among_flags =
        |flags: &[u8]| flags.iter().all(u8::is_ascii_alphanumeric) && flags.contains(&b'j');
    bytes == b"--json" || bytes.strip_prefix(b"-").is_some_and(among_flags)
}

/// `json` is for those that print as they go.
fn run(object: Object, json: bool) -> error::Result<Answer> {
    match object {
        Object::Policy(PolicyCommand::Set(arguments)) => policy::set(arguments),
        Object::Policy(PolicyCommand::Show) => policy::show(),
        Object::Policy(PolicyCommand::Apply { file }) => policy::apply(&file),
        Object::Policy(PolicyCommand::Export) => policy::export(),
        Object::Policy(PolicyCommand::Clear(arguments)) => policy::clear(arguments),
        Object::Pair(PairCommand::Show(arguments)) => pair::show(arguments),
        Object::Pair(PairCommand::Top(arguments)) => top::run(arguments, json),
        Object::Pair(PairCommand::Monitor(arguments)) => monitor::run(arguments, json),
        Object::Pair(PairCommand::Drop(arguments)) => drain::drop(arguments),
        Object::Splice(SpliceCommand::Show) => splice::show(),
        Object::Drain(wait) => drain::drain(wait),
        Object::Capture(arguments) => capture::run(arguments, json),
        Object::Stats(StatsCommand::Show) => stats::show(),
        Object::Exporter(arguments) => exporter::run(arguments, json),
        Object::Feature(FeatureCommand::Show) => feature::show(),
        Object::Feature(FeatureCommand::Set { feature, value }) => feature::set(feature, &value),
        Object::Doctor => Ok(doctor::run()),
        Object::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "socksplice", &mut script);
            let script = String::from_utf8_lossy(&script).into_owned();
            let json = serde_json::json!({ "schema": output::SCHEMA, "script": script });
            Ok(Answer::new(script, json))
        }
        Object::Man { dir } => man::write(&dir),
    }
}

/// The one place that prints an error: a line on stderr, or JSON on stdout,
/// where a program looks for its answer.
fn fail(error: &Error, json: bool) -> ExitCode {
    let _ = if json {
        writeln!(io::stdout(), "{}", error.to_json())
    } else {
        writeln!(io::stderr(), "socksplice: {error}")
    };
    error.status.into()
}
