// SPDX-License-Identifier: GPL-2.0
//! `splice`: the splices (SO_SPLICE) that there are now.

use std::io;

use serde::Serialize;
use serde_json::json;

use crate::error::{Error, Result};
use crate::kernel::module::Module;
use crate::kernel::netlink::Attributes;
use crate::kernel::pair::{Endpoint, Netns, socket};
use crate::output::{Align, Answer, SCHEMA, Table, age};
use crate::system::netns::Names;
use crate::system::process::{Process, Sockets};
use crate::uapi::*;

#[derive(Serialize)]
pub struct Splice {
    age_ms: u64,
    /// Who called setsockopt(), in the initial user namespace.
    uid: u64,
    moved: u64,
    /// 0: no limit.
    max: u64,
    /// 0: no limit.
    idle_ms: u64,
    source: End,
    sink: End,
}

#[derive(Serialize)]
struct End {
    local: Endpoint,
    peer: Endpoint,
    netns: Netns,
    /// As SO_COOKIE; 0 if the socket has none yet.
    cookie: u64,
    /// Of its socket; 0 if no process has it.
    inode: u64,
    processes: Vec<Process>,
}

pub fn show() -> Result<Answer> {
    let (module, _) = Module::open()?;
    Ok(answer(&list(&module)?))
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

    fn processes(&self) -> String {
        let names: Vec<_> = self.processes.iter().map(|p| p.to_string()).collect();
        names.join(",")
    }
}

/// One line for each splice: where its bytes come from and where they go.
fn answer(splices: &[Splice]) -> Answer {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("AGE", Right),
        ("FROM", Left),
        ("SOURCE", Left),
        ("SINK", Left),
        ("TO", Left),
        ("MOVED", Right),
        ("MAX", Right),
        ("IDLE-MS", Right),
        ("UID", Right),
        ("PROCESS", Left),
    ]);
    let limit = |n: u64| match n {
        0 => "-".to_string(),
        n => n.to_string(),
    };
    for s in splices {
        table.row(vec![
            age(s.age_ms),
            socket(&s.source.peer),
            socket(&s.source.local),
            socket(&s.sink.local),
            socket(&s.sink.peer),
            s.moved.to_string(),
            limit(s.max),
            limit(s.idle_ms),
            s.uid.to_string(),
            s.source.processes(),
        ]);
    }
    Answer::new(
        table.render(),
        json!({ "schema": SCHEMA, "splices": splices }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{DefaultNla, Emitable};

    fn emit(list: &[DefaultNla]) -> Vec<u8> {
        let mut bytes = vec![0; list.buffer_len()];
        list.emit(&mut bytes);
        bytes
    }

    fn splice(address: &[u8]) -> io::Result<Splice> {
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
    fn both_forms_say_from_where_to_where() {
        let answer = answer(&[splice(&[127, 0, 0, 1]).unwrap()]);
        let json = &answer.json["splices"][0];
        assert_eq!(json["source"]["local"]["port"], 1000);
        assert_eq!(json["sink"]["local"]["port"], 2000);
        assert_eq!(json["sink"]["netns"]["name"], "blue");
        assert_eq!(json["moved"], 5_000_000_000u64);
        assert_eq!(json["max"], 0);
        let line = answer.text.lines().nth(1).unwrap();
        assert!(line.contains("127.0.0.1:1000") && line.contains("127.0.0.1:2000"));
        assert!(line.contains("5000000000") && line.contains("1500"));
    }

    #[test]
    fn an_odd_address_is_an_error() {
        assert!(splice(&[1, 2, 3]).is_err());
    }
}
