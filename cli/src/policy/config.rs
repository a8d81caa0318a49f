// SPDX-License-Identifier: GPL-2.0
//! Policies, and `struct policy_config` of `bpf/policy.h`, which holds their bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::values::cidr::Cidr;
use crate::values::port::PortRange;
use crate::values::selector::Selector;

/// The version of the bytes; those of another one are not understood.
const LAYOUT: u32 = 7;
/// How many policies there can be.
pub const MAX: usize = 32;
/// How many port ranges and networks each of them can list.
pub const PORTS: usize = 64;
pub const CIDRS: usize = 64;
/// How many cgroups all of them together can name by their paths, and by patterns.
pub const CGROUPS: usize = 4096;
pub const PATTERNS: usize = 64;
/// How many selectors of containers all of them together can have, and how many containers
/// these can find.
pub const SELECTORS: usize = 64;
pub const FOUND: usize = 4096;

const NAME: usize = 32;
const CIDR_WORDS: usize = 9;
const HEAD_WORDS: usize = NAME / 4 + 12;
const POLICY_WORDS: usize = HEAD_WORDS + PORTS + CIDRS * CIDR_WORDS;
const POLICIES_AT: usize = 2;
pub const SIZE: usize = 4 * (POLICIES_AT + MAX * POLICY_WORDS);

/// What a policy is called: 1 to 31 letters, digits, '.', '_' and '-'.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if text.is_empty() || text.len() >= NAME || !text.bytes().all(good) {
            return Err(format!(
                "a policy's name is 1 to {} letters, digits, '.', '_' and '-'",
                NAME - 1
            ));
        }
        Ok(Name(text.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Name {
    /// What the module knows a policy by, also after it was set anew: 32 bits, not 0.
    pub fn group(&self) -> u64 {
        let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        self.0.bytes().fold(0x811c_9dc5, fnv).max(1).into()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub name: Name,
    /// False: what matches stays on TCP.
    pub pair: bool,
    /// Their paths from the root of the hierarchy, in order. In a path each '*' stands for any
    /// bytes but '/'. They live in maps, not among the bytes.
    pub cgroups: Vec<String>,
    /// What names containers, in order. They live in a map as well.
    pub selectors: Vec<Selector>,
    pub ports: Vec<PortRange>,
    pub cidrs: Vec<Cidr>,
    pub loopback_only: bool,
    /// None: the socket's own value.
    pub busy_poll: Option<u32>,
    /// The agent has the epoll sets of its processes spin as long, see [`Policy::epoll_usec`].
    pub busy_poll_epoll: bool,
    /// None: the module's default.
    pub ring: Option<u32>,
    /// What a ring may grow to. None: it keeps its size, or does as the module says.
    pub ring_max: Option<u32>,
    /// Bytes that the rings of what it pairs may hold. None: no limit.
    pub memory_cap: Option<u64>,
    pub on_capture: OnCapture,
}

/// What becomes of pairs whose packets somebody captures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnCapture {
    /// They stay; what goes by ring is not in the capture
    #[default]
    Keep,
    /// They go back to TCP, and new ones are not made there until it ends
    Unpair,
}

impl fmt::Display for OnCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnCapture::Keep => "keep",
            OnCapture::Unpair => "unpair",
        })
    }
}

impl Policy {
    /// One that matches no socket, until it names cgroups.
    pub fn new(name: Name) -> Self {
        Policy {
            name,
            pair: true,
            cgroups: Vec::new(),
            selectors: Vec::new(),
            ports: Vec::new(),
            cidrs: Vec::new(),
            loopback_only: false,
            busy_poll: None,
            busy_poll_epoll: false,
            ring: None,
            ring_max: None,
            memory_cap: None,
            on_capture: OnCapture::Keep,
        }
    }

    /// How long the event loops of its processes spin before they sleep, in microseconds. None:
    /// it leaves them alone.
    pub fn epoll_usec(&self) -> Option<u32> {
        self.busy_poll.filter(|_| self.pair && self.busy_poll_epoll)
    }

    fn extend(&self, bytes: &mut Vec<u8>) {
        let end = bytes.len() + 4 * POLICY_WORDS;
        let mut name = [0; NAME];
        name[..self.name.0.len()].copy_from_slice(self.name.0.as_bytes());
        bytes.extend(name);
        let cap = self.memory_cap.unwrap_or(0);
        let mut words = vec![
            (!self.pair).into(),
            self.ring.unwrap_or(0),
            self.busy_poll.unwrap_or(0),
            self.loopback_only.into(),
            self.name.group() as u32,
            cap as u32,
            (cap >> 32) as u32,
            (self.on_capture == OnCapture::Unpair).into(),
            self.ring_max.unwrap_or(0),
            self.busy_poll_epoll.into(),
            self.ports.len() as u32,
            self.cidrs.len() as u32,
        ];
        bytes.extend(words.drain(..).flat_map(u32::to_ne_bytes));
        for range in &self.ports {
            bytes.extend(range.first.to_ne_bytes());
            bytes.extend(range.last.to_ne_bytes());
        }
        bytes.resize(end - 4 * CIDRS * CIDR_WORDS, 0);
        for cidr in &self.cidrs {
            let (net, mask) = cidr.words();
            words.push(cidr.net.is_ipv4().into());
            words.extend(net.iter().chain(&mask));
            bytes.extend(words.drain(..).flat_map(u32::to_ne_bytes));
        }
        bytes.resize(end, 0);
    }

    fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, String> {
        let name = String::from_utf8_lossy(&bytes[..NAME]);
        let head = |i: usize| word(bytes, NAME / 4 + i);
        let optional = |n| (n != 0).then_some(n);
        let cap = u64::from(head(6)) << 32 | u64::from(head(5));
        let port = |i: usize| {
            let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
            let at = 4 * (HEAD_WORDS + i);
            PortRange {
                first: half(at),
                last: half(at + 2),
            }
        };
        let cidr = |i: usize| {
            let at = HEAD_WORDS + PORTS + i * CIDR_WORDS;
            let four = |at| [0, 1, 2, 3].map(|i| word(bytes, at + i));
            Cidr::from_words(word(bytes, at) != 0, four(at + 1), four(at + 5))
        };
        Ok(Policy {
            name: name.trim_end_matches('\0').parse()?,
            pair: head(0) == 0,
            cgroups: Vec::new(),
            selectors: Vec::new(),
            ring: optional(head(1)),
            busy_poll: optional(head(2)),
            loopback_only: head(3) != 0,
            memory_cap: (cap != 0).then_some(cap),
            on_capture: match head(7) {
                0 => OnCapture::Keep,
                _ => OnCapture::Unpair,
            },
            ring_max: optional(head(8)),
            busy_poll_epoll: head(9) != 0,
            ports: (0..PORTS.min(head(10) as usize)).map(port).collect(),
            cidrs: (0..CIDRS.min(head(11) as usize)).map(cidr).collect(),
        })
    }
}

fn word(bytes: &[u8], i: usize) -> u32 {
    u32::from_ne_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap())
}

/// Whether the lists are short enough; what `to_bytes` takes for granted.
pub fn check(policies: &[Policy]) -> Result<()> {
    let too_many = |many: usize, max: usize, what: &str| match many > max {
        true => Err(Error::usage(format!("more than {max} {what}"))),
        false => Ok(()),
    };
    too_many(policies.len(), MAX, "policies")?;
    for policy in policies {
        let neighbours = |e: Error| e.remedy("join neighbouring ones");
        too_many(policy.ports.len(), PORTS, "port ranges").map_err(neighbours)?;
        too_many(policy.cidrs.len(), CIDRS, "networks").map_err(neighbours)?;
        if !policy.pair && !policy.selectors.is_empty() {
            return Err(Error::usage(format!(
                "policy {}: it cannot keep containers on TCP by their names, labels or pods: a later \
                 policy might pair the first connections of a new one",
                policy.name
            ))
            .remedy("name their cgroups, for example by a pattern"));
        }
        if policy.busy_poll_epoll && policy.busy_poll.is_none() {
            return Err(Error::usage(format!(
                "policy {}: it has busy-poll-epoll and no busy-poll",
                policy.name
            ))
            .remedy("give it busy-poll, the microseconds to spin"));
        }
        if policy.ring_max.is_some_and(|max| policy.ring > Some(max)) {
            return Err(Error::usage(format!(
                "policy {}: its ring-max is below its ring",
                policy.name
            ))
            .remedy("raise ring-max, or leave it out"));
        }
    }
    let (patterns, exact): (Vec<_>, Vec<_>) =
        masks(policies).into_keys().partition(|p| p.contains('*'));
    let above = |e: Error| e.remedy("name those above them");
    too_many(exact.len(), CGROUPS, "cgroups").map_err(above)?;
    too_many(patterns.len(), PATTERNS, "patterns of cgroups").map_err(above)?;
    let selectors = selectors(policies).len();
    too_many(selectors, SELECTORS, "selectors of containers")
        .map_err(|e| e.remedy("give the containers a label, and name that"))
}

/// Which policies have each path, by their bits.
pub fn masks(policies: &[Policy]) -> BTreeMap<String, u32> {
    let mut masks = BTreeMap::new();
    for (i, policy) in policies.iter().enumerate() {
        for path in &policy.cgroups {
            *masks.entry(path.clone()).or_insert(0) |= 1 << i;
        }
    }
    masks
}

/// Which policies have each selector, by their bits; in the order of the map `selectors`.
pub fn selectors(policies: &[Policy]) -> BTreeMap<Selector, u32> {
    let mut masks = BTreeMap::new();
    for (i, policy) in policies.iter().enumerate() {
        for selector in &policy.selectors {
            *masks.entry(selector.clone()).or_insert(0) |= 1 << i;
        }
    }
    masks
}

/// The bytes of policies that [`check`] found good.
pub fn to_bytes(policies: &[Policy]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SIZE);
    bytes.extend(LAYOUT.to_ne_bytes());
    bytes.extend((policies.len() as u32).to_ne_bytes());
    for policy in policies {
        policy.extend(&mut bytes);
    }
    bytes.resize(SIZE, 0);
    bytes
}

/// The reverse of [`to_bytes`], [`masks`] and [`selectors`].
pub fn from_bytes(
    bytes: &[u8],
    masks: &BTreeMap<String, u32>,
    selectors: &BTreeMap<Selector, u32>,
) -> Result<Vec<Policy>> {
    let unknown = || {
        Error::new("the policy was set by another version of this program").remedy("set it again")
    };
    if bytes.len() != SIZE || word(bytes, 0) != LAYOUT {
        return Err(unknown());
    }
    let count = MAX.min(word(bytes, 1) as usize);
    let parts = bytes[4 * POLICIES_AT..].chunks_exact(4 * POLICY_WORDS);
    let mut policies = Vec::new();
    for (i, part) in parts.take(count).enumerate() {
        let mut policy = Policy::from_bytes(part).map_err(|_| unknown())?;
        let has = |mask: &u32| mask & (1 << i) != 0;
        let named = masks.iter().filter(|(_, mask)| has(mask));
        policy.cgroups = named.map(|(path, _)| path.clone()).collect();
        let named = selectors.iter().filter(|(_, mask)| has(mask));
        policy.selectors = named.map(|(selector, _)| selector.clone()).collect();
        policies.push(policy);
    }
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::USAGE;
    use crate::system::cgroup;
    use crate::values::selector;

    const HEADER: &str = include_str!("../../../bpf/policy.h");

    fn named(name: &str) -> Policy {
        Policy::new(name.parse().unwrap())
    }

    #[test]
    fn limits_are_those_of_the_header() {
        for (name, value) in [
            ("LAYOUT", LAYOUT as usize),
            ("MAX", MAX),
            ("NAME", NAME),
            ("PORTS", PORTS),
            ("CIDRS", CIDRS),
            ("PATTERNS", PATTERNS),
            ("SELECTORS", SELECTORS),
            ("SELECTOR", selector::TEXT),
            ("FOUND", FOUND),
            ("PATH", cgroup::PATH),
            ("CGROUP_DEPTH", cgroup::DEPTH),
        ] {
            let start = format!("#define POLICY_{name}\t");
            let line = HEADER.lines().find(|l| l.starts_with(&start)).unwrap();
            assert_eq!(line.rsplit('\t').next().unwrap(), value.to_string());
        }
        assert_eq!(MAX, u32::BITS as usize);
    }

    #[test]
    fn come_back_from_their_bytes() {
        let full = Policy {
            cgroups: vec!["/a/*".into(), "/b".into()],
            selectors: ["container:web", "label:a=b", "pod:x?y=z"]
                .map(|s| s.parse().unwrap())
                .to_vec(),
            ports: vec!["80".parse().unwrap(), "8000-8999".parse().unwrap()],
            cidrs: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            on_capture: OnCapture::Unpair,
            loopback_only: true,
            busy_poll: Some(50),
            busy_poll_epoll: true,
            ring: Some(65536),
            ring_max: Some(1 << 20),
            memory_cap: Some((7 << 32) + 5),
            ..named("full")
        };
        let most = Policy {
            pair: false,
            cgroups: vec!["/b".into()],
            ports: vec!["1-2".parse().unwrap(); PORTS],
            cidrs: vec!["::1".parse().unwrap(); CIDRS],
            ..named("a-name-that-is-31-bytes-long.__")
        };
        let last = Policy {
            cgroups: vec!["/".into()],
            selectors: vec!["label:a=b".parse().unwrap()],
            ..named("last")
        };
        let mut many = vec![most.clone(); MAX - 1];
        many.push(last);
        for policies in [vec![], vec![full.clone(), most], many] {
            check(&policies).unwrap();
            let bytes = to_bytes(&policies);
            assert_eq!(bytes.len(), SIZE);
            let read = from_bytes(&bytes, &masks(&policies), &selectors(&policies));
            assert_eq!(read.unwrap(), policies);
        }
    }

    /// A new container is matched only when the agent has heard of it.
    #[test]
    fn containers_cannot_be_kept_on_tcp() {
        let policy = Policy {
            pair: false,
            selectors: vec!["container:web".parse().unwrap()],
            ..named("a")
        };
        assert_eq!(check(&[policy]).unwrap_err().status, USAGE);
    }

    #[test]
    fn too_long_a_list_is_a_usage_error() {
        let ports = Policy {
            ports: vec!["1".parse().unwrap(); PORTS + 1],
            ..named("a")
        };
        let cidrs = Policy {
            cidrs: vec!["::1".parse().unwrap(); CIDRS + 1],
            ..named("a")
        };
        let cgroups = Policy {
            cgroups: (0..=CGROUPS).map(|i| format!("/{i}")).collect(),
            ..named("a")
        };
        let patterns = Policy {
            cgroups: (0..=PATTERNS).map(|i| format!("/*{i}")).collect(),
            ..named("a")
        };
        let selectors = Policy {
            selectors: (0..=SELECTORS)
                .map(|i| format!("container:{i}").parse().unwrap())
                .collect(),
            ..named("a")
        };
        for policies in [
            vec![selectors],
            vec![ports],
            vec![cidrs],
            vec![cgroups],
            vec![patterns],
            vec![named("a"); MAX + 1],
        ] {
            assert_eq!(check(&policies).unwrap_err().status, USAGE);
        }
    }

    #[test]
    fn another_layout_is_refused() {
        let mut bytes = to_bytes(&[]);
        bytes[0] ^= 0x40;
        for bytes in [&bytes[..], &[]] {
            assert!(from_bytes(bytes, &BTreeMap::new(), &BTreeMap::new()).is_err());
        }
    }

    #[test]
    fn names_are_plain_words() {
        for bad in [
            "",
            "a b",
            "é",
            "a/b",
            "a\0",
            "a-name-that-is-32-bytes-long.___",
        ] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }
}
