// SPDX-License-Identifier: GPL-2.0
//! What the commands print: a table for people, or one JSON document.

use std::io::{self, Write};

use serde_json::Value;

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

    pub fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            writeln!(out, "{}", self.json)?;
        } else {
            out.write_all(self.text.as_bytes())?;
        }
        out.flush()
    }
}

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
    fn ages() {
        assert_eq!(age(0), "0.0s");
        assert_eq!(age(1250), "1.2s");
        assert_eq!(age(59_999), "59.9s");
        assert_eq!(age(61_000), "1m01s");
        assert_eq!(age(3_720_000), "1h02m");
        assert_eq!(age(90_000_000), "1d01h");
    }
}
