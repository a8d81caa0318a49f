// SPDX-License-Identifier: GPL-2.0
//! One failure: what went wrong, and what to do about it.

use std::fmt;

use clap::error::ErrorKind;
use serde_json::{Value, json};

use crate::output::SCHEMA;

/// Exit status of an operation that failed.
pub const FAILED: u8 = 1;
/// Exit status of a command line that was not understood.
pub const USAGE: u8 = 2;

#[derive(Clone, Debug)]
pub struct Error {
    pub message: String,
    pub remedy: Option<String>,
    pub status: u8,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(message: impl Into<String>) -> Self {
        Error {
            message: message.into(),
            remedy: None,
            status: FAILED,
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Error {
            status: USAGE,
            ..Error::new(message)
        }
    }

    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    pub fn to_json(&self) -> Value {
        json!({
            "schema": SCHEMA,
            "error": {
                "message": self.message,
                "remedy": self.remedy,
                "status": self.status,
            },
        })
    }
}

/// One line: scripts and logs take it as a whole.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// clap's errors span several lines; the first paragraph says it all.
impl From<clap::Error> for Error {
    fn from(error: clap::Error) -> Self {
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Error::usage("a command is missing").remedy("see 'socksplice help'");
        }
        let text = error.render().to_string();
        let message: Vec<_> = text
            .lines()
            .map(str::trim)
            .take_while(|line| !line.is_empty())
            .collect();
        let message = message.join(" ");
        Error::usage(message.strip_prefix("error: ").unwrap_or(&message))
            .remedy("see 'socksplice help'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn one_line_with_the_remedy() {
        let error = Error::new("no such thing").remedy("make one");
        assert_eq!(error.to_string(), "no such thing; make one");
        assert_eq!(error.status, FAILED);
        assert_eq!(error.to_json()["error"]["remedy"], "make one");
    }

    #[test]
    fn usage_errors_are_one_line() {
        for arguments in [
            &["socksplice", "policy", "set"][..],
            &[
                "socksplice",
                "policy",
                "set",
                "--cgroup",
                "/",
                "--port",
                "x",
            ],
            &["socksplice"],
            &["socksplice", "policy"],
            &["socksplice", "nonsense"],
            &[
                "socksplice",
                "policy",
                "set",
                "--cgroup",
                "/",
                "--ring",
                "5000",
            ],
        ] {
            let error = Error::from(Cli::try_parse_from(arguments).err().unwrap());
            assert_eq!(error.status, USAGE, "{arguments:?}");
            assert!(!error.to_string().contains('\n'), "{error}");
            assert!(!error.message.is_empty());
        }
    }
}
