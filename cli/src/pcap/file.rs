// SPDX-License-Identifier: GPL-2.0
//! The captured records as a pcapng file: a packet for each record, or several if the record
//! is longer than a packet can be.
//!
//! Both directions of a pair are written as its active opener sees them. So a reader of the
//! file sees one connection. The file has an interface for each network namespace with an
//! active opener, because equal addresses in two namespaces are two connections.

use std::collections::HashMap;
use std::time::Duration;

use crate::kernel::capture::{End, Record, Stats};
use crate::pcap::frame::{PAYLOAD_MAX, Segment};
use crate::pcap::pcapng::{Blocks, Packet};
use crate::system::netns::Names;
use crate::uapi::EVENTS;

const COMMENT: &str = "The bytes that socksplice moved through memory. They were in no packet: \
    the IP and TCP headers here are made up, with the addresses and ports of the connection as \
    its active opener sees them, its directions, order and times. Bytes that it sent by TCP are \
    not here; they are where its sequence numbers have a gap.";

pub struct Capture {
    blocks: Blocks,
    frame: Vec<u8>,
    interfaces: Vec<Interface>,
    pairs: HashMap<u32, Known>,
    pub records: u64,
    pub bytes: u64,
    pub packets: u64,
}

struct Interface {
    netns: u64,
    packets: u64,
}

/// What the file says of a pair so far.
struct Known {
    interface: usize,
    /// For each end, the sequence number and the place in the ring that follow its last
    /// record.
    next: [Option<(u32, u32)>; 2],
}

impl Capture {
    /// `netns` is the namespace of this process. Its interface is always in the file, because a
    /// file without an interface could not be read.
    pub fn new(netns: u64) -> Self {
        let mut capture = Capture {
            blocks: Blocks::default(),
            frame: Vec::new(),
            interfaces: Vec::new(),
            pairs: HashMap::new(),
            records: 0,
            bytes: 0,
            packets: 0,
        };
        let program = concat!("socksplice ", env!("CARGO_PKG_VERSION"));
        capture.blocks.section(program, COMMENT);
        capture.interface(netns);
        capture
    }

    /// The bytes to write next.
    pub fn bytes(&self) -> &[u8] {
        self.blocks.bytes()
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    pub fn add(&mut self, record: &Record) {
        let mut comments = Vec::new();
        if !self.pairs.contains_key(&record.pair) {
            let known = Known {
                interface: self.interface(record.ends[0].netns.into()),
                next: [None; 2],
            };
            self.pairs.insert(record.pair, known);
            comments.push(describe(record.pair, &record.ends));
        }
        match EVENTS.get(record.event.wrapping_sub(1)) {
            Some(event) => self.add_event(record, event, comments),
            None => self.add_data(record, comments),
        }
    }

    fn add_data(&mut self, record: &Record, mut comments: Vec<String>) {
        let known = self
            .pairs
            .get_mut(&record.pair)
            .expect("a pair that is known");
        let next = &mut known.next[record.from];
        if let Some((seq, ring)) = *next {
            let by_tcp = record.seq.wrapping_sub(seq);
            if by_tcp > 0 {
                comments.push(format!("before this, {by_tcp} bytes went by TCP"));
            }
            let dropped = record.ring.wrapping_sub(ring);
            if dropped > 0 {
                comments.push(format!("before this, {dropped} bytes were dropped"));
            }
        }
        *next = Some((record.seq, record.ring.wrapping_add(record.size)));
        let interface = known.interface;
        self.records += 1;
        self.bytes += u64::from(record.size);

        let mut at = 0;
        while at < record.size {
            let length = (record.size - at).min(PAYLOAD_MAX);
            let kept = record.data.len() as u32;
            let payload = &record.data[at.min(kept) as usize..(at + length).min(kept) as usize];
            let (source, destination) = ends_of(record);
            let segment = Segment {
                source,
                destination,
                outbound: record.from == 0,
                seq: record.seq.wrapping_add(record.ring).wrapping_add(at),
                ack: record.ack,
                push: at + length == record.size,
                payload,
                length,
            };
            self.packet(interface, record, &segment, &std::mem::take(&mut comments));
            at += length;
        }
    }

    /// Adds a packet without data, sent by the active opener.
    fn add_event(&mut self, record: &Record, event: &str, mut comments: Vec<String>) {
        let known = &self.pairs[&record.pair];
        let next = known
            .next
            .map(|next| next.map(|(seq, ring)| seq.wrapping_add(ring)));
        let reason = match record.data {
            [] => String::new(),
            reason => format!(" ({})", String::from_utf8_lossy(reason)),
        };
        let then = match event {
            "dropped" => "; from here on it sends by TCP",
            _ => "",
        };
        comments.push(format!("pair {} {event}{reason}{then}", record.pair));
        let (source, destination) = ends_of(record);
        let segment = Segment {
            source,
            destination,
            outbound: record.from == 0,
            seq: next[0].unwrap_or(record.seq.wrapping_add(record.ring)),
            ack: next[1].unwrap_or(record.ack),
            push: false,
            payload: &[],
            length: 0,
        };
        self.packet(known.interface, record, &segment, &comments);
        if event == "ended" {
            self.pairs.remove(&record.pair);
        }
    }

    fn packet(
        &mut self,
        interface: usize,
        record: &Record,
        segment: &Segment,
        comments: &[String],
    ) {
        self.frame.clear();
        segment.write(&mut self.frame);
        self.blocks.packet(&Packet {
            interface: interface as u32,
            time: record.time,
            outbound: segment.outbound,
            data: &self.frame,
            length: segment.packet_length(),
            comments,
        });
        self.interfaces[interface].packets += 1;
        self.packets += 1;
    }

    /// The interface of a namespace, which is added if it is new.
    fn interface(&mut self, netns: u64) -> usize {
        let known = self.interfaces.iter().position(|i| i.netns == netns);
        known.unwrap_or_else(|| {
            let name = match Names::read().get(netns) {
                Some(name) => format!("netns {name}"),
                None => format!("netns {netns}"),
            };
            let description = format!(
                "socksplice: pairs whose active opener is in network namespace {netns}; made-up headers"
            );
            self.blocks.interface(&name, &description);
            self.interfaces.push(Interface { netns, packets: 0 });
            self.interfaces.len() - 1
        })
    }

    /// Ends the file. The device does not count drops by interface, so the first interface
    /// gets all of them.
    pub fn finish(&mut self, time: Duration, stats: Stats) {
        for (i, interface) in self.interfaces.iter().enumerate() {
            let drops = (i == 0).then_some(stats.dropped);
            self.blocks
                .statistics(i as u32, time, interface.packets, drops);
        }
    }
}

fn ends_of(record: &Record) -> (std::net::SocketAddr, std::net::SocketAddr) {
    let opener = &record.ends[0];
    match record.from {
        0 => (opener.local, opener.peer),
        _ => (opener.peer, opener.local),
    }
}

fn describe(pair: u32, ends: &[End; 2]) -> String {
    let [opener, other] = ends;
    let mut text = format!(
        "pair {pair}: {} -> {} in netns {}",
        opener.local, opener.peer, opener.netns
    );
    if opener.local != other.peer || opener.peer != other.local || opener.netns != other.netns {
        text += &format!(
            "; the other end is {} -> {} in netns {}",
            other.local, other.peer, other.netns
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::capture::tests::{bytes, parse};

    fn of(records: &[Vec<u8>]) -> (Capture, String) {
        let mut capture = Capture::new(1);
        for record in parse(&records.concat()) {
            capture.add(&record);
        }
        let text = String::from_utf8_lossy(capture.bytes()).into_owned();
        (capture, text)
    }

    #[test]
    fn says_what_it_is_and_what_is_missing() {
        let (capture, text) = of(&[
            bytes(0, 1000, 0, 3, b"abc"),
            bytes(0, 1000, 3, 3, b"def"),
            bytes(1, 7, 0, 2, b"xy"),
            bytes(0, 1010, 26, 1, b"g"),
        ]);
        assert_eq!((capture.records, capture.bytes, capture.packets), (4, 9, 4));
        assert_eq!(capture.interfaces.len(), 2);
        assert!(text.contains("headers here are made up"));
        assert_eq!(
            text.matches("pair 9: 10.0.0.1:40000 -> 10.0.0.2:80 in netns")
                .count(),
            1
        );
        assert_eq!(text.matches("before this, 10 bytes went by TCP").count(), 1);
        assert_eq!(
            text.matches("before this, 20 bytes were dropped").count(),
            1
        );
        assert_eq!(text.matches("before this").count(), 2);
    }

    #[test]
    fn a_long_record_is_several_packets() {
        let data = vec![1; 200_000];
        let (capture, _) = of(&[bytes(0, 0, 0, 200_000, &data)]);
        assert_eq!((capture.records, capture.packets), (1, 4));
        let (capture, _) = of(&[bytes(0, 0, 0, 200_000, &data[..50])]);
        assert_eq!((capture.bytes, capture.packets), (200_000, 4));
        assert!(capture.bytes().len() < 2000);
    }

    #[test]
    fn a_pair_that_ended_is_forgotten() {
        let mut end = bytes(0, 5, 6, 0, b"closed");
        end[28] = 5;
        let (capture, text) = of(&[bytes(0, 5, 0, 6, b"abcdef"), end]);
        assert!(text.contains("pair 9 ended (closed)"));
        assert!(capture.pairs.is_empty());
        assert_eq!((capture.records, capture.packets), (1, 2));
    }
}
