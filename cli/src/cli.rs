// SPDX-License-Identifier: GPL-2.0
//! The grammar of the command line. Help, man pages and completions are all
//! made from it.

mod complete;
mod examples;
mod line;
mod pair;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};

use crate::policy::{Name, OnCapture};
use crate::uapi::BUSY_POLL_MAX;
use crate::uapi::capture::SNAPLEN_MAX;
use crate::values::cidr::Cidr;
use crate::values::port::PortRange;
use crate::values::size;

pub use complete::{answer as answer_shell, script};
pub use containers::{Agent, Selectors};
pub use examples::of as examples;
pub use line::{color_of, command, command_of};
pub use pair::*;

/// Control local TCP acceleration
///
/// The socksplice kernel module moves the bytes of TCP connections whose two
/// ends are on this machine through shared memory, without the applications
/// noticing. This program says which connections, and shows what became of
/// them.
#[derive(Parser)]
#[command(name = "socksplice", version, max_term_width = 100)]
pub struct Cli {
    /// Print one JSON document; errors too
    #[arg(short, long, global = true)]
    pub json: bool,

    /// Colours: auto (on a terminal, unless NO_COLOR or CLICOLOR=0 is set), always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub color: ColorChoice,

    #[command(subcommand)]
    pub object: Object,
}

#[derive(Subcommand)]
pub enum Object {
    /// Which connections are accelerated
    ///
    /// Without a command: as 'policy show'.
    Policy(PolicyNoun),

    /// The connections that are accelerated now
    ///
    /// Without a command: as 'pair show'.
    Pair(PairNoun),

    /// The splices (SO_SPLICE) that exist now
    ///
    /// Without a command: as 'splice show'.
    Splice(SpliceNoun),

    /// How long the event loops of running processes spin before they sleep
    ///
    /// Without a command: as 'poll show'.
    Poll(PollNoun),

    /// Take all connections back to TCP, so that the module can be unloaded
    ///
    /// Turns pairing off ('feature set pairing on' turns it on again) and un-pairs
    /// every pair: the connections go on over TCP, without a byte lost. It refuses new
    /// splices ('feature set so-splice on' accepts them again) and ends the existing ones,
    /// as their applications would by SO_SPLICE with -1. It leaves splice(2) on sockmap
    /// sockets to the kernel ('feature set splice on' serves it again). If no policy
    /// is set, it also waits until nothing uses the module. A pair cannot end while its
    /// reader leaves bytes in the ring unread. If a pair, or a call that sleeps in the
    /// module, is left when the time is up, the exit status is 1, and the processes are
    /// listed.
    Drain(Wait),

    /// Write the bytes that go by ring to a file for Wireshark and tcpdump
    ///
    /// The file is a pcapng file. Bytes that go by ring are in no packet, so their IP and
    /// TCP headers are made up. Addresses, ports, directions, order and times are those of
    /// the connection. Bytes that a connection sends by TCP are not in the file: tcpdump
    /// sees them. With --port, --cgroup, --netns or --pair only pairs are captured that
    /// have an end that matches all of them. Records without room in the buffer are counted
    /// and dropped; no sender waits. There is one capture at a time. Ends by Ctrl-C.
    Capture(Capture),

    /// Counters: pairs made, declined by reason, bytes by path, memory
    ///
    /// Without a command: as 'stats show'.
    Stats(StatsNoun),

    /// Serve the counters to Prometheus, over HTTP
    ///
    /// Opens its sockets as root and then becomes the user, for good: with no
    /// capability and no way to get one, it can read the module's counters and
    /// nothing else. It goes on when the module is unloaded: socksplice_up is 0
    /// then. A signal ends it, once the requests in progress are answered.
    Exporter(Exporter),

    /// Read the policies and the pairs for the exporter
    #[command(hide = true)]
    ExporterReader,

    /// Keep policies that name containers true, and say what keeps connections from being paired
    ///
    /// Asks podman and Docker for their containers, and listens to what they tell. Its log has one
    /// line for each change: a container that became named, a policy that waits, pairing that is
    /// off, and when that is over. It starts no process. If it ends, all that is set stays in
    /// force. SIGHUP: look anew. SIGTERM ends it.
    Agent(Agent),

    /// The module's state and its switches
    ///
    /// Without a command: as 'feature show'.
    Feature(FeatureNoun),

    /// Check this machine: what does not work, and what to do about it
    ///
    /// Prints one line for each requirement: OK, WARN (something is missing
    /// that not everything needs) or FAIL. The exit status is 1 if one failed.
    Doctor,

    /// Print a completion script for a shell
    ///
    /// The script has this program complete commands and options, and the names that there are
    /// on this machine: cgroups, systemd units, policies in force (for root), network namespaces,
    /// processes.
    Completions {
        /// The shell to print it for
        shell: clap_complete::Shell,
    },

    /// Write the man pages into a directory
    #[command(hide = true)]
    Man {
        /// The directory, which must exist
        dir: PathBuf,
    },
}

#[derive(Args)]
pub struct PolicyNoun {
    #[command(subcommand)]
    pub command: Option<PolicyCommand>,
}

#[derive(Args)]
pub struct PairNoun {
    #[command(subcommand)]
    pub command: Option<PairCommand>,
}

#[derive(Args)]
pub struct SpliceNoun {
    #[command(subcommand)]
    pub command: Option<SpliceCommand>,
}

#[derive(Args)]
pub struct PollNoun {
    #[command(subcommand)]
    pub command: Option<PollCommand>,
}

#[derive(Subcommand)]
pub enum PollCommand {
    /// Have the epoll sets of processes spin before they sleep
    ///
    /// A thread that waits in epoll_wait(2) then looks for bytes before it sleeps, for as long as
    /// --usec says. It takes a CPU meanwhile, and answers sooner. It does so if the set's last
    /// event was of a paired connection, or of a network card's. The setting belongs to the epoll
    /// sets that the processes have now. If a process starts again, or makes a new set, run this
    /// command again, or have the agent do it: --busy-poll-epoll of 'policy set'. The sysctl
    /// net.core.busy_poll does the same for all processes. The parameter is that of EPIOCSPARAMS in
    /// ioctl_eventpoll(2).
    Set(PollSet),

    /// Have the epoll sets of processes sleep at once, or as net.core.busy_poll says
    ///
    /// This also takes back what a program has set for itself by EPIOCSPARAMS.
    Clear(PollProcesses),

    /// Show the epoll sets that have a time of their own, of the processes that you may look into
    Show,
}

#[derive(Args)]
pub struct PollSet {
    #[command(flatten)]
    pub processes: PollProcesses,

    /// Microseconds to spin (1 to 1000)
    #[arg(long, value_name = "USEC", value_parser = clap::value_parser!(u32).range(1..=BUSY_POLL_MAX as i64))]
    pub usec: u32,
}

/// A process is meant if one of these names it.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub struct PollProcesses {
    /// The process with this number
    #[arg(long = "pid", num_args = 1.., value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,

    /// The processes of this name
    #[arg(long = "process", value_name = "NAME", num_args = 1..)]
    pub names: Vec<String>,

    /// The processes of a systemd unit
    #[arg(long = "unit", value_name = "UNIT", num_args = 1.., value_delimiter = ',')]
    pub units: Vec<String>,

    /// The processes of this cgroup, and of those below it
    #[arg(long = "cgroup", value_name = "PATH", num_args = 1..)]
    pub cgroups: Vec<PathBuf>,
}

#[derive(Args)]
pub struct StatsNoun {
    #[command(subcommand)]
    pub command: Option<StatsCommand>,
}

#[derive(Args)]
pub struct FeatureNoun {
    #[command(subcommand)]
    pub command: Option<FeatureCommand>,
}

#[derive(Subcommand)]
pub enum PolicyCommand {
    /// Accelerate the connections that match, from now on
    ///
    /// A connection is accelerated if the sockets of both its ends match. The
    /// new policy, which is called "default", replaces all old ones in one step;
    /// connections that are open already stay as they are. It holds until 'policy
    /// clear' or a reboot. If anything fails, the old policies stay.
    Set(PolicySet),

    /// Add one policy to those that are in force
    ///
    /// It comes after the others, or before them with --first. The others stay as they are,
    /// in one step.
    Add(PolicyAdd),

    /// Remove policies by their names; the others stay as they are
    #[command(visible_alias = "delete")]
    Del {
        /// Their names
        #[arg(value_name = "NAME", required = true)]
        names: Vec<Name>,
    },

    /// Put the policies of a file in force
    ///
    /// They replace all old ones in one step; connections that are open already
    /// stay as they are. If a socket matches several policies, the first one in the file
    /// decides. A file without a policy clears all policies. If anything is wrong, or a
    /// signal comes, nothing changes. Only root and the caller may have write access to
    /// the file. socksplice(8) describes the file under CONFIGURATION.
    Apply {
        /// The file; '-' or /dev/stdin reads from a pipe
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },

    /// Say what is wrong with a file for 'policy apply', and change nothing
    Check {
        /// The file; '-' reads from a pipe
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },

    /// Show what 'policy apply' of a file would change, as a unified diff
    ///
    /// The exit status is 1 if there is a difference.
    Diff {
        /// The file; '-' reads from a pipe
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },

    /// Print what is in force as a file for 'policy apply'
    ///
    /// Applying it changes nothing.
    Export,

    /// Show the policies, in the order in which they decide
    Show,

    /// Accelerate no further connections
    ///
    /// Connections that are accelerated already stay so, unless --unpair is given.
    Clear(PolicyClear),
}

#[derive(Args)]
pub struct PolicyClear {
    /// Then take all pairs back to TCP, as 'pair drop --all' does. If one is left
    /// when the time is up, the exit status is 1, and it is on its way back
    #[arg(long)]
    pub unpair: bool,

    /// Seconds to wait for them [default: 10]
    #[arg(long, value_name = "SECONDS", requires = "unpair")]
    pub timeout: Option<u32>,
}

impl PolicyClear {
    pub fn wait(&self) -> Wait {
        Wait {
            timeout: self.timeout.unwrap_or(TIMEOUT),
        }
    }
}

/// Seconds that a command waits for readers if it is not told.
const TIMEOUT: u32 = 10;

/// How long a command waits for readers.
#[derive(Args)]
pub struct Wait {
    /// Seconds to wait until all bytes of the rings have been read; 0: do not wait
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT)]
    pub timeout: u32,
}

#[derive(Args)]
pub struct PolicyAdd {
    /// Its name: 1 to 31 letters, digits, '.', '_' and '-'
    pub name: Name,

    /// Before the policies in force, so that it decides first
    #[arg(long)]
    pub first: bool,

    /// What matches stays on TCP, whatever later policies say
    #[arg(long)]
    pub no_pair: bool,

    #[command(flatten)]
    pub policy: PolicySet,
}

#[derive(Args)]
pub struct PolicySet {
    /// A cgroup, with those below it: a path under the cgroup2 mount, or relative to it;
    /// '/' is every process. It need not exist yet: the policy matches when it comes, and
    /// when it comes again. '*' stands for any part of one component, a last component '**'
    /// for every cgroup below
    #[arg(long = "cgroup", value_name = "PATH", required_unless_present_any = containers::OTHERS, num_args = 1..)]
    pub cgroups: Vec<PathBuf>,

    /// The cgroup of a systemd unit, whether it runs or not; '.service' can be left out
    #[arg(long = "unit", value_name = "UNIT", num_args = 1.., value_delimiter = ',')]
    pub units: Vec<String>,

    #[command(flatten)]
    pub selectors: Selectors,

    /// Only where the local or the remote port is one of these
    #[arg(long = "port", value_name = "N|N-M", num_args = 1.., value_delimiter = ',')]
    pub ports: Vec<PortRange>,

    /// Only where the local or the remote address is in one of these
    #[arg(long = "cidr", value_name = "NET", num_args = 1.., value_delimiter = ',')]
    pub cidrs: Vec<Cidr>,

    /// Only where both addresses are loopback addresses
    #[arg(long)]
    pub loopback_only: bool,

    /// How long a reader spins before it sleeps, in microseconds (0 to 1000), or as its
    /// SO_BUSY_POLL says, if that is longer, up to 1000
    /// [default: SO_BUSY_POLL, or the module's short_wait]
    #[arg(long, value_name = "USEC", value_parser = clap::value_parser!(u32).range(0..=BUSY_POLL_MAX as i64))]
    pub busy_poll: Option<u32>,

    /// The event loops of its processes spin as long: the agent gives it to their epoll sets,
    /// within about ten seconds, and takes it back when no policy says so any more. A set with
    /// another time of its own keeps that. 'poll show' lists them
    #[arg(long, requires = "busy_poll")]
    pub busy_poll_epoll: bool,

    /// Bytes that a direction can hold: a power of two from 4K to 1M. A ring has at least one page
    /// of the machine [default: the module's]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub ring: Option<u32>,

    /// Bytes that a ring may grow to, by doubling, if it is full again and again: as
    /// --ring, and not below it [default: it keeps its size, if --ring is given; else
    /// the module's]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub ring_max: Option<u32>,

    /// Most bytes that the rings of its pairs hold together, 8K to 1024G; a sender without
    /// room sends by TCP [default: no limit but the module's]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    pub memory_cap: Option<u64>,

    /// What becomes of connections whose packets somebody captures in the network
    /// namespace of one of their ends, as tcpdump does
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    pub on_capture: OnCapture,
}

#[derive(Args, Default)]
pub struct StatsShow {
    /// Those that are 0, too. -j always has all
    #[arg(short, long)]
    pub all: bool,

    /// Again and again, every so many seconds: by how much a second each counter has risen
    /// since. Ends by Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub watch: Option<u32>,

    /// End --watch after so many times
    #[arg(short = 'n', long, value_name = "N", value_parser = count, requires = "watch")]
    pub count: Option<usize>,
}

#[derive(Args)]
pub struct Capture {
    #[command(flatten)]
    pub filter: EndFilter,

    /// Only these pairs, by the numbers that 'pair show' gives them
    #[arg(long = "pair", value_name = "PAIR", num_args = 1.., value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pairs: Vec<u32>,

    /// The file. An existing one is replaced if it is a regular file of the caller or of
    /// root; '-' is standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,

    /// How many bytes of each record to keep (0 to 262144). A record is the data that a
    /// sender puts into a ring at one time
    #[arg(long, value_name = "BYTES", default_value_t = SNAPLEN_MAX, value_parser = clap::value_parser!(u32).range(0..=SNAPLEN_MAX as i64))]
    pub snaplen: u32,

    /// Bytes of kernel memory for records that are not written yet: a power of two from
    /// 512K to 1G. Each record takes 128 bytes and its data
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size::parse_buffer)]
    pub buffer: u32,

    /// End after so many records
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub count: Option<usize>,

    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub duration: Option<u32>,
}

#[derive(Args)]
pub struct Exporter {
    /// Where to listen, for example 127.0.0.1:9432 or [::]:9432; port 0 is any
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// The user to become: a name in /etc/passwd, not root
    #[arg(long, value_name = "NAME", default_value = "nobody")]
    pub user: String,
}

/// A number from 1 on.
fn count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if n > 0 && text.starts_with(|c: char| c.is_ascii_digit()) => Ok(n),
        _ => Err("a number from 1 on is wanted".into()),
    }
}

#[derive(Subcommand)]
pub enum SpliceCommand {
    /// Show each splice: where its bytes come from and where they go, how many,
    /// limits, and the processes that have the source
    Show,
}

#[derive(Subcommand)]
pub enum StatsCommand {
    /// Show the counters since the module was loaded that are not 0
    ///
    /// With --watch it shows rates: the change a second of each counter that has changed. On a
    /// terminal each table takes the place of the one before. Otherwise each counter that has
    /// changed has a line: time, name, rate. The unit is that of the counter: bytes, events or
    /// nanoseconds a second. Of what can also fall, such as pairs_live, the rate can be negative.
    Show(StatsShow),
}

#[derive(Subcommand)]
pub enum FeatureCommand {
    /// Show the module's version, what it can do here, and its switches
    Show,

    /// Turn a feature on or off, or set a limit, until the module is unloaded
    ///
    /// Pairs that exist stay as they are, and so do their rings.
    Set {
        /// Which feature
        feature: Feature,
        /// on or off; of memory-cap a size (8K to 1024G) or off
        value: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Feature {
    /// New connections are paired
    Pairing,
    /// splice(2) works on sockets in a sockmap
    Splice,
    /// New splices (SO_SPLICE) are accepted; off when the module is loaded
    SoSplice,
    /// Most bytes that all rings together may hold; a sender without room sends by TCP
    MemoryCap,
}

mod containers;
#[cfg(test)]
mod tests;
