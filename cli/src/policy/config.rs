// SPDX-License-Identifier: GPL-2.0
//! A policy, as the bytes of `struct policy_config` in `bpf/policy.h`.

use crate::cidr::Cidr;
use crate::error::{Error, Result};
use crate::port::PortRange;

/// The version of the bytes; those of another one are not understood.
const LAYOUT: u32 = 1;
const PORTS: usize = 64;
const CIDRS: usize = 64;

const HEAD_WORDS: usize = 6;
const CIDR_WORDS: usize = 9;
pub const SIZE: usize = 4 * (HEAD_WORDS + PORTS + CIDRS * CIDR_WORDS);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    pub ports: Vec<PortRange>,
    pub cidrs: Vec<Cidr>,
    pub loopback_only: bool,
    /// None: the socket's own value.
    pub busy_poll: Option<u32>,
    /// None: the module's default.
    pub ring: Option<u32>,
}

impl Config {
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        if self.ports.len() > PORTS {
            return Err(Error::usage(format!("more than {PORTS} port ranges"))
                .remedy("join neighbouring ones"));
        }
        if self.cidrs.len() > CIDRS {
            return Err(Error::usage(format!("more than {CIDRS} networks"))
                .remedy("join neighbouring ones"));
        }
        let mut words = vec![
            LAYOUT,
            self.ring.unwrap_or(0),
            self.busy_poll.unwrap_or(0),
            self.loopback_only.into(),
            self.ports.len() as u32,
            self.cidrs.len() as u32,
        ];
        let mut bytes: Vec<u8> = words.drain(..).flat_map(u32::to_ne_bytes).collect();
        for range in &self.ports {
            bytes.extend(range.first.to_ne_bytes());
            bytes.extend(range.last.to_ne_bytes());
        }
        bytes.resize(4 * (HEAD_WORDS + PORTS), 0);
        for cidr in &self.cidrs {
            let (net, mask) = cidr.words();
            words.push(cidr.net.is_ipv4().into());
            words.extend(net.iter().chain(&mask));
            bytes.extend(words.drain(..).flat_map(u32::to_ne_bytes));
        }
        bytes.resize(SIZE, 0);
        Ok(bytes)
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let word = |i: usize| u32::from_ne_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
        if bytes.len() != SIZE || word(0) != LAYOUT {
            return Err(
                Error::new("the policy was set by another version of this program")
                    .remedy("set it again"),
            );
        }
        let optional = |n| (n != 0).then_some(n);
        let port = |i: usize| {
            let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
            let at = 4 * (HEAD_WORDS + i);
            PortRange {
                first: half(at),
                last: half(at + 2),
            }
        };
        let cidr = |i: usize| {
            let at = HEAD_WORDS + PORTS + i * CIDR_WORDS;
            let four = |at| [0, 1, 2, 3].map(|i| word(at + i));
            Cidr::from_words(word(at) != 0, four(at + 1), four(at + 5))
        };
        Ok(Config {
            ring: optional(word(1)),
            busy_poll: optional(word(2)),
            loopback_only: word(3) != 0,
            ports: (0..PORTS.min(word(4) as usize)).map(port).collect(),
            cidrs: (0..CIDRS.min(word(5) as usize)).map(cidr).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../../bpf/policy.h");

    #[test]
    fn limits_are_those_of_the_header() {
        for (name, value) in [
            ("LAYOUT", LAYOUT as usize),
            ("PORTS", PORTS),
            ("CIDRS", CIDRS),
        ] {
            let start = format!("#define POLICY_{name}\t");
            let line = HEADER.lines().find(|l| l.starts_with(&start)).unwrap();
            assert_eq!(line.rsplit('\t').next().unwrap(), value.to_string());
        }
    }

    #[test]
    fn comes_back_from_its_bytes() {
        let full = Config {
            ports: vec!["80".parse().unwrap(), "8000-8999".parse().unwrap()],
            cidrs: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            loopback_only: true,
            busy_poll: Some(50),
            ring: Some(65536),
        };
        let most = Config {
            ports: vec!["1-2".parse().unwrap(); PORTS],
            cidrs: vec!["::1".parse().unwrap(); CIDRS],
            ..Config::default()
        };
        for config in [Config::default(), full, most] {
            let bytes = config.to_bytes().unwrap();
            assert_eq!(bytes.len(), SIZE);
            assert_eq!(Config::from_bytes(&bytes).unwrap(), config);
        }
    }

    #[test]
    fn too_long_a_list_is_a_usage_error() {
        let ports = vec!["1".parse().unwrap(); PORTS + 1];
        let config = Config {
            ports,
            ..Config::default()
        };
        assert_eq!(config.to_bytes().unwrap_err().status, crate::error::USAGE);
    }

    #[test]
    fn another_layout_is_refused() {
        let mut bytes = Config::default().to_bytes().unwrap();
        bytes[0] ^= 0x40;
        assert!(Config::from_bytes(&bytes).is_err());
        assert!(Config::from_bytes(&[]).is_err());
    }
}
