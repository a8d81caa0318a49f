// SPDX-License-Identifier: GPL-2.0
//! One file for each verb of the command line, and what several verbs share: the filter of
//! pairs. A command may call everything below it. Only `main` calls commands.

mod agent;
mod capture;
mod completions;
mod doctor;
mod drain;
mod exporter;
mod feature;
mod filter;
mod man;
mod monitor;
mod pair;
mod policy;
mod poll;
mod splice;
mod stats;
mod top;
mod why;

use crate::cli::{
    FeatureCommand, Object, PairCommand, PolicyCommand, PollCommand, StatsCommand, StatsShow,
};
use crate::error::Result;
use crate::output::Answer;

/// `json` is for commands that print while they run.
pub fn run(object: Object, json: bool) -> Result<Answer> {
    match object {
        Object::Policy(noun) => match noun.command.unwrap_or(PolicyCommand::Show) {
            PolicyCommand::Set(arguments) => policy::set(arguments),
            PolicyCommand::Add(arguments) => policy::add(arguments),
            PolicyCommand::Del { names } => policy::delete(&names),
            PolicyCommand::Apply { file } => policy::apply(&file),
            PolicyCommand::Check { file } => policy::check(&file),
            PolicyCommand::Diff { file } => policy::diff(&file),
            PolicyCommand::Export => policy::export(),
            PolicyCommand::Show => policy::show(),
            PolicyCommand::Clear(arguments) => policy::clear(arguments),
        },
        Object::Pair(noun) => match noun.command {
            None => pair::show(Default::default()),
            Some(PairCommand::Show(arguments)) => pair::show(arguments),
            Some(PairCommand::Top(arguments)) => top::run(arguments, json),
            Some(PairCommand::Monitor(arguments)) => monitor::run(arguments, json),
            Some(PairCommand::Why(arguments)) => why::run(arguments),
            Some(PairCommand::Drop(arguments)) => drain::drop(arguments),
        },
        Object::Splice(_) => splice::show(),
        Object::Poll(noun) => match noun.command.unwrap_or(PollCommand::Show) {
            PollCommand::Set(arguments) => poll::set(&arguments),
            PollCommand::Clear(processes) => poll::clear(&processes),
            PollCommand::Show => poll::show(),
        },
        Object::Drain(wait) => drain::drain(wait),
        Object::Capture(arguments) => capture::run(arguments, json),
        Object::Stats(noun) => {
            let StatsCommand::Show(arguments) = noun
                .command
                .unwrap_or(StatsCommand::Show(StatsShow::default()));
            stats::show(&arguments, json)
        }
        Object::Agent(arguments) => agent::run(arguments),
        Object::Exporter(arguments) => exporter::run(arguments, json),
        Object::ExporterReader => exporter::reader::run(),
        Object::Feature(noun) => match noun.command.unwrap_or(FeatureCommand::Show) {
            FeatureCommand::Show => feature::show(),
            FeatureCommand::Set { feature, value } => feature::set(feature, &value),
        },
        Object::Doctor => Ok(doctor::run()),
        Object::Completions { shell } => completions::print(shell),
        Object::Man { dir } => man::write(&dir),
    }
}
