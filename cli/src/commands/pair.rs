// SPDX-License-Identifier: GPL-2.0
//! `pair show`: the connections that are accelerated now.

use serde_json::json;

use crate::cli::{PairKey, PairShow};
use crate::commands::filter::Filter;
use crate::error::Result;
use crate::kernel::module::{Module, Status};
use crate::kernel::pair::{self, End, Pair, socket};
use crate::output::{Align, Answer, SCHEMA, Table, age, short};
use crate::policy::cgroups::Health;
use crate::system::process::Sockets;
use crate::values::size;

/// Columns of a terminal that was not made wider.
const SCREEN: usize = 80;
/// The most that an address with its port takes of them.
const ADDRESS: usize = 22;

pub fn show(arguments: PairShow) -> Result<Answer> {
    let (module, status) = Module::open()?;
    let filter = Filter::new(&arguments.filter)?;
    let mut pairs = pair::list(&module)?;
    let live = pairs.len();
    filter.keep(&mut pairs)?;
    let total = pairs.len();
    if let Some(key) = arguments.sort {
        pairs.sort_by_key(|pair| key_of(pair, key));
    }
    pairs.truncate(arguments.limit.unwrap_or(usize::MAX));
    let text = match (total, live, arguments.wide) {
        (0, 0, _) => why_none(&status),
        (0, ..) => format!("no pair matches; {live} live\n"),
        (.., true) => wide(&pairs),
        (.., false) => narrow(&pairs, &Sockets::read()),
    };
    Ok(answer(text, &pairs, total))
}

/// Why there is no pair, as far as it can be told without a connection.
pub fn why_none(status: &Status) -> String {
    const WHY: &str = "see 'socksplice pair why' and 'socksplice stats show'";
    if !status.pairing {
        return "no pair: pairing is off; run 'socksplice feature set pairing on'\n".into();
    }
    if status.shadow {
        return "no pair: the module was loaded with shadow=1, which only counts\n".into();
    }
    match Health::read() {
        Ok(None) => "no pair: no policy is set; run 'socksplice policy set'\n".into(),
        Ok(Some(health)) if health.matches_nothing() => {
            format!("no pair: {}\n", health.notes().join(", "))
        }
        _ => format!("no pair: only connections made under the policy are paired; {WHY}\n"),
    }
}

/// Sort key: ids ascending, everything else descending.
fn key_of(pair: &Pair, key: PairKey) -> (u64, u64) {
    let sum = |of: fn(&End) -> u64| pair.ends.iter().map(of).sum::<u64>();
    let size = match key {
        PairKey::Id => 0,
        PairKey::Age => pair.age_ms,
        PairKey::Ring => sum(|end| end.sent.ring.bytes),
        PairKey::Tcp => sum(|end| end.sent.tcp.bytes),
        PairKey::Queued => sum(|end| end.ring.queued),
        PairKey::Memory => sum(|end| end.ring.memory),
    };
    (u64::MAX - size, pair.id)
}

fn answer(text: String, pairs: &[Pair], total: usize) -> Answer {
    let json = json!({ "schema": SCHEMA, "total": total, "pairs": pairs });
    Answer::new(text, json)
}

/// Two lines for each pair, the active opener first: its number, its age, and the cells that
/// `cells` makes of an end.
fn lines(
    columns: &[(&str, Align)],
    pairs: &[Pair],
    width: usize,
    cells: impl Fn(&Pair, &End) -> Vec<String>,
) -> String {
    let mut all = vec![("PAIR", Align::Right), ("AGE", Align::Right)];
    all.extend(columns);
    let mut table = Table::new(&all);
    for pair in pairs {
        let mut head = vec![pair.id.to_string(), age(pair.age_ms)];
        for end in &pair.ends {
            let mut row = std::mem::replace(&mut head, vec![String::new(); 2]);
            row.extend(cells(pair, end));
            table.row(row);
        }
    }
    table.render_in(width)
}

/// In 80 columns.
fn narrow(pairs: &[Pair], sockets: &Sockets) -> String {
    use Align::{Left, Right, State};
    let columns = [
        ("LOCAL", Left),
        ("RING", Right),
        ("TCP", Right),
        ("STATE", State),
        ("PROCESS", Left),
    ];
    let cells = |pair: &Pair, end: &End| {
        vec![
            shortened(&socket(&end.local)),
            short(end.sent.ring.bytes as f64),
            short(end.sent.tcp.bytes as f64),
            state(end, pair.draining).to_string(),
            sockets.names(end.inode),
        ]
    };
    lines(&columns, pairs, SCREEN, cells)
}

/// The beginning of a long address, and its port.
fn shortened(socket: &str) -> String {
    let (address, port) = socket.rsplit_once(':').unwrap_or((socket, ""));
    match socket.len() > ADDRESS {
        true => {
            let head = ADDRESS - port.len() - 2;
            format!("{}…:{port}", &address[..head])
        }
        false => socket.into(),
    }
}

/// With everything.
fn wide(pairs: &[Pair]) -> String {
    use Align::{Left, Right, State};
    let columns = [
        ("LOCAL", Left),
        ("PEER", Left),
        ("NETNS", Left),
        ("RING-SENT", Right),
        ("RING-MSGS", Right),
        ("TCP-SENT", Right),
        ("TCP-MSGS", Right),
        ("RING-MEM", Right),
        ("QUEUED", Right),
        ("STATE", State),
    ];
    lines(&columns, pairs, usize::MAX, |pair, end| {
        vec![
            socket(&end.local),
            socket(&end.peer),
            end.netns.shown(),
            end.sent.ring.bytes.to_string(),
            end.sent.ring.messages.to_string(),
            end.sent.tcp.bytes.to_string(),
            end.sent.tcp.messages.to_string(),
            format!(
                "{}/{}",
                size::format(end.ring.memory),
                size::format(end.ring.size)
            ),
            end.ring.queued.to_string(),
            state(end, pair.draining).to_string(),
        ]
    })
}

fn state(end: &End, draining: bool) -> &'static str {
    match (end.closed, draining) {
        (true, true) => "done",
        (true, false) => "closed",
        (false, true) => "draining",
        (false, false) => "open",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::pair::tests::pair;

    #[test]
    fn json_has_both_ends() {
        let json = answer(String::new(), &[pair(&[127, 0, 0, 1]).unwrap()], 3).json;
        let pair = &json["pairs"][0];
        assert_eq!(pair["id"], 9);
        assert_eq!(pair["ends"].as_array().unwrap().len(), 2);
        let end = &pair["ends"][0];
        assert_eq!(end["local"]["address"], "127.0.0.1");
        assert_eq!(end["local"]["port"], 40000);
        assert_eq!(end["netns"]["name"], "blue");
        assert_eq!(end["cookie"], 77);
        assert_eq!(end["sent"]["ring"]["bytes"], 1000);
        assert_eq!(end["sent"]["tcp"]["messages"], 1);
        assert_eq!(end["ring"]["queued"], 3);
        assert_eq!(end["inode"], 4711);
        assert_eq!(end["cgroup"], 815);
        assert_eq!(end["group"], 4);
        assert_eq!(end["busy_poll_usec"], 50);
        assert_eq!(json["total"], 3);
        assert_eq!(pair["draining"], true);
    }

    #[test]
    fn table_has_two_lines_for_a_pair() {
        let mut v6 = [0; 16];
        v6[15] = 1;
        let text = wide(&[pair(&v6).unwrap()]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("[::1]:40000") && lines[1].contains("1m01s"));
        assert!(lines[2].contains("blue(4026531840)") && lines[2].contains("64K/64K"));
        assert!(lines[2].ends_with("draining"));
    }

    #[test]
    fn fits_eighty_columns() {
        let mut long = pair(&[0x20; 16]).unwrap();
        long.age_ms = 90_000_000;
        long.ends[0].sent.ring.bytes = u64::MAX;
        let text = narrow(&[long], &Sockets::of(|_| false));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines.iter().all(|line| line.chars().count() <= SCREEN),
            "{text}"
        );
        assert!(lines[1].contains("[2020:2020:2020…:40000"), "{text}");
    }

    #[test]
    fn sorted_by_what_is_largest() {
        let of = |id, ring, queued| {
            let mut pair = pair(&[127, 0, 0, 1]).unwrap();
            pair.id = id;
            pair.ends[1].sent.ring.bytes = ring;
            pair.ends[0].ring.queued = queued;
            pair
        };
        let order = |key| {
            let mut pairs = [of(3, 10, 0), of(1, 30, 5), of(2, 30, 9)];
            pairs.sort_by_key(|pair| key_of(pair, key));
            pairs.map(|pair| pair.id)
        };
        assert_eq!(order(PairKey::Id), [1, 2, 3]);
        assert_eq!(order(PairKey::Ring), [1, 2, 3]);
        assert_eq!(order(PairKey::Queued), [2, 1, 3]);
    }
}
