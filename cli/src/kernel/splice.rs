// SPDX-License-Identifier: GPL-2.0
//! The splices (SO_SPLICE) that there are now.

use std::io;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::kernel::module::Module;
use crate::kernel::netlink::Attributes;
use crate::kernel::pair::{Endpoint, Netns};
use crate::system::netns::Names;
use crate::system::process::{Process, Sockets};
use crate::uapi::*;

#[derive(Serialize)]
pub struct Splice {
    pub age_ms: u64,
    /// Who called setsockopt(), in the initial user namespace.
    pub uid: u64,
    pub moved: u64,
    /// 0: no limit.
    pub max: u64,
    /// 0: no limit.
    pub idle_ms: u64,
    pub source: End,
    pub sink: End,
}

#[derive(Serialize)]
pub struct End {
    pub local: Endpoint,
    pub peer: Endpoint,
    pub netns: Netns,
    /// As SO_COOKIE; 0 if the socket has none yet.
    pub cookie: u64,
    /// The inode number of its socket; 0 if no process has it open.
    pub inode: u64,
    pub processes: Vec<Process>,
}

pub fn list(module: &Module) -> Result<Vec<Splice>> {
    let (names, sockets) = (Names::read(), Sockets::read());
    let splices: io::Result<Vec<Splice>> = module
        .dump(CMD_SPLICE_GET)?
        .iter()
        .map(|a| Splice::from_attributes(a, &names, &sockets))
        .collect();
    splices.map_err(|e| Error::new(format!("cannot read the module's answer: {e}")))
}

impl Splice {
    fn from_attributes(a: &Attributes, names: &Names, sockets: &Sockets) -> io::Result<Self> {
        let end = |kind| -> io::Result<End> {
            let nest = Attributes::parse(a.bytes(kind).unwrap_or(&[]))?;
            End::from_attributes(&nest, names, sockets)
        };
        Ok(Splice {
            age_ms: a.number(A_SPLICE_AGE_MS),
            uid: a.number(A_SPLICE_UID),
            moved: a.number(A_SPLICE_MOVED),
            max: a.number(A_SPLICE_MAX),
            idle_ms: a.number(A_SPLICE_IDLE_MS),
            source: end(A_SPLICE_SOURCE)?,
            sink: end(A_SPLICE_SINK)?,
        })
    }
}

impl End {
    fn from_attributes(a: &Attributes, names: &Names, sockets: &Sockets) -> io::Result<Self> {
        let inode = a.number(A_END_INODE);
        Ok(End {
            local: Endpoint::local(a)?,
            peer: Endpoint::peer(a)?,
            netns: Netns::of(a, names),
            cookie: a.number(A_END_COOKIE),
            inode,
            processes: sockets.holders(inode).to_vec(),
        })
    }

    pub fn processes(&self) -> String {
        let names: Vec<_> = self.processes.iter().map(|p| p.to_string()).collect();
        names.join(",")
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::kernel::pair::tests::emit;
    use netlink_packet_core::DefaultNla;

    pub fn splice(address: &[u8]) -> io::Result<Splice> {
        let u64n = |kind, n: u64| DefaultNla::new(kind, n.to_ne_bytes().to_vec());
        let end = |kind, port: u16| {
            let bytes = emit(&[
                DefaultNla::new(A_END_SADDR, address.to_vec()),
                DefaultNla::new(A_END_DADDR, address.to_vec()),
                DefaultNla::new(A_END_SPORT, port.to_ne_bytes().to_vec()),
                DefaultNla::new(A_END_DPORT, 80u16.to_ne_bytes().to_vec()),
                DefaultNla::new(A_END_NETNS, 7u32.to_ne_bytes().to_vec()),
            ]);
            DefaultNla::new(kind | 0x8000, bytes)
        };
        let bytes = emit(&[
            end(A_SPLICE_SOURCE, 1000),
            end(A_SPLICE_SINK, 2000),
            u64n(A_SPLICE_MOVED, 5_000_000_000),
            u64n(A_SPLICE_IDLE_MS, 1500),
            u64n(A_SPLICE_AGE_MS, 61_000),
        ]);
        let (names, sockets) = (Names::of(&[(7, "blue")]), Sockets::read());
        Splice::from_attributes(&Attributes::parse(&bytes)?, &names, &sockets)
    }

    #[test]
    fn an_odd_address_is_an_error() {
        assert!(splice(&[1, 2, 3]).is_err());
    }
}
