// SPDX-License-Identifier: GPL-2.0
//! One file for each verb of the command line, and what several verbs share: the filter of
//! pairs. A command may call everything below it. Only `main` calls commands.

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
mod splice;
mod stats;
mod top;
mod why;

use crate::cli::{FeatureCommand, Object, PairCommand, PolicyCommand, SpliceCommand, StatsCommand};
use crate::error::Result;
use crate::output::Answer;

/// `json` is for commands that print while they run.
pub fn run(object: Object, json: bool) -> Result<Answer> {
    match object {
        Object::Policy(PolicyCommand::Set(arguments)) => policy::set(arguments),
        Object::Policy(PolicyCommand::Show) => policy::show(),
        Object::Policy(PolicyCommand::Apply { file }) => policy::apply(&file),
        Object::Policy(PolicyCommand::Export) => policy::export(),
        Object::Policy(PolicyCommand::Clear(arguments)) => policy::clear(arguments),
        Object::Pair(PairCommand::Show(arguments)) => pair::show(arguments),
        Object::Pair(PairCommand::Top(arguments)) => top::run(arguments, json),
        Object::Pair(PairCommand::Monitor(arguments)) => monitor::run(arguments, json),
        Object::Pair(PairCommand::Why(arguments)) => why::run(arguments),
        Object::Pair(PairCommand::Drop(arguments)) => drain::drop(arguments),
        Object::Splice(SpliceCommand::Show) => splice::show(),
        Object::Drain(wait) => drain::drain(wait),
        Object::Capture(arguments) => capture::run(arguments, json),
        Object::Stats(StatsCommand::Show) => stats::show(),
        Object::Exporter(arguments) => exporter::run(arguments, json),
        Object::Feature(FeatureCommand::Show) => feature::show(),
        Object::Feature(FeatureCommand::Set { feature, value }) => feature::set(feature, &value),
        Object::Doctor => Ok(doctor::run()),
        Object::Completions { shell } => Ok(completions::print(shell)),
        Object::Man { dir } => man::write(&dir),
    }
}
