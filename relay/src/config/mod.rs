// SPDX-License-Identifier: GPL-2.0
//! What the relay does: socksplice-relay.toml(5), read and checked.

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

pub use section::Mistake;

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub listeners: Vec<Listener>,
    pub log: Format,
    /// where metrics and status are served
    pub admin: Vec<Address>,
    /// how long connections may live on after SIGTERM
    pub drain: Duration,
    /// between two looks at what the targets' names stand for
    pub resolve: Duration,
    /// connections of all listeners together
    pub max_connections: Option<usize>,
}

/// What is read, in user space, before the bytes are forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Front {
    #[default]
    Plain,
    /// a ClientHello, which is forwarded too
    Tls,
    /// HTTP/1 CONNECT
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

/// Active health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub interval: Duration,
    pub timeout: Duration,
    pub send: Option<Vec<u8>>,
    /// what the answer begins with
    pub expect: Option<Vec<u8>>,
}

/// Targets, one of which a connection goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub to: Vec<Address>,
    pub balance: Balance,
    /// failures in a row after which a target is down
    pub fall: u32,
    /// successful checks in a row after which it is up again
    pub rise: u32,
    /// how long a target that is down is left alone, at first and at most
    pub back_off: (Duration, Duration),
    pub check: Option<Check>,
}

/// Where a ClientHello goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub sni: Vec<Pattern>,
    pub alpn: Vec<String>,
    pub pool: Pool,
}

/// What a client of the front ends CONNECT and SOCKS5 may connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    pub networks: Vec<Network>,
    /// none: all of them
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
    /// whose PROXY headers are believed; none: everybody's
    pub proxy_from: Vec<Network>,
    pub proxy_out: Option<Version>,
    pub connect_timeout: Duration,
    /// further targets that are tried
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
    /// All pools, the one for what no route takes first.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pool.iter().chain(self.routes.iter().map(|r| &r.pool))
    }
}

/// Reads and checks a file.
///
/// # Errors
/// Every mistake there is, in the order of the lines.
pub fn load(path: &Path) -> Result<Config, Vec<Mistake>> {
    let text = fs::read_to_string(path).map_err(|e| vec![Mistake::whole(e.to_string())])?;
    parse(&text)
}

/// The same for a text.
///
/// # Errors
/// The same.
pub fn parse(text: &str) -> Result<Config, Vec<Mistake>> {
    read::config(text)
}
