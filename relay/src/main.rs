// SPDX-License-Identifier: GPL-2.0
//! socksplice-relay(8): the command line.

mod flags;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use socksplice_relay::config::{self, Config, Mistake};
use socksplice_relay::log::say;
use socksplice_relay::net::Address;
use socksplice_relay::{admin, serve, top};

/// A TCP proxy whose bytes the kernel forwards
#[derive(Parser)]
#[command(
    name = "socksplice-relay",
    version,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Configuration file, see socksplice-relay.toml(5)
    #[arg(long, short, value_name = "FILE", conflicts_with = "listen")]
    config: Option<PathBuf>,
    /// Threads that forward [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    #[command(flatten)]
    flags: flags::Flags,
}

#[derive(Subcommand)]
enum Command {
    /// List all mistakes in a configuration file
    Check { file: PathBuf },
    /// Print a running relay's status as JSON
    Status {
        #[arg(long, default_value = DEFAULT_ADMIN)]
        admin: Address,
        /// Print its live connections instead
        #[arg(long)]
        connections: bool,
    },
    /// Show the busiest connections of a running relay
    Top {
        #[arg(long, default_value = DEFAULT_ADMIN)]
        admin: Address,
        /// Seconds between two updates
        #[arg(long, default_value_t = 1.0)]
        delay: f64,
        /// Number of updates [default: until interrupted at a terminal, else one]
        #[arg(long)]
        times: Option<u64>,
    },
}

const DEFAULT_ADMIN: &str = "unix:/run/socksplice-relay/admin.sock";

/// Exit status if the relay, or the command, fails.
const FAILED: u8 = 1;
/// Exit status if the command line is wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Command::Check { file }) => check(&file),
        Some(Command::Status { admin, connections }) => {
            let page = if connections {
                "/connections"
            } else {
                "/status"
            };
            top::get(&admin, page).map_err(failed).and_then(|text| {
                let written = io::stdout().write_all(text.as_bytes());
                written.map_err(|e| failed(e.to_string()))
            })
        }
        Some(Command::Top {
            admin,
            delay,
            times,
        }) => {
            let delay = Duration::try_from_secs_f64(delay.clamp(0.1, 3600.0));
            top::top(&admin, delay.unwrap_or(Duration::from_secs(1)), times).map_err(failed)
        }
        None => run(cli),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, lines)) => {
            lines.iter().for_each(say);
            status.into()
        }
    }
}

type Outcome = Result<(), (u8, Vec<String>)>;

fn failed(what: String) -> (u8, Vec<String>) {
    (FAILED, vec![what])
}

fn mistaken(file: &str, mistakes: &[Mistake]) -> (u8, Vec<String>) {
    (
        FAILED,
        mistakes.iter().map(|m| format!("{file}: {m}")).collect(),
    )
}

fn check(file: &Path) -> Outcome {
    let name = file.display().to_string();
    config::load(file).map_err(|m| mistaken(&name, &m))?;
    let _ = writeln!(io::stdout(), "{name}: ok");
    Ok(())
}

fn run(cli: Cli) -> Outcome {
    let workers = cli.workers.map(usize::from);
    let config: Config = match &cli.config {
        Some(file) => config::load(file).map_err(|m| mistaken(&file.display().to_string(), &m))?,
        None if cli.flags.is_empty() => {
            let usage = Cli::command().render_usage().to_string();
            let what = "neither --config nor --listen says what to do".to_string();
            return Err((USAGE, vec![what, usage]));
        }
        None => cli
            .flags
            .config()
            .map_err(|m| (USAGE, m.into_iter().map(|m| m.what).collect()))?,
    };
    serve::run(config, cli.config, workers, admin::serve).map_err(|lines| (FAILED, lines))
}
