// SPDX-License-Identifier: GPL-2.0
//! SOCKS 5 (RFC 1928): the command CONNECT, without authentication.

use std::net::IpAddr;

use super::Parsed;
use crate::net::{Address, is_name};

/// Size of the longest greeting or request, in bytes.
pub const LONGEST: usize = 262;

/// The answer to a greeting if the client need not authenticate.
pub const NO_AUTHENTICATION: &[u8] = &[5, 0];
/// The answer to a greeting if no method of the client is acceptable.
pub const NO_METHOD: &[u8] = &[5, 0xff];

/// Parses the greeting. Its value is true if the client can do without authentication.
pub fn greeting(bytes: &[u8]) -> Parsed<bool> {
    match bytes {
        [] | [5] => Parsed::More,
        [5, 0, ..] => Parsed::Bad("a SOCKS greeting without methods"),
        [5, n, methods @ ..] => match methods.get(..usize::from(*n)) {
            Some(methods) => Parsed::Done(methods.contains(&0), 2 + methods.len()),
            None => Parsed::More,
        },
        _ => Parsed::Bad("no SOCKS 5"),
    }
}

/// The reply to a request, with its number in RFC 1928.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Granted = 0,
    Failure = 1,
    Forbidden = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    TimedOut = 6,
    Command = 7,
    AddressType = 8,
}

/// Parses the request. If it is well-formed but not supported, the value is the reply to send.
pub fn request(bytes: &[u8]) -> Parsed<Result<Address, Reply>> {
    let well_begun = [5, bytes.get(1).copied().unwrap_or(1), 0];
    let n = bytes.len().min(3);
    if bytes[..n] != well_begun[..n] {
        return Parsed::Bad("a SOCKS request of another form");
    }
    let Some(kind) = bytes.get(3) else {
        return Parsed::More;
    };
    let (at, length) = match (kind, bytes.get(4)) {
        (1, _) => (4, 4),
        (3, None) => return Parsed::More,
        (3, Some(0)) => return Parsed::Bad("a SOCKS request with an empty name"),
        (3, Some(length)) => (5, usize::from(*length)),
        (4, _) => (4, 16),
        _ => return Parsed::Done(Err(Reply::AddressType), 4),
    };
    let used = at + length + 2;
    let Some(&[ref host @ .., high, low]) = bytes.get(at..used) else {
        return Parsed::More;
    };
    let port = u16::from_be_bytes([high, low]);
    if bytes[1] != 1 {
        return Parsed::Done(Err(Reply::Command), used);
    }
    Parsed::Done(destination(host, *kind, port), used)
}

fn destination(host: &[u8], kind: u8, port: u16) -> Result<Address, Reply> {
    let ip = match kind {
        1 => <[u8; 4]>::try_from(host).ok().map(IpAddr::from),
        4 => <[u8; 16]>::try_from(host).ok().map(IpAddr::from),
        _ => None,
    };
    let address = match ip {
        Some(ip) => Address::Ip((ip, port).into()),
        None => {
            let name = std::str::from_utf8(host).map_err(|_| Reply::HostUnreachable)?;
            match name.parse::<IpAddr>() {
                // Some clients send an address as a name.
                Ok(ip) => Address::Ip((ip, port).into()),
                Err(_) if is_name(name) => Address::Name(name.to_ascii_lowercase(), port),
                Err(_) => return Err(Reply::HostUnreachable),
            }
        }
    };
    if address.can_connect() {
        Ok(address)
    } else {
        Err(Reply::HostUnreachable)
    }
}

/// Returns the answer to a request. Its address field is zero, because clients have no use for the
/// address from which the relay connected.
pub fn answer(reply: Reply) -> [u8; 10] {
    [5, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn greetings_are_read() {
        assert_eq!(greeting(&[5, 2, 0, 2, 9]), Parsed::Done(true, 4));
        assert_eq!(greeting(&[5, 1, 2]), Parsed::Done(false, 3));
        for bytes in [&[][..], &[5], &[5, 2], &[5, 2, 0]] {
            assert_eq!(greeting(bytes), Parsed::More);
        }
        for bytes in [&[4][..], &[4, 1, 0], &[5, 0], b"GET /"] {
            assert!(matches!(greeting(bytes), Parsed::Bad(_)));
        }
    }

    #[test]
    fn requests_are_read() {
        let name = [&[5, 1, 0, 3, 4][..], b"host", &[1, 187, 22]].concat();
        assert_eq!(
            request(&name),
            Parsed::Done(Ok(Address::Name("host".into(), 443)), 11)
        );
        let v4 = [5, 1, 0, 1, 127, 0, 0, 1, 0, 80];
        assert_eq!(
            request(&v4),
            Parsed::Done(Ok(Address::Ip("127.0.0.1:80".parse().unwrap())), 10)
        );
        for n in 0..v4.len() {
            assert_eq!(request(&v4[..n]), Parsed::More);
        }
    }

    #[test]
    fn what_is_not_served_has_its_reply() {
        let bind = [5, 2, 0, 1, 127, 0, 0, 1, 0, 80];
        assert_eq!(request(&bind), Parsed::Done(Err(Reply::Command), 10));
        let kind = [5, 1, 0, 9, 0];
        for bytes in [&kind[..], &kind[..4]] {
            assert_eq!(request(bytes), Parsed::Done(Err(Reply::AddressType), 4));
        }
        assert!(matches!(request(&[4, 1, 0]), Parsed::Bad(_)));
        assert!(matches!(request(&[5, 1, 7]), Parsed::Bad(_)));
        assert!(matches!(request(&[5, 1, 0, 3, 0, 0, 0]), Parsed::Bad(_)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(begun: bool, bytes: Vec<u8>) {
            let start: &[u8] = if begun { &[5, 1, 0] } else { &[] };
            let bytes = [start, &bytes[..]].concat();
            if let Parsed::Done(_, used) = request(&bytes) {
                prop_assert!(used <= bytes.len() && used <= LONGEST);
            }
            if let Parsed::Done(_, used) = greeting(&bytes) {
                prop_assert!(used <= bytes.len() && used <= LONGEST);
            }
        }
    }
}
