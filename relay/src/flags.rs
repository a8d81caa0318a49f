// SPDX-License-Identifier: GPL-2.0
//! Configures one listener by options. Each option becomes the key of the same name in a TOML text,
//! which is then read and checked like a file.

use clap::Args;
use socksplice_relay::config::{self, Config, Mistake};
use toml::{Table, Value};

#[derive(Args)]
pub struct Flags {
    /// Where to listen: ADDRESS:PORT, *:PORT, unix:PATH, systemd:NAME
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    listen: Vec<String>,
    /// Where connections go: HOST:PORT, ADDRESS:PORT, unix:PATH
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    to: Vec<String>,
    /// How bytes go: auto, sosplice, pipe, copy
    #[arg(long)]
    mode: Option<String>,
    /// What is read from clients first: plain, tls, connect, socks5
    #[arg(long)]
    front: Option<String>,
    /// round-robin, least-connections, source-hash
    #[arg(long)]
    balance: Option<String>,
    /// PROXY header that clients send: v1, v2, any
    #[arg(long, value_name = "VERSION")]
    proxy_in: Option<String>,
    /// PROXY header for targets: v1, v2
    #[arg(long, value_name = "VERSION")]
    proxy_out: Option<String>,
    /// Networks that clients of connect and socks5 may reach
    #[arg(long, value_name = "NETWORK", num_args = 1..)]
    connect_to: Vec<String>,
    /// Time within which a target must accept
    #[arg(long, value_name = "TIME")]
    connect_timeout: Option<String>,
    /// Further targets that are tried
    #[arg(long, value_name = "N")]
    retries: Option<String>,
    /// Time after which a silent connection ends
    #[arg(long, value_name = "TIME")]
    idle: Option<String>,
    /// Bytes after which a connection ends, each way
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<String>,
    /// Bytes per second of a connection, each way
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<String>,
    /// Connections at a time
    #[arg(long, value_name = "N")]
    max_connections: Option<String>,
    /// Connections at a time from one source
    #[arg(long, value_name = "N")]
    max_per_source: Option<String>,
    /// New connections per second
    #[arg(long, value_name = "N")]
    rate: Option<String>,
    /// Networks that may connect
    #[arg(long, value_name = "NETWORK", num_args = 1..)]
    allow: Vec<String>,
    /// Networks that may not connect
    #[arg(long, value_name = "NETWORK", num_args = 1..)]
    deny: Vec<String>,
    /// Where metrics and status are served
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    admin: Vec<String>,
    /// logfmt, json, off
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Time that connections have after SIGTERM
    #[arg(long, value_name = "TIME")]
    drain: Option<String>,
}

impl Flags {
    pub fn is_empty(&self) -> bool {
        self.listen.is_empty()
    }

    /// Builds the configuration.
    ///
    /// # Errors
    /// Returns the mistakes in the options.
    pub fn config(&self) -> Result<Config, Vec<Mistake>> {
        let mut listener = Table::new();
        let mut whole = Table::new();
        let lists = [
            ("listen", &self.listen),
            ("to", &self.to),
            ("connect_to", &self.connect_to),
            ("allow", &self.allow),
            ("deny", &self.deny),
        ];
        for (key, values) in lists {
            add_list(&mut listener, key, values);
        }
        let singles = [
            ("mode", &self.mode),
            ("front", &self.front),
            ("balance", &self.balance),
            ("proxy_in", &self.proxy_in),
            ("proxy_out", &self.proxy_out),
            ("connect_timeout", &self.connect_timeout),
            ("retries", &self.retries),
            ("idle", &self.idle),
            ("max_bytes", &self.max_bytes),
            ("bandwidth", &self.bandwidth),
            ("max_connections", &self.max_connections),
            ("max_per_source", &self.max_per_source),
            ("rate", &self.rate),
        ];
        for (key, value) in singles {
            add(&mut listener, key, value.as_ref());
        }
        add_list(&mut whole, "admin", &self.admin);
        add(&mut whole, "log_format", self.log_format.as_ref());
        add(&mut whole, "drain", self.drain.as_ref());
        whole.insert(
            "listener".into(),
            Value::Array(vec![Value::Table(listener)]),
        );
        config::parse(&whole.to_string())
    }
}

fn add(table: &mut Table, key: &str, value: Option<&String>) {
    if let Some(value) = value {
        table.insert(key.into(), Value::String(value.clone()));
    }
}

fn add_list(table: &mut Table, key: &str, values: &[String]) {
    if !values.is_empty() {
        let values = values.iter().cloned().map(Value::String).collect();
        table.insert(key.into(), Value::Array(values));
    }
}
