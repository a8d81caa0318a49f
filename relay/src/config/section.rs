// SPDX-License-Identifier: GPL-2.0
//! Reads a table of the file key by key. It collects all mistakes instead of stopping at the first
//! one. A key that the caller has never asked for is a mistake too.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake in the configuration, with its line if it has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    pub line: Option<usize>,
    pub what: String,
}

impl Mistake {
    pub fn whole(what: String) -> Self {
        Mistake { line: None, what }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// All mistakes in a text.
pub struct Mistakes<'t> {
    text: &'t str,
    list: RefCell<Vec<Mistake>>,
}

impl<'t> Mistakes<'t> {
    pub fn new(text: &'t str) -> Self {
        Mistakes {
            text,
            list: RefCell::default(),
        }
    }

    pub fn add(&self, offset: usize, what: String) {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = 1 + before.iter().filter(|b| **b == b'\n').count();
        let line = Some(line);
        self.list.borrow_mut().push(Mistake { line, what });
    }

    pub fn into_list(self) -> Vec<Mistake> {
        let mut list = self.list.into_inner();
        list.sort();
        list.dedup();
        list
    }
}

pub type Value<'t> = Spanned<DeValue<'t>>;

pub struct Section<'a, 't> {
    table: &'a DeTable<'t>,
    /// Offset in the text at which the table begins.
    pub at: usize,
    mistakes: &'a Mistakes<'t>,
    taken: RefCell<Vec<&'static str>>,
}

impl<'a, 't> Section<'a, 't> {
    pub fn new(table: &'a DeTable<'t>, at: usize, mistakes: &'a Mistakes<'t>) -> Self {
        Section {
            table,
            at,
            mistakes,
            taken: RefCell::default(),
        }
    }

    /// Adds a mistake that concerns the whole table, or several of its keys.
    pub fn mistake(&self, what: impl Into<String>) {
        self.mistakes.add(self.at, what.into());
    }

    /// Adds a mistake that concerns one key of the table.
    pub fn mistake_at(&self, key: &'static str, what: impl fmt::Display) {
        let at = self.find(key).map_or(self.at, |v| v.span().start);
        self.mistakes.add(at, format!("{key}: {what}"));
    }

    fn find(&self, key: &str) -> Option<&'a Value<'t>> {
        self.table.get(key)
    }

    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    pub fn is_empty_list(&self, key: &str) -> bool {
        let list = self.find(key).and_then(|v| v.get_ref().as_array());
        list.is_some_and(|list| list.iter().next().is_none())
    }

    fn take(&self, key: &'static str) -> Option<&'a Value<'t>> {
        self.taken.borrow_mut().push(key);
        self.find(key)
    }

    fn read<T>(
        &self,
        key: &'static str,
        value: &Value<'t>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = match value.get_ref() {
            DeValue::String(s) => s.as_ref(),
            DeValue::Integer(i) if i.radix() == 10 => i.as_str(),
            other => {
                let what = format!("{key}: a text or a number is wanted, not {}", a(other));
                self.mistakes.add(value.span().start, what);
                return None;
            }
        };
        match read(text) {
            Ok(value) => Some(value),
            Err(what) => {
                self.mistakes
                    .add(value.span().start, format!("{key}: {what}"));
                None
            }
        }
    }

    /// Returns the value that `read` makes of a key's string or number, or `None` if the key is
    /// missing. If the value is wrong, adds a mistake and returns `None`.
    pub fn value<T>(
        &self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.take(key)?;
        self.read(key, value, read)
    }

    /// Returns the value of a key, parsed by the [`FromStr`] of its type.
    pub fn parsed<T: FromStr<Err = String>>(&self, key: &'static str) -> Option<T> {
        self.value(key, str::parse)
    }

    /// Returns a whole number from `least` to `most`.
    pub fn number(&self, key: &'static str, least: u64, most: u64) -> Option<u64> {
        self.value(key, |text| {
            let number = text.parse().ok().filter(|n| (least..=most).contains(n));
            number.ok_or_else(|| format!("'{text}' is no number from {least} to {most}"))
        })
    }

    /// Returns whether a key is `true`. A key that is missing is `false`.
    pub fn flag(&self, key: &'static str) -> bool {
        let Some(value) = self.take(key) else {
            return false;
        };
        match value.get_ref() {
            DeValue::Boolean(yes) => *yes,
            other => {
                let what = format!("{key}: true or false is wanted, not {}", a(other));
                self.mistakes.add(value.span().start, what);
                false
            }
        }
    }

    /// Returns a list of values. A single value stands for a list of one.
    pub fn list<T>(&self, key: &'static str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let Some(value) = self.take(key) else {
            return Vec::new();
        };
        match value.get_ref() {
            DeValue::Array(list) => {
                let items = list.iter();
                items
                    .filter_map(|item| self.read(key, item, &read))
                    .collect()
            }
            _ => self.read(key, value, &read).into_iter().collect(),
        }
    }

    /// Returns the table at a key.
    pub fn table(&self, key: &'static str) -> Option<Section<'a, 't>> {
        let value = self.take(key)?;
        self.section(key, value)
    }

    /// Returns the tables at a key, each written as `[[key]]`.
    pub fn tables(&self, key: &'static str) -> Vec<Section<'a, 't>> {
        let Some(value) = self.take(key) else {
            return Vec::new();
        };
        match value.get_ref() {
            DeValue::Array(list) => list
                .iter()
                .filter_map(|item| self.section(key, item))
                .collect(),
            _ => {
                self.mistakes.add(
                    value.span().start,
                    format!("{key}: tables are wanted: [[{key}]]"),
                );
                Vec::new()
            }
        }
    }

    fn section(&self, key: &'static str, value: &'a Value<'t>) -> Option<Section<'a, 't>> {
        let at = value.span().start;
        match value.get_ref() {
            DeValue::Table(table) => Some(Section::new(table, at, self.mistakes)),
            other => {
                self.mistakes
                    .add(at, format!("{key}: a table is wanted, not {}", a(other)));
                None
            }
        }
    }

    /// Adds a mistake for each key that the caller has never asked for.
    pub fn leftover(&self) {
        let taken = self.taken.borrow();
        for (key, _) in self.table.iter() {
            let name = key.get_ref().as_ref();
            if !taken.contains(&name) {
                let near = taken.iter().find(|known| is_near(known, name));
                let hint = near.map_or(String::new(), |known| format!(" (is it '{known}'?)"));
                self.mistakes
                    .add(key.span().start, format!("unknown key '{name}'{hint}"));
            }
        }
    }
}

fn a(value: &DeValue) -> String {
    format!("a value of the type {}", value.type_str())
}

/// True if two keys differ only in `-` and `_`, in the order of their letters, or in one letter.
fn is_near(a: &str, b: &str) -> bool {
    let (a, b) = (a.replace('-', "_"), b.replace('-', "_"));
    let sorted = |s: &str| {
        let mut letters = s.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    let start = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let (rest_a, rest_b) = (&a.as_bytes()[start..], &b.as_bytes()[start..]);
    let end = rest_a
        .iter()
        .rev()
        .zip(rest_b.iter().rev())
        .take_while(|(x, y)| x == y)
        .count();
    let one_letter = rest_a.len().max(rest_b.len()) - end <= 1;
    one_letter || sorted(&a) == sorted(&b)
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn near_keys() {
        for (a, b) in [
            ("idle", "idel"),
            ("max_bytes", "max-bytes"),
            ("rate", "rates"),
            ("to", "t"),
        ] {
            assert!(is_near(a, b), "{a} {b}");
        }
        assert!(!is_near("listen", "idle") && !is_near("rate", "retries"));
    }
}
