// SPDX-License-Identifier: GPL-2.0
//! Networks, for lists of allowed and of denied addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::address::plain;

/// A network in CIDR notation. An address alone is a network of one. A network of IPv4-mapped
/// addresses (`::ffff:a.b.c.d/96` and longer) is kept as its IPv4 network, because sources are
/// compared in that form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u8,
}

impl Network {
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.base, plain(ip)) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                same_prefix(base.to_bits().into(), ip.to_bits().into(), 32, self.bits)
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => {
                same_prefix(base.to_bits(), ip.to_bits(), 128, self.bits)
            }
            _ => false,
        }
    }
}

fn same_prefix(a: u128, b: u128, width: u8, bits: u8) -> bool {
    bits == 0 || (a ^ b) >> (width - bits) == 0
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = base
            .parse()
            .map_err(|_| format!("'{text}' is no network (ADDRESS or ADDRESS/BITS)"))?;
        let width = if base.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) => bits.parse().ok().filter(|b| *b <= width).ok_or_else(|| {
                format!("'{bits}' in '{text}' is no prefix length (0 to {width})")
            })?,
        };
        let host_bits = match base {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let mask = match width - bits {
            128 => u128::MAX,
            n => (1 << n) - 1,
        };
        if base != plain(base) && bits < 96 {
            return Err(format!(
                "'{text}' holds more than IPv4-mapped addresses: write an IPv4 network"
            ));
        }
        if host_bits & mask != 0 {
            return Err(format!("'{text}' has bits set behind its first {bits}"));
        }
        Ok(match (base, plain(base)) {
            (IpAddr::V6(_), v4 @ IpAddr::V4(_)) => Network {
                base: v4,
                bits: bits - 96,
            },
            _ => Network { base, bits },
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("127.0.0.1", "::ffff:127.0.0.1", "127.0.0.2"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
            ("::/0", "::1", "1.1.1.1"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
            ("::ffff:10.0.0.0/104", "10.255.0.1", "11.0.0.0"),
            ("::ffff:10.0.0.0/104", "::ffff:10.255.0.1", "::1"),
            ("::ffff:0:0/96", "8.8.8.8", "::1"),
            ("::ffff:127.0.0.1", "127.0.0.1", "127.0.0.2"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network}");
            assert!(!network.contains(outside.parse().unwrap()), "{network}");
        }
    }

    #[test]
    fn mistaken_networks_are_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::1/127",
            "x/8",
            "::/129",
            "10/8",
            "::ffff:0:0/95",
            "::ffff:10.0.0.0/24",
            "::ffff:10.0.0.1/104",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
