// SPDX-License-Identifier: GPL-2.0
//! A range of TCP ports: `443` or `8000-8999`.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |part: &str| match part.parse::<u16>() {
            // parse() would take a sign, too.
            Ok(port) if port > 0 && part.starts_with(|c: char| c.is_ascii_digit()) => Ok(port),
            _ => Err("a port is a number from 1 to 65535, a range is FIRST-LAST".to_string()),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err("the first port of a range is not above the last".into());
        }
        Ok(PortRange { first, last })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_a_port_and_a_range() {
        for (text, first, last) in [
            ("1", 1, 1),
            ("65535", 65535, 65535),
            ("80-90", 80, 90),
            ("80-80", 80, 80),
        ] {
            assert_eq!(text.parse(), Ok(PortRange { first, last }), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "", "0", "65536", "x", "-1", "+1", "1-", "-", "9-8", "1-2-3", " 1", "0-5",
        ] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_what_it_parses() {
        for text in ["80", "80-90"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
    }
}
