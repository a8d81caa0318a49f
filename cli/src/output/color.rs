// SPDX-License-Identifier: GPL-2.0
//! Colours for a terminal. Nothing is coloured before [`choose`] says so.

use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

pub const HEADER: Style = Style::new().bold();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const WARNING: Style = AnsiColor::Yellow.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const FAINT: Style = Style::new().dimmed();

/// Whether standard output and standard error are coloured. Set once at the start, by `main`.
static OUT: AtomicBool = AtomicBool::new(false);
static ERR: AtomicBool = AtomicBool::new(false);

/// `Auto`: a stream that is a terminal, unless NO_COLOR, CLICOLOR=0 or TERM=dumb is set. clap's
/// own help and errors follow, too.
pub fn choose(when: ColorChoice) {
    when.write_global();
    let is_coloured = |choice| choice != ColorChoice::Never;
    let out = is_coloured(AutoStream::choice(&io::stdout()));
    OUT.store(out, Ordering::Relaxed);
    ERR.store(
        is_coloured(AutoStream::choice(&io::stderr())),
        Ordering::Relaxed,
    );
}

/// Whether standard output is coloured.
pub fn is_on() -> bool {
    OUT.load(Ordering::Relaxed)
}

/// A text for standard output.
pub fn paint(style: Style, text: impl Display) -> String {
    styled(is_on(), style, text)
}

/// A text for standard error.
pub fn paint_error(style: Style, text: impl Display) -> String {
    styled(ERR.load(Ordering::Relaxed), style, text)
}

fn styled(on: bool, style: Style, text: impl Display) -> String {
    match on && style != Style::new() {
        true => format!("{style}{text}{style:#}"),
        false => text.to_string(),
    }
}

/// The style of a word that says in what state something is.
pub fn of_state(word: &str) -> Style {
    match word {
        "waiting" | "draining" => WARNING,
        "closed" | "done" => FAINT,
        _ => Style::new(),
    }
}

/// The lines of a unified diff.
pub fn diff(text: &str) -> String {
    let line = |line: &str| {
        let style = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => HEADER,
            [b'+', ..] => GOOD,
            [b'-', ..] => AnsiColor::Red.on_default(),
            [b'@', ..] => FAINT,
            _ => Style::new(),
        };
        let end = if line.ends_with('\n') { "\n" } else { "" };
        paint(style, line.trim_end_matches('\n')) + end
    };
    text.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_style_ends_with_its_text() {
        assert_eq!(styled(true, HEADER, "x"), "\x1b[1mx\x1b[0m");
        assert_eq!(styled(false, HEADER, "x"), "x");
        assert_eq!(styled(true, of_state("open"), "x"), "x");
    }

    #[test]
    fn a_diff_stays_as_it_is_without_colours() {
        let text = "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z";
        assert_eq!(diff(text), text);
    }
}
