// SPDX-License-Identifier: GPL-2.0
//! The file of `policy apply` and `policy export`: policies and switches, as TOML.

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use toml::{Spanned, Value};

use crate::error::{Error, Result};
use crate::system::cgroup::Hierarchy;
use crate::system::files;
use crate::uapi::BUSY_POLL_MAX;
use crate::values::cidr::Cidr;
use crate::values::port::PortRange;
use crate::values::size;

use super::config::{self, CGROUPS, CIDRS, MAX, Name, OnCapture, PORTS, Policy};

/// No file that keeps to the other bounds is longer, in bytes.
const LONGEST: u64 = 4 << 20;

/// What is set of the module. None: as it is.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Features {
    pub pairing: Option<bool>,
    pub splice: Option<bool>,
    pub so_splice: Option<bool>,
    pub memory_cap: Option<MemoryCap>,
}

/// Most bytes that all rings may hold; 0: no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryCap(pub u64);

impl FromStr for MemoryCap {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        size::parse_memory_or_off(text).map(MemoryCap)
    }
}

impl<'de> Deserialize<'de> for MemoryCap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Text::deserialize(deserializer).map(|text| text.0)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    features: Features,
    #[serde(default, rename = "policy", deserialize_with = "bounded::<_, _, MAX>")]
    policies: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: Spanned<Text<Name>>,
    #[serde(default = "yes")]
    pair: bool,
    #[serde(default, deserialize_with = "some_of::<_, _, CGROUPS>")]
    cgroups: Option<Vec<Spanned<PathBuf>>>,
    #[serde(default, deserialize_with = "some_of::<_, _, CGROUPS>")]
    units: Option<Vec<Spanned<String>>>,
    #[serde(default, deserialize_with = "bounded::<_, _, PORTS>")]
    ports: Vec<Text<PortRange>>,
    #[serde(default, deserialize_with = "bounded::<_, _, CIDRS>")]
    cidrs: Vec<Text<Cidr>>,
    #[serde(default)]
    loopback_only: bool,
    #[serde(default)]
    on_capture: OnCapture,
    busy_poll: Option<Text<BusyPoll>>,
    ring: Option<Text<Ring>>,
    ring_max: Option<Text<Ring>>,
    memory_cap: Option<Text<PolicyCap>>,
}

fn yes() -> bool {
    true
}

/// A list of at most `N`.
fn bounded<'de, D, T, const N: usize>(deserializer: D) -> std::result::Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Vec::deserialize(deserializer)?;
    match list.len() > N {
        true => Err(de::Error::custom(format!(
            "the list has more than {N} entries"
        ))),
        false => Ok(list),
    }
}

fn some_of<'de, D, T, const N: usize>(
    deserializer: D,
) -> std::result::Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    bounded::<D, T, N>(deserializer).map(Some)
}

/// What the command line's own parsers take, as a string or a whole number.
struct Text<T>(T);

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Parse<T>(std::marker::PhantomData<T>);

        impl<T: FromStr<Err = String>> Visitor<'_> for Parse<T> {
            type Value = Text<T>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string or a whole number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Text<T>, E> {
                text.parse().map(Text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> std::result::Result<Text<T>, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(Parse(std::marker::PhantomData))
    }
}

struct BusyPoll(u32);

impl FromStr for BusyPoll {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.parse() {
            Ok(usec) if usec <= BUSY_POLL_MAX => Ok(BusyPoll(usec)),
            _ => Err(format!(
                "busy-poll is a number of microseconds from 0 to {BUSY_POLL_MAX}"
            )),
        }
    }
}

struct Ring(u32);

impl FromStr for Ring {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        size::parse(text).map(Ring)
    }
}

struct PolicyCap(u64);

impl FromStr for PolicyCap {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        size::parse_memory(text).map(PolicyCap)
    }
}

/// The text of a file, with its name for what is wrong in it.
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    pub fn read(path: &Path) -> Result<Self> {
        let path = match path == Path::new("-") {
            true => Path::new("/dev/stdin"),
            false => path,
        };
        let name = path.display().to_string();
        let failed = |e| Error::new(format!("cannot read {name}: {e}"));
        let mut bytes = Vec::new();
        let mut file = files::open_trusted(path)?.take(LONGEST + 1);
        file.read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LONGEST {
            let most = size::format(LONGEST);
            return Err(Error::usage(format!("{name} is longer than {most}")));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Source { name, text }),
            Err(_) => Err(Error::usage(format!("{name} is not UTF-8"))),
        }
    }

    /// Put before a message: which file and line it is about.
    fn place(&self, span: &Range<usize>) -> String {
        let before = self.text.as_bytes().iter().take(span.start);
        format!(
            "{}:{}",
            self.name,
            1 + before.filter(|b| **b == b'\n').count()
        )
    }

    /// What the file says. A cgroup need not exist yet.
    pub fn parse(&self, hierarchy: &Hierarchy) -> Result<(Vec<Policy>, Features)> {
        let document: Document = toml::from_str(&self.text).map_err(|e| {
            let message: Vec<&str> = e.message().lines().map(str::trim).collect();
            let place = self.place(&e.span().unwrap_or(0..0));
            Error::usage(format!("{place}: {}", message.join(", ")))
        })?;
        let mut names = HashSet::new();
        let mut policies = Vec::new();
        for entry in document.policies {
            let place = self.place(&entry.name.span());
            let name = entry.name.into_inner().0;
            if !names.insert(name.clone()) {
                return Err(Error::usage(format!("{place}: a second policy {name}"))
                    .remedy("give each its own name"));
            }
            let at = |span: Range<usize>| {
                move |mut e: Error| {
                    e.message = format!("{}: {}", self.place(&span), e.message);
                    e
                }
            };
            if entry.cgroups.is_none() && entry.units.is_none() {
                return Err(
                    Error::usage(format!("{place}: policy {name} names no processes"))
                        .remedy("give it cgroups or units"),
                );
            }
            let mut cgroups = Vec::new();
            for path in entry.cgroups.iter().flatten() {
                cgroups.push(hierarchy.path(path.get_ref()).map_err(at(path.span()))?);
            }
            for unit in entry.units.iter().flatten() {
                cgroups.push(hierarchy.of_unit(unit.get_ref()).map_err(at(unit.span()))?);
            }
            cgroups.sort_unstable();
            cgroups.dedup();
            policies.push(Policy {
                name,
                pair: entry.pair,
                cgroups,
                ports: entry.ports.into_iter().map(|t| t.0).collect(),
                cidrs: entry.cidrs.into_iter().map(|t| t.0).collect(),
                loopback_only: entry.loopback_only,
                busy_poll: entry.busy_poll.map(|t| t.0.0).filter(|usec| *usec != 0),
                ring: entry.ring.map(|t| t.0.0),
                ring_max: entry.ring_max.map(|t| t.0.0),
                memory_cap: entry.memory_cap.map(|t| t.0.0),
                on_capture: entry.on_capture,
            });
            // Those before it were good, also together.
            config::check(&policies).map_err(|mut e| {
                e.message = format!("{place}: {}", e.message);
                e
            })?;
        }
        Ok((policies, document.features))
    }
}

/// The file that says this.
pub fn render(policies: &[Policy], features: Features) -> String {
    let quoted = |text: String| Value::String(text).to_string();
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    let mut text = String::from("[features]\n");
    let switches = [
        ("pairing", features.pairing),
        ("splice", features.splice),
        ("so-splice", features.so_splice),
    ];
    for (name, state) in switches {
        if let Some(state) = state {
            text += &format!("{name} = {state}\n");
        }
    }
    if let Some(MemoryCap(bytes)) = features.memory_cap {
        text += &format!("memory-cap = {}\n", quoted(size::format_or_off(bytes)));
    }
    for policy in policies {
        let cgroups = policy.cgroups.iter().cloned().map(quoted).collect();
        text += &format!("\n[[policy]]\nname = {}\n", quoted(policy.name.to_string()));
        if !policy.pair {
            text += "pair = false\n";
        }
        text += &format!("cgroups = {}\n", list(cgroups));
        if !policy.ports.is_empty() {
            let port = |range: &PortRange| match range.first == range.last {
                true => range.to_string(),
                false => quoted(range.to_string()),
            };
            text += &format!(
                "ports = {}\n",
                list(policy.ports.iter().map(port).collect())
            );
        }
        if !policy.cidrs.is_empty() {
            let cidrs = policy.cidrs.iter().map(|net| quoted(net.to_string()));
            text += &format!("cidrs = {}\n", list(cidrs.collect()));
        }
        if policy.loopback_only {
            text += "loopback-only = true\n";
        }
        if let Some(usec) = policy.busy_poll {
            text += &format!("busy-poll = {usec}\n");
        }
        if let Some(bytes) = policy.ring {
            text += &format!("ring = {}\n", quoted(size::format(bytes.into())));
        }
        if let Some(bytes) = policy.ring_max {
            text += &format!("ring-max = {}\n", quoted(size::format(bytes.into())));
        }
        if let Some(bytes) = policy.memory_cap {
            text += &format!("memory-cap = {}\n", quoted(size::format(bytes)));
        }
        if policy.on_capture != OnCapture::Keep {
            text += &format!("on-capture = \"{}\"\n", policy.on_capture);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::USAGE;

    fn parse(text: &str) -> Result<(Vec<Policy>, Features)> {
        let source = Source {
            name: "f.toml".into(),
            text: text.into(),
        };
        source.parse(&Hierarchy::at("/nonexistent-mount"))
    }

    fn policy(rest: &str) -> String {
        format!("[[policy]]\nname = \"a\"\ncgroups = []\n{rest}\n")
    }

    #[test]
    fn says_what_the_export_said() {
        let text = "[features]\npairing = true\nsplice = false\nso-splice = true\n\
            memory-cap = \"off\"\n\n\
            [[policy]]\nname = \"first\"\npair = false\ncgroups = [\"/a/*\", \"/b\"]\nports = [80, \"8000-8999\"]\n\n\
            [[policy]]\nname = \"second\"\ncgroups = []\ncidrs = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
            loopback-only = true\nbusy-poll = 50\nring = \"128K\"\nring-max = \"1M\"\nmemory-cap = \"10G\"\non-capture = \"unpair\"\n";
        let (policies, features) = parse(text).unwrap();
        assert_eq!(policies.len(), 2);
        assert!(!policies[0].pair && policies[1].pair);
        assert_eq!(policies[1].ring, Some(131072));
        assert_eq!(features.splice, Some(false));
        assert_eq!(features.memory_cap, Some(MemoryCap(0)));
        assert_eq!(render(&policies, features), text);
    }

    #[test]
    fn an_empty_file_is_no_policy_and_no_change() {
        for text in ["", "# nothing\n", "[features]\n"] {
            assert_eq!(parse(text).unwrap(), (vec![], Features::default()));
        }
    }

    #[test]
    fn names_the_line_of_a_mistake() {
        let ports: Vec<String> = (1..=65).map(|n| n.to_string()).collect();
        let too_many = format!("ports = [{}]", ports.join(","));
        let second = policy("") + &policy("");
        for (text, line, says) in [
            ("[features]\nsplice = 1\n".into(), 2, "expected a boolean"),
            (
                "[features]\nspice = true\n".into(),
                2,
                "unknown field `spice`",
            ),
            ("\n[feature]\n".into(), 2, "unknown field `feature`"),
            ("[features]\nmemory-cap = 4096\n".into(), 2, "8K to 1024G"),
            ("a = \n".into(), 1, ""),
            (
                "[[policy]]\nname = \"a\"\n".into(),
                2,
                "policy a names no processes; give it cgroups or units",
            ),
            (
                "[[policy]]\ncgroups = []\n".into(),
                1,
                "missing field `name`",
            ),
            (
                "[[policy]]\nname = \"a b\"\ncgroups = []\n".into(),
                2,
                "letters",
            ),
            (policy("port = [80]"), 4, "unknown field `port`"),
            (policy("ports = [0]"), 4, "from 1 to 65535"),
            (policy("ports = [80,\n\"9-8\"]"), 5, "not above"),
            (policy("ports = 80"), 4, "expected a sequence"),
            (policy("ports = [1.5]"), 4, "a string or a whole number"),
            (policy(&too_many), 4, "more than 64"),
            (policy("cidrs = [\"10.1.2.3/8\"]"), 4, "10.0.0.0/8"),
            (policy("ring = \"3K\""), 4, "power of two"),
            (policy("ring = 5000"), 4, "power of two"),
            (policy("ring-max = \"3M\""), 4, "power of two"),
            (
                policy("ring = \"64K\"\nring-max = \"4K\""),
                2,
                "ring-max is below its ring; ",
            ),
            (policy("memory-cap = 100"), 4, "8K"),
            (policy("busy-poll = 1001"), 4, "0 to 1000"),
            (policy("busy-poll = -1"), 4, "0 to 1000"),
            (policy("on-capture = 'drop'"), 4, "keep"),
            (policy("pair = \"no\""), 4, "expected a boolean"),
            (policy("ring = \"4K\"\nring = \"4K\""), 5, "duplicate"),
            (second, 6, "a second policy a"),
        ] {
            let error = parse(&text).unwrap_err();
            assert_eq!(error.status, USAGE, "{text}");
            let shown = error.to_string();
            assert!(
                shown.starts_with(&format!("f.toml:{line}: ")),
                "{text}: {shown}"
            );
            assert!(shown.contains(says), "{text}: {shown}");
            assert!(!shown.contains('\n'), "{shown}");
        }
    }

    #[test]
    fn too_many_policies() {
        let one = |n: usize| format!("[[policy]]\nname = \"p{n}\"\ncgroups = []\n");
        let many = |n: usize| parse(&(0..n).map(one).collect::<String>());
        assert_eq!(many(MAX).unwrap().0.len(), MAX);
        assert!(
            many(MAX + 1)
                .unwrap_err()
                .to_string()
                .contains("more than 32")
        );
    }

    #[test]
    fn a_missing_cgroup_is_a_failure_with_its_line() {
        let text = "[[policy]]\nname = \"a\"\ncgroups = [\n\"/\",\n\"gone\"]\n";
        let error = parse(text).unwrap_err();
        assert_eq!(error.status, crate::error::FAILED);
        assert!(
            error
                .to_string()
                .starts_with("f.toml:4: there is no cgroup /;"),
            "{error}"
        );
    }
}
