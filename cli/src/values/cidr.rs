// SPDX-License-Identifier: GPL-2.0
//! A network: `10.0.0.0/8`, `fd00::/8`, or one address.
//!
//! IPv4 and v4-mapped IPv6 are the same here, as they are in the policy: the
//! mapped form of an IPv4 network is that network, and an IPv6 network never
//! holds an IPv4 address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub net: IpAddr,
    pub prefix: u8,
}

impl Cidr {
    /// Address and mask as four words in host order, IPv4 in the last one.
    pub fn words(&self) -> ([u32; 4], [u32; 4]) {
        match self.net {
            IpAddr::V4(net) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix));
                (
                    [0, 0, 0, net.to_bits()],
                    // Words that are zero in every IPv4 address are compared, too.
                    [u32::MAX, u32::MAX, u32::MAX, mask.unwrap_or(0)],
                )
            }
            IpAddr::V6(net) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix));
                (split(net.to_bits()), split(mask.unwrap_or(0)))
            }
        }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let (net, mask) = self.words();
        let host = Cidr {
            net: address.to_canonical(),
            prefix: 0,
        };
        let (words, _) = host.words();
        self.net.is_ipv4() == host.net.is_ipv4() && [0, 1, 2, 3].map(|i| words[i] & mask[i]) == net
    }

    /// The reverse of [`Cidr::words`].
    pub fn from_words(v4: bool, net: [u32; 4], mask: [u32; 4]) -> Self {
        if v4 {
            Cidr {
                net: Ipv4Addr::from_bits(net[3]).into(),
                prefix: mask[3].leading_ones() as u8,
            }
        } else {
            Cidr {
                net: Ipv6Addr::from_bits(join(net)).into(),
                prefix: join(mask).leading_ones() as u8,
            }
        }
    }
}

fn split(bits: u128) -> [u32; 4] {
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

fn join(words: [u32; 4]) -> u128 {
    words
        .iter()
        .fold(0, |bits, word| bits << 32 | u128::from(*word))
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let mut net: IpAddr = address
            .parse()
            .map_err(|_| "a network is ADDRESS/PREFIX, for example 10.0.0.0/8 or fd00::/8")?;
        let width = if net.is_ipv4() { 32 } else { 128 };
        let mut prefix = match prefix {
            None => width,
            Some(digits) => match digits.parse::<u8>() {
                Ok(n) if n <= width && digits.bytes().all(|b| b.is_ascii_digit()) => n,
                _ => return Err(format!("the prefix is a number from 0 to {width}")),
            },
        };
        if let IpAddr::V6(v6) = net {
            if let (Some(v4), Some(rest)) = (v6.to_ipv4_mapped(), prefix.checked_sub(96)) {
                net = v4.into();
                prefix = rest;
            }
        }
        let cidr = Cidr { net, prefix };
        let (words, mask) = cidr.words();
        let masked = [0, 1, 2, 3].map(|i| words[i] & mask[i]);
        if masked != words {
            let right = Cidr::from_words(net.is_ipv4(), masked, mask);
            return Err(format!(
                "the address has bits beyond its prefix: {right} is meant?"
            ));
        }
        Ok(cidr)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.net, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_both_families() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("127.0.0.1", "127.0.0.1/32"),
            ("fd00::/8", "fd00::/8"),
            ("::/0", "::/0"),
            ("::1", "::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0.0.0.0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn holds_addresses_of_its_family() {
        for (net, address, holds) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "1.2.3.4", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::1", "::1", true),
        ] {
            let net: Cidr = net.parse().unwrap();
            assert_eq!(
                net.contains(address.parse().unwrap()),
                holds,
                "{net} {address}"
            );
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0/8",
            "::/129",
            "10.0.0.1/8",
            "fd00::1/8",
            "host/8",
            "10.0.0.0/8/8",
            "10.0.0.0/-1",
            "::ffff:10.0.0.1/104",
        ] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_the_network_that_was_meant() {
        let error = "10.1.2.3/8".parse::<Cidr>().unwrap_err();
        assert!(error.contains("10.0.0.0/8"), "{error}");
    }

    #[test]
    fn words_come_back() {
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "1.2.3.4/32",
            "::/0",
            "fd00::/8",
            "2001:db8::1/128",
        ] {
            let cidr: Cidr = text.parse().unwrap();
            let (net, mask) = cidr.words();
            assert_eq!(Cidr::from_words(cidr.net.is_ipv4(), net, mask), cidr);
        }
    }

    #[test]
    fn words_are_in_address_order() {
        let (net, mask) = "2001:db8::/32".parse::<Cidr>().unwrap().words();
        assert_eq!(net, [0x2001_0db8, 0, 0, 0]);
        assert_eq!(mask, [u32::MAX, 0, 0, 0]);
        let (net, mask) = "10.0.0.0/8".parse::<Cidr>().unwrap().words();
        assert_eq!(net, [0, 0, 0, 0x0a00_0000]);
        assert_eq!(mask[3], 0xff00_0000);
    }
}
