// SPDX-License-Identifier: GPL-2.0
//! Selects the pairs that a command is asked for.

use std::collections::HashSet;

use crate::cli::{EndFilter, PairFilter};
use crate::error::{Error, Result};
use crate::kernel::pair::{End, Pair};
use crate::policy::{self, Name};
use crate::system::cgroup::Hierarchy;
use crate::system::netns::Names;
use crate::system::process::Sockets;
use crate::values::port::PortRange;

#[derive(Default)]
pub struct Filter {
    /// Empty: any.
    ports: Vec<PortRange>,
    cgroups: Option<HashSet<u64>>,
    netns: Option<u64>,
    sockets: Option<Sockets>,
    policy: Option<Name>,
}

impl Filter {
    /// Resolves the names of processes, cgroups and namespaces as they are now.
    pub fn new(asked: &PairFilter) -> Result<Self> {
        let mut filter = Filter::of_ends(&asked.end)?;
        filter.sockets = sockets(asked)?;
        filter.policy = asked.policy.clone();
        Ok(filter)
    }

    pub fn of_ends(asked: &EndFilter) -> Result<Self> {
        let mut filter = Filter {
            ports: asked.ports.clone(),
            ..Filter::default()
        };
        if !asked.cgroups.is_empty() {
            let hierarchy = Hierarchy::find()?;
            let mut ids = HashSet::new();
            for path in &asked.cgroups {
                ids.extend(hierarchy.subtree(path)?);
            }
            filter.cgroups = Some(ids);
        }
        if let Some(netns) = &asked.netns {
            filter.netns = Some(netns_inode(netns)?);
        }
        Ok(filter)
    }

    /// Drops the pairs that are not asked for. Fails if the policy asked for is not in force
    /// and has no pair left.
    pub fn keep(&self, pairs: &mut Vec<Pair>) -> Result<()> {
        if let Some(name) = &self.policy {
            let has_pair = |pair: &Pair| pair.ends.iter().any(|end| end.group == name.group());
            if !pairs.iter().any(has_pair) && !policy::is_in_force(name)? {
                return Err(
                    Error::new(format!("there is no policy {name}, and no pair of one"))
                        .remedy("'socksplice policy show' lists those that there are"),
                );
            }
        }
        pairs.retain(|pair| self.wants(pair));
        Ok(())
    }

    pub fn wants(&self, pair: &Pair) -> bool {
        pair.ends.iter().any(|end| self.wants_end(end))
    }

    fn wants_end(&self, end: &End) -> bool {
        let has = |port| self.ports.iter().any(|r| r.first <= port && port <= r.last);
        (self.ports.is_empty() || has(end.local.port) || has(end.peer.port))
            && self
                .cgroups
                .as_ref()
                .is_none_or(|ids| ids.contains(&end.cgroup))
            && self.netns.is_none_or(|inode| inode == end.netns.inode)
            && self
                .policy
                .as_ref()
                .is_none_or(|name| name.group() == end.group)
            && self
                .sockets
                .as_ref()
                .is_none_or(|sockets| !sockets.holders(end.inode).is_empty())
    }
}

/// The inode number of a namespace, given as that or by its name.
pub fn netns_inode(netns: &str) -> Result<u64> {
    Names::read().inode(netns).ok_or_else(|| {
        Error::new(format!("there is no network namespace {netns}"))
            .remedy("'ip netns' lists those that have a name; others have an inode number")
    })
}

fn sockets(asked: &PairFilter) -> Result<Option<Sockets>> {
    if let Some(pid) = asked.pid {
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            return Err(Error::new(format!("there is no process {pid}")));
        }
    }
    if asked.pid.is_none() && asked.process.is_none() {
        return Ok(None);
    }
    Ok(Some(Sockets::of(|process| {
        asked.pid.is_none_or(|pid| pid == process.pid)
            && asked
                .process
                .as_ref()
                .is_none_or(|name| *name == process.name)
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::pair::tests::pair;

    fn wants(filter: Filter) -> bool {
        filter.wants(&pair(&[127, 0, 0, 1]).unwrap())
    }

    #[test]
    fn an_end_that_has_everything() {
        let port = |text: &str| vec![text.parse().unwrap()];
        let of = |ports, cgroup, netns| Filter {
            ports,
            cgroups: Some(HashSet::from([cgroup])),
            netns: Some(netns),
            ..Filter::default()
        };
        assert!(wants(Filter::default()));
        assert!(wants(of(port("40000"), 815, 4026531840)));
        assert!(wants(of(port("1-80"), 815, 4026531840)));
        assert!(!wants(of(port("81"), 815, 4026531840)));
        assert!(!wants(of(port("80"), 816, 4026531840)));
        assert!(!wants(of(port("80"), 815, 4026531841)));
    }

    #[test]
    fn an_end_that_a_policy_enrolled() {
        let of = |name: &str| Filter {
            policy: Some(name.parse().unwrap()),
            ..Filter::default()
        };
        let mut pair = pair(&[127, 0, 0, 1]).unwrap();
        pair.ends[1].group = "mine".parse::<Name>().unwrap().group();
        assert!(of("mine").wants(&pair) && !of("other").wants(&pair));
    }

    #[test]
    fn an_end_that_a_process_has() {
        let asked = PairFilter {
            pid: Some(std::process::id()),
            ..PairFilter::default()
        };
        let filter = Filter::new(&asked).ok().unwrap();
        assert!(!wants(filter));
        let asked = PairFilter {
            pid: Some(u32::MAX),
            ..PairFilter::default()
        };
        assert!(Filter::new(&asked).is_err());
    }
}
