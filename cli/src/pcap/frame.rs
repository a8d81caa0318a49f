// SPDX-License-Identifier: GPL-2.0
//! The made-up headers of captured bytes: link, IP and TCP.

use std::net::{IpAddr, SocketAddr};

/// The cooked header: direction, kind of device, no address, protocol.
const SLL_HEADER: usize = 16;
const TO_US: u16 = 0;
const FROM_US: u16 = 4;
const ARPHRD_LOOPBACK: u16 = 772;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

const TCP: u8 = 6;
const TCP_HEADER: usize = 20;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const HOP_LIMIT: u8 = 64;
const DONT_FRAGMENT: u16 = 0x4000;
const WINDOW: u16 = u16::MAX;

/// The most payload that fits behind the IP and TCP headers of either IP version.
pub const PAYLOAD_MAX: u32 = u16::MAX as u32 - 40;

pub struct Segment<'a> {
    /// Both of one version.
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// Sent by the end whose interface it is.
    pub outbound: bool,
    pub seq: u32,
    pub ack: u32,
    /// The last of a message.
    pub push: bool,
    pub payload: &'a [u8],
    /// Bytes of payload, up to PAYLOAD_MAX, of which `payload` may be the beginning.
    pub length: u32,
}

impl Segment<'_> {
    /// The length of the packet, all of its payload included.
    pub fn packet_length(&self) -> u32 {
        let ip = if self.source.is_ipv4() { 20 } else { 40 };
        SLL_HEADER as u32 + ip + TCP_HEADER as u32 + self.length
    }

    fn link_header(&self) -> [u8; SLL_HEADER] {
        let direction = if self.outbound { FROM_US } else { TO_US };
        let protocol = match self.source.is_ipv4() {
            true => ETHERTYPE_IPV4,
            false => ETHERTYPE_IPV6,
        };
        let mut header = [0; SLL_HEADER];
        header[0..2].copy_from_slice(&direction.to_be_bytes());
        header[2..4].copy_from_slice(&ARPHRD_LOOPBACK.to_be_bytes());
        header[14..16].copy_from_slice(&protocol.to_be_bytes());
        header
    }

    /// Adds the packet to `out`. Without all of its payload it has no checksum of TCP's.
    pub fn write(&self, out: &mut Vec<u8>) {
        let tcp_length = TCP_HEADER as u32 + self.length;
        let mut sum = Sum::default();
        out.extend_from_slice(&self.link_header());
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = [0; 20];
                header[0] = 0x45;
                header[2..4].copy_from_slice(&(20 + tcp_length as u16).to_be_bytes());
                header[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                header[8] = HOP_LIMIT;
                header[9] = TCP;
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                let mut ip_sum = Sum::default();
                ip_sum.add(&header);
                header[10..12].copy_from_slice(&ip_sum.finish());
                sum.add(&header[12..20]);
                out.extend_from_slice(&header);
            }
            (source, destination) => {
                let mut header = [0; 40];
                header[0] = 0x60;
                header[4..6].copy_from_slice(&(tcp_length as u16).to_be_bytes());
                header[6] = TCP;
                header[7] = HOP_LIMIT;
                header[8..24].copy_from_slice(&v6(source));
                header[24..40].copy_from_slice(&v6(destination));
                sum.add(&header[8..40]);
                out.extend_from_slice(&header);
            }
        }
        sum.add(&[0, TCP]);
        sum.add(&(tcp_length as u16).to_be_bytes());

        let mut header = [0; TCP_HEADER];
        header[0..2].copy_from_slice(&self.source.port().to_be_bytes());
        header[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        header[4..8].copy_from_slice(&self.seq.to_be_bytes());
        header[8..12].copy_from_slice(&self.ack.to_be_bytes());
        header[12] = (TCP_HEADER as u8 / 4) << 4;
        header[13] = if self.push { ACK | PSH } else { ACK };
        header[14..16].copy_from_slice(&WINDOW.to_be_bytes());
        if self.payload.len() as u32 == self.length {
            sum.add(&header);
            sum.add(self.payload);
            header[16..18].copy_from_slice(&sum.finish());
        }
        out.extend_from_slice(&header);
        out.extend_from_slice(self.payload);
    }
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The Internet checksum, RFC 1071. Every part but the last is of an even length.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let words = bytes.chunks(2).map(|w| match *w {
            [high, low] => u64::from(u16::from_be_bytes([high, low])),
            _ => u64::from(w[0]) << 8,
        });
        self.0 += words.sum::<u64>();
    }

    fn finish(&self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(source: &str, destination: &str, payload: &[u8], length: u32) -> Vec<u8> {
        let segment = Segment {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            outbound: true,
            seq: 0x0102_0304,
            ack: 5,
            push: true,
            payload,
            length,
        };
        let mut out = Vec::new();
        segment.write(&mut out);
        assert_eq!(
            segment.packet_length() as usize + payload.len(),
            out.len() + length as usize
        );
        let protocol: [u8; 2] = if source.starts_with('[') {
            [0x86, 0xdd]
        } else {
            [8, 0]
        };
        assert_eq!(out[..4], [0, 4, 3, 4]);
        assert_eq!(out[14..16], protocol);
        out.split_off(SLL_HEADER)
    }

    /// What is added up with its own checksum comes out as nothing.
    fn is_sound(parts: &[&[u8]]) -> bool {
        let mut sum = Sum::default();
        parts.iter().for_each(|part| sum.add(part));
        sum.finish() == [0, 0]
    }

    #[test]
    fn ipv4() {
        for payload in [&b""[..], b"odd", b"even"] {
            let length = payload.len() as u32;
            let p = packet("10.0.0.1:1025", "10.0.0.2:80", payload, length);
            assert!(is_sound(&[&p[..20]]));
            let tcp = (p.len() - 20) as u16;
            assert!(is_sound(&[
                &p[12..20],
                &[0, TCP],
                &tcp.to_be_bytes(),
                &p[20..]
            ]));
            assert_eq!(p[20..24], [4, 1, 0, 80]);
            assert_eq!(p[24..28], [1, 2, 3, 4]);
            assert_eq!(&p[40..], payload);
        }
    }

    #[test]
    fn ipv6() {
        let p = packet("[::1]:1", "[fe80::2]:2", b"abc", 3);
        assert_eq!(p[4..8], [0, 23, TCP, 64]);
        assert!(is_sound(&[&p[8..40], &[0, TCP, 0, 23], &p[40..]]));
        assert_eq!(&p[60..], b"abc");
    }

    #[test]
    fn cut_short() {
        let p = packet("10.0.0.1:1", "10.0.0.2:2", b"ab", PAYLOAD_MAX);
        assert_eq!(p[2..4], [0xff, 0xff]);
        assert_eq!(p[36..38], [0, 0]);
        assert_eq!(p.len(), 42);
    }
}
