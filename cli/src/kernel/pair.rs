// SPDX-License-Identifier: GPL-2.0
//! The pairs: the connections that are accelerated now.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::kernel::module::Module;
use crate::kernel::netlink::Attributes;
use crate::system::netns::Names;
use crate::uapi::*;

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
    pub cookie: u64,
    /// The inode number of its socket; 0 if no process has it open.
    pub inode: u64,
    /// Id of the socket's cgroup; 0 if it is gone.
    pub cgroup: u64,
    /// The number of the policy that enrolled it, as 'policy show' prints it; 0: no policy.
    pub group: u64,
    /// The busy_poll of that policy; 0 if it sets none.
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
    pub size: u64,
    pub memory: u64,
    pub queued: u64,
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

/// What the ends of one policy have now.
#[derive(Debug, Default, PartialEq)]
pub struct Share {
    /// Pairs with an end of the policy. A pair between two policies counts for each.
    pub pairs: u64,
    /// Bytes of the rings that its ends send into.
    pub ring_memory: u64,
}

/// The share of each policy, by its number, and the number of pairs. Takes one dump.
pub fn shares(module: &Module) -> Result<(HashMap<u64, Share>, u64)> {
    let pairs = module.dump(CMD_PAIR_GET)?;
    let mut shares = HashMap::new();
    for pair in &pairs {
        add_shares(pair, &mut shares)
            .map_err(|e| Error::new(format!("cannot read the module's answer: {e}")))?;
    }
    Ok((shares, pairs.len() as u64))
}

fn add_shares(pair: &Attributes, shares: &mut HashMap<u64, Share>) -> io::Result<()> {
    let mut counted = None;
    for nest in pair.all(A_PAIR_END) {
        let end = Attributes::parse(nest)?;
        let group = end.number(A_END_GROUP);
        let share = shares.entry(group).or_default();
        share.pairs += u64::from(counted != Some(group));
        share.ring_memory += end.number(A_END_RING_MEM);
        counted = Some(group);
    }
    Ok(())
}

impl Pair {
    /// Also parses an event, which may have one end only.
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

pub fn socket(endpoint: &Endpoint) -> String {
    SocketAddr::new(endpoint.address, endpoint.port).to_string()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use netlink_packet_core::{DefaultNla, Emitable};

    pub fn emit(list: &[DefaultNla]) -> Vec<u8> {
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

    fn message(address: &[u8]) -> io::Result<Attributes> {
        Attributes::parse(&emit(&[
            DefaultNla::new(A_PAIR_ID, 9u32.to_ne_bytes().to_vec()),
            DefaultNla::new(A_PAIR_AGE_MS, 61_000u64.to_ne_bytes().to_vec()),
            DefaultNla::new(A_PAIR_DRAINING, vec![1]),
            end(address, 40000),
            end(address, 80),
        ]))
    }

    /// Number 9, old, on its way back, in "blue", from port 40000.
    pub fn pair(address: &[u8]) -> io::Result<Pair> {
        let names = Names::of(&[(4026531840, "blue")]);
        Pair::from_attributes(&message(address)?, &names)
    }

    #[test]
    fn a_pair_counts_once_for_its_policy() {
        let mut shares = HashMap::new();
        for _ in 0..2 {
            add_shares(&message(&[127, 0, 0, 1]).unwrap(), &mut shares).unwrap();
        }
        let share = Share {
            pairs: 2,
            ring_memory: 4 * 65536,
        };
        assert_eq!(shares, HashMap::from([(4, share)]));
    }

    #[test]
    fn an_odd_address_is_an_error() {
        assert!(pair(&[1, 2, 3]).is_err());
    }
}
