// SPDX-License-Identifier: GPL-2.0
//! The grammar of `pair`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Wait, count};
use crate::policy::Name;
use crate::uapi::EVENTS;
use crate::values::port::PortRange;

#[derive(Subcommand)]
pub enum PairCommand {
    /// Show each pair: both ends, the processes that have them, bytes sent by path, age
    ///
    /// An empty table says why it is empty.
    /// With --policy, --port, --cgroup, --netns, --pid or --process it shows only pairs with
    /// an end that matches all of them.
    Show(PairShow),

    /// Show what the pairs carry now, again and again
    ///
    /// One line for each pair: bytes a second that its active opener sends and
    /// receives, the share of them that goes by ring, messages a second, and the
    /// processes at both ends. The busiest come first. The filters are those of 'pair
    /// show'. On a terminal the table is cut to the screen, and keys sort it: b by the bytes
    /// sent so far, r by bytes a second, a by age, p by process; q, Esc and Ctrl-C quit.
    /// Otherwise the tables come one after the other.
    Top(PairTop),

    /// Print a verdict with its reason for each connection that is considered
    ///
    /// One line for each event as it happens: time, event, reason, the connection as
    /// one of its ends sees it, its network namespace; where there is a pair, its
    /// number, its age, and the bytes that its active opener and the other end have
    /// sent, by ring and by TCP. If events come faster than they are read, some are
    /// lost, and how many is printed with the next one. EVENTS in socksplice(8) has
    /// the reasons. Ends by Ctrl-C.
    Monitor(PairMonitor),

    /// Say of each end of a connection why it is not paired
    ///
    /// One line for each end: the policy that names it, or the condition that does not match;
    /// else what keeps the connection on TCP as far as the kernel shows it, and what to do
    /// about it. The two addresses are those of one end, in either order. If sockets in several
    /// network namespaces have them, the answer has each of these connections. The exit status
    /// is 1 if a connection is not paired.
    Why(PairWhy),

    /// Take pairs back to TCP while they live
    ///
    /// Later bytes go by TCP. Once the bytes that the rings hold have been read, the pair
    /// is gone, and the connection lives on. Nothing is lost, and the applications notice
    /// nothing. If a pair is left when the time is up, the exit status is 1, and the
    /// processes that do not read are listed; the pair stays on its way back. Pairs are
    /// named by their numbers or --all. With --policy, --port, --cgroup, --netns, --pid or
    /// --process it drops the pairs with an end that matches all of them.
    Drop(PairDrop),
}

/// One end has to match all of these.
#[derive(Args, Default)]
pub struct EndFilter {
    /// Only if the local or the remote port of an end is one of these
    #[arg(long = "port", value_name = "N|N-M", num_args = 1.., value_delimiter = ',')]
    pub ports: Vec<PortRange>,

    /// Only if the socket of an end belongs to one of these cgroups, or to one below
    #[arg(long = "cgroup", value_name = "PATH", num_args = 1..)]
    pub cgroups: Vec<PathBuf>,

    /// Only if an end is in this network namespace: a name of 'ip netns', or an inode
    /// number
    #[arg(long, value_name = "NETNS")]
    pub netns: Option<String>,
}

#[derive(Args, Default)]
pub struct PairFilter {
    #[command(flatten)]
    pub end: EndFilter,

    /// Only if this process has an end open
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,

    /// Only if a process of this name has an end open
    #[arg(long, value_name = "NAME")]
    pub process: Option<String>,

    /// Only if this policy has enrolled an end, though it may be cleared by now
    #[arg(long, value_name = "NAME")]
    pub policy: Option<Name>,
}

#[derive(Args, Default)]
pub struct PairShow {
    #[command(flatten)]
    pub filter: PairFilter,

    /// Sort key: ids ascending, everything else descending
    #[arg(long, value_name = "KEY")]
    pub sort: Option<PairKey>,

    /// Show at most so many pairs
    #[arg(long, value_name = "N", value_parser = count)]
    pub limit: Option<usize>,

    /// All columns: peers, namespaces, messages, ring memory, exact numbers
    #[arg(short, long)]
    pub wide: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum PairKey {
    /// The number of the pair
    Id,
    /// Its age
    Age,
    /// Bytes that both ends have sent by ring
    Ring,
    /// Bytes that both ends have sent by TCP
    Tcp,
    /// Bytes that wait in its rings to be read
    Queued,
    /// Bytes allocated for its rings
    Memory,
}

#[derive(Args)]
pub struct PairTop {
    #[command(flatten)]
    pub filter: PairFilter,

    /// Sort key: names ascending, everything else descending
    #[arg(long, value_name = "KEY", default_value = "rate")]
    pub sort: TopKey,

    /// Show at most so many pairs [default: as many as the screen can hold]
    #[arg(long, value_name = "N", value_parser = count)]
    pub limit: Option<usize>,

    /// Seconds between two tables
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub interval: u32,

    /// Print one table after the other, as if the output were not a terminal
    #[arg(long)]
    pub batch: bool,

    /// End after so many tables
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub count: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum TopKey {
    /// Bytes a second, both ways
    Rate,
    /// Of these, by ring
    Ring,
    /// Of these, by TCP
    Tcp,
    /// Messages a second, both ways
    Messages,
    /// Bytes that both ends have sent since they were paired
    Bytes,
    /// Its age
    Age,
    /// The names of the processes
    Process,
}

#[derive(Args)]
pub struct PairWhy {
    /// The local and the remote address of the connection, for example 127.0.0.1:40000
    /// 127.0.0.1:6379, or [::1]:40000 [::1]:6379
    #[arg(value_name = "ADDRESS:PORT", num_args = 2, required_unless_present = "pid", value_parser = endpoint)]
    pub addresses: Vec<SocketAddr>,

    /// Instead of addresses: each connection of this process, in its network namespace
    #[arg(long, conflicts_with = "addresses", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
}

/// An address and a port of a connection.
fn endpoint(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 => {
            Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
        }
        _ => Err("an address and a port are wanted, as in 127.0.0.1:80 or [::1]:80".into()),
    }
}

#[derive(Args)]
pub struct PairMonitor {
    #[command(flatten)]
    pub filter: EndFilter,

    /// Only these events
    #[arg(long = "event", value_name = "EVENT", num_args = 1.., value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(EVENTS))]
    pub events: Vec<String>,

    /// End after so many events
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub count: Option<usize>,

    /// Kilobytes of events that may wait to be printed (4 to 65536)
    #[arg(long, value_name = "KB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(4..=65536))]
    pub buffer: u32,
}

/// How pairs are chosen without their numbers: all, or by a filter.
const CHOICES: [&str; 7] = [
    "all", "ports", "cgroups", "netns", "pid", "process", "policy",
];

#[derive(Args)]
pub struct PairDrop {
    /// The pairs, by the numbers that 'pair show' gives them
    #[arg(value_name = "PAIR", required_unless_present_any = CHOICES, conflicts_with_all = CHOICES, value_parser = clap::value_parser!(u32).range(1..))]
    pub ids: Vec<u32>,

    /// All pairs
    #[arg(long, conflicts_with_all = &CHOICES[1..])]
    pub all: bool,

    #[command(
        flatten,
        next_help_heading = "Instead of numbers: pairs with an end that matches all of these"
    )]
    pub filter: PairFilter,

    #[command(flatten)]
    pub wait: Wait,
}
