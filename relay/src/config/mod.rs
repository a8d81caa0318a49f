// SPDX-License-Identifier: GPL-2.0
//! Reads and checks the configuration, socksplice-relay.toml(5).

mod read;
mod section;
mod units;

use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use crate::log::Format;
use crate::net::{Address, Network};
use crate::transfer::Wanted;
use crate::wire::hello::Pattern;
use crate::wire::proxy::Version;
use crate::wire::tlv::Kinds;

pub use section::Mistake;

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub listeners: Vec<Listener>,
    pub log: Format,
    /// Addresses that serve metrics and status.
    pub admin: Vec<Address>,
    /// Time that connections have to end after SIGTERM.
    pub drain: Duration,
    /// Time between two look-ups of the targets' names.
    pub resolve: Duration,
    /// Limit for the connections of all listeners together.
    pub max_connections: Option<usize>,
}

/// What the relay reads from a client before it forwards bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Front {
    #[default]
    Plain,
    /// A TLS ClientHello, which the target gets too.
    Tls,
    /// An HTTP/1 CONNECT request.
    Connect,
    Socks5,
}

impl FromStr for Front {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "plain" => Front::Plain,
            "tls" => Front::Tls,
            "connect" => Front::Connect,
            "socks5" => Front::Socks5,
            _ => {
                return Err(format!(
                    "'{text}' is no front end (plain, tls, connect, socks5)"
                ));
            }
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    #[default]
    RoundRobin,
    LeastConnections,
    SourceHash,
}

impl FromStr for Balance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "round-robin" => Balance::RoundRobin,
            "least-connections" => Balance::LeastConnections,
            "source-hash" => Balance::SourceHash,
            _ => {
                return Err(format!(
                    "'{text}' is no way to balance (round-robin, least-connections, source-hash)"
                ));
            }
        })
    }
}

/// Settings of the active health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub interval: Duration,
    pub timeout: Duration,
    pub send: Option<Vec<u8>>,
    /// Bytes that the answer must begin with.
    pub expect: Option<Vec<u8>>,
}

/// A set of targets. Each connection goes to one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub to: Vec<Address>,
    pub balance: Balance,
    /// Failures in a row after which a target is down.
    pub fall: u32,
    /// Checks passed in a row after which the target is up again.
    pub rise: u32,
    /// The first and the longest time for which a target that is down is left alone.
    pub back_off: (Duration, Duration),
    pub check: Option<Check>,
}

/// Sends connections whose ClientHello matches `sni` and `alpn` to `pool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub sni: Vec<Pattern>,
    pub alpn: Vec<String>,
    pub pool: Pool,
}

/// Destinations that a client of the front ends CONNECT and SOCKS5 may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    pub networks: Vec<Network>,
    /// If empty, every port is allowed.
    pub ports: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    pub name: String,
    pub listen: Vec<Address>,
    pub mode: Wanted,
    pub front: Front,
    pub reach: Reach,
    pub pool: Option<Pool>,
    pub routes: Vec<Route>,
    pub proxy_in: Option<Version>,
    /// Networks whose PROXY headers are believed. If empty, all are.
    pub proxy_from: Vec<Network>,
    pub proxy_out: Option<Version>,
    /// What a header of version 2 has besides the addresses.
    pub proxy_tlvs: Kinds,
    /// Connects to targets from the client's address.
    pub transparent: bool,
    pub connect_timeout: Duration,
    /// Number of further targets to try if a connect fails.
    pub retries: u32,
    pub header_timeout: Duration,
    pub idle: Option<Duration>,
    pub max_bytes: Option<u64>,
    pub bandwidth: Option<u64>,
    pub total_bandwidth: Option<u64>,
    pub max_connections: Option<usize>,
    pub max_per_source: Option<usize>,
    pub rate: Option<u64>,
    pub rate_per_source: Option<u64>,
    pub allow: Vec<Network>,
    pub deny: Vec<Network>,
}

impl Listener {
    /// Returns all pools. The listener's own pool, for connections that no route matches, comes
    /// first.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pool.iter().chain(self.routes.iter().map(|r| &r.pool))
    }
}

/// Reads and checks a file.
///
/// # Errors
/// Returns all mistakes, sorted by line. If the TOML syntax is wrong, these are the syntax errors
/// only.
pub fn load(path: &Path) -> Result<Config, Vec<Mistake>> {
    let text = fs::read_to_string(path).map_err(|e| vec![Mistake::whole(e.to_string())])?;
    parse(&text)
}

/// Reads and checks the text of a file.
///
/// # Errors
/// Returns the same as [`load`].
pub fn parse(text: &str) -> Result<Config, Vec<Mistake>> {
    read::config(text)
}
