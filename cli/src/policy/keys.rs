// SPDX-License-Identifier: GPL-2.0
//! Reads the tables of a TOML file key by key. It goes on after a mistake, so that one look at
//! the file finds all of them. Only a file that is not TOML is not read further.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, Result};

/// More mistakes are counted, not printed.
const SHOWN: usize = 50;
/// The most that a message repeats of a value or a key, in characters.
const QUOTED: usize = 40;
/// Names that resemble each other less are not what was meant. As in clap.
const RESEMBLES: f64 = 0.7;

/// The text of a file, and the mistakes found in it so far.
pub struct Reader<'t> {
    name: &'t str,
    text: &'t str,
    /// Each with the byte that it is about.
    mistakes: Vec<(usize, Error)>,
}

impl<'t> Reader<'t> {
    pub fn new(name: &'t str, text: &'t str) -> Self {
        Reader {
            name,
            text,
            mistakes: Vec::new(),
        }
    }

    /// The tables of the text. None if it is not TOML.
    pub fn document(&mut self) -> Option<DeTable<'t>> {
        let (document, mut errors) = DeTable::parse_recoverable(self.text);
        errors.sort_by_key(|e| e.span().map(|span| span.start));
        let is_twice = |e: &toml::de::Error| e.message() == "duplicate key";
        let sound = errors.iter().all(is_twice);
        let mut last = None;
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            if is_twice(&error) {
                let key = quoted(self.text.get(span.clone()).unwrap_or_default());
                self.mistake(&span, Error::usage(format!("the key {key} is there twice")));
                continue;
            }
            // Of several on a line the first says it.
            let since = last.replace(span.start).map(|last| last..span.start);
            let since = since.and_then(|range| self.text.as_bytes().get(range));
            if since.is_none_or(|bytes| bytes.contains(&b'\n')) {
                self.mistake(&span, no_toml(error.message()));
            }
        }
        sound.then(|| document.into_inner())
    }

    pub fn mistake(&mut self, at: &Range<usize>, error: Error) {
        self.mistakes.push((at.start, error));
    }

    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        1 + before.filter(|b| **b == b'\n').count()
    }

    /// Fails with all mistakes, in the order of their lines.
    pub fn finish(mut self) -> Result<()> {
        self.mistakes.sort_by_key(|mistake| mistake.0);
        let mistakes = std::mem::take(&mut self.mistakes);
        let further = mistakes.len().saturating_sub(SHOWN);
        let mut errors = Vec::new();
        for (at, mut error) in mistakes.into_iter().take(SHOWN) {
            error.message = format!("{}:{}: {}", self.name, self.line(at), error.message);
            errors.push(error);
        }
        if further > 0 {
            let message = format!("{}: {further} further mistakes", self.name);
            errors.push(Error::usage(message));
        }
        Error::all(errors)
    }
}

/// What is wrong with a text that is not TOML, by the message of the parser.
fn no_toml(message: &str) -> Error {
    const NO_VALUE: &str = "a value is no text in quotes, number, list, true or false";
    let known = [
        ("unquoted key", "a key is not letters, digits, '-' and '_'"),
        ("quoted", NO_VALUE),
        ("unclosed array table", "a heading has no ]]"),
        ("unclosed table", "a heading has no ]"),
        ("unclosed array", "a list has no ]"),
        ("unclosed", "something that is opened is not closed"),
        ("comma", "a comma is missing, or one too many"),
        ("key with no value", "a key has no value"),
        ("missing value", "a key has no value"),
        ("invalid", NO_VALUE),
        ("carriage return", "a carriage return ends no line"),
    ];
    let known = known.iter().find(|(part, _)| message.contains(part));
    let what = known.map_or("", |(_, what)| what);
    let colon = if what.is_empty() { "" } else { ": " };
    Error::usage(format!("this is not TOML{colon}{what}"))
        .remedy("write KEY = VALUE, [features] or [[policy]]")
}

/// A part of the file in a message: on one line, and not long.
fn quoted(text: &str) -> String {
    match text.chars().count() > QUOTED {
        true => {
            let head: String = text.chars().take(QUOTED).collect();
            format!("{}…", head.escape_debug())
        }
        false => text.escape_debug().to_string(),
    }
}

/// The remedy for an unknown name: the known one that it resembles most.
fn meant(error: Error, name: &str, known: &[&str]) -> Error {
    let name = name.to_lowercase().replace('_', "-");
    let likeness = |known: &&str| strsim::jaro(&name, known);
    let best = known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match best.filter(|best| likeness(best) > RESEMBLES) {
        Some(best) => error.remedy(format!("did you mean {best}?")),
        None => error,
    }
}

/// What stands for a value.
#[derive(Clone, Copy, PartialEq)]
pub enum Takes {
    Text,
    TextOrNumber,
}

/// A table. It has the keys that are asked for; [`Keys::finish`] refuses all others.
pub struct Keys<'r, 't> {
    reader: &'r mut Reader<'t>,
    /// As a message calls it.
    what: &'static str,
    table: &'r DeTable<'t>,
    known: Vec<&'static str>,
}

impl<'r, 't> Keys<'r, 't> {
    pub fn new(reader: &'r mut Reader<'t>, what: &'static str, table: &'r DeTable<'t>) -> Self {
        Keys {
            reader,
            what,
            table,
            known: Vec::new(),
        }
    }

    fn get(&mut self, key: &'static str) -> Option<&'r Spanned<DeValue<'t>>> {
        self.known.push(key);
        self.table.get(key)
    }

    fn wrong(&mut self, value: &Spanned<DeValue>, message: String) {
        self.reader.mistake(&value.span(), Error::usage(message));
    }

    /// True or false.
    pub fn switch(&mut self, key: &'static str) -> Option<bool> {
        let value = self.get(key)?;
        let state = value.get_ref().as_bool();
        if state.is_none() {
            let kind = kind(value.get_ref());
            self.wrong(value, format!("{key} is true or false, not {kind}"));
        }
        state
    }

    /// What `parse` makes of one value.
    pub fn value<T>(
        &mut self,
        key: &'static str,
        takes: Takes,
        parse: impl FnMut(&str) -> Result<T>,
    ) -> Option<T> {
        let value = self.get(key)?;
        self.parsed(key, value, takes, parse)
    }

    /// One of a few words.
    pub fn word<T: clap::ValueEnum>(&mut self, key: &'static str) -> Option<T> {
        let names = T::value_variants().iter();
        let names: Vec<String> = names
            .filter_map(|word| Some(word.to_possible_value()?.get_name().into()))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.value(key, Takes::Text, |text| {
            T::from_str(text, false).map_err(|_| {
                let error = Error::usage(format!("it is {}", names.join(" or ")));
                meant(error, text, &names)
            })
        })
    }

    /// A list with what `parse` makes of its values. None if the key is not there.
    pub fn list<T>(
        &mut self,
        key: &'static str,
        takes: Takes,
        most: usize,
        mut parse: impl FnMut(&str) -> Result<T>,
    ) -> Option<Vec<T>> {
        let value = self.get(key)?;
        let Some(items) = value.get_ref().as_array() else {
            self.wrong(value, format!("{key} is a list: write {key} = […]"));
            return Some(Vec::new());
        };
        if items.len() > most {
            let surplus = &items[most];
            let error = Error::usage(format!("{key} has more than {most} entries"));
            self.reader.mistake(&surplus.span(), error);
        }
        let items = items.iter().take(most);
        let items = items.filter_map(|item| self.parsed(key, item, takes, &mut parse));
        Some(items.collect())
    }

    fn parsed<T>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue>,
        takes: Takes,
        mut parse: impl FnMut(&str) -> Result<T>,
    ) -> Option<T> {
        let text = match (value.get_ref(), takes) {
            (DeValue::String(text), _) => text.to_string(),
            (DeValue::Integer(n), Takes::TextOrNumber) => {
                i64::from_str_radix(n.as_str(), n.radix())
                    .map_or_else(|_| n.to_string(), |n| n.to_string())
            }
            (other, _) => {
                let number = match takes {
                    Takes::Text => "",
                    Takes::TextOrNumber => " or a whole number",
                };
                let kind = kind(other);
                let message = format!("{key} takes a text in quotes{number}, not {kind}");
                self.wrong(value, message);
                return None;
            }
        };
        match parse(&text) {
            Ok(parsed) => Some(parsed),
            Err(mut error) => {
                error.message = format!("{key} '{}': {}", quoted(&text), error.message);
                self.reader.mistake(&value.span(), error);
                None
            }
        }
    }

    /// The table of this key.
    pub fn table(&mut self, key: &'static str) -> Option<&'r DeTable<'t>> {
        let value = self.get(key)?;
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong(value, format!("{key} is a table: write [{key}]"));
        }
        table
    }

    /// The tables of this key, each with its place. There are at most `most`.
    pub fn tables(
        &mut self,
        key: &'static str,
        most: usize,
    ) -> Vec<(Range<usize>, &'r DeTable<'t>)> {
        let Some(value) = self.get(key) else {
            return Vec::new();
        };
        let items = value.get_ref().as_array();
        let items = items.map(|items| items.iter());
        let tables = items.and_then(|items| {
            let tables = items.map(|item| Some((item.span(), item.get_ref().as_table()?)));
            tables.collect::<Option<Vec<_>>>()
        });
        let Some(mut tables) = tables else {
            self.wrong(
                value,
                format!("{key} is one of several tables: write [[{key}]]"),
            );
            return Vec::new();
        };
        if let Some((at, _)) = tables.get(most) {
            let message = format!("there are more than {most} tables [[{key}]]");
            self.reader.mistake(at, Error::usage(message));
        }
        tables.truncate(most);
        tables
    }

    /// The reader, once no more keys are asked for: the others are mistakes.
    pub fn finish(self) -> &'r mut Reader<'t> {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if !self.known.contains(&name) {
                let known = self.known.join(", ");
                let message = format!(
                    "{} has no key {}; its keys are {known}",
                    self.what,
                    quoted(name)
                );
                let error = meant(Error::usage(message), name, &self.known);
                self.reader.mistake(&key.span(), error);
            }
        }
        self.reader
    }
}

/// What a value is, in a message.
fn kind(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
