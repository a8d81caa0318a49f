// SPDX-License-Identifier: GPL-2.0
//! `pair top`: what the pairs carry now.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::{PairTop, TopKey};
use crate::commands::filter::Filter;
use crate::error::Result;
use crate::kernel::module::Module;
use crate::kernel::pair::{self, Pair, Traffic};
use crate::output::{Align, Answer, CLEAR, SCHEMA, Table, age, cut, now, say, short};
use crate::system::process::Sockets;

/// Lines of the screen without a pair: the sum, the header and the line of the cursor.
const OTHER_LINES: usize = 3;

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
}

type Sent = HashMap<u64, Vec<(Traffic, Traffic)>>;

pub fn run(arguments: PairTop, json: bool) -> Result<Answer> {
    let (module, _) = Module::open()?;
    let mut pairs = pair::list(&module)?;
    let mut before = sent(&pairs);
    let mut at = Instant::now();
    // A process, cgroup or namespace that the filter names must exist at the start.
    Filter::new(&arguments.filter)?.keep(&mut pairs)?;
    let screen = !json && !arguments.batch && std::io::stdout().is_terminal();
    let interval = Duration::from_secs(arguments.interval.into());
    let mut left = arguments.count.unwrap_or(usize::MAX);
    loop {
        sleep(interval);
        let mut pairs = pair::list(&module)?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        let now = sent(&pairs);
        // Filtered anew, because the process that the filter names may open sockets, or end.
        let filter = Filter::new(&arguments.filter);
        if filter.and_then(|f| f.keep(&mut pairs)).is_err() {
            pairs.clear();
        }
        let mut rows = rows(pairs, &before, seconds);
        before = now;
        rows.sort_by(|a, b| {
            let order = b.size(arguments.sort).total_cmp(&a.size(arguments.sort));
            order.then(a.pair.id.cmp(&b.pair.id))
        });
        let total = sum(rows.iter().flat_map(|row| &row.rates));
        let pairs = rows.len();
        let (width, room) = if screen {
            size()
        } else {
            (usize::MAX, usize::MAX)
        };
        rows.truncate(arguments.limit.unwrap_or(usize::MAX).min(room));
        let said = match json {
            true => say(document(&rows, pairs, seconds)),
            false => {
                let clear = if screen { CLEAR } else { "" };
                let text = cut(&text(&rows, pairs, &total), width);
                say(format_args!("{clear}{}", text.trim_end()))
            }
        };
        left -= 1;
        if !said? || left == 0 {
            return Ok(Answer::said());
        }
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
            TopKey::Bytes => both.bytes(),
            TopKey::Ring => both.ring,
            TopKey::Tcp => both.tcp,
            TopKey::Messages => both.messages,
        }
    }
}

fn text(rows: &[Row], pairs: usize, total: &Rate) -> String {
    use Align::{Left, Right};
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
    let sockets = Sockets::read();
    for row in rows {
        let [opener, other] = row.pair.ends.as_slice() else {
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
            format!(
                "{} -> {}",
                sockets.names(opener.inode),
                sockets.names(other.inode)
            ),
        ]);
    }
    format!(
        "{pairs} pairs, {} bytes/s by ring, {} by TCP, {} messages/s\n{}",
        short(total.ring),
        short(total.tcp),
        short(total.messages),
        table.render()
    )
}

fn document(rows: &[Row], pairs: usize, seconds: f64) -> Value {
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
        "seconds": seconds,
        "total": pairs,
        "pairs": rows.iter().map(pair).collect::<Vec<_>>(),
    })
}

/// The columns of the screen, and the pairs that it has room for.
fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let (columns, rows) = size.map_or((80, 24), |size| (size.ws_col, size.ws_row));
    let rows = usize::from(rows).saturating_sub(OTHER_LINES).max(1);
    (usize::from(columns).max(20), rows)
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
        assert_eq!(known[0].size(TopKey::Bytes), 1500.0);

        let fresh = rows(vec![pair(&[127, 0, 0, 1]).unwrap()], &Sent::new(), 1.0);
        assert_eq!(fresh[0].size(TopKey::Tcp), 10.0);
    }

    #[test]
    fn a_line_for_each_pair() {
        let rows = rows(vec![pair(&[127, 0, 0, 1]).unwrap()], &Sent::new(), 1.0);
        let total = sum(rows[0].rates.iter());
        let text = text(&rows, 1, &total);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[0],
            "1 pairs, 2000 bytes/s by ring, 10 by TCP, 22 messages/s"
        );
        assert!(lines[2].contains("100%") && lines[2].contains("127.0.0.1:40000"));
        let json = document(&rows, 5, 1.0);
        assert_eq!(json["total"], 5);
        assert_eq!(
            json["pairs"][0]["ends"][0]["sent_per_second"]["ring"],
            1000.0
        );
    }
}
