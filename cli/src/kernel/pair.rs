// SPDX-License-Identifier: GPL-2.0
//! `pair`: the connections that are accelerated now.

use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use serde_json::json;

use crate::cli::{PairKey, PairShow};
use crate::commands::filter::Filter;
use crate::error::{Error, Result};
use crate::kernel::module::Module;
use crate::kernel::netlink::Attributes;
use crate::output::{Align, Answer, SCHEMA, Table, age};
use crate::system::netns::Names;
use crate::uapi::*;
use crate::values::size;

#[derive(Serialize)]
pub struct Pair {
    pub id: u64,
    pub age_ms: u64,
    /// It is on its way back to TCP.
    pub draining: bool,
    /// The active opener's end, then the other's.
    pub ends: Vec<End>,
}

#[derive(Serialize)]
pub struct End {
    pub local: Endpoint,
    pub peer: Endpoint,
    pub netns: Netns,
    /// As SO_COOKIE; 0 if the socket has none yet or is gone.
    cookie: u64,
    /// Of its socket; 0 if no process has it.
    pub inode: u64,
    /// Id of the socket's cgroup; 0 if it is gone.
    pub cgroup: u64,
    /// Of the policy that enrolled it, as 'policy show' has it; 0 if there is none.
    pub group: u64,
    /// Of that policy; 0 if it says nothing.
    busy_poll_usec: u64,
    /// Its socket is gone, or back on TCP.
    pub closed: bool,
    pub sent: Sent,
    pub ring: Ring,
}

#[derive(Serialize)]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
}

#[derive(Serialize)]
pub struct Netns {
    pub inode: u64,
    pub name: Option<String>,
}

/// What this end sent, by path.
#[derive(Serialize)]
pub struct Sent {
    pub ring: Traffic,
    pub tcp: Traffic,
}

#[derive(Clone, Copy, Default, Serialize)]
pub struct Traffic {
    pub bytes: u64,
    pub messages: u64,
}

/// The ring that this end sends into.
#[derive(Serialize)]
pub struct Ring {
    size: u64,
    pub memory: u64,
    pub queued: u64,
}

pub fn show(arguments: PairShow) -> Result<Answer> {
    let (module, _) = Module::open()?;
    let filter = Filter::new(&arguments.filter)?;
    let mut pairs = list(&module)?;
    filter.keep(&mut pairs)?;
    let total = pairs.len();
    if let Some(key) = arguments.sort {
        pairs.sort_by_key(|pair| key_of(pair, key));
    }
    pairs.truncate(arguments.limit.unwrap_or(usize::MAX));
    Ok(answer(&pairs, total))
}

/// What comes first has the least: the largest number, or the first of the pairs.
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

pub fn list(module: &Module) -> Result<Vec<Pair>> {
    let names = Names::read();
    let pairs: io::Result<Vec<Pair>> = module
        .dump(CMD_PAIR_GET)?
        .iter()
        .map(|a| Pair::from_attributes(a, &names))
        .collect();
    pairs.map_err(|e| Error::new(format!("cannot read the module's answer: {e}")))
}

impl Pair {
    /// Also of an event, which may have one end only.
    pub fn from_attributes(a: &Attributes, names: &Names) -> io::Result<Self> {
        let ends: io::Result<Vec<End>> = a
            .all(A_PAIR_END)
            .map(|nest| End::from_attributes(&Attributes::parse(nest)?, names))
            .collect();
        Ok(Pair {
            id: a.number(A_PAIR_ID),
            age_ms: a.number(A_PAIR_AGE_MS),
            draining: a.flag(A_PAIR_DRAINING),
            ends: ends?,
        })
    }
}

impl End {
    fn from_attributes(a: &Attributes, names: &Names) -> io::Result<Self> {
        let traffic = |bytes, messages| Traffic {
            bytes: a.number(bytes),
            messages: a.number(messages),
        };
        Ok(End {
            local: Endpoint::local(a)?,
            peer: Endpoint::peer(a)?,
            netns: Netns::of(a, names),
            cookie: a.number(A_END_COOKIE),
            inode: a.number(A_END_INODE),
            cgroup: a.number(A_END_CGROUP),
            group: a.number(A_END_GROUP),
            busy_poll_usec: a.number(A_END_BUSY_POLL),
            closed: a.flag(A_END_CLOSED),
            sent: Sent {
                ring: traffic(A_END_TX_RING_BYTES, A_END_TX_RING_MSGS),
                tcp: traffic(A_END_TX_TCP_BYTES, A_END_TX_TCP_MSGS),
            },
            ring: Ring {
                size: a.number(A_END_RING_SIZE),
                memory: a.number(A_END_RING_MEM),
                queued: a.number(A_END_RING_QUEUED),
            },
        })
    }
}

impl End {
    pub fn addresses(&self) -> String {
        format!("{} -> {}", socket(&self.local), socket(&self.peer))
    }

    fn state(&self, draining: bool) -> &'static str {
        match (self.closed, draining) {
            (true, true) => "done",
            (true, false) => "closed",
            (false, true) => "draining",
            (false, false) => "open",
        }
    }
}

impl Endpoint {
    pub fn local(a: &Attributes) -> io::Result<Self> {
        Endpoint::from_attributes(a, A_END_SADDR, A_END_SPORT)
    }

    pub fn peer(a: &Attributes) -> io::Result<Self> {
        Endpoint::from_attributes(a, A_END_DADDR, A_END_DPORT)
    }

    fn from_attributes(a: &Attributes, address: u16, port: u16) -> io::Result<Self> {
        Ok(Endpoint {
            address: ip(a.bytes(address).unwrap_or(&[]))?,
            port: a.number(port) as u16,
        })
    }
}

pub fn ip(bytes: &[u8]) -> io::Result<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ok(v4.into());
    }
    match <[u8; 16]>::try_from(bytes) {
        Ok(v6) => Ok(v6.into()),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("an address of {} bytes", bytes.len()),
        )),
    }
}

impl Netns {
    pub fn of(a: &Attributes, names: &Names) -> Self {
        let inode = a.number(A_END_NETNS);
        Netns {
            inode,
            name: names.get(inode).map(String::from),
        }
    }

    pub fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("{name}({})", self.inode),
            None => self.inode.to_string(),
        }
    }
}

/// Two lines for each pair, the active opener first.
fn answer(pairs: &[Pair], total: usize) -> Answer {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("PAIR", Right),
        ("AGE", Right),
        ("LOCAL", Left),
        ("PEER", Left),
        ("NETNS", Left),
        ("RING-SENT", Right),
        ("RING-MSGS", Right),
        ("TCP-SENT", Right),
        ("TCP-MSGS", Right),
        ("RING-MEM", Right),
        ("QUEUED", Right),
        ("STATE", Left),
    ]);
    for pair in pairs {
        let mut id = (pair.id.to_string(), age(pair.age_ms));
        for end in &pair.ends {
            let (id, age) = std::mem::take(&mut id);
            table.row(vec![
                id,
                age,
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
                end.state(pair.draining).to_string(),
            ]);
        }
    }
    Answer::new(
        table.render(),
        json!({ "schema": SCHEMA, "total": total, "pairs": pairs }),
    )
}

pub fn socket(endpoint: &Endpoint) -> String {
    SocketAddr::new(endpoint.address, endpoint.port).to_string()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use netlink_packet_core::{DefaultNla, Emitable};

    fn emit(list: &[DefaultNla]) -> Vec<u8> {
        let mut bytes = vec![0; list.buffer_len()];
        list.emit(&mut bytes);
        bytes
    }

    fn end(address: &[u8], port: u16) -> DefaultNla {
        let u16n = |kind, n: u16| DefaultNla::new(kind, n.to_ne_bytes().to_vec());
        let u32n = |kind, n: u32| DefaultNla::new(kind, n.to_ne_bytes().to_vec());
        let u64n = |kind, n: u64| DefaultNla::new(kind, n.to_ne_bytes().to_vec());
        let bytes = emit(&[
            DefaultNla::new(A_END_SADDR, address.to_vec()),
            DefaultNla::new(A_END_DADDR, address.to_vec()),
            u16n(A_END_SPORT, port),
            u16n(A_END_DPORT, 80),
            u32n(A_END_NETNS, 4026531840),
            u64n(A_END_COOKIE, 77),
            u64n(A_END_TX_RING_BYTES, 1000),
            u64n(A_END_TX_RING_MSGS, 10),
            u64n(A_END_TX_TCP_BYTES, 5),
            u64n(A_END_TX_TCP_MSGS, 1),
            u32n(A_END_RING_SIZE, 65536),
            u32n(A_END_RING_MEM, 65536),
            u32n(A_END_RING_QUEUED, 3),
            DefaultNla::new(A_END_CLOSED, vec![0]),
            u64n(A_END_INODE, 4711),
            u64n(A_END_CGROUP, 815),
            u32n(A_END_GROUP, 4),
            u32n(A_END_BUSY_POLL, 50),
        ]);
        DefaultNla::new(A_PAIR_END | 0x8000, bytes)
    }

    /// Number 9, old, on its way back, in "blue", from port 40000.
    pub fn pair(address: &[u8]) -> io::Result<Pair> {
        let bytes = emit(&[
            DefaultNla::new(A_PAIR_ID, 9u32.to_ne_bytes().to_vec()),
            DefaultNla::new(A_PAIR_AGE_MS, 61_000u64.to_ne_bytes().to_vec()),
            DefaultNla::new(A_PAIR_DRAINING, vec![1]),
            end(address, 40000),
            end(address, 80),
        ]);
        let names = Names::of(&[(4026531840, "blue")]);
        Pair::from_attributes(&Attributes::parse(&bytes)?, &names)
    }

    #[test]
    fn json_has_both_ends() {
        let json = answer(&[pair(&[127, 0, 0, 1]).unwrap()], 3).json;
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
        let text = answer(&[pair(&v6).unwrap()], 1).text;
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("[::1]:40000") && lines[1].contains("1m01s"));
        assert!(lines[2].contains("blue(4026531840)") && lines[2].contains("64K/64K"));
        assert!(lines[2].ends_with("draining"));
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

    #[test]
    fn an_odd_address_is_an_error() {
        assert!(pair(&[1, 2, 3]).is_err());
    }
}
