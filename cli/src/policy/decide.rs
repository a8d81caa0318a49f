// SPDX-License-Identifier: GPL-2.0
//! What the policies say of an end: the decision of `bpf/policy.bpf.c`, with the condition that
//! does not match.

use std::net::{IpAddr, SocketAddr};

use super::cgroups::names;
use super::config::Policy;

/// A connection as one of its ends sees it.
pub struct Flow {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The path of the socket's cgroup; None if that was removed.
    pub cgroup: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    Cgroup,
    Port,
    Network,
    LoopbackOnly,
}

#[derive(Debug, PartialEq)]
pub enum Decision<'a> {
    /// The first policy that matches.
    By(&'a Policy),
    /// None matches. The one with the fewest conditions that do not, and the first of these.
    Missed(&'a Policy, Condition),
    /// There is no policy.
    Nothing,
}

pub fn decide<'a>(policies: &'a [Policy], flow: &Flow) -> Decision<'a> {
    let missed = policies.iter().map(|policy| (policy, missed(policy, flow)));
    let Some((policy, missed)) = missed.min_by_key(|(_, missed)| missed.len()) else {
        return Decision::Nothing;
    };
    match missed.first() {
        Some(condition) => Decision::Missed(policy, *condition),
        None => Decision::By(policy),
    }
}

/// The conditions of a policy that an end does not meet.
fn missed(policy: &Policy, flow: &Flow) -> Vec<Condition> {
    let addresses = [flow.local.ip(), flow.remote.ip()];
    let ports = [flow.local.port(), flow.remote.port()];
    let named = |path: &str| policy.cgroups.iter().any(|pattern| names(pattern, path));
    let cgroup = flow
        .cgroup
        .as_deref()
        .is_some_and(|path| and_above(path).any(named));
    let port = policy
        .ports
        .iter()
        .any(|range| ports.iter().any(|p| range.first <= *p && *p <= range.last));
    let network = policy
        .cidrs
        .iter()
        .any(|cidr| addresses.iter().any(|address| cidr.contains(*address)));
    let conditions = [
        (Condition::Cgroup, cgroup),
        (Condition::Port, policy.ports.is_empty() || port),
        (Condition::Network, policy.cidrs.is_empty() || network),
        (
            Condition::LoopbackOnly,
            !policy.loopback_only || addresses.into_iter().all(is_loopback),
        ),
    ];
    let missed = conditions.into_iter().filter(|(_, met)| !met);
    missed.map(|(condition, _)| condition).collect()
}

/// The path of a cgroup, and those of the cgroups above it.
fn and_above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rsplit_once('/') {
        Some(("", "")) | None => None,
        Some(("", _)) => Some("/"),
        Some((above, _)) => Some(above),
    })
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, cgroup: &str) -> Policy {
        Policy {
            cgroups: vec![cgroup.into()],
            ..Policy::new(name.parse().unwrap())
        }
    }

    fn flow() -> Flow {
        Flow {
            local: "127.0.0.1:40000".parse().unwrap(),
            remote: "10.0.0.1:80".parse().unwrap(),
            cgroup: Some("/a/b".into()),
        }
    }

    #[test]
    fn the_first_that_matches_decides() {
        let mut policies = [
            policy("other", "/a/b/c"),
            policy("tcp", "/*"),
            policy("late", "/a/b"),
        ];
        policies[1].pair = false;
        assert_eq!(decide(&policies, &flow()), Decision::By(&policies[1]));
        assert_eq!(decide(&[], &flow()), Decision::Nothing);
    }

    #[test]
    fn the_condition_that_does_not_match() {
        let with = |change: &dyn Fn(&mut Policy)| {
            let mut policy = policy("one", "/a/b");
            change(&mut policy);
            match decide(&[policy], &flow()) {
                Decision::Missed(_, condition) => Some(condition),
                _ => None,
            }
        };
        use Condition::{Cgroup, LoopbackOnly, Network, Port};
        assert_eq!(with(&|p| p.cgroups = vec!["/b".into()]), Some(Cgroup));
        assert_eq!(
            with(&|p| p.ports = vec!["81-90".parse().unwrap()]),
            Some(Port)
        );
        assert_eq!(with(&|p| p.ports = vec!["80".parse().unwrap()]), None);
        assert_eq!(with(&|p| p.ports = vec!["1-40000".parse().unwrap()]), None);
        assert_eq!(
            with(&|p| p.cidrs = vec!["11.0.0.0/8".parse().unwrap()]),
            Some(Network)
        );
        assert_eq!(
            with(&|p| p.cidrs = vec!["10.0.0.0/8".parse().unwrap()]),
            None
        );
        assert_eq!(with(&|p| p.loopback_only = true), Some(LoopbackOnly));
    }

    #[test]
    fn cgroups_above() {
        let all = |path| and_above(path).collect::<Vec<&str>>();
        assert_eq!(all("/"), ["/"]);
        assert_eq!(all("/a"), ["/a", "/"]);
        assert_eq!(all("/a/b"), ["/a/b", "/a", "/"]);
        let removed = Flow {
            cgroup: None,
            ..flow()
        };
        let policies = [policy("all", "/")];
        let missed = Decision::Missed(&policies[0], Condition::Cgroup);
        assert_eq!(decide(&policies, &removed), missed);
    }

    #[test]
    fn the_nearest_miss() {
        let mut far = policy("far", "/b");
        far.ports = vec!["443".parse().unwrap()];
        let mut near = policy("near", "/");
        near.ports = vec!["81".parse().unwrap()];
        let policies = [far, near];
        let missed = Decision::Missed(&policies[1], Condition::Port);
        assert_eq!(decide(&policies, &flow()), missed);
    }
}
