// SPDX-License-Identifier: GPL-2.0
//! `stats`: the module's counters. Their names come from the module.

use std::io::IsTerminal;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::cli::StatsShow;
use crate::error::Result;
use crate::kernel::module::Module;
use crate::kernel::sockmap::{PSOCK, Sockmaps};
use crate::output::{Align, Answer, CLEAR, SCHEMA, Table, now, say, short};

/// Names and values in the module's order.
type Counters = Vec<(String, u64)>;

pub fn show(arguments: &StatsShow, json: bool) -> Result<Answer> {
    let (module, _) = Module::open()?;
    if let Some(seconds) = arguments.watch {
        return watch(&module, arguments, seconds, json);
    }
    let counters = module.stats()?;
    let declined = counters.iter().any(|c| c.0 == PSOCK && c.1 > 0);
    // Root that may not look at BPF objects still sees the counters.
    let sockmaps = declined.then(Sockmaps::read).and_then(|read| read.ok());
    Ok(answer(&counters, sockmaps.as_ref(), arguments.all))
}

/// Prints rates every so many seconds. Without -a only of the counters that have changed.
fn watch(module: &Module, arguments: &StatsShow, seconds: u32, json: bool) -> Result<Answer> {
    let screen = !json && std::io::stdout().is_terminal();
    let mut left = arguments.count.unwrap_or(usize::MAX);
    let mut before = module.stats()?;
    let mut at = Instant::now();
    loop {
        sleep(Duration::from_secs(seconds.into()));
        let counters = module.stats()?;
        let elapsed = at.elapsed().as_secs_f64();
        at = Instant::now();
        let mut rates = rates(&before, &counters, elapsed);
        if !arguments.all {
            rates.retain(|(_, rate)| *rate != 0.0);
        }
        let said = match (json, screen) {
            (true, _) => say(document(&rates, elapsed)),
            (_, true) => say(format_args!("{CLEAR}{}", screenful(&rates).trim_end())),
            (..) if rates.is_empty() => Ok(true),
            (..) => say(lines(&rates, &now()).trim_end()),
        };
        before = counters;
        left -= 1;
        if !said? || left == 0 {
            return Ok(Answer::said());
        }
    }
}

/// By how much a second each counter has risen, or fallen. Both lists are in the same order.
fn rates<'a>(before: &Counters, now: &'a Counters, seconds: f64) -> Vec<(&'a str, f64)> {
    let pairs = before.iter().zip(now);
    let rate = |(old, new): (&(String, u64), &'a (String, u64))| {
        let rise = new.1.wrapping_sub(old.1) as i64;
        (new.0.as_str(), rise as f64 / seconds)
    };
    pairs.map(rate).collect()
}

/// A rate in few digits: -0.5, 12, 34.5k.
fn shown(rate: f64) -> String {
    let sign = if rate < 0.0 { "-" } else { "" };
    match rate.abs() {
        size if size < 9.95 && size != 0.0 => format!("{sign}{size:.1}"),
        size => format!("{sign}{}", short(size)),
    }
}

fn screenful(rates: &[(&str, f64)]) -> String {
    if rates.is_empty() {
        return "no counter has changed\n".into();
    }
    let mut table = Table::new(&[("COUNTER", Align::Left), ("PER-SECOND", Align::Right)]);
    for (name, rate) in rates {
        table.row(vec![name.to_string(), shown(*rate)]);
    }
    table.render()
}

fn lines(rates: &[(&str, f64)], time: &str) -> String {
    let line = |(name, rate): &(&str, f64)| format!("{time} {name} {rate:.1}\n");
    rates.iter().map(line).collect()
}

fn document(rates: &[(&str, f64)], seconds: f64) -> Value {
    let rates = rates
        .iter()
        .map(|(name, rate)| (name.to_string(), (*rate).into()));
    let rates: Map<String, Value> = rates.collect();
    json!({ "schema": SCHEMA, "time": now(), "seconds": seconds, "per_second": rates })
}

/// `sockmaps`: where sockets were declined because they are in one.
/// `all`: the table has those that are 0.
fn answer(counters: &[(String, u64)], sockmaps: Option<&Sockmaps>, all: bool) -> Answer {
    let mut table = Table::new(&[("COUNTER", Align::Left), ("VALUE", Align::Right)]);
    let mut stats = Map::new();
    for (name, value) in counters {
        if all || *value > 0 {
            table.row(vec![name.clone(), value.to_string()]);
        }
        stats.insert(name.clone(), (*value).into());
    }
    let text = match counters.iter().any(|c| all || c.1 > 0) {
        true => table.render(),
        false => "no counter is above 0: nothing has happened since the module was loaded\n".into(),
    };
    let mut answer = Answer::new(text, json!({ "schema": SCHEMA, "stats": stats }));
    if let Some(sockmaps) = sockmaps {
        answer.json["sockmaps"] = sockmaps.to_json();
        if let Some(text) = sockmaps.text() {
            answer.text += &format!("{PSOCK}: sockets in {text}\n");
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_every_counter() {
        let counters = [
            ("pairs_made".into(), 3),
            ("spills".into(), 0),
            ("ring_bytes".into(), u64::MAX),
        ];
        assert!(answer(&counters, None, true).text.contains("\nspills "));
        let answer = answer(&counters, None, false);
        assert_eq!(
            answer.text,
            "COUNTER                    VALUE\n\
             pairs_made                     3\n\
             ring_bytes  18446744073709551615\n"
        );
        assert_eq!(answer.json["stats"]["spills"], 0);
        assert_eq!(answer.json["stats"]["ring_bytes"], u64::MAX);
        assert_eq!(answer.json["schema"], 1);
    }

    #[test]
    fn rates_are_changes_a_second() {
        let of = |a, b, c| -> Counters { vec![("a".into(), a), ("b".into(), b), ("c".into(), c)] };
        let (before, now) = (of(10, 5, 7), of(90_010, 4, 7));
        let rates = rates(&before, &now, 2.0);
        assert_eq!(rates, [("a", 45_000.0), ("b", -0.5), ("c", 0.0)]);
        assert_eq!(
            screenful(&rates),
            "COUNTER  PER-SECOND\na             45.0k\nb              -0.5\nc                 0\n"
        );
        assert_eq!(lines(&rates[..2], "T"), "T a 45000.0\nT b -0.5\n");
        assert_eq!(document(&rates, 2.0)["per_second"]["b"], -0.5);
        assert_eq!(screenful(&[]), "no counter has changed\n");
    }

    #[test]
    fn an_empty_table_says_why() {
        let zeros = [("spills".into(), 0)];
        assert!(
            answer(&zeros, None, false)
                .text
                .starts_with("no counter is above 0")
        );
        assert!(answer(&zeros, None, true).text.contains("spills"));
    }

    #[test]
    fn says_who_keeps_sockets_in_a_sockmap() {
        let answer = answer(
            &[(PSOCK.into(), 3)],
            Some(&crate::kernel::sockmap::tests::agent()),
            false,
        );
        assert!(
            answer.text.contains(
                "\ndeclined_psock: sockets in sockhash kept (id 12) of agent(77), used by"
            )
        );
        assert_eq!(answer.json["sockmaps"][0]["name"], "kept");
    }
}
