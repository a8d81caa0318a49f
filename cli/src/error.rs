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
    /// What else is wrong, such as the other mistakes of a file. Each has a line of its own.
    pub more: Vec<Error>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(message: impl Into<String>) -> Self {
        Error {
            message: message.into(),
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
            .remedy(format!("see '{} --help'", command(&text)))
    }
}

/// The command whose usage clap prints: the words before its options and arguments.
fn command(text: &str) -> String {
    let mut lines = text.lines();
    let usage = lines.find_map(|line| line.trim().strip_prefix("Usage: "));
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let words = usage.unwrap_or("socksplice").split(' ').take_while(is_name);
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_help_of_the_command() {
        let text = "error: no\n\nUsage: socksplice policy set [OPTIONS] --cgroup <PATH>\n";
        assert_eq!(command(text), "socksplice policy set");
        assert_eq!(command("error: no value\n"), "socksplice");
    }

    #[test]
    fn one_line_with_the_remedy() {
        let error = Error::new("no such thing").remedy("make one");
        assert_eq!(error.to_string(), "no such thing; make one");
        assert_eq!(error.status, FAILED);
    }
}
