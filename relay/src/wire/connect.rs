// SPDX-License-Identifier: GPL-2.0
//! HTTP/1 CONNECT: the request for a tunnel, and the answers to it.

use super::Parsed;
use crate::net::Address;

/// Largest size of a request with its headers, in bytes.
pub const LONGEST: usize = 8 << 10;

const HEADERS: usize = 64;

/// A complete request that asks for no tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Method,
    Destination,
}

impl Refusal {
    pub fn status(self) -> u16 {
        match self {
            Refusal::Method => 405,
            Refusal::Destination => 400,
        }
    }

    pub fn detail(self) -> &'static str {
        match self {
            Refusal::Method => "a method other than CONNECT",
            Refusal::Destination => "no HOST:PORT to connect to",
        }
    }
}

/// Parses a request. Its value is the destination to which the client wants a tunnel.
pub fn parse(bytes: &[u8]) -> Parsed<Result<Address, Refusal>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() >= LONGEST => {
            Parsed::Bad("too long a request")
        }
        Ok(httparse::Status::Partial) => Parsed::More,
        Ok(httparse::Status::Complete(used)) => Parsed::Done(target(&request), used),
        Err(_) => Parsed::Bad("no HTTP request"),
    }
}

fn target(request: &httparse::Request) -> Result<Address, Refusal> {
    if request.method != Some("CONNECT") {
        return Err(Refusal::Method);
    }
    match request.path.unwrap_or_default().parse() {
        Ok(address @ (Address::Ip(_) | Address::Name(..))) if address.can_connect() => Ok(address),
        _ => Err(Refusal::Destination),
    }
}

/// The answer that opens the tunnel.
pub const OPEN: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Returns the answer that refuses a request with `status`.
pub fn refusal(status: u16) -> Vec<u8> {
    let reason = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        504 => "Gateway Timeout",
        _ => "Bad Gateway",
    };
    let allow = if status == 405 {
        "Allow: CONNECT\r\n"
    } else {
        ""
    };
    format!("HTTP/1.1 {status} {reason}\r\n{allow}Content-Length: 0\r\nConnection: close\r\n\r\n")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_read_and_no_byte_more() {
        let request = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n";
        let all = [&request[..], b"\x16\x03\x01"].concat();
        let address = Address::Name("a.example".into(), 443);
        assert_eq!(parse(&all), Parsed::Done(Ok(address), request.len()));
        for n in 0..request.len() {
            assert_eq!(parse(&request[..n]), Parsed::More);
        }
        assert!(matches!(
            parse(b"CONNECT [::1]:80 HTTP/1.0\r\n\r\n"),
            Parsed::Done(Ok(Address::Ip(_)), _)
        ));
    }

    #[test]
    fn other_requests_are_refused() {
        for (request, status) in [
            ("GET / HTTP/1.1", 405),
            ("GET 127.0.0.1:80 HTTP/1.1", 405),
            ("CONNECT / HTTP/1.1", 400),
            ("CONNECT a.example HTTP/1.1", 400),
            ("CONNECT a.example:0 HTTP/1.1", 400),
            ("CONNECT unix:/run/x HTTP/1.1", 400),
            ("CONNECT *:80 HTTP/1.1", 400),
            ("CONNECT /run/x HTTP/1.1", 400),
            ("CONNECT systemd:x HTTP/1.1", 400),
        ] {
            match parse(format!("{request}\r\n\r\n").as_bytes()) {
                Parsed::Done(Err(refusal), _) => assert_eq!(refusal.status(), status, "{request}"),
                other => panic!("{request}: {other:?}"),
            }
        }
        for bytes in ["CONNECT a:1 HTTP/2\r\n\r\n", "\x16\x03\x01"] {
            assert!(matches!(parse(bytes.as_bytes()), Parsed::Bad(_)), "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(connect: bool, bytes: Vec<u8>) {
            let start: &[u8] = if connect { b"CONNECT " } else { b"" };
            let bytes = [start, &bytes[..]].concat();
            if let Parsed::Done(_, used) = parse(&bytes) {
                prop_assert!(used <= bytes.len());
            }
        }

        #[test]
        fn hosts_and_ports_are_read(host in "[a-z][a-z0-9-]{0,20}[a-z]", port in 1u16.., rest: Vec<u8>) {
            let request = format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n");
            let all = [request.as_bytes(), &rest[..]].concat();
            prop_assert_eq!(parse(&all), Parsed::Done(Ok(Address::Name(host, port)), request.len()));
        }
    }
}
