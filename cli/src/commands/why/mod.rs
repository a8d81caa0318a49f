// SPDX-License-Identifier: GPL-2.0
//! `pair why`: why a connection is not paired.

mod reason;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::PairWhy;
use crate::error::{Error, Result};
use crate::kernel::module::{Module, Status};
use crate::kernel::pair::{self, End, Endpoint, Pair};
use crate::kernel::sock_diag::{self, Socket, State};
use crate::kernel::sockmap::{Members, Sockmaps};
use crate::output::{Answer, SCHEMA};
use crate::policy;
use crate::policy::config::Policy;
use crate::policy::decide::{Condition, Decision, Flow, decide};
use crate::system::cgroup::Hierarchy;
use crate::system::netns::{Names, Namespace};
use crate::system::process::Sockets;

use reason::{Facts, InPair, InSockmap, Machine, Missed, Named, Reason};

/// How many items of a list a sentence has.
const TOLD: usize = 4;
/// The counter of rings that got no page because of a cap.
const CAPPED: &str = "rings_capped";

/// A socket, and the inode number of its network namespace.
#[derive(Clone)]
struct Found {
    netns: u64,
    socket: Socket,
}

/// The two ends of a connection. The first one exists.
type Connection = (Found, Option<Found>);

pub fn run(arguments: PairWhy) -> Result<Answer> {
    let (module, status) = Module::open()?;
    let connections = match (arguments.pid, &arguments.addresses[..]) {
        (Some(pid), _) => of_process(pid)?,
        (None, [a, b]) => of_addresses(*a, *b)?,
        (None, _) => return Err(Error::usage("two addresses are wanted")),
    };
    // Read after the sockets, which have got their cookies by that.
    let pairs = pair::list(&module)?;
    let connections = complete(connections, &pairs);
    let known = Known::read(&module, &status, &connections, pairs)?;
    Ok(known.answer(&connections))
}

fn unreadable(e: io::Error) -> Error {
    let error = Error::new(format!("cannot read the sockets of the machine: {e}"));
    match e.kind() {
        io::ErrorKind::NotFound => error.remedy("run 'modprobe tcp_diag'"),
        io::ErrorKind::PermissionDenied => error.remedy("run this on the host, with CAP_SYS_ADMIN"),
        _ => error,
    }
}

/// The sockets of a network namespace, with the local and the remote port if those are given.
fn sockets_in(namespace: &Namespace, ports: Option<(u16, u16)>) -> Result<Vec<Found>> {
    let netns = namespace.inode;
    let sockets = namespace.inside(|| sock_diag::list(ports));
    let sockets = sockets.and_then(|list| list.unwrap_or(Ok(Vec::new())));
    let sockets = sockets.map_err(unreadable)?.into_iter();
    Ok(sockets.map(|socket| Found { netns, socket }).collect())
}

fn of_addresses(a: SocketAddr, b: SocketAddr) -> Result<Vec<Connection>> {
    let mut found = Vec::new();
    for namespace in Namespace::all() {
        let mut ends = sockets_in(&namespace, Some((a.port(), b.port())))?;
        if a.port() != b.port() {
            ends.extend(sockets_in(&namespace, Some((b.port(), a.port())))?);
        }
        ends.retain(|end| {
            let of = (end.socket.local, end.socket.remote);
            of == (a, b) || of == (b, a)
        });
        found.extend(ends);
    }
    if found.is_empty() {
        return Err(
            Error::new(format!("no socket of this machine has {a} and {b}"))
                .remedy("'ss -tn' lists connections, in a container as that sees them"),
        );
    }
    found.sort_by_key(|end| end.socket.local != a);
    Ok(join(&found, &found))
}

fn of_process(pid: u32) -> Result<Vec<Connection>> {
    let gone = |_| Error::new(format!("there is no process {pid}"));
    let namespace = Namespace::of_process(pid).map_err(gone)?;
    let open = Sockets::of(|process| process.pid == pid);
    let mut among = sockets_in(&namespace, None)?;
    let own = among
        .iter()
        .filter(|end| !open.holders(end.socket.inode).is_empty());
    let own: Vec<Found> = own.cloned().collect();
    if own.is_empty() {
        return Err(Error::new(format!(
            "process {pid} has no TCP connection in its network namespace"
        ))
        .remedy(format!(
            "'nsenter -n -t {pid} ss -tnp' lists those of the namespace"
        )));
    }
    if join(&own, &among)
        .iter()
        .any(|(end, peer)| peer.is_none() && may_leave(end))
    {
        let others = Namespace::all()
            .into_iter()
            .filter(|n| n.inode != namespace.inode);
        for other in others {
            among.extend(sockets_in(&other, None)?);
        }
    }
    Ok(join(&own, &among))
}

/// Whether the peer may be in another network namespace.
fn may_leave(end: &Found) -> bool {
    !end.socket.remote.ip().is_loopback()
}

/// Each of `ends` with its peer among others; one whose peer came before is left out.
fn join(ends: &[Found], among: &[Found]) -> Vec<Connection> {
    let mut taken: HashSet<u64> = HashSet::new();
    let mut connections = Vec::new();
    let mut mirrors: HashMap<(SocketAddr, SocketAddr), Vec<&Found>> = HashMap::new();
    for other in among {
        let key = (other.socket.remote, other.socket.local);
        mirrors.entry(key).or_default().push(other);
    }
    for end in ends {
        if !taken.insert(end.socket.cookie) {
            continue;
        }
        let key = (end.socket.local, end.socket.remote);
        let others = mirrors.get(&key).map_or(&[][..], Vec::as_slice).iter();
        let mut others: Vec<&&Found> = others
            .filter(|other| !taken.contains(&other.socket.cookie))
            .filter(|other| other.netns == end.netns || may_leave(end))
            .collect();
        others.sort_by_key(|other| other.netns != end.netns);
        let peer = others.first().map(|other| (**other).clone());
        taken.extend(peer.iter().map(|peer| peer.socket.cookie));
        connections.push((end.clone(), peer));
    }
    connections
}

/// Adds ends that see other addresses, because of address translation, where a pair has both. One
/// of two connections that turn out to be one is left out.
fn complete(connections: Vec<Connection>, pairs: &[Pair]) -> Vec<Connection> {
    let mut seen = HashSet::new();
    let mut completed = Vec::new();
    for (end, peer) in connections {
        let Some((pair, i)) = pair_of(&end, pairs) else {
            completed.push((end, peer));
            continue;
        };
        if seen.insert(pair.id) {
            let peer = peer.or_else(|| pair.ends.get(1 - i).map(Found::in_pair));
            completed.push((end, peer));
        }
    }
    completed
}

/// The pair that an end is in, and which of its ends that is.
fn pair_of<'a>(found: &Found, pairs: &'a [Pair]) -> Option<(&'a Pair, usize)> {
    let is = |end: &End| match end.cookie {
        0 => {
            let addresses = (address(&end.local), address(&end.peer));
            end.netns.inode == found.netns && addresses == (found.socket.local, found.socket.remote)
        }
        cookie => cookie == found.socket.cookie,
    };
    let place = |pair: &'a Pair| Some((pair, pair.ends.iter().position(is)?));
    pairs.iter().find_map(place)
}

fn address(of: &Endpoint) -> SocketAddr {
    SocketAddr::new(of.address.to_canonical(), of.port)
}

impl Found {
    fn in_pair(end: &End) -> Self {
        Found {
            netns: end.netns.inode,
            socket: Socket {
                state: State::Established,
                local: address(&end.local),
                remote: address(&end.peer),
                cookie: end.cookie,
                inode: end.inode,
                cgroup: end.cgroup,
                ulp: None,
                paced: false,
                least_age: Duration::ZERO,
            },
        }
    }
}

/// What the reasons are taken from.
struct Known {
    machine: Machine,
    policies: Vec<Policy>,
    /// Of the cgroups of the sockets, by id. A removed one has none.
    paths: HashMap<u64, String>,
    pairs: Vec<Pair>,
    /// A cap on memory has kept rings from pages.
    capped: bool,
    memory_cap: bool,
    members: Members,
    processes: Sockets,
    names: Names,
}

impl Known {
    fn read(
        module: &Module,
        status: &Status,
        connections: &[Connection],
        pairs: Vec<Pair>,
    ) -> Result<Self> {
        let policies = policy::live_with_containers()?;
        let ends = connections
            .iter()
            .flat_map(|(end, peer)| std::iter::once(end).chain(peer));
        let mut ids: Vec<u64> = ends.map(|end| end.socket.cgroup).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut counters = module.stats()?;
        let capped = counters.iter().any(|(name, n)| name == CAPPED && *n > 0);
        counters.retain(|(name, n)| {
            *n > 0 && (name.starts_with("declined_") || name.starts_with("expired_"))
        });
        Ok(Known {
            machine: Machine {
                pairing: status.pairing,
                shadow: status.shadow,
                hooked: status.hook_error.is_none(),
                enroll_all: status.enroll_all,
                policies_age: policy::age()?,
                counters,
            },
            paths: Hierarchy::find()?.paths(&ids),
            pairs,
            capped,
            memory_cap: status.memory_cap > 0,
            // Root that may not look at BPF objects still sees the rest.
            members: Sockmaps::read().map_or_else(|_| Members::default(), |s| s.members()),
            processes: Sockets::read(),
            names: Names::read(),
            policies,
        })
    }

    fn answer(&self, connections: &[Connection]) -> Answer {
        let mut blocks = Vec::new();
        let mut list = Vec::new();
        let mut all = true;
        for (first, second) in connections {
            let facts = [
                Some(self.facts(first)),
                second.as_ref().map(|s| self.facts(s)),
            ];
            let reasons = reason::of(&self.machine, &facts);
            let paired = reasons.iter().all(Reason::is_paired);
            all &= paired;
            let seen = |end: &Found| (end.socket.local, end.socket.remote);
            let (local, remote) = seen(first);
            let other = second.as_ref().map_or((remote, local), seen);
            let sides = [
                (local, remote, Some(first)),
                (other.0, other.1, second.as_ref()),
            ];
            let sides = sides.iter().zip(&reasons);
            let lines = sides
                .clone()
                .map(|((local, remote, found), reason)| self.line(*local, *remote, *found, reason));
            blocks.push(lines.collect::<String>());
            let ends = sides
                .zip(&facts)
                .map(|(((local, remote, found), reason), facts)| {
                    self.to_json((*local, *remote), *found, facts.as_ref(), reason)
                });
            list.push(json!({ "paired": paired, "ends": ends.collect::<Vec<Value>>() }));
        }
        Answer {
            text: blocks.join("\n"),
            json: json!({ "schema": SCHEMA, "paired": all, "connections": list }),
            failed: !all,
        }
    }

    fn facts(&self, found: &Found) -> Facts {
        let socket = &found.socket;
        Facts {
            state: socket.state,
            pair: self.pair(found),
            named: self.named(socket),
            ulp: socket.ulp.clone(),
            sockmap: match (self.members.of.get(&socket.cookie), &self.members.hidden) {
                (Some(map), _) => InSockmap::Yes(map.clone()),
                (None, Some(maps)) => InSockmap::Maybe(maps.clone()),
                (None, None) => InSockmap::No,
            },
            paced: socket.paced,
            least_age: socket.least_age,
        }
    }

    fn pair(&self, found: &Found) -> Option<InPair> {
        let (pair, i) = pair_of(found, &self.pairs)?;
        let end = &pair.ends[i];
        let cap = self.memory_cap
            || self
                .policies
                .iter()
                .any(|policy| policy.name.group() == end.group && policy.memory_cap.is_some());
        Some(InPair {
            id: pair.id,
            age_ms: pair.age_ms,
            draining: pair.draining || end.closed,
            ring_bytes: end.sent.ring.bytes,
            tcp_bytes: end.sent.tcp.bytes,
            capped: self.capped && cap && end.ring.memory == 0,
        })
    }

    fn named(&self, socket: &Socket) -> Named {
        let flow = Flow {
            local: socket.local,
            remote: socket.remote,
            cgroup: self.paths.get(&socket.cgroup).cloned(),
        };
        match decide(&self.policies, &flow) {
            Decision::Nothing => Named::Nothing,
            Decision::By(policy) if policy.pair => Named::Pair(policy.name.to_string()),
            Decision::By(policy) => Named::Tcp(policy.name.to_string()),
            Decision::Missed(policy, condition) => {
                let (has, wants) = self.compared(socket, policy, condition);
                Named::Missed(Missed {
                    condition,
                    has,
                    policy: policy.name.to_string(),
                    wants,
                    others: self.policies.len() - 1,
                })
            }
        }
    }

    /// What the socket has, and what the policy wants.
    fn compared(&self, socket: &Socket, policy: &Policy, condition: Condition) -> (String, String) {
        let (local, remote) = (socket.local, socket.remote);
        match condition {
            Condition::Cgroup => {
                let selectors = policy.selectors.iter().map(|s| s.to_string());
                let wanted = selectors.chain(policy.cgroups.iter().cloned());
                (self.cgroup(socket.cgroup), some_of(wanted.collect()))
            }
            Condition::Port => (
                format!("{} and {}", local.port(), remote.port()),
                some_of(policy.ports.iter().map(|p| p.to_string()).collect()),
            ),
            Condition::Network => (
                format!("{} and {}", local.ip(), remote.ip()),
                some_of(policy.cidrs.iter().map(|c| c.to_string()).collect()),
            ),
            Condition::LoopbackOnly => {
                (format!("{} and {}", local.ip(), remote.ip()), String::new())
            }
        }
    }

    fn cgroup(&self, id: u64) -> String {
        match self.paths.get(&id) {
            Some(path) => path.clone(),
            None => format!("one that was removed (id {id})"),
        }
    }

    fn line(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        found: Option<&Found>,
        reason: &Reason,
    ) -> String {
        let process = match found {
            Some(found) => format!(" {}", self.processes.names(found.socket.inode)),
            None => String::new(),
        };
        let remedy = match &reason.remedy {
            Some(remedy) => format!("; {remedy}"),
            None => String::new(),
        };
        format!("{local} -> {remote}{process}: {}{remedy}\n", reason.text)
    }

    fn to_json(
        &self,
        (local, remote): (SocketAddr, SocketAddr),
        found: Option<&Found>,
        facts: Option<&Facts>,
        reason: &Reason,
    ) -> Value {
        let address = |a: SocketAddr| json!({ "address": a.ip(), "port": a.port() });
        let netns = found.map(|f| json!({ "inode": f.netns, "name": self.names.get(f.netns) }));
        let cgroup = found.map(|f| {
            let id = f.socket.cgroup;
            json!({ "id": id, "path": self.paths.get(&id) })
        });
        let policy = facts.and_then(|facts| match &facts.named {
            Named::Pair(policy) | Named::Tcp(policy) => Some(policy),
            Named::Missed(_) | Named::Nothing => None,
        });
        json!({
            "local": address(local),
            "peer": address(remote),
            "netns": netns,
            "inode": found.map(|f| f.socket.inode),
            "cookie": found.map(|f| f.socket.cookie),
            "cgroup": cgroup,
            "processes": found.map(|f| self.processes.holders(f.socket.inode)),
            "policy": policy,
            "pair": facts.and_then(|facts| facts.pair.as_ref()).map(|pair| pair.id),
            "reason": reason.word,
            "text": reason.text,
            "remedy": reason.remedy,
        })
    }
}

/// The first few of them, and how many more.
fn some_of(mut items: Vec<String>) -> String {
    let more = items.len().saturating_sub(TOLD);
    items.truncate(TOLD);
    match (items.is_empty(), more) {
        (true, _) => "none".into(),
        (_, 0) => items.join(", "),
        (_, more) => format!("{} and {more} more", items.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::pair::tests::pair;

    fn found(netns: u64, cookie: u64, local: &str, remote: &str) -> Found {
        let socket = Socket {
            state: State::Established,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            cookie,
            inode: cookie,
            cgroup: 1,
            ulp: None,
            paced: false,
            least_age: Duration::ZERO,
        };
        Found { netns, socket }
    }

    fn cookies(connections: &[Connection]) -> Vec<(u64, Option<u64>)> {
        let cookie = |end: &Found| end.socket.cookie;
        let of = |(end, peer): &Connection| (cookie(end), peer.as_ref().map(cookie));
        connections.iter().map(of).collect()
    }

    #[test]
    fn joins_the_ends_of_connections() {
        // The same addresses in two namespaces.
        let loopback = [
            found(1, 1, "127.0.0.1:9", "127.0.0.1:80"),
            found(2, 2, "127.0.0.1:9", "127.0.0.1:80"),
            found(2, 3, "127.0.0.1:80", "127.0.0.1:9"),
            found(1, 4, "127.0.0.1:80", "127.0.0.1:9"),
        ];
        assert_eq!(
            cookies(&join(&loopback, &loopback)),
            [(1, Some(4)), (2, Some(3))]
        );
        assert_eq!(cookies(&join(&loopback[..1], &loopback[..3])), [(1, None)]);
        let across = [
            found(1, 5, "10.0.0.1:9", "10.0.0.2:80"),
            found(2, 6, "10.0.0.2:80", "10.0.0.1:9"),
            found(2, 7, "10.0.0.3:7", "10.0.0.3:7"),
        ];
        assert_eq!(cookies(&join(&across, &across)), [(5, Some(6)), (7, None)]);
    }

    #[test]
    fn a_pair_has_the_end_that_sees_other_addresses() {
        // Of "blue": cookie 77, port 40000; and another end, whose port is 80.
        let mut pairs = vec![pair(&[127, 0, 0, 1]).unwrap()];
        pairs[0].ends[1].cookie = 0;
        let client = || found(1, 77, "127.0.0.1:40000", "10.9.9.9:80");
        let server = || found(4026531840, 5, "127.0.0.1:80", "127.0.0.1:80");
        let completed = complete(vec![(client(), None)], &pairs);
        let (_, Some(peer)) = &completed[0] else {
            panic!()
        };
        assert_eq!(peer.socket.local, "127.0.0.1:80".parse().unwrap());
        assert_eq!(pair_of(peer, &pairs).unwrap().1, 1);
        let both = complete(vec![(client(), None), (server(), None)], &pairs);
        assert_eq!(both.len(), 1);
        let alone = complete(vec![(found(1, 9, "[::1]:1", "[::1]:2"), None)], &pairs);
        assert!(alone[0].1.is_none());
    }

    #[test]
    fn a_list_is_cut() {
        let list = |n: u32| some_of((1..=n).map(|i| i.to_string()).collect());
        assert_eq!(list(0), "none");
        assert_eq!(list(4), "1, 2, 3, 4");
        assert_eq!(list(6), "1, 2, 3, 4 and 2 more");
    }

    #[test]
    fn says_what_sock_diag_needs() {
        assert!(
            unreadable(io::ErrorKind::NotFound.into())
                .remedy
                .unwrap()
                .contains("tcp_diag")
        );
        assert!(unreadable(io::ErrorKind::Other.into()).remedy.is_none());
    }
}
