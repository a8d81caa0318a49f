// SPDX-License-Identifier: GPL-2.0
//! `policy`: which connections are accelerated.

use std::path::Path;

use serde_json::{Value, json};
use similar::TextDiff;

use crate::cli::{PolicyAdd, PolicyClear, PolicySet};
use crate::commands::{agent, drain};
use crate::error::{Error, Result};
use crate::kernel::module::{self, Module};
use crate::output::{Answer, SCHEMA, color, yes_no};
use crate::policy::cgroups::{self, Now};
use crate::policy::config::{self, Policy};
use crate::policy::enact::Done;
use crate::policy::file::{self, Features};
use crate::policy::found::{Entries, Listing};
use crate::policy::{Name, enact, live, pin, require_btf};
use crate::system::cgroup::Hierarchy;
use crate::values::selector::Selector;
use crate::values::size;

/// The name of the one policy that `policy set` makes.
const DEFAULT: &str = "default";

pub fn set(arguments: PolicySet) -> Result<Answer> {
    module::require_root()?;
    let hierarchy = Hierarchy::find()?;
    hierarchy.require_root()?;
    let name = DEFAULT.parse().expect("is a name");
    let policies = [policy(name, arguments, &hierarchy)?];
    config::check(&policies)?;
    let (module, status) = Module::open()?;
    require_btf(&status)?;

    let done = enact::policies(&policies)?;
    Ok(in_force(&policies, done, &hierarchy, is_pairing(&module)))
}

/// The policy that the arguments describe.
fn policy(name: Name, arguments: PolicySet, hierarchy: &Hierarchy) -> Result<Policy> {
    let paths = arguments.cgroups.iter().map(|path| hierarchy.path(path));
    let mut cgroups = paths.collect::<Result<Vec<String>>>()?;
    for unit in &arguments.units {
        cgroups.push(hierarchy.of_unit(unit)?);
    }
    cgroups.sort_unstable();
    cgroups.dedup();
    let mut selectors = arguments.selectors.all();
    selectors.sort_unstable();
    selectors.dedup();
    Ok(Policy {
        cgroups,
        selectors,
        ports: arguments.ports,
        cidrs: arguments.cidrs,
        loopback_only: arguments.loopback_only,
        busy_poll: arguments.busy_poll.filter(|usec| *usec != 0),
        busy_poll_epoll: arguments.busy_poll_epoll,
        ring: arguments.ring,
        ring_max: arguments.ring_max,
        memory_cap: arguments.memory_cap,
        on_capture: arguments.on_capture,
        ..Policy::new(name)
    })
}

pub fn add(arguments: PolicyAdd) -> Result<Answer> {
    module::require_root()?;
    let hierarchy = Hierarchy::find()?;
    hierarchy.require_root()?;
    let name = arguments.name.clone();
    let policy = Policy {
        pair: !arguments.no_pair,
        ..policy(arguments.name, arguments.policy, &hierarchy)?
    };
    let (module, status) = Module::open()?;
    require_btf(&status)?;

    let (policies, done) = enact::edit(|mut policies| {
        if policies.iter().any(|p| p.name == name) {
            return Err(Error::new(format!("there is a policy {name} already"))
                .remedy(format!("run 'socksplice policy del {name}' first")));
        }
        policies.insert(if arguments.first { 0 } else { policies.len() }, policy);
        config::check(&policies)?;
        Ok(policies)
    })?;
    Ok(in_force(&policies, done, &hierarchy, is_pairing(&module)))
}

pub fn delete(names: &[Name]) -> Result<Answer> {
    module::require_root()?;
    let hierarchy = Hierarchy::find()?;
    let (policies, done) = enact::edit(|mut policies| {
        for name in names {
            let at = policies.iter().position(|p| p.name == *name);
            let at = at.ok_or_else(|| {
                Error::new(format!("there is no policy {name}"))
                    .remedy("'socksplice policy show' lists those that there are")
            })?;
            policies.remove(at);
        }
        Ok(policies)
    })?;
    Ok(in_force(&policies, done, &hierarchy, true))
}

pub fn check(path: &Path) -> Result<Answer> {
    let hierarchy = Hierarchy::find()?;
    let (policies, _) = file::Source::read(path)?.parse(&hierarchy)?;
    let listing = Listing::for_policies(&policies)?;
    let found = listing.entries(&Entries::new());
    let now = Now::would_be(&policies, &found, &hierarchy)?;
    let mut notes = now.notes(&policies);
    notes.extend(listing.troubles());
    let mut json = to_json(&policies, &now);
    json["notes"] = json!(notes);
    let count = match policies.len() {
        1 => "1 policy".into(),
        n => format!("{n} policies"),
    };
    let text = format!("{}: {count}, no mistake\n", path.display());
    Ok(Answer::new(text + &warnings(&notes), json))
}

pub fn diff(path: &Path) -> Result<Answer> {
    module::require_root()?;
    let (policies, features) = file::Source::read(path)?.parse(&Hierarchy::find()?)?;
    let (_, status) = Module::open()?;
    let current = Features::of(&status);
    let old = file::render(&live()?, current);
    let new = file::render(&policies, features.or(current));
    let text = TextDiff::from_lines(&old, &new)
        .unified_diff()
        .header("in force", &path.display().to_string())
        .to_string();
    let json = json!({ "schema": SCHEMA, "same": old == new, "diff": text });
    let mut answer = Answer::new(color::diff(&text), json);
    answer.failed = old != new;
    Ok(answer)
}

/// False if it is known to be off. Nothing fails any more where this is asked.
fn is_pairing(module: &Module) -> bool {
    module.status().map_or(true, |status| status.pairing)
}

/// The answer of a command that has set policies: a line for each thing that keeps them from
/// pairing. The policies are in force, so the command must not fail here.
fn in_force(policies: &[Policy], done: Done, hierarchy: &Hierarchy, pairs: bool) -> Answer {
    let (now, mut notes) = match Now::would_be(policies, &done.found, hierarchy) {
        Ok(now) => {
            let notes = now.notes(policies);
            (now, notes)
        }
        Err(e) => (
            Now::unknown(policies),
            vec![format!("what the policies name cannot be seen: {e}")],
        ),
    };
    notes.extend(done.troubles);
    notes.extend(without_agent(policies));
    if !policies.is_empty() && !pairs {
        notes.push("pairing is off; run 'socksplice feature set pairing on'".into());
    }
    let mut json = to_json(policies, &now);
    json["notes"] = json!(notes);
    Answer::new(warnings(&notes), json)
}

/// What policies want of the agent, if none runs.
fn without_agent(policies: &[Policy]) -> Option<String> {
    let containers = policies.iter().any(|p| !p.selectors.is_empty());
    let loops = policies.iter().any(|p| p.epoll_usec().is_some());
    let lost = match (containers, loops) {
        (false, false) => return None,
        (true, false) => "containers that come later are not matched",
        (false, true) => "no event loop spins",
        (true, true) => "containers that come later are not matched, and no event loop spins",
    };
    (!agent::runs())
        .then(|| format!("no agent runs, so {lost}; run 'systemctl enable --now socksplice-agent'"))
}

/// A line for each thing that keeps policies from pairing.
fn warnings(notes: &[String]) -> String {
    let lines = notes.iter();
    let lines = lines.map(|note| color::paint(color::WARNING, note) + "\n");
    lines.collect()
}

pub fn apply(path: &Path) -> Result<Answer> {
    module::require_root()?;
    let hierarchy = Hierarchy::find()?;
    hierarchy.require_root()?;
    let (policies, features) = file::Source::read(path)?.parse(&hierarchy)?;
    let (module, _) = Module::open()?;

    let done = enact::file(&module, features, &policies)?;
    // A file that says off means it.
    let pairs = features.pairing == Some(false) || is_pairing(&module);
    Ok(in_force(&policies, done, &hierarchy, pairs))
}

pub fn export() -> Result<Answer> {
    let (_, status) = Module::open()?;
    let text = file::render(&live()?, Features::of(&status));
    let json = json!({ "schema": SCHEMA, "file": text });
    Ok(Answer::new(text, json))
}

pub fn show() -> Result<Answer> {
    module::require_root()?;
    let (policies, now) = Now::in_force()?;
    if policies.is_empty() {
        return Ok(Answer::new("no policy is set\n", none()));
    }
    let blocks = policies
        .iter()
        .enumerate()
        .map(|(i, p)| to_text(p, i, &now));
    let blocks: Vec<String> = blocks.collect();
    Ok(Answer::new(blocks.join("\n"), to_json(&policies, &now)))
}

pub fn clear(arguments: PolicyClear) -> Result<Answer> {
    module::require_root()?;
    // Without the module there are no pairs, but pinned policies can still be removed.
    let module = match arguments.unpair && module::is_loaded() {
        true => Some(Module::open_any()?),
        false => None,
    };
    // Without a BPF file system nothing can have been pinned.
    let was = pin::bpffs_is_mounted() && enact::policies(&[])?.had_old;
    let text = if was { "" } else { "no policy was set\n" };
    let mut answer = Answer::new(text, none());
    if arguments.unpair {
        let unpaired = drain::unpair(module.as_ref(), &arguments.wait()).map_err(|mut e| {
            e.message = format!("no policy is set any more, but {}", e.message);
            e
        })?;
        answer.text += &unpaired.text;
        answer.json["drained"] = unpaired.json["drained"].clone();
        answer.json["waiting"] = unpaired.json["waiting"].clone();
        answer.failed = unpaired.failed;
    }
    Ok(answer)
}

fn to_text(policy: &Policy, i: usize, now: &Now) -> String {
    let list = |items: Vec<String>, none: &str| match items.is_empty() {
        true => none.to_string(),
        false => items.join(" "),
    };
    let cgroups = policy.cgroups.iter().map(|path| {
        match (now.named(i, path).len(), cgroups::is_pattern(path)) {
            (0, _) => format!("{path} ({})", color::paint(color::WARNING, "waiting")),
            (n, true) => format!("{path} ({n} now)"),
            (_, false) => path.clone(),
        }
    });
    let selectors = policy.selectors.iter().map(|selector| {
        let text = selector.to_string();
        match now.named(i, &text).len() {
            0 => format!("{text} (waiting)"),
            n => format!("{text} ({n} now)"),
        }
    });
    let ports: Vec<String> = policy.ports.iter().map(|p| p.to_string()).collect();
    let cidrs: Vec<String> = policy.cidrs.iter().map(|c| c.to_string()).collect();
    format!(
        "name:          {}\n\
         pair:          {}\n\
         cgroups:       {}\n\
         selectors:     {}\n\
         ports:         {}\n\
         cidrs:         {}\n\
         loopback-only: {}\n\
         busy-poll:     {}\n\
         ring:          {}\n\
         ring-max:      {}\n\
         memory-cap:    {}\n\
         on-capture:    {}\n",
        policy.name,
        yes_no(policy.pair),
        list(cgroups.collect(), "none"),
        list(selectors.collect(), "none"),
        list(ports, "all"),
        list(cidrs, "all"),
        yes_no(policy.loopback_only),
        match policy.busy_poll {
            Some(usec) if policy.busy_poll_epoll => format!("{usec} us, event loops too"),
            Some(usec) => format!("{usec} us"),
            None => "as the socket says".into(),
        },
        match policy.ring {
            Some(bytes) => size::format(bytes.into()),
            None => "the module's default".into(),
        },
        match (policy.ring_max, policy.ring) {
            (Some(bytes), _) => size::format(bytes.into()),
            (None, Some(_)) => "none".into(),
            (None, None) => "the module's default".into(),
        },
        match policy.memory_cap {
            Some(bytes) => size::format(bytes),
            None => "none".into(),
        },
        policy.on_capture,
    )
}

fn none() -> Value {
    json!({ "schema": SCHEMA, "policy": null, "policies": [] })
}

fn to_json(policies: &[Policy], now: &Now) -> Value {
    let named = |i: usize, path: &str| {
        let named = now.named(i, path);
        let list = named.iter().map(|c| json!({ "id": c.id, "path": c.path }));
        json!({
            "path": path,
            // Of the one cgroup of this path. Null if it waits, or for a pattern.
            "id": named.first().filter(|_| !cgroups::is_pattern(path)).map(|c| c.id),
            "named": list.collect::<Vec<Value>>(),
            "waiting": named.is_empty(),
        })
    };
    let container = |i: usize, selector: &Selector| {
        let named = now.named(i, &selector.to_string());
        let list = named.iter().map(|c| json!({ "id": c.id, "path": c.path }));
        json!({
            "kind": selector.kind().word(),
            "value": selector.value(),
            "named": list.collect::<Vec<Value>>(),
            "waiting": named.is_empty(),
        })
    };
    let one = |(i, policy): (usize, &Policy)| {
        let selectors = policy.selectors.iter();
        let cgroups = policy.cgroups.iter();
        let ports = policy.ports.iter();
        let cidrs = policy.cidrs.iter();
        json!({
            "name": policy.name.to_string(),
            "group": policy.name.group(),
            "pair": policy.pair,
            "cgroups": cgroups
                .map(|path| named(i, path))
                .collect::<Vec<Value>>(),
            "selectors": selectors
                .map(|selector| container(i, selector))
                .collect::<Vec<Value>>(),
            "ports": ports
                .map(|p| json!({ "first": p.first, "last": p.last }))
                .collect::<Vec<Value>>(),
            "cidrs": cidrs.map(|c| c.to_string()).collect::<Vec<String>>(),
            "loopback_only": policy.loopback_only,
            "busy_poll_usec": policy.busy_poll,
            "busy_poll_epoll": policy.busy_poll_epoll,
            "ring_size": policy.ring,
            "ring_max": policy.ring_max,
            "memory_cap": policy.memory_cap,
            "on_capture": policy.on_capture,
        })
    };
    let list: Vec<Value> = policies.iter().enumerate().map(one).collect();
    json!({ "schema": SCHEMA, "policy": list.first(), "policies": list })
}
