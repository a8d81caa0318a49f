// SPDX-License-Identifier: GPL-2.0
//! A failure: its cause and its remedy.

use std::fmt;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Exit status of an operation that failed.
pub const FAILED: u8 = 1;
/// Exit status of a command line that was not understood.
pub const USAGE: u8 = 2;

#[derive(Clone, Debug)]
pub struct Error {
    pub message: String,
    pub remedy: Option<String>,
    pub status: u8,
    /// What else is wrong, such as the other mistakes of a file. Each has a line of its own.
    pub more: Vec<Error>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(message: impl Into<String>) -> Self {
        Error {
            message: plain(message.into()),
            remedy: None,
            status: FAILED,
            more: Vec::new(),
        }
    }

    /// Fails with all of these, if there are any. Among them a usage error decides the status.
    pub fn all(errors: Vec<Error>) -> Result<()> {
        let usage = errors.iter().any(|e| e.status == USAGE);
        let mut errors = errors.into_iter();
        let Some(mut first) = errors.next() else {
            return Ok(());
        };
        first.more = errors.collect();
        if usage {
            first.status = USAGE;
        }
        Err(first)
    }

    /// It and what else is wrong.
    pub fn each(&self) -> impl Iterator<Item = &Error> {
        std::iter::once(self).chain(&self.more)
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

/// Without the numbers that the standard library adds to the system's errors.
fn plain(mut message: String) -> String {
    const NUMBER: &str = " (os error ";
    while let Some(start) = message.find(NUMBER) {
        match message[start..].find(')') {
            Some(length) => message.replace_range(start..=start + length, ""),
            None => break,
        }
    }
    message
}

/// One line, without `more`: scripts and logs take it as a whole.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// clap's errors span several lines; the first paragraph says it all. `command`: the command
    /// whose help tells more.
    pub fn from_clap(error: &clap::Error, command: &str) -> Self {
        let help = format!("see '{command} --help'");
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Error::usage("a command is missing").remedy(help);
        }
        let text = error.render().to_string();
        let message: Vec<_> = text
            .lines()
            .map(str::trim)
            .take_while(|line| !line.is_empty())
            .collect();
        let message = message.join(" ");
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        Error::usage(message).remedy(match meant(error) {
            Some(name) => format!("did you mean {name}? {help}"),
            None => help,
        })
    }
}

/// The known name that resembles the one that was not understood.
fn meant(error: &clap::Error) -> Option<&String> {
    let kinds = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    kinds.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(name) => Some(name),
        // The best comes last.
        ContextValue::Strings(names) => names.last(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_have_no_number() {
        let error = std::io::Error::from_raw_os_error(2);
        let error = Error::new(format!("cannot read a: {error}; so b"));
        assert_eq!(
            error.message,
            "cannot read a: No such file or directory; so b"
        );
        assert_eq!(Error::new("x (os error 2").message, "x (os error 2");
    }

    #[test]
    fn one_line_with_the_remedy() {
        let error = Error::new("no such thing").remedy("make one");
        assert_eq!(error.to_string(), "no such thing; make one");
        assert_eq!(error.status, FAILED);
    }
}
