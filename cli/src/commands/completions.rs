// SPDX-License-Identifier: GPL-2.0
//! `completions`: a script for a shell, which asks this program.

use clap_complete::Shell;
use serde_json::json;

use crate::cli;
use crate::error::Result;
use crate::output::{Answer, SCHEMA};

pub fn print(shell: Shell) -> Result<Answer> {
    let script = cli::script(&shell.to_string())?;
    let json = json!({ "schema": SCHEMA, "script": script });
    Ok(Answer::new(script, json))
}
