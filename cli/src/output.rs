// SPDX-License-Identifier: GPL-2.0
//! What the commands print: a table for people, or one JSON document.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Version of every JSON document. Members are added without a new version;
/// it changes when one is removed, renamed or given another meaning.
pub const SCHEMA: u32 = 1;

/// The answer of a command in both forms.
pub struct Answer {
    pub text: String,
    pub json: Value,
    /// The command ran, but its answer is bad news (`doctor`).
    pub failed: bool,
}

impl Answer {
    pub fn new(text: impl Into<String>, json: Value) -> Self {
        Answer {
            text: text.into(),
            json,
            failed: false,
        }
    }

    /// The answer of a command that has printed everything already.
    pub fn said() -> Self {
        Answer::new("", Value::Null)
    }

    pub fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json && !self.json.is_null() {
            writeln!(out, "{}", self.json)?;
        } else if !json {
            out.write_all(self.text.as_bytes())?;
        }
        out.flush()
    }
}

/// An error as a JSON document.
pub fn error_to_json(error: &Error) -> Value {
    let more = error.more.iter();
    let more = more.map(|e| json!({ "message": e.message, "remedy": e.remedy }));
    json!({
        "schema": SCHEMA,
        "error": {
            "message": error.message,
            "remedy": error.remedy,
            "status": error.status,
            "more": more.collect::<Vec<Value>>(),
        },
    })
}

/// Prints a part of an answer of which more follows. False if the reader closed the pipe.
pub fn say(text: impl Display) -> Result<bool> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Error::new(format!("cannot write the answer: {e}"))),
    }
}

/// Moves the cursor home and clears the screen.
pub const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Clone, Copy, PartialEq)]
pub enum Align {
    Left,
    Right,
}

/// Columns as wide as their widest cell, two spaces apart.
pub struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[(&str, Align)]) -> Self {
        Table {
            align: header.iter().map(|column| column.1).collect(),
            rows: vec![header.iter().map(|column| column.0.to_string()).collect()],
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.align.len());
        self.rows.push(cells);
    }

    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.align.len())
            .map(|i| {
                let cells = self.rows.iter().map(|row| row[i].chars().count());
                cells.max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .zip(&self.align)
                .map(|((cell, width), align)| match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// The text with no line longer than so many columns.
pub fn cut(text: &str, columns: usize) -> String {
    let cut = |line: &str| line.chars().take(columns).collect::<String>() + "\n";
    text.lines().map(cut).collect()
}

/// An age in the two largest units that say something.
pub fn age(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{}.{}s", s, ms % 1000 / 100),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86400, s % 86400 / 3600),
    }
}

/// A number in at most four digits and a unit: 9999, 12.3k, 4.5M.
pub fn short(n: f64) -> String {
    const UNITS: [&str; 4] = ["k", "M", "G", "T"];
    if n < 9999.5 {
        return format!("{n:.0}");
    }
    let (mut n, mut unit) = (n / 1000.0, 0);
    while n >= 999.95 && unit + 1 < UNITS.len() {
        n /= 1000.0;
        unit += 1;
    }
    format!("{n:.1}{}", UNITS[unit])
}

/// The time now, as [`timestamp`] has it.
pub fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    timestamp(now.unwrap_or_default())
}

/// A time since 1970 as RFC 3339 has it, in UTC.
pub fn timestamp(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    // Years begin in March, so that the odd day is their last.
    let day = seconds / 86400 + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (year + era * 400, month + 3),
        _ => (year + era * 400 + 1, month - 9),
    };
    format!(
        "{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}.{:06}Z",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
        since_1970.subsec_micros()
    )
}

pub fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

pub fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_aligns_its_columns() {
        let mut table = Table::new(&[("NAME", Align::Left), ("VALUE", Align::Right)]);
        table.row(vec!["a".into(), "12345678".into()]);
        table.row(vec!["longer".into(), "1".into()]);
        assert_eq!(
            table.render(),
            "NAME       VALUE\na       12345678\nlonger         1\n"
        );
    }

    #[test]
    fn table_without_rows_is_its_header() {
        let table = Table::new(&[("NAME", Align::Left), ("VALUE", Align::Right)]);
        assert_eq!(table.render(), "NAME  VALUE\n");
    }

    #[test]
    fn an_error_has_its_remedy() {
        let json = error_to_json(&Error::new("no such thing").remedy("make one"));
        assert_eq!(json["error"]["remedy"], "make one");
        assert_eq!(json["schema"], SCHEMA);
    }

    #[test]
    fn timestamps() {
        let at = |seconds| timestamp(Duration::new(seconds, 123_456_789));
        assert_eq!(at(0), "1970-01-01T00:00:00.123456Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.123456Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59.123456Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59.123456Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.123456Z");
    }

    #[test]
    fn short_numbers() {
        for (n, text) in [
            (0.0, "0"),
            (9999.0, "9999"),
            (12_345.0, "12.3k"),
            (999_960.0, "1.0M"),
            (4.56e9, "4.6G"),
            (1e16, "10000.0T"),
        ] {
            assert_eq!(short(n), text);
        }
    }

    #[test]
    fn lines_are_cut() {
        assert_eq!(cut("abc\nü€x\n\n", 2), "ab\nü€\n\n");
    }

    #[test]
    fn ages() {
        assert_eq!(age(0), "0.0s");
        assert_eq!(age(1250), "1.2s");
        assert_eq!(age(59_999), "59.9s");
        assert_eq!(age(61_000), "1m01s");
        assert_eq!(age(3_720_000), "1h02m");
        assert_eq!(age(90_000_000), "1d01h");
    }
}
