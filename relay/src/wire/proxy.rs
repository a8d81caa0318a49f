// SPDX-License-Identifier: GPL-2.0
//! Reads and writes the headers of the PROXY protocol, versions 1 and 2. It accepts only headers
//! that follow the specification.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::Parsed;
use super::tlv::{self, Kinds, Tlvs, Wrong};

/// A PROXY header: the source and the destination of the client's connection. `None` if the sender
/// does not tell them (`UNKNOWN`, `LOCAL`), or if they are Unix sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// Only version 2 has them.
    pub tlvs: Tlvs,
}

/// The version that a listener accepts, or that a target gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
    /// Either version. This is for reading only.
    Any,
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "v1" => Ok(Version::V1),
            "v2" => Ok(Version::V2),
            "any" => Ok(Version::Any),
            _ => Err(format!(
                "'{text}' is no version of the PROXY protocol (v1, v2, any)"
            )),
        }
    }
}

const V1_START: &[u8] = b"PROXY ";
/// Longest line of version 1, with its CR and LF.
const V1_LONGEST: usize = 107;
const V2_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = 16;
/// The family of addresses that the sender does not tell.
const V2_UNSPECIFIED: u8 = 0x00;
/// Most bytes that may follow the fixed part of version 2: the addresses and the TLVs.
pub const V2_LONGEST: usize = 4096;

/// Size of the longest header, in bytes.
pub const LONGEST: usize = V2_FIXED + V2_LONGEST;

pub fn parse(bytes: &[u8], accepts: Version) -> Parsed<Header> {
    let starts = |start: &[u8]| {
        let n = start.len().min(bytes.len());
        bytes[..n] == start[..n]
    };
    if accepts != Version::V2 && starts(V1_START) {
        return parse_v1(bytes);
    }
    if accepts != Version::V1 && starts(V2_START) {
        return parse_v2(bytes);
    }
    Parsed::Bad("no PROXY header")
}

fn parse_v1(bytes: &[u8]) -> Parsed<Header> {
    let window = &bytes[..bytes.len().min(V1_LONGEST)];
    let Some(end) = window.windows(2).position(|w| w == b"\r\n") else {
        return match window.len() {
            V1_LONGEST => Parsed::Bad("a PROXY line without an end"),
            _ => Parsed::More,
        };
    };
    let Ok(line) = std::str::from_utf8(&window[..end]) else {
        return Parsed::Bad("a PROXY line that is not ASCII");
    };
    match v1_addresses(line) {
        Ok(addresses) => Parsed::Done(
            Header {
                addresses,
                ..Header::default()
            },
            end + 2,
        ),
        Err(why) => Parsed::Bad(why),
    }
}

fn v1_addresses(line: &str) -> Result<Option<(SocketAddr, SocketAddr)>, &'static str> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", "TCP4", src, dst, sport, dport] => {
            let ip = |s: &str| s.parse::<Ipv4Addr>().map(IpAddr::V4);
            v1_pair(ip(src), ip(dst), sport, dport)
        }
        ["PROXY", "TCP6", src, dst, sport, dport] => {
            let ip = |s: &str| s.parse::<Ipv6Addr>().map(IpAddr::V6);
            v1_pair(ip(src), ip(dst), sport, dport)
        }
        _ => Err("a PROXY line of another form"),
    }
}

fn v1_pair<E>(
    src: Result<IpAddr, E>,
    dst: Result<IpAddr, E>,
    sport: &str,
    dport: &str,
) -> Result<Option<(SocketAddr, SocketAddr)>, &'static str> {
    let (Ok(src), Ok(dst)) = (src, dst) else {
        return Err("a PROXY line whose address is none");
    };
    let (Some(sport), Some(dport)) = (v1_port(sport), v1_port(dport)) else {
        return Err("a PROXY line whose port is none");
    };
    Ok(Some((
        SocketAddr::new(src, sport),
        SocketAddr::new(dst, dport),
    )))
}

/// Parses a port, which consists of digits only and has no leading zero.
fn v1_port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    if digits && !padded {
        text.parse().ok()
    } else {
        None
    }
}

fn parse_v2(bytes: &[u8]) -> Parsed<Header> {
    let Some(fixed) = bytes.get(..V2_FIXED) else {
        return Parsed::More;
    };
    let (command, family) = (fixed[12], fixed[13]);
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if command >> 4 != 2 {
        return Parsed::Bad("a PROXY header of a version other than 2");
    }
    if length > V2_LONGEST {
        return Parsed::Bad("a PROXY header that is too long");
    }
    let wants = match (command & 15, family) {
        (0, _) => 0,
        (1, V2_UNSPECIFIED) => 0,
        (1, 0x11) => 12,
        (1, 0x21) => 36,
        (1, 0x31) => 216,
        (1, _) => return Parsed::Bad("a PROXY header for what is no stream"),
        _ => return Parsed::Bad("a PROXY header with an unknown command"),
    };
    if length < wants {
        return Parsed::Bad("a PROXY header that is too short for its addresses");
    }
    let Some(body) = bytes.get(V2_FIXED..V2_FIXED + length) else {
        return Parsed::More;
    };
    let addresses = match wants {
        12 => Some(v2_pair(&body[..12], |b| {
            IpAddr::from(<[u8; 4]>::try_from(b).unwrap_or_default())
        })),
        36 => Some(v2_pair(&body[..36], |b| {
            IpAddr::from(<[u8; 16]>::try_from(b).unwrap_or_default())
        })),
        _ => None,
    };
    // All that follows the command LOCAL is to be ignored.
    let tlvs = match command & 15 {
        0 => Ok(Tlvs::default()),
        _ => tlv::parse(&bytes[..V2_FIXED + length], V2_FIXED + wants),
    };
    match tlvs {
        Ok(tlvs) => Parsed::Done(Header { addresses, tlvs }, V2_FIXED + length),
        // Addresses of a family that nobody knows may be there, so TLVs cannot be told from them.
        Err(Wrong::Form(_)) if family == V2_UNSPECIFIED => {
            Parsed::Done(Header::default(), V2_FIXED + length)
        }
        Err(Wrong::Form(why) | Wrong::Sum(why)) => Parsed::Bad(why),
    }
}

/// Reads two addresses of equal length, which two ports follow.
fn v2_pair(body: &[u8], ip: impl Fn(&[u8]) -> IpAddr) -> (SocketAddr, SocketAddr) {
    let n = (body.len() - 4) / 2;
    let port = |i: usize| u16::from_be_bytes([body[i], body[i + 1]]);
    (
        SocketAddr::new(ip(&body[..n]), port(2 * n)),
        SocketAddr::new(ip(&body[n..2 * n]), port(2 * n + 2)),
    )
}

/// Returns the header for a target. If the addresses are of different families, both are written as
/// IPv6. `kinds` chooses the TLVs of version 2.
pub fn write(version: Version, header: &Header, kinds: Kinds) -> Vec<u8> {
    let addresses = header.addresses.map(|(a, b)| {
        if a.is_ipv4() == b.is_ipv4() {
            (a, b)
        } else {
            (widen(a), widen(b))
        }
    });
    match version {
        Version::V1 => write_v1(addresses),
        Version::V2 | Version::Any => write_v2(addresses, &header.tlvs, kinds),
    }
}

fn widen(a: SocketAddr) -> SocketAddr {
    match a.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), a.port()),
        IpAddr::V6(_) => a,
    }
}

fn write_v1(addresses: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    match addresses {
        None => b"PROXY UNKNOWN\r\n".to_vec(),
        Some((a, b)) => format!(
            "PROXY {} {} {} {} {}\r\n",
            if a.is_ipv4() { "TCP4" } else { "TCP6" },
            a.ip(),
            b.ip(),
            a.port(),
            b.port()
        )
        .into_bytes(),
    }
}

fn write_v2(addresses: Option<(SocketAddr, SocketAddr)>, tlvs: &Tlvs, kinds: Kinds) -> Vec<u8> {
    let mut out = V2_START.to_vec();
    let family = match addresses {
        // The command PROXY with an unspecified family: a client made the connection all the same.
        None => V2_UNSPECIFIED,
        Some((a, _)) if a.is_ipv4() => 0x11,
        Some(_) => 0x21,
    };
    out.extend([0x21, family, 0, 0]);
    if let Some((a, b)) = addresses {
        for ip in [a.ip(), b.ip()] {
            match ip {
                IpAddr::V4(v4) => out.extend(v4.octets()),
                IpAddr::V6(v6) => out.extend(v6.octets()),
            }
        }
        out.extend(a.port().to_be_bytes());
        out.extend(b.port().to_be_bytes());
    }
    tlv::write(&mut out, tlvs, kinds);
    let length = ((out.len() - V2_FIXED) as u16).to_be_bytes();
    out[V2_FIXED - 2..V2_FIXED].copy_from_slice(&length);
    if kinds.crc32c {
        tlv::seal(&mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(a: &str, b: &str) -> Option<(SocketAddr, SocketAddr)> {
        Some((a.parse().unwrap(), b.parse().unwrap()))
    }

    #[test]
    fn version_1_is_read() {
        let line = b"PROXY TCP4 1.2.3.4 5.6.7.8 65535 80\r\nGET /";
        let header = Header {
            addresses: addresses("1.2.3.4:65535", "5.6.7.8:80"),
            ..Header::default()
        };
        assert_eq!(parse(line, Version::Any), Parsed::Done(header, 37));
        assert_eq!(parse(line, Version::V2), Parsed::Bad("no PROXY header"));
        let unknown = b"PROXY UNKNOWN whatever\r\n";
        assert_eq!(
            parse(unknown, Version::V1),
            Parsed::Done(Header::default(), 24)
        );
    }

    #[test]
    fn mistaken_lines_are_refused() {
        for line in [
            "PROXY TCP4 1.2.3.4 5.6.7.8 65536 80\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 080 80\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 +80 80\r\n",
            "PROXY TCP4 1.2.3.04 5.6.7.8 80 80\r\n",
            "PROXY TCP4  1.2.3.4 5.6.7.8 80 80\r\n",
            "PROXY TCP4 ::1 ::1 80 80\r\n",
            "PROXY TCP6 1.2.3.4 5.6.7.8 80 80\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 80\r\n",
            "PROXY UDP4 1.2.3.4 5.6.7.8 80 80\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 80 80 \r\n",
            "proxy TCP4 1.2.3.4 5.6.7.8 80 80\r\n",
            "GET / HTTP/1.0\r\n",
        ] {
            assert!(
                matches!(parse(line.as_bytes(), Version::Any), Parsed::Bad(_)),
                "{line}"
            );
        }
        let endless = [b'x'; 200];
        let endless = [V1_START, b"UNKNOWN ", &endless[..]].concat();
        assert!(matches!(parse(&endless, Version::Any), Parsed::Bad(_)));
    }

    #[test]
    fn version_2_passes_over_other_tlvs_and_takes_no_more() {
        let header = Header {
            addresses: addresses("[2001:db8::1]:1", "[::1]:2"),
            ..Header::default()
        };
        let mut bytes = write(Version::V2, &header, Kinds::default());
        bytes[15] += 5;
        bytes.extend([0xe0, 0, 2, 1, 2]);
        bytes.extend(b"data");
        assert_eq!(
            parse(&bytes, Version::V2),
            Parsed::Done(header, 16 + 36 + 5)
        );
        bytes[16 + 36 + 2] = 3;
        assert!(matches!(parse(&bytes, Version::V2), Parsed::Bad(_)));
    }

    #[test]
    fn a_wrong_checksum_is_refused() {
        let header = Header {
            addresses: addresses("1.2.3.4:5", "6.7.8.9:10"),
            ..Header::default()
        };
        let mut bytes = write(Version::V2, &header, tlv::tests::ALL);
        let length = bytes.len();
        assert_eq!(parse(&bytes, Version::V2), Parsed::Done(header, length));
        bytes[20] ^= 1;
        assert!(matches!(parse(&bytes, Version::V2), Parsed::Bad(_)));
    }

    #[test]
    fn a_local_connection_has_no_addresses() {
        let mut bytes = V2_START.to_vec();
        bytes.extend([0x20, 0x11, 0, 3, 9, 9, 9]);
        assert_eq!(
            parse(&bytes, Version::Any),
            Parsed::Done(Header::default(), 19)
        );
    }

    #[test]
    fn the_body_of_an_unspecified_family_need_not_be_tlvs() {
        let with = |body: &[u8]| {
            let fixed = [0x21, 0x00, 0, body.len() as u8];
            [V2_START, &fixed, body, b"data"].concat()
        };
        for body in [&b"\0"[..], b"\x02\0\x09a", &[0xff; 12]] {
            let all = Parsed::Done(Header::default(), 16 + body.len());
            assert_eq!(parse(&with(body), Version::V2), all, "{body:?}");
        }
        let Parsed::Done(header, 20) = parse(&with(b"\x02\0\x01a"), Version::V2) else {
            panic!("TLVs are refused");
        };
        assert_eq!(header.tlvs.authority.as_deref(), Some(&b"a"[..]));
        let wrong = parse(&with(b"\x03\0\x04abcd"), Version::V2);
        assert_eq!(wrong, Parsed::Bad("a PROXY header whose checksum is wrong"));
    }

    fn address() -> impl Strategy<Value = SocketAddr> {
        prop_oneof![
            (any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| (ip, port).into()),
            (any::<[u8; 16]>(), any::<u16>()).prop_map(|(ip, port)| (ip, port).into()),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            a in address(), b in address(), tlvs in tlv::tests::some(), v2: bool, rest: Vec<u8>
        ) {
            let version = if v2 { Version::V2 } else { Version::V1 };
            let header = Header { addresses: Some((a, b)), tlvs };
            let bytes = write(version, &header, tlv::tests::ALL);
            for n in 0..bytes.len() {
                prop_assert_eq!(parse(&bytes[..n], version), Parsed::More);
            }
            let expected = if a.is_ipv4() == b.is_ipv4() { (a, b) } else { (widen(a), widen(b)) };
            let read = parse(&[&bytes[..], &rest[..]].concat(), Version::Any);
            let tlvs = if v2 { header.tlvs } else { Tlvs::default() };
            let expected = Header { addresses: Some(expected), tlvs };
            prop_assert_eq!(read, Parsed::Done(expected, bytes.len()));
        }

        #[test]
        fn no_bytes_make_it_panic(start in 0usize..3, bytes: Vec<u8>) {
            let start = [&b""[..], V1_START, V2_START][start];
            let bytes = [start, &bytes[..]].concat();
            if let Parsed::Done(_, used) = parse(&bytes, Version::Any) {
                prop_assert!(used <= bytes.len() && used <= LONGEST);
            }
        }

        #[test]
        fn a_bad_beginning_stays_bad(bytes: Vec<u8>, more: Vec<u8>) {
            if let Parsed::Bad(_) = parse(&bytes, Version::Any) {
                let all = [&bytes[..], &more[..]].concat();
                prop_assert!(matches!(parse(&all, Version::Any), Parsed::Bad(_)));
            }
        }
    }
}
