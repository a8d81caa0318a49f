// SPDX-License-Identifier: GPL-2.0
//! Fuzzes every parser of what strangers send, with mutations of valid messages. The parsers must not
//! panic, must take no more bytes than there are, and must have the same result however the bytes
//! are cut. `RELAY_FUZZ_SECONDS` is the time for all of them (2), `RELAY_FUZZ_SEED` where the random
//! numbers begin. A failure names its seed, and the bytes in hexadecimal.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use socksplice_relay::wire::proxy::{Header, Version};
use socksplice_relay::wire::tlv::{Kinds, Tlvs};
use socksplice_relay::wire::{Parsed, connect, hello, proxy, socks};

/// xorshift64*, whose sequence is the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// A range of at most `most` places in something of this length.
    fn range(&mut self, length: usize, most: usize) -> std::ops::Range<usize> {
        let begin = self.below(length + 1);
        begin..begin + self.below((length - begin).min(most) + 1)
    }
}

/// Bytes that lengths, separators and ends of ranges have.
const EDGES: [u8; 14] = [
    0, 1, 2, 3, 4, 5, 0x7f, 0x80, 0xfe, 0xff, b'\r', b'\n', b' ', b':',
];

/// Longest message that the fuzzer makes.
const LONGEST: usize = 48 << 10;

fn mutate(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    for _ in 0..=random.below(4) {
        let n = bytes.len();
        match random.below(8) {
            0 if n > 0 => bytes[random.below(n)] ^= 1 << random.below(8),
            1 if n > 0 => bytes[random.below(n)] = EDGES[random.below(EDGES.len())],
            2 if n > 0 => {
                let at = random.below(n);
                bytes[at] = bytes[at]
                    .wrapping_add(random.next() as u8 % 9)
                    .wrapping_sub(4);
            }
            3 => {
                bytes.drain(random.range(n, 40));
            }
            4 => bytes.insert(random.below(n + 1), random.next() as u8),
            5 => {
                let again = bytes[random.range(n, 400)].to_vec();
                let at = random.below(n + 1);
                bytes.splice(at..at, again);
            }
            6 => {
                let other = &seeds[random.below(seeds.len())];
                let part = other[random.range(other.len(), 400)].to_vec();
                let place = random.range(n, 40);
                bytes.splice(place, part);
            }
            _ => bytes.truncate(random.below(n + 1)),
        }
    }
    bytes.truncate(LONGEST);
}

/// Parses the bytes as a whole and up to `cut`. Both results must agree.
fn cut_anywhere<T: PartialEq + Debug>(
    parse: impl Fn(&[u8]) -> Parsed<T>,
    bytes: &[u8],
    cut: usize,
    longest: usize,
) {
    let whole = parse(bytes);
    if let Parsed::Done(_, used) = &whole {
        assert!(*used <= bytes.len() && *used <= longest, "takes {used}");
    }
    match parse(&bytes[..cut]) {
        Parsed::More => {
            if let Parsed::Done(_, used) = whole {
                assert!(used > cut, "{used} bytes were not enough before");
            }
        }
        Parsed::Bad(_) => assert!(matches!(whole, Parsed::Bad(_)), "bad before: {whole:?}"),
        done => assert_eq!(done, whole),
    }
}

fn read_proxy(bytes: &[u8], cut: usize) {
    for version in [Version::Any, Version::V1, Version::V2] {
        cut_anywhere(|b| proxy::parse(b, version), bytes, cut, proxy::LONGEST);
    }
    // What was read can be written, and is then read again.
    if let Parsed::Done(header, _) = proxy::parse(bytes, Version::Any) {
        let again = proxy::write(Version::V2, &header, ALL);
        match proxy::parse(&again, Version::V2) {
            Parsed::Done(read, used) => {
                assert_eq!(used, again.len());
                assert_eq!(read.tlvs, header.tlvs);
            }
            other => assert!(again.len() > proxy::LONGEST, "{other:?}"),
        }
    }
}

fn read_connect(bytes: &[u8], cut: usize) {
    cut_anywhere(connect::parse, bytes, cut, usize::MAX);
}

fn read_socks(bytes: &[u8], cut: usize) {
    cut_anywhere(socks::greeting, bytes, cut, socks::LONGEST);
    cut_anywhere(socks::request, bytes, cut, socks::LONGEST);
}

fn read_hello(bytes: &[u8], cut: usize) {
    let whole = hello::Reader::default().feed(bytes);
    let mut reader = hello::Reader::default();
    let mut parts = reader.feed(&bytes[..cut]);
    if let Ok(None) = parts {
        parts = reader.feed(&bytes[cut..]);
    }
    match (whole, parts) {
        (Ok(whole), Ok(parts)) => {
            assert_eq!(whole, parts);
            if let Some(hello) = whole {
                let summary = hello.summary();
                assert!(summary.alpn.is_ascii() && summary.alpn.len() <= 256);
            }
        }
        (whole, parts) => assert!(whole.is_err() && parts.is_err(), "{whole:?}, {parts:?}"),
    }
}

const ALL: Kinds = Kinds {
    authority: true,
    alpn: true,
    unique_id: true,
    crc32c: true,
};

fn proxy_seeds() -> Vec<Vec<u8>> {
    let tlvs = Tlvs {
        authority: Some(b"a.example".to_vec()),
        alpn: Some(b"h2".to_vec()),
        unique_id: Some(vec![7; 20]),
    };
    let mut seeds = vec![
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\nGET /".to_vec(),
    ];
    for (a, b) in [("1.2.3.4:5", "6.7.8.9:10"), ("[::1]:5", "[::2]:10")] {
        let addresses = Some((a.parse().unwrap(), b.parse().unwrap()));
        let header = Header {
            addresses,
            tlvs: tlvs.clone(),
        };
        seeds.push(proxy::write(Version::V1, &header, ALL));
        seeds.push(proxy::write(Version::V2, &header, ALL));
        let kinds = Kinds {
            crc32c: false,
            ..ALL
        };
        seeds.push(proxy::write(Version::V2, &header, kinds));
    }
    seeds
}

fn connect_seeds() -> Vec<Vec<u8>> {
    [
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Authorization: x\r\n\r\ndata",
        "CONNECT [::1]:80 HTTP/1.0\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn socks_seeds() -> Vec<Vec<u8>> {
    [
        &b"\x05\x01\x00"[..],
        b"\x05\x03\x02\x01\x00",
        b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50data",
        b"\x05\x01\x00\x03\x09a.example\x01\xbb",
        b"\x05\x02\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\0\x50",
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}

fn counted(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u16).to_be_bytes()[..], body].concat()
}

/// ClientHellos of TLS 1.2, in one record and in many.
fn hello_seeds() -> Vec<Vec<u8>> {
    let extension = |kind: u16, body: &[u8]| [&kind.to_be_bytes()[..], &counted(body)].concat();
    let name = [&[0u8][..], &counted(b"a.example")].concat();
    let extensions = [
        extension(10, &counted(&[0, 0x1d])),
        extension(13, &counted(&[4, 3])),
        extension(0, &counted(&name)),
        extension(16, &counted(b"\x02h2\x08http/1.1")),
        extension(43, &[2, 3, 3]),
    ]
    .concat();
    let random = [[3, 3].as_slice(), &[7; 32], &[0]].concat();
    let body = [
        random,
        counted(&[0xc0, 0x2f]),
        vec![1, 0],
        counted(&extensions),
    ]
    .concat();
    let length = (body.len() as u32).to_be_bytes();
    let message = [&[1u8][..], &length[1..], &body].concat();
    [1, 40, 1 << 14]
        .map(|cut| {
            let records = message.chunks(cut);
            let record = |part| [&[22u8, 3, 1][..], &counted(part)].concat();
            records.flat_map(record).collect()
        })
        .to_vec()
}

/// Fuzzes one parser for a quarter of the time. Returns the number of messages.
fn fuzz(name: &str, seeds: Vec<Vec<u8>>, read: fn(&[u8], usize)) -> u64 {
    let number = |key: &str| std::env::var(key).ok().and_then(|n| n.parse().ok());
    let seconds: u64 = number("RELAY_FUZZ_SECONDS").unwrap_or(2);
    let end = Instant::now() + Duration::from_millis(seconds * 250);
    let mut seed: u64 = number("RELAY_FUZZ_SEED").unwrap_or(1);
    let mut messages = 0;
    for bytes in &seeds {
        read(bytes, bytes.len() / 2);
    }
    while messages < 1000 || Instant::now() < end {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut bytes = seeds[random.below(seeds.len())].clone();
        mutate(&mut random, &mut bytes, &seeds);
        let cut = random.below(bytes.len() + 1);
        let outcome = catch_unwind(AssertUnwindSafe(|| read(&bytes, cut)));
        if outcome.is_err() {
            let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            panic!("{name}: RELAY_FUZZ_SEED={seed}, cut at {cut}: {text}");
        }
        seed = seed.wrapping_add(1);
        messages += 1;
    }
    println!("{name}: {messages} messages");
    messages
}

#[test]
fn proxy_headers() {
    fuzz("PROXY", proxy_seeds(), read_proxy);
}

#[test]
fn connect_requests() {
    fuzz("CONNECT", connect_seeds(), read_connect);
}

#[test]
fn socks_messages() {
    fuzz("SOCKS", socks_seeds(), read_socks);
}

#[test]
fn client_hellos() {
    fuzz("ClientHello", hello_seeds(), read_hello);
}

#[test]
fn the_fuzzer_finds_a_fault() {
    // A parser that reads a length without a check panics, and the fuzzer says so.
    fn faulty(bytes: &[u8], _: usize) {
        if let [5, n, methods @ ..] = bytes {
            let _ = &methods[..usize::from(*n)];
        }
    }
    assert!(catch_unwind(|| fuzz("faulty", socks_seeds(), faulty)).is_err());
}
