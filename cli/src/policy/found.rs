// SPDX-License-Identifier: GPL-2.0
//! The containers that selectors of policies name: the map `found`, which has their cgroups.
//!
//! A command that sets policies asks the engines once. `socksplice agent` keeps the map true
//! from then on. Both write it under the exclusive lock of the pins. The cgroup of a container
//! that has ended stays in the map, so that its next start is matched from the first connection
//! on. Where an engine does not answer, what it said before stays.

use std::collections::BTreeMap;

use tokio::runtime;

use crate::containers::{Engine, Named, printable};
use crate::error::{Error, Result};
use crate::system::cgroup;
use crate::values::selector::Selector;

use super::config::{self, FOUND, Policy};
use super::{pin, program};

/// `struct policy_found` without the policies, which follow from the selectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Bit N: selector N.
    pub selectors: u64,
    /// The engine, by its number.
    pub source: u32,
}

/// By the paths of the cgroups.
pub type Entries = BTreeMap<String, Entry>;

/// The selectors whose bits are set.
pub fn of_bits(selectors: &[Selector], bits: u64) -> impl Iterator<Item = &Selector> {
    let all = selectors.iter().enumerate();
    all.filter(move |(i, _)| bits & (1 << i) != 0)
        .map(|(_, selector)| selector)
}

/// The selectors of policies, in the order of their bits.
pub fn selectors_of(policies: &[Policy]) -> Vec<Selector> {
    config::selectors(policies).into_keys().collect()
}

/// What the engines say of selectors.
pub struct Listing {
    selectors: Vec<Selector>,
    /// One for each engine that has a socket.
    answers: Vec<(Engine, Result<Vec<Named>>)>,
}

impl Listing {
    pub async fn of(selectors: Vec<Selector>) -> Self {
        let mut asked = Vec::new();
        if !selectors.is_empty() {
            for engine in Engine::ALL.into_iter().filter(|e| e.socket().is_some()) {
                let selectors = selectors.clone();
                let answer = tokio::spawn(async move { engine.find(&selectors).await });
                asked.push((engine, answer));
            }
        }
        let mut answers = Vec::new();
        for (engine, answer) in asked {
            let answer = answer.await;
            let answer = answer.unwrap_or_else(|e| Err(Error::new(e.to_string())));
            answers.push((engine, answer));
        }
        Listing { selectors, answers }
    }

    /// For a command: asks, and waits for the answers.
    pub fn for_policies(policies: &[Policy]) -> Result<Self> {
        let selectors = selectors_of(policies);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|e| Error::new(format!("cannot ask for the machine's containers: {e}")))?;
        Ok(runtime.block_on(Listing::of(selectors)))
    }

    /// The containers with a cgroup, by its path, and the number of the engine.
    fn placed(&self) -> impl Iterator<Item = (&str, &Named, u32)> {
        self.answers.iter().flat_map(|(engine, answer)| {
            let named = answer.iter().flatten();
            named.filter_map(|c| Some((c.cgroup.as_deref()?, c, engine.number())))
        })
    }

    /// One sentence for each thing that keeps containers from being found.
    pub fn troubles(&self) -> Vec<String> {
        if self.selectors.is_empty() {
            return Vec::new();
        }
        if self.answers.is_empty() {
            return vec![
                "no container engine can be asked: there is no socket of podman, Docker, containerd or \
                 CRI-O; with podman, run 'systemctl enable --now podman.socket'"
                    .into(),
            ];
        }
        let mut troubles = Vec::new();
        let (fit, long): (Vec<_>, Vec<_>) = self.placed().partition(|(path, ..)| fits(path));
        troubles.extend(long.iter().map(|(_, c, _)| {
            let most = cgroup::PATH - 1;
            let name = &c.name;
            format!("container {name} is not matched: its cgroup's path has more than {most} bytes")
        }));
        if fit.len() > FOUND {
            troubles.push(format!(
                "{} containers are named, and only {FOUND} can be matched",
                fit.len()
            ));
        }
        for (engine, answer) in &self.answers {
            match answer {
                Err(e) => troubles.push(e.to_string()),
                Ok(named) => {
                    let apart = named.iter().filter(|c| c.running && c.cgroup.is_none());
                    let unclear = named.iter().filter_map(|c| Some((c, c.unclear.as_ref()?)));
                    troubles.extend(unclear.map(|(c, why)| {
                        let (engine, name) = (engine.name(), &c.name);
                        format!("{engine} does not say where container {name} runs: {why}")
                    }));
                    troubles.extend(apart.map(|c| {
                        let (engine, name) = (engine.name(), &c.name);
                        format!("container {name} of {engine} has no cgroup of its own, so it is not matched")
                    }));
                }
            }
        }
        troubles
    }

    /// The entries that are true now, from those before, whose bits are of the same selectors.
    pub fn entries(&self, old: &Entries) -> Entries {
        let mut new = Entries::new();
        for (path, entry) in old {
            let answer = self.answers.iter().find(|a| a.0.number() == entry.source);
            match answer {
                Some((_, Ok(named))) => {
                    // One that runs says itself where it is.
                    let ended = named
                        .iter()
                        .find(|c| c.cgroup.is_none() && path.contains(&c.id));
                    if let Some(Named { selectors, .. }) = ended {
                        let selectors = *selectors;
                        new.insert(
                            path.clone(),
                            Entry {
                                selectors,
                                ..*entry
                            },
                        );
                    }
                }
                _ if entry.selectors != 0 => {
                    new.insert(path.clone(), *entry);
                }
                _ => {}
            }
        }
        for (path, Named { selectors, .. }, source) in self.placed() {
            if fits(path) && new.len() < FOUND {
                let selectors = *selectors;
                new.insert(path.into(), Entry { selectors, source });
            }
        }
        new
    }
}

/// Whether the map has room for a path and its NUL.
fn fits(path: &str) -> bool {
    path.len() < cgroup::PATH
}

/// Entries with the bits of other selectors. What none of them names keeps its place: a container
/// that has ended tells its path no more.
fn translated(entries: &Entries, from: &[Selector], to: &[Selector]) -> Entries {
    let translate = |bits: u64| {
        of_bits(from, bits).fold(0, |bits, selector| {
            let at = to.iter().position(|s| s == selector);
            bits | at.map_or(0, |at| 1 << at)
        })
    };
    let entries = entries.iter().map(|(path, entry)| {
        let selectors = translate(entry.selectors);
        (
            path.clone(),
            Entry {
                selectors,
                ..*entry
            },
        )
    });
    entries.collect()
}

/// What policies name that are about to take the place of those in force, and what keeps
/// containers from being found. The caller has the exclusive lock.
pub fn resolve(policies: &[Policy]) -> Result<(Entries, Vec<String>)> {
    let listing = Listing::for_policies(policies)?;
    // Those of another version cannot be read.
    let old = pin::live().and_then(|dir| {
        let selectors = program::selectors(dir).ok()?;
        Some(translated(
            &program::found(dir).ok()?,
            &selectors,
            &listing.selectors,
        ))
    });
    Ok((
        listing.entries(&old.unwrap_or_default()),
        listing.troubles(),
    ))
}

/// The selectors of the policies in force. It reads one pinned file, so it needs no lock.
pub fn in_force() -> Result<Vec<Selector>> {
    match pin::live() {
        Some(dir) => program::selectors(dir),
        None => Ok(Vec::new()),
    }
}

/// What became of an attempt to keep the map true.
pub enum Kept {
    /// Another command has the lock, or has set other policies since the listing.
    Later,
    NoPolicies,
    /// One line for each cgroup that became named, or is named no longer.
    Done(Vec<String>),
}

/// Brings the map in line with a listing. Never waits for another command.
pub fn keep(listing: &Listing) -> Result<Kept> {
    let Some(dir) = pin::live() else {
        return Ok(Kept::NoPolicies);
    };
    let Some(_lock) = pin::Lock::attempt()? else {
        return Ok(Kept::Later);
    };
    let policies = program::read(dir)?;
    if selectors_of(&policies) != listing.selectors {
        return Ok(Kept::Later);
    }
    let old = program::found(dir)?;
    let new = listing.entries(&old);
    program::set_found(dir, &policies, &old, &new)?;
    Ok(Kept::Done(told(&listing.selectors, &old, &new)))
}

fn told(selectors: &[Selector], old: &Entries, new: &Entries) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, entry) in new {
        if old.get(path).map(|e| e.selectors) != Some(entry.selectors) {
            let names = of_bits(selectors, entry.selectors).map(Selector::to_string);
            let names: Vec<String> = names.collect();
            let path = printable(path);
            lines.push(format!("named: {path}, by {}", names.join(" ")));
        }
    }
    for path in old.keys().filter(|path| !new.contains_key(*path)) {
        lines.push(format!("no longer named: {}", printable(path)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbb";

    fn selectors(list: &[&str]) -> Vec<Selector> {
        list.iter().map(|s| s.parse().unwrap()).collect()
    }

    fn named(id: &str, selectors: u64, cgroup: Option<&str>) -> Named {
        Named {
            id: id.into(),
            name: "x".into(),
            selectors,
            running: cgroup.is_some(),
            cgroup: cgroup.map(String::from),
            unclear: None,
        }
    }

    fn listing(podman: Result<Vec<Named>>) -> Listing {
        Listing {
            selectors: selectors(&["container:x", "label:a=b"]),
            answers: vec![(Engine::Podman, podman)],
        }
    }

    fn entries(list: &[(&str, u64, u32)]) -> Entries {
        let entry = |&(path, selectors, source): &(&str, u64, u32)| {
            (path.to_string(), Entry { selectors, source })
        };
        list.iter().map(entry).collect()
    }

    #[test]
    fn a_container_that_has_ended_keeps_its_cgroup() {
        let (a, b) = (format!("/p/{A}"), format!("/p/{B}"));
        let first = listing(Ok(vec![named(A, 1, Some(&a)), named(B, 3, Some(&b))]));
        let both = first.entries(&Entries::new());
        assert_eq!(both, entries(&[(&a, 1, 1), (&b, 3, 1)]));
        // One has ended, under another name; the other one was removed.
        let ended = listing(Ok(vec![named(A, 2, None)])).entries(&both);
        assert_eq!(ended, entries(&[(&a, 2, 1)]));
        // It runs elsewhere.
        let moved = listing(Ok(vec![named(A, 2, Some(&b))])).entries(&ended);
        assert_eq!(moved, entries(&[(&b, 2, 1)]));
        // Never seen running: nothing is known.
        assert!(
            listing(Ok(vec![named(A, 2, None)]))
                .entries(&Entries::new())
                .is_empty()
        );
    }

    #[test]
    fn without_an_answer_all_stays() {
        let old = entries(&[("/p/1", 1, 1), ("/d/2", 2, 2), ("/d/3", 0, 2)]);
        let kept = entries(&[("/p/1", 1, 1), ("/d/2", 2, 2)]);
        let unclear = Named {
            unclear: Some("no answer".into()),
            ..named(A, 1, None)
        };
        assert!(listing(Ok(vec![unclear])).troubles()[0].contains("does not say where"));
        let long = "/x".repeat(cgroup::PATH);
        let long = listing(Ok(vec![named(A, 1, Some(&long))]));
        assert!(long.troubles()[0].contains("more than"));
        assert!(long.entries(&Entries::new()).is_empty());
        let many = (0..=FOUND).map(|i| named(A, 1, Some(&format!("/{i}"))));
        let many = listing(Ok(many.collect()));
        assert!(many.troubles()[0].contains("only"));
        assert_eq!(many.entries(&Entries::new()).len(), FOUND);
        assert_eq!(listing(Err(Error::new("no"))).entries(&old), kept);
        // podman has answered; Docker has not.
        assert_eq!(
            listing(Ok(vec![])).entries(&old),
            entries(&[("/d/2", 2, 2)])
        );
    }

    #[test]
    fn bits_follow_the_text() {
        let old = entries(&[("/1", 0b01, 1), ("/2", 0b11, 1), ("/3", 0b10, 1)]);
        let from = selectors(&["container:x", "label:a=b"]);
        let to = selectors(&["container:w", "container:y", "label:a=b"]);
        let new = entries(&[("/1", 0, 1), ("/2", 0b100, 1), ("/3", 0b100, 1)]);
        assert_eq!(translated(&old, &from, &to), new);
    }

    #[test]
    fn says_what_keeps_containers_from_being_found() {
        let none = Listing {
            selectors: selectors(&["container:x"]),
            answers: Vec::new(),
        };
        assert!(none.troubles()[0].contains("podman.socket"));
        let apart = Named {
            running: true,
            ..named(A, 1, None)
        };
        assert!(listing(Ok(vec![apart])).troubles()[0].contains("no cgroup of its own"));
        assert_eq!(listing(Err(Error::new("no"))).troubles(), ["no"]);
        assert!(listing(Ok(vec![named(A, 1, None)])).troubles().is_empty());
    }

    #[test]
    fn a_line_for_each_change() {
        let (old, new) = (
            entries(&[("/1", 1, 1), ("/2", 1, 1)]),
            entries(&[("/1", 3, 1)]),
        );
        let list = selectors(&["container:x", "label:a=b"]);
        assert_eq!(
            told(&list, &old, &new),
            ["named: /1, by container:x label:a=b", "no longer named: /2"]
        );
        assert!(told(&list, &new, &new).is_empty());
    }
}
