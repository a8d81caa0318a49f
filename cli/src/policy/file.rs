// SPDX-License-Identifier: GPL-2.0
//! The file of `policy apply` and `policy export`: policies and switches, as TOML.

use std::collections::HashSet;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use toml::Value;
use toml::de::DeTable;

use crate::error::{Error, Result};
use crate::system::cgroup::Hierarchy;
use crate::system::files;
use crate::uapi::BUSY_POLL_MAX;
use crate::values::port::PortRange;
use crate::values::selector::{Kind, Selector};
use crate::values::size;

use super::config::{self, CGROUPS, CIDRS, MAX, Name, OnCapture, PORTS, Policy, SELECTORS};
use super::keys::{Keys, Reader, Takes};

/// No file that keeps to the other bounds is longer, in bytes.
const LONGEST: u64 = 4 << 20;

/// What is set of the module. None: as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Features {
    pub pairing: Option<bool>,
    pub splice: Option<bool>,
    pub so_splice: Option<bool>,
    pub memory_cap: Option<MemoryCap>,
}

/// Most bytes that all rings may hold; 0: no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryCap(pub u64);

/// As the command line's own parsers take it.
fn plain<T: FromStr<Err = String>>(text: &str) -> Result<T> {
    text.parse().map_err(Error::usage)
}

fn busy_poll(text: &str) -> Result<u32> {
    match text.parse() {
        Ok(usec) if usec <= BUSY_POLL_MAX => Ok(usec),
        _ => Err(Error::usage(format!(
            "it is a number of microseconds from 0 to {BUSY_POLL_MAX}"
        ))),
    }
}

fn ring(text: &str) -> Result<u32> {
    size::parse(text).map_err(Error::usage)
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

    /// What the file says. A cgroup need not exist yet. Fails with all mistakes of the file.
    pub fn parse(&self, hierarchy: &Hierarchy) -> Result<(Vec<Policy>, Features)> {
        let mut reader = Reader::new(&self.name, &self.text);
        let mut policies = Vec::new();
        let mut found = Features::default();
        if let Some(document) = reader.document() {
            let mut keys = Keys::new(&mut reader, "the file", &document);
            let switches = keys.table("features");
            let tables = keys.tables("policy", MAX);
            let reader = keys.finish();
            if let Some(table) = switches {
                found = features(reader, table);
            }
            let mut names = HashSet::new();
            for (at, table) in tables {
                policies.extend(policy(reader, hierarchy, &at, table, &mut names));
                // Those before it were good, also together.
                if let Err(e) = config::check(&policies) {
                    reader.mistake(&place(&at, table), e);
                    policies.pop();
                }
            }
        }
        reader.finish()?;
        Ok((policies, found))
    }
}

/// Of a policy: its name, if it has one.
fn place(at: &Range<usize>, table: &DeTable) -> Range<usize> {
    let name = table.get_key_value("name");
    name.map_or(at.clone(), |(key, _)| key.span())
}

fn features<'t>(reader: &mut Reader<'t>, table: &DeTable<'t>) -> Features {
    let mut keys = Keys::new(reader, "[features]", table);
    let features = Features {
        pairing: keys.switch("pairing"),
        splice: keys.switch("splice"),
        so_splice: keys.switch("so-splice"),
        memory_cap: keys.value("memory-cap", Takes::TextOrNumber, |text| {
            let bytes = size::parse_memory_or_off(text).map_err(Error::usage)?;
            Ok(MemoryCap(bytes))
        }),
    };
    keys.finish();
    features
}

/// The policy of a table at `at`. None if a mistake leaves it without a name. `names`: those of
/// the policies before it.
fn policy<'t>(
    reader: &mut Reader<'t>,
    hierarchy: &Hierarchy,
    at: &Range<usize>,
    table: &DeTable<'t>,
    names: &mut HashSet<Name>,
) -> Option<Policy> {
    use Takes::{Text, TextOrNumber};
    let mut keys = Keys::new(reader, "a policy", table);
    let name = keys.value("name", TextOrNumber, plain::<Name>);
    let pair = keys.switch("pair").unwrap_or(true);
    let cgroups = keys.list("cgroups", Text, CGROUPS, |path| {
        hierarchy.path(Path::new(path))
    });
    let units = keys.list("units", Text, CGROUPS, |unit| hierarchy.of_unit(unit));
    let selectors = Kind::ALL.map(|kind| {
        keys.list(kind.key(), Text, SELECTORS, |text| {
            Selector::new(kind, text).map_err(Error::usage)
        })
    });
    let named = cgroups.is_some() || units.is_some() || selectors.iter().any(Option::is_some);
    let mut selectors: Vec<Selector> = selectors.into_iter().flatten().flatten().collect();
    selectors.sort_unstable();
    selectors.dedup();
    let mut cgroups: Vec<String> = cgroups.into_iter().chain(units).flatten().collect();
    cgroups.sort_unstable();
    cgroups.dedup();
    let ports = keys.list("ports", TextOrNumber, PORTS, plain);
    let cidrs = keys.list("cidrs", TextOrNumber, CIDRS, plain);
    let loopback_only = keys.switch("loopback-only").unwrap_or(false);
    let on_capture = keys.word::<OnCapture>("on-capture").unwrap_or_default();
    let busy_poll = keys.value("busy-poll", TextOrNumber, busy_poll);
    let busy_poll_epoll = keys.switch("busy-poll-epoll").unwrap_or(false);
    let ring_size = keys.value("ring", TextOrNumber, ring);
    let ring_max = keys.value("ring-max", TextOrNumber, ring);
    let memory_cap = keys.value("memory-cap", TextOrNumber, |text| {
        size::parse_memory(text).map_err(Error::usage)
    });
    let reader = keys.finish();

    let place = place(at, table);
    let shown = name
        .as_ref()
        .map_or(String::new(), |name| format!(" {name}"));
    if !table.contains_key("name") {
        let error = Error::usage("this policy has no name").remedy("give it name = \"…\"");
        reader.mistake(at, error);
    }
    if !named {
        let error = Error::usage(format!("policy{shown} names no processes"));
        reader.mistake(
            &place,
            error.remedy("give it cgroups, units, containers, labels or pods"),
        );
    }
    let name = name?;
    if !names.insert(name.clone()) {
        let error = Error::usage(format!("a second policy {name}"));
        reader.mistake(&place, error.remedy("give each its own name"));
    }
    Some(Policy {
        name,
        pair,
        cgroups,
        selectors,
        ports: ports.unwrap_or_default(),
        cidrs: cidrs.unwrap_or_default(),
        loopback_only,
        busy_poll: busy_poll.filter(|usec| *usec != 0),
        busy_poll_epoll,
        ring: ring_size,
        ring_max,
        memory_cap,
        on_capture,
    })
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
        if policy.selectors.is_empty() || !policy.cgroups.is_empty() {
            text += &format!("cgroups = {}\n", list(cgroups));
        }
        for kind in Kind::ALL {
            let of_kind = policy.selectors.iter().filter(|s| s.kind() == kind);
            let values: Vec<String> = of_kind.map(|s| quoted(s.value())).collect();
            if !values.is_empty() {
                text += &format!("{} = {}\n", kind.key(), list(values));
            }
        }
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
        if policy.busy_poll_epoll {
            text += "busy-poll-epoll = true\n";
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
            loopback-only = true\nbusy-poll = 50\nbusy-poll-epoll = true\nring = \"128K\"\nring-max = \"1M\"\nmemory-cap = \"10G\"\non-capture = \"unpair\"\n\n\
            [[policy]]\nname = \"third\"\ncontainers = [\"db\", \"web\"]\nlabels = [\"a.b/c=d=e\"]\n\
            pods = [\"default?a=b\", \"podman/p\"]\n\n\
            [[policy]]\nname = \"fourth\"\ncgroups = [\"/a\"]\nlabels = [\"a=\"]\n";
        let (policies, features) = parse(text).unwrap();
        assert_eq!(policies.len(), 4);
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

    /// The text has one mistake, in this line, and the message has this.
    fn names(text: &str, line: usize, says: &str) {
        let error = parse(text).unwrap_err();
        assert_eq!(error.status, USAGE, "{text}");
        let shown = error.to_string();
        let place = format!("f.toml:{line}: ");
        assert!(shown.starts_with(&place), "{text}: {shown}");
        assert!(shown.contains(says), "{text}: {shown}");
        assert!(!shown.contains('\n'), "{shown}");
        assert!(error.more.is_empty(), "{text}: {:?}", error.more);
    }

    #[test]
    fn names_an_unknown_key() {
        names(
            "[features]\nspice = true\n",
            2,
            "[features] has no key spice; its keys are pairing, splice, so-splice, memory-cap; \
             did you mean splice?",
        );
        names(
            "\n[feature]\n",
            2,
            "the file has no key feature; its keys are features, policy; did you mean features?",
        );
        names(
            &policy("port = [80]"),
            4,
            "a policy has no key port; its keys are name, pair, cgroups, units, containers, labels, \
             pods, ports, cidrs, loopback-only, on-capture, busy-poll, busy-poll-epoll, ring, ring-max, memory-cap; did you mean ports?",
        );
        let other = policy("Loopback_Only = true");
        names(&other, 4, "did you mean loopback-only?");
        let twice = policy("ring = \"4K\"\nring = \"4K\"");
        names(&twice, 5, "the key ring is there twice");
    }

    #[test]
    fn names_what_is_not_toml() {
        for (text, line, says) in [
            ("a = \n", 1, ": a value is no text in quotes"),
            (
                "= = =\n",
                1,
                ": a key is not letters, digits, '-' and '_'; write KEY = VALUE, [features]",
            ),
            ("\nnonsense\n", 2, ": a key has no value"),
            (&policy("pair = no"), 4, ": a value is no text in quotes"),
            (&policy("ports = [80\n"), 4, ": a list has no ]"),
            ("[[policy]\n", 1, ": a heading has no ]]"),
        ] {
            names(text, line, &format!("this is not TOML{says}"));
        }
    }

    #[test]
    fn names_another_kind_of_value() {
        let switch = "[features]\nsplice = 1\n";
        names(switch, 2, "splice is true or false, not a number");
        names("features = 1\n", 1, "features is a table: write [features]");
        for text in ["[policy]\n", "policy = [1]\n"] {
            names(text, 1, "policy is one of several tables: write [[policy]]");
        }
        for (rest, says) in [
            ("pair = \"no\"", "pair is true or false, not a text"),
            ("ports = 80", "ports is a list: write ports = […]"),
            (
                "ports = [1.5]",
                "ports takes a text in quotes or a whole number, not a fraction",
            ),
            ("units = [1]", "units takes a text in quotes, not a number"),
        ] {
            names(&policy(rest), 4, says);
        }
    }

    #[test]
    fn names_a_value_that_is_not_allowed() {
        let ports: Vec<String> = (1..=65).map(|n| n.to_string()).collect();
        let too_many = format!("ports = [{}]", ports.join(","));
        names("[features]\nmemory-cap = 4096\n", 2, "8K to 1024G");
        let name = "[[policy]]\nname = \"a b\"\ncgroups = []\n";
        names(name, 2, "name 'a b': a policy's name is 1 to 31 letters");
        names(&policy("ports = [80,\n\"9-8\"]"), 5, "not above");
        let label = "[[policy]]\nname = \"a\"\nlabels = [\"a=b\",\n\"a\"]\n";
        names(label, 4, "a label is KEY=VALUE");
        for (rest, says) in [
            (
                "ports = [0]",
                "ports '0': a port is a number from 1 to 65535",
            ),
            ("pods = [\"web\"]", "NAMESPACE/NAME"),
            ("containers = [\"a/b\"]", "letters"),
            (&too_many, "ports has more than 64 entries"),
            ("cidrs = [\"10.1.2.3/8\"]", "10.0.0.0/8"),
            ("ring = \"3K\"", "power of two"),
            ("ring = 5000", "ring '5000': a ring is a power of two"),
            ("ring-max = \"3M\"", "power of two"),
            ("memory-cap = 100", "8K"),
            ("busy-poll = 1001", "0 to 1000"),
            ("busy-poll = -1", "0 to 1000"),
            (
                "on-capture = 'drop'",
                "on-capture 'drop': it is keep or unpair",
            ),
            ("on-capture = 'unpaired'", "did you mean unpair?"),
        ] {
            names(&policy(rest), 4, says);
        }
    }

    #[test]
    fn names_a_policy_that_is_not_whole() {
        let nobody = "[[policy]]\nname = \"a\"\n";
        names(
            nobody,
            2,
            "policy a names no processes; give it cgroups, units, containers, labels or pods",
        );
        let nameless = "[[policy]]\ncgroups = []\n";
        names(nameless, 1, "this policy has no name; give it name = \"…\"");
        let rings = policy("ring = \"64K\"\nring-max = \"4K\"");
        names(&rings, 2, "ring-max is below its ring; ");
        let second = policy("") + &policy("");
        names(&second, 6, "a second policy a; give each its own name");
    }

    #[test]
    fn names_every_mistake_at_once() {
        let text = "[features]\npairng = true\nsplice = 'on'\n\n\
            [[policy]]\nname = \"a\"\ncgroups = [\"/\"]\nports = [80, \"9-8\", 0]\n\n\
            [[policy]]\nname = \"a\"\nunits = []\non-capture = \"kep\"\nring = \"4K\"\nring = \"3K\"\n";
        let error = parse(text).unwrap_err();
        assert_eq!(error.status, USAGE);
        let lines: Vec<String> = error.each().map(Error::to_string).collect();
        let port = "a port is a number from 1 to 65535, a range is FIRST-LAST";
        assert_eq!(
            lines,
            [
                "f.toml:2: [features] has no key pairng; its keys are pairing, splice, so-splice, \
                 memory-cap; did you mean pairing?"
                    .into(),
                "f.toml:3: splice is true or false, not a text".into(),
                "f.toml:7: cgroups '/': there is no cgroup /; name a directory under \
                 /nonexistent-mount, 'systemd-cgls' lists them"
                    .into(),
                "f.toml:8: ports '9-8': the first port of a range is not above the last".into(),
                format!("f.toml:8: ports '0': {port}"),
                "f.toml:11: a second policy a; give each its own name".into(),
                "f.toml:13: on-capture 'kep': it is keep or unpair; did you mean keep?".into(),
                "f.toml:15: the key ring is there twice".into(),
            ]
        );
    }

    #[test]
    fn counts_the_mistakes_that_it_does_not_print() {
        let text: String = (0..60).map(|n| format!("a{n} = 1\n")).collect();
        let error = parse(&text).unwrap_err();
        assert_eq!(error.each().count(), 51);
        let last = error.more.last().unwrap().to_string();
        assert_eq!(last, "f.toml: 10 further mistakes");
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
                .starts_with("f.toml:4: cgroups '/': there is no cgroup /;"),
            "{error}"
        );
    }
}
