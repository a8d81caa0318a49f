// SPDX-License-Identifier: GPL-2.0
//! The blocks of a pcapng file, in this machine's byte order.

use std::time::Duration;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// The header of Linux's "any" interface, as `frame` writes it. Not LINKTYPE_RAW: libpcap
/// 1.10 refuses a second interface of a type whose number in files is not its own.
const LINKTYPE_LINUX_SLL: u16 = 113;

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;

/// An option cannot be longer.
const OPTION_MAX: usize = u16::MAX as usize;

/// Blocks that wait to be written.
#[derive(Default)]
pub struct Blocks(Vec<u8>);

/// A packet, as an interface sees it.
pub struct Packet<'a> {
    pub interface: u32,
    /// Since 1970.
    pub time: Duration,
    pub outbound: bool,
    pub data: &'a [u8],
    /// Its length, of which `data` may be the beginning.
    pub length: u32,
    pub comments: &'a [String],
}

impl Blocks {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn section(&mut self, program: &str, comment: &str) {
        self.block(SECTION_HEADER, |b| {
            b.u32(BYTE_ORDER_MAGIC);
            b.u16(1);
            b.u16(0);
            b.u64(u64::MAX); // of a length that is not known yet
            b.option(OPT_COMMENT, comment.as_bytes());
            b.option(SHB_USERAPPL, program.as_bytes());
            b.option(OPT_END, &[]);
        });
    }

    pub fn interface(&mut self, name: &str, description: &str) {
        self.block(INTERFACE, |b| {
            b.u16(LINKTYPE_LINUX_SLL);
            b.u16(0);
            b.u32(0); // no limit on lengths
            b.option(IF_NAME, name.as_bytes());
            b.option(IF_DESCRIPTION, description.as_bytes());
            b.option(IF_TSRESOL, &[9]); // times in nanoseconds
            b.option(OPT_END, &[]);
        });
    }

    pub fn packet(&mut self, packet: &Packet) {
        self.block(ENHANCED_PACKET, |b| {
            b.u32(packet.interface);
            b.time(packet.time);
            b.u32(packet.data.len() as u32);
            b.u32(packet.length);
            b.padded(packet.data);
            b.option(
                EPB_FLAGS,
                &u32::from(1 + packet.outbound as u8).to_ne_bytes(),
            );
            for comment in packet.comments {
                b.option(OPT_COMMENT, comment.as_bytes());
            }
            b.option(OPT_END, &[]);
        });
    }

    /// How many packets there were, and how many were dropped, if that is known.
    pub fn statistics(&mut self, interface: u32, time: Duration, packets: u64, drops: Option<u64>) {
        self.block(INTERFACE_STATISTICS, |b| {
            b.u32(interface);
            b.time(time);
            b.option(ISB_IFRECV, &packets.to_ne_bytes());
            if let Some(drops) = drops {
                b.option(ISB_IFDROP, &drops.to_ne_bytes());
            }
            b.option(OPT_END, &[]);
        });
    }

    fn block(&mut self, kind: u32, fill: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.u32(kind);
        self.u32(0);
        fill(self);
        let length = (self.0.len() + 4 - start) as u32;
        self.0[start + 4..start + 8].copy_from_slice(&length.to_ne_bytes());
        self.u32(length);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(OPTION_MAX)];
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn time(&mut self, time: Duration) {
        let time = time.as_nanos() as u64;
        self.u32((time >> 32) as u32);
        self.u32(time as u32);
    }

    fn u16(&mut self, n: u16) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of the blocks, each of which must have its length at both ends.
    fn kinds(mut bytes: &[u8]) -> Vec<u32> {
        let word = |bytes: &[u8], at| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let mut kinds = Vec::new();
        while !bytes.is_empty() {
            let length = word(bytes, 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(bytes, length - 4) as usize, length);
            kinds.push(word(bytes, 0));
            bytes = &bytes[length..];
        }
        kinds
    }

    #[test]
    fn blocks_are_whole() {
        let mut blocks = Blocks::default();
        blocks.section("x", "a comment");
        blocks.interface("lo", "what it is");
        for length in 0..5 {
            blocks.packet(&Packet {
                interface: 0,
                time: Duration::new(1, 2),
                outbound: true,
                data: &[7; 5][..length],
                length: 9,
                comments: &["one".into(), "four".into()],
            });
        }
        blocks.statistics(0, Duration::ZERO, 5, Some(1));
        assert_eq!(kinds(blocks.bytes()), [SECTION_HEADER, 1, 6, 6, 6, 6, 6, 5]);
        blocks.clear();
        assert!(blocks.bytes().is_empty());
    }

    #[test]
    fn the_longest_option() {
        let mut blocks = Blocks::default();
        blocks.section("x", &"y".repeat(100_000));
        assert_eq!(kinds(blocks.bytes()), [SECTION_HEADER]);
    }
}
