// SPDX-License-Identifier: GPL-2.0
//! A failure: its cause and its remedy.

use std::fmt;

use clap::error::ErrorKind;

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

    #[test]
    fn one_line_with_the_remedy() {
        let error = Error::new("no such thing").remedy("make one");
        assert_eq!(error.to_string(), "no such thing; make one");
        assert_eq!(error.status, FAILED);
    }
}
