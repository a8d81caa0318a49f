// SPDX-License-Identifier: GPL-2.0
//! HTTP/1 CONNECT: the request for a tunnel, and the answers to it.

use super::Parsed;
use crate::net::Address;

/// Largest size of a request with its headers, in bytes.
pub const LONGEST: usize = 8 << 10;

const HEADERS: usize = 64;

/// Parses a request. Its value is the destination to which the client wants a tunnel.
pub fn parse(bytes: &[u8]) -> Parsed<Address> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() >= LONGEST => {
            Parsed::Bad("too long a request")
        }
        Ok(httparse::Status::Partial) => Parsed::More,
        Ok(httparse::Status::Complete(used)) => match target(&request) {
            Ok(address) => Parsed::Done(address, used),
            Err(why) => Parsed::Bad(why),
        },
        Err(_) => Parsed::Bad("no HTTP request"),
    }
}

fn target(request: &httparse::Request) -> Result<Address, &'static str> {
    if request.method != Some("CONNECT") {
        return Err("a method other than CONNECT");
    }
    let address: Address = request
        .path
        .unwrap_or_default()
        .parse()
        .map_err(|_| "no HOST:PORT to connect to")?;
    match address {
        Address::Ip(_) | Address::Name(..) if address.can_connect() => Ok(address),
        _ => Err("no HOST:PORT to connect to"),
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
        assert_eq!(parse(&all), Parsed::Done(address, request.len()));
        for n in 0..request.len() {
            assert_eq!(parse(&request[..n]), Parsed::More);
        }
        assert!(matches!(
            parse(b"CONNECT [::1]:80 HTTP/1.0\r\n\r\n"),
            Parsed::Done(Address::Ip(_), _)
        ));
    }

    #[test]
    fn other_requests_are_refused() {
        for request in [
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT / HTTP/1.1\r\n\r\n",
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT a.example:0 HTTP/1.1\r\n\r\n",
            "CONNECT unix:/run/x HTTP/1.1\r\n\r\n",
            "CONNECT *:80 HTTP/1.1\r\n\r\n",
            "CONNECT /run/x HTTP/1.1\r\n\r\n",
            "CONNECT systemd:x HTTP/1.1\r\n\r\n",
            "CONNECT a:1 HTTP/2\r\n\r\n",
            "\x16\x03\x01",
        ] {
            assert!(
                matches!(parse(request.as_bytes()), Parsed::Bad(_)),
                "{request}"
            );
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
            prop_assert_eq!(parse(&all), Parsed::Done(Address::Name(host, port), request.len()));
        }
    }
}
