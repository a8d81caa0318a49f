// SPDX-License-Identifier: GPL-2.0
//! Addresses to listen at and to connect to, and the addresses of peers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An address as it is written in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    Ip(SocketAddr),
    /// `*:PORT`: one socket listens at every address of both families.
    Any(u16),
    /// A host name, which the relay resolves again at intervals.
    Name(String, u16),
    Unix(PathBuf),
    /// `systemd:NAME`: a socket that systemd passed.
    Passed(String),
}

impl Address {
    /// True if a relay can listen at this address.
    pub fn can_listen(&self) -> bool {
        !matches!(self, Address::Name(..))
    }

    /// True if a relay can connect to this address.
    pub fn can_connect(&self) -> bool {
        match self {
            // connect(2) to the unspecified address reaches this host.
            Address::Ip(a) => a.port() != 0 && !plain(a.ip()).is_unspecified(),
            Address::Name(_, port) => *port != 0,
            Address::Unix(_) => true,
            Address::Any(_) | Address::Passed(_) => false,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path);
        }
        if text.starts_with('/') {
            return unix(text);
        }
        if let Some(name) = text.strip_prefix("systemd:") {
            return match name {
                "" => Err("systemd: wants the name of a socket unit's descriptor".into()),
                name => Ok(Address::Passed(name.into())),
            };
        }
        if let Ok(address) = text.parse() {
            return Ok(Address::Ip(address));
        }
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| format!("'{text}' has no port (HOST:PORT, [IPV6]:PORT or unix:PATH)"))?;
        let port: u16 = port
            .parse()
            .map_err(|_| format!("'{port}' in '{text}' is no port"))?;
        match host {
            "*" => Ok(Address::Any(port)),
            host if is_name(host) => Ok(Address::Name(host.to_ascii_lowercase(), port)),
            host => Err(format!(
                "'{host}' in '{text}' is neither an address nor a host name"
            )),
        }
    }
}

fn unix(path: &str) -> Result<Address, String> {
    // sun_path has 108 bytes, with the zero at the end.
    if path.is_empty() || path.len() > 107 || path.contains('\0') {
        return Err(format!(
            "'{path}' cannot be the path of a Unix socket (1 to 107 bytes)"
        ));
    }
    Ok(Address::Unix(path.into()))
}

/// True if `host` is a host name by RFC 1123. Underscores are also allowed.
pub fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // No top-level domain is a number, so "1.2.3" and "300.1.1.1" are mistaken addresses.
    let last = host.rsplit('.').next().unwrap_or("");
    (1..=253).contains(&host.len())
        && host.split('.').all(label)
        && !last.bytes().all(|b| b.is_ascii_digit())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Address::Ip(a) => a.fmt(f),
            Address::Any(port) => write!(f, "*:{port}"),
            Address::Name(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Passed(name) => write!(f, "systemd:{name}"),
        }
    }
}

/// The address of a client or a target, for connect(2) and for the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    Ip(SocketAddr),
    Unix(PathBuf),
    /// A client whose Unix socket is not bound to a path.
    Unnamed,
}

impl Peer {
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Peer::Ip(a) => Some(plain(a.ip())),
            _ => None,
        }
    }

    pub fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Peer::Ip(a) => Some(SocketAddr::new(plain(a.ip()), a.port())),
            _ => None,
        }
    }

    /// True if a socket with the address `from` may connect here, by its family. Without an address
    /// any socket may.
    pub fn may_be_reached(&self, from: Option<IpAddr>) -> bool {
        match (self, from) {
            (Peer::Ip(to), Some(from)) => to.is_ipv4() == from.is_ipv4(),
            _ => true,
        }
    }

    pub fn unix(path: Option<&Path>) -> Peer {
        path.map_or(Peer::Unnamed, |p| Peer::Unix(p.into()))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Peer::Ip(a) => SocketAddr::new(plain(a.ip()), a.port()).fmt(f),
            Peer::Unix(path) => write!(f, "unix:{}", path.display()),
            Peer::Unnamed => f.write_str("unix:"),
        }
    }
}

/// Returns the IPv4 address of an IPv4-mapped IPv6 address (`::ffff:a.b.c.d`), which a socket of
/// both families reports. Any other address stays as it is.
pub fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        v4 => v4,
    }
}

/// Returns the address under which a source is counted: its IPv4 address, or the /64 of its IPv6
/// address. A single host may use all addresses of a /64.
pub fn source_key(ip: IpAddr) -> IpAddr {
    match plain(ip) {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "127.0.0.1:80",
            "[::1]:80",
            "*:443",
            "a.example:5",
            "unix:/run/x.sock",
            "systemd:web",
            "localhost:1",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("/run/x".parse(), Ok(Address::Unix("/run/x".into())));
    }

    #[test]
    fn mistaken_addresses_are_refused() {
        for text in [
            "",
            "80",
            "host",
            ":80",
            "host:",
            "host:65536",
            "1.2.3:80",
            "300.1.1.1:80",
            "::1:80:x",
            "unix:",
            "systemd:",
            "-a:1",
            "a..b:1",
            "a b:1",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn no_relay_connects_to_the_unspecified_address() {
        for (text, good) in [
            ("0.0.0.0:80", false),
            ("[::]:80", false),
            ("[::ffff:0.0.0.0]:80", false),
            ("[::ffff:0.0.0.1]:80", true),
            ("127.0.0.1:0", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.can_connect(), good, "{text}");
        }
    }

    #[test]
    fn a_mapped_address_counts_as_ipv4() {
        assert_eq!(
            source_key("::ffff:1.2.3.4".parse().unwrap()),
            "1.2.3.4".parse::<IpAddr>().unwrap()
        );
        assert_eq!(
            source_key("2001:db8:1:2:3:4:5:6".parse().unwrap()),
            "2001:db8:1:2::".parse::<IpAddr>().unwrap()
        );
    }
}
