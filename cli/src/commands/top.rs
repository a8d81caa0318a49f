// SPDX-License-Identifier: GPL-2.0
//! `pair top`: what the pairs carry now.

mod screen;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::{PairTop, TopKey};
use crate::commands::filter::Filter;
use crate::commands::pair::why_none;
use crate::error::Result;
use crate::kernel::module::Module;
use crate::kernel::pair::{self, Pair, Traffic};
use crate::output::{Align, Answer, SCHEMA, Table, age, now, say, short};
use crate::system::process::Sockets;

/// What one end sent, a second.
#[derive(Clone, Copy, Default)]
struct Rate {
    ring: f64,
    tcp: f64,
    messages: f64,
}

struct Row {
    pair: Pair,
    /// Of the ends, in their order.
    rates: Vec<Rate>,
    /// The processes at both ends; empty in JSON, which has none.
    processes: String,
}

/// What the pairs carried between two looks at them.
struct Sample {
    rows: Vec<Row>,
    total: Rate,
    seconds: f64,
    /// Why there is no row.
    none: String,
}

type Sent = HashMap<u64, Vec<(Traffic, Traffic)>>;

/// Looks at the pairs again and again.
struct Sampler<'a> {
    module: Module,
    arguments: &'a PairTop,
    json: bool,
    before: Sent,
    at: Instant,
}

pub fn run(arguments: PairTop, json: bool) -> Result<Answer> {
    let mut sampler = Sampler::new(&arguments, json)?;
    if !json && !arguments.batch && std::io::stdout().is_terminal() {
        return screen::run(sampler);
    }
    let mut left = arguments.count.unwrap_or(usize::MAX);
    loop {
        sleep(sampler.interval());
        let mut sample = sampler.next()?;
        sample.sort(arguments.sort);
        let limit = arguments.limit.unwrap_or(usize::MAX);
        let said = match json {
            true => say(document(&sample, limit)),
            false => say(text(&sample, limit).trim_end()),
        };
        left -= 1;
        if !said? || left == 0 {
            return Ok(Answer::said());
        }
    }
}

impl<'a> Sampler<'a> {
    fn new(arguments: &'a PairTop, json: bool) -> Result<Self> {
        let (module, _) = Module::open()?;
        let mut pairs = pair::list(&module)?;
        let before = sent(&pairs);
        let at = Instant::now();
        // A process, cgroup or namespace that the filter names must exist at the start.
        Filter::new(&arguments.filter)?.keep(&mut pairs)?;
        Ok(Sampler {
            module,
            arguments,
            json,
            before,
            at,
        })
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(self.arguments.interval.into())
    }

    fn next(&mut self) -> Result<Sample> {
        let mut pairs = pair::list(&self.module)?;
        let seconds = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let live = pairs.len();
        let now = sent(&pairs);
        // Filtered anew, because the process that the filter names may open sockets, or end.
        let filter = Filter::new(&self.arguments.filter);
        if filter.and_then(|f| f.keep(&mut pairs)).is_err() {
            pairs.clear();
        }
        let none = match (pairs.is_empty() && !self.json, live) {
            (false, _) => String::new(),
            (true, 0) => why_none(&self.module.status()?),
            (true, live) => format!("no pair matches; {live} live\n"),
        };
        let mut rows = rows(pairs, &self.before, seconds);
        self.before = now;
        if !self.json {
            let sockets = Sockets::read();
            for row in &mut rows {
                let ends = row.pair.ends.iter();
                let names: Vec<String> = ends.map(|end| sockets.names(end.inode)).collect();
                row.processes = names.join(" -> ");
            }
        }
        let total = sum(rows.iter().flat_map(|row| &row.rates));
        Ok(Sample {
            rows,
            total,
            seconds,
            none,
        })
    }
}

impl Sample {
    fn sort(&mut self, key: TopKey) {
        match key {
            TopKey::Process => self.rows.sort_by(|a, b| {
                let order = a.processes.cmp(&b.processes);
                order.then(a.pair.id.cmp(&b.pair.id))
            }),
            key => self.rows.sort_by(|a, b| {
                let order = b.size(key).total_cmp(&a.size(key));
                order.then(a.pair.id.cmp(&b.pair.id))
            }),
        }
    }

    fn sum(&self) -> String {
        let pairs = match self.rows.len() {
            1 => "1 pair".into(),
            n => format!("{n} pairs"),
        };
        format!(
            "{pairs}, {} bytes/s by ring, {} by TCP, {} messages/s",
            short(self.total.ring),
            short(self.total.tcp),
            short(self.total.messages),
        )
    }
}

fn sent(pairs: &[Pair]) -> Sent {
    let ends = |pair: &Pair| {
        let ends = pair.ends.iter();
        ends.map(|end| (end.sent.ring, end.sent.tcp)).collect()
    };
    pairs.iter().map(|pair| (pair.id, ends(pair))).collect()
}

/// A pair that is missing in `before` is new, and has sent all its bytes since then.
fn rows(pairs: Vec<Pair>, before: &Sent, seconds: f64) -> Vec<Row> {
    let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let rate = |pair: &Pair, i: usize| {
        let (ring, tcp) = (pair.ends[i].sent.ring, pair.ends[i].sent.tcp);
        let old = before.get(&pair.id).and_then(|ends| ends.get(i));
        let (old_ring, old_tcp) = old.copied().unwrap_or_default();
        Rate {
            ring: per_second(ring.bytes, old_ring.bytes),
            tcp: per_second(tcp.bytes, old_tcp.bytes),
            messages: per_second(
                ring.messages + tcp.messages,
                old_ring.messages + old_tcp.messages,
            ),
        }
    };
    let row = |pair: Pair| Row {
        rates: (0..pair.ends.len()).map(|i| rate(&pair, i)).collect(),
        processes: String::new(),
        pair,
    };
    pairs.into_iter().map(row).collect()
}

fn sum<'a>(rates: impl Iterator<Item = &'a Rate>) -> Rate {
    rates.fold(Rate::default(), |sum, rate| Rate {
        ring: sum.ring + rate.ring,
        tcp: sum.tcp + rate.tcp,
        messages: sum.messages + rate.messages,
    })
}

impl Rate {
    fn bytes(&self) -> f64 {
        self.ring + self.tcp
    }

    /// The percentage that goes by ring; "-" if the pair carries nothing.
    fn share(&self) -> String {
        match self.bytes() {
            0.0 => "-".into(),
            bytes => format!("{:.0}%", 100.0 * self.ring / bytes),
        }
    }
}

impl Row {
    fn size(&self, key: TopKey) -> f64 {
        let both = sum(self.rates.iter());
        match key {
            TopKey::Rate => both.bytes(),
            TopKey::Ring => both.ring,
            TopKey::Tcp => both.tcp,
            TopKey::Messages => both.messages,
            TopKey::Bytes => self.sent() as f64,
            TopKey::Age => self.pair.age_ms as f64,
            // They are sorted by their names.
            TopKey::Process => 0.0,
        }
    }

    /// Bytes that both ends have sent since they were paired.
    fn sent(&self) -> u64 {
        let ends = self.pair.ends.iter();
        ends.map(|end| end.sent.ring.bytes + end.sent.tcp.bytes)
            .sum()
    }
}

/// Without a terminal.
fn text(sample: &Sample, limit: usize) -> String {
    use Align::{Left, Right};
    if sample.rows.is_empty() {
        return format!("{}\n{}", sample.sum(), sample.none);
    }
    let mut table = Table::new(&[
        ("PAIR", Right),
        ("SENT/s", Right),
        ("RECEIVED/s", Right),
        ("RING", Right),
        ("MSGS/s", Right),
        ("AGE", Right),
        ("CONNECTION", Left),
        ("PROCESSES", Left),
    ]);
    for row in sample.rows.iter().take(limit) {
        let [opener, _] = row.pair.ends.as_slice() else {
            continue;
        };
        let both = sum(row.rates.iter());
        table.row(vec![
            row.pair.id.to_string(),
            short(row.rates[0].bytes()),
            short(row.rates[1].bytes()),
            both.share(),
            short(both.messages),
            age(row.pair.age_ms),
            opener.addresses(),
            row.processes.clone(),
        ]);
    }
    format!("{}\n{}", sample.sum(), table.render())
}

fn document(sample: &Sample, limit: usize) -> Value {
    let end = |row: &Row, i: usize| {
        let (end, rate) = (&row.pair.ends[i], &row.rates[i]);
        json!({
            "local": end.local,
            "peer": end.peer,
            "netns": end.netns,
            "inode": end.inode,
            "sent_per_second": {
                "ring": rate.ring, "tcp": rate.tcp, "messages": rate.messages,
            },
        })
    };
    let pair = |row: &Row| {
        let ends: Vec<_> = (0..row.rates.len()).map(|i| end(row, i)).collect();
        json!({ "id": row.pair.id, "age_ms": row.pair.age_ms, "ends": ends })
    };
    json!({
        "schema": SCHEMA,
        "time": now(),
        "seconds": sample.seconds,
        "total": sample.rows.len(),
        "pairs": sample.rows.iter().take(limit).map(pair).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::pair::tests::pair;

    #[test]
    fn rates_are_what_was_added() {
        let old = pair(&[127, 0, 0, 1]).unwrap();
        let mut new = pair(&[127, 0, 0, 1]).unwrap();
        new.ends[0].sent.ring.bytes += 3000;
        new.ends[1].sent.tcp.messages += 4;
        let known = rows(vec![new], &sent(&[old]), 2.0);
        assert_eq!(known[0].rates[0].ring, 1500.0);
        assert_eq!(known[0].rates[1].ring, 0.0);
        assert_eq!(known[0].rates[1].messages, 2.0);
        assert_eq!(known[0].size(TopKey::Rate), 1500.0);

        let fresh = rows(vec![pair(&[127, 0, 0, 1]).unwrap()], &Sent::new(), 1.0);
        assert_eq!(fresh[0].size(TopKey::Tcp), 10.0);
    }

    pub fn sample(rows: Vec<Row>) -> Sample {
        Sample {
            total: sum(rows.iter().flat_map(|row| &row.rates)),
            rows,
            seconds: 1.0,
            none: "no pair: why\n".into(),
        }
    }

    #[test]
    fn a_line_for_each_pair() {
        let rows = rows(vec![pair(&[127, 0, 0, 1]).unwrap()], &Sent::new(), 1.0);
        let sample = sample(rows);
        let text = text(&sample, 1);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[0],
            "1 pair, 2000 bytes/s by ring, 10 by TCP, 22 messages/s"
        );
        assert!(lines[2].contains("100%") && lines[2].contains("127.0.0.1:40000"));
        let json = document(&sample, 0);
        assert_eq!(json["total"], 1);
        assert_eq!(json["pairs"].as_array().unwrap().len(), 0);
        let json = document(&sample, 1);
        assert_eq!(
            json["pairs"][0]["ends"][0]["sent_per_second"]["ring"],
            1000.0
        );
    }

    #[test]
    fn no_pair_has_a_reason() {
        let text = text(&sample(vec![]), 1);
        assert!(text.ends_with(" messages/s\nno pair: why\n"), "{text}");
    }
}
