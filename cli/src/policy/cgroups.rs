// SPDX-License-Identifier: GPL-2.0
//! The cgroups that policies name, as paths: what they name now, and what waits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use crate::error::Result;
use crate::system::cgroup::Hierarchy;
use crate::values::selector::Selector;

use super::config::{self, Name, Policy, masks};
use super::found::{Entries, of_bits};
use super::{pin, program};

/// True for a path that can name several cgroups.
pub fn is_pattern(path: &str) -> bool {
    path.contains('*')
}

/// Whether a path of a policy names the cgroup at `path`. Each '*' stands for any bytes but
/// '/'. `glob_step()` of `bpf/policy.bpf.c` does the same for cgroups that come later.
pub fn names(pattern: &str, path: &str) -> bool {
    let parts = (pattern.split('/'), path.split('/'));
    pattern.split('/').count() == path.split('/').count()
        && parts.0.zip(parts.1).all(|(p, s)| names_part(p, s))
}

fn names_part(pattern: &str, part: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == part;
    };
    let Some(mut left) = part.strip_prefix(head) else {
        return false;
    };
    let mut middles: Vec<&str> = rest.split('*').collect();
    let tail = middles.pop().unwrap_or_default();
    for middle in middles {
        match left.find(middle) {
            Some(at) => left = &left[at + middle.len()..],
            None => return false,
        }
    }
    left.ends_with(tail)
}

/// The paths of policies by whether BPF finds them by their text or compares them.
pub struct Paths {
    pub exact: Vec<(String, u32)>,
    pub patterns: Vec<(String, u32)>,
    /// Those of containers.
    pub found: BTreeMap<String, u32>,
}

impl Paths {
    pub fn of(policies: &[Policy], found: &Entries) -> Self {
        let (patterns, exact) = masks(policies).into_iter().partition(|p| is_pattern(&p.0));
        let by_selector: Vec<u32> = config::selectors(policies).into_values().collect();
        let mask = |bits: u64| {
            let of = by_selector.iter().enumerate();
            let of = of.filter(|(i, _)| bits & (1 << i) != 0);
            of.fold(0, |mask, (_, policies)| mask | policies)
        };
        let found = found
            .iter()
            .map(|(path, e)| (path.clone(), mask(e.selectors)));
        Paths {
            exact,
            patterns,
            found: found.collect(),
        }
    }

    /// The policies that name a cgroup, by their bits.
    pub fn mask(&self, path: &str) -> u32 {
        let exact = self.exact.binary_search_by(|p| p.0.as_str().cmp(path));
        let exact = exact.map_or(0, |at| self.exact[at].1);
        let exact = exact | self.found.get(path).copied().unwrap_or(0);
        let patterns = self.patterns.iter().filter(|p| names(&p.0, path));
        patterns.fold(exact, |mask, p| mask | p.1)
    }
}

/// A cgroup by its path and its id.
#[derive(Clone, Debug, PartialEq)]
pub struct Cgroup {
    pub path: String,
    pub id: u64,
}

/// The cgroups that each path and each selector of each policy names now, by its text. One
/// without any waits.
pub struct Now(Vec<HashMap<String, Vec<Cgroup>>>);

impl Now {
    /// The policies in force, and what their programs have found.
    pub fn in_force() -> Result<(Vec<Policy>, Self)> {
        let _lock = pin::Lock::share()?;
        match pin::live() {
            Some(dir) => Now::pinned(dir),
            None => Ok((Vec::new(), Now(Vec::new()))),
        }
    }

    /// The same from a directory. The caller has the lock: the bits of a cgroup are those of
    /// the policies beside it.
    fn pinned(dir: &Path) -> Result<(Vec<Policy>, Self)> {
        let policies = program::read(dir)?;
        let tracked = program::cgroups(dir)?;
        let found = program::found(dir)?;
        let mask = |_: &str, id| tracked.get(&id).copied().unwrap_or(0);
        let now = Now::by(&policies, &found, &Hierarchy::find()?, mask)?;
        Ok((policies, now))
    }

    /// Of policies that are not in force: what their programs would find. `found`: the
    /// containers.
    pub fn would_be(policies: &[Policy], found: &Entries, hierarchy: &Hierarchy) -> Result<Self> {
        let paths = Paths::of(policies, found);
        Now::by(policies, found, hierarchy, |path, _| paths.mask(path))
    }

    /// For an answer that has to do without.
    pub fn unknown(policies: &[Policy]) -> Self {
        Now(vec![HashMap::new(); policies.len()])
    }

    /// `mask`: which policies name a cgroup.
    fn by(
        policies: &[Policy],
        found: &Entries,
        hierarchy: &Hierarchy,
        mask: impl Fn(&str, u64) -> u32,
    ) -> Result<Self> {
        let mut now = vec![HashMap::new(); policies.len()];
        let selectors = super::found::selectors_of(policies);
        hierarchy.each(|path, id| {
            let mask = mask(path, id);
            let bits = found.get(path).map_or(0, |entry| entry.selectors);
            let containers: Vec<&Selector> = of_bits(&selectors, bits).collect();
            for (i, policy) in policies.iter().enumerate() {
                if mask & (1 << i) == 0 {
                    continue;
                }
                let paths = policy.cgroups.iter().filter(|p| names(p, path)).cloned();
                let named = policy.selectors.iter().filter(|s| containers.contains(s));
                for named in paths.chain(named.map(Selector::to_string)) {
                    let list: &mut Vec<Cgroup> = now[i].entry(named).or_default();
                    let path = path.to_string();
                    list.push(Cgroup { path, id });
                }
            }
        })?;
        Ok(Now(now))
    }

    /// What a path or a selector of policy `i` names, by its text.
    pub fn named(&self, i: usize, text: &str) -> &[Cgroup] {
        self.0[i].get(text).map_or(&[], Vec::as_slice)
    }

    /// The paths of policy `i` that name no cgroup now, and the selectors.
    fn waiting(&self, i: usize, policy: &Policy) -> (Vec<String>, Vec<String>) {
        let waits = |text: &String| self.named(i, text).is_empty();
        let mut paths = policy.cgroups.clone();
        paths.retain(waits);
        let selectors = policy.selectors.iter().map(Selector::to_string);
        (paths, selectors.filter(waits).collect())
    }

    /// How many cgroups policy `i` names.
    fn count(&self, i: usize) -> usize {
        let named = self.0[i].values().flatten().map(|cgroup| cgroup.id);
        // Two of its paths may name the same one.
        named.collect::<HashSet<u64>>().len()
    }

    /// One sentence for each policy of which a path waits.
    pub fn notes(&self, policies: &[Policy]) -> Vec<String> {
        let policies = policies.iter().enumerate();
        policies.filter_map(|(i, p)| self.note(i, p)).collect()
    }

    fn note(&self, i: usize, policy: &Policy) -> Option<String> {
        let name = &policy.name;
        let (paths, selectors) = self.waiting(i, policy);
        if policy.cgroups.is_empty() && policy.selectors.is_empty() {
            return Some(format!(
                "policy {name} names no cgroup, so it matches nothing"
            ));
        }
        let mut why = Vec::new();
        if !paths.is_empty() {
            why.push(format!("there is no cgroup {} now", paths.join(" ")));
        }
        if !selectors.is_empty() {
            let selectors = selectors.join(" or ");
            why.push(format!("no container runs that is {selectors}"));
        }
        let all = match (self.count(i), selectors.is_empty()) {
            (0, _) => "matches nothing yet",
            (_, true) => "waits for some of its cgroups",
            (_, false) => "waits for some of its containers",
        };
        (!why.is_empty()).then(|| format!("policy {name} {all}: {}", why.join(", and ")))
    }
}

/// The cgroups whose event loops spin, and for how many microseconds, by the policies in force. The
/// first one that names a cgroup counts.
pub fn spinning() -> Result<Vec<(u32, Vec<String>)>> {
    let _lock = pin::Lock::share()?;
    let Some(dir) = pin::live() else {
        return Ok(Vec::new());
    };
    // Without a walk over all cgroups, where no policy wants it.
    if program::read(dir)?.iter().all(|p| p.epoll_usec().is_none()) {
        return Ok(Vec::new());
    }
    let (policies, now) = Now::pinned(dir)?;
    let spinning = policies.iter().enumerate().filter_map(|(i, policy)| {
        let named = now.0[i].values().flatten();
        Some((
            policy.epoll_usec()?,
            named.map(|c| c.path.clone()).collect(),
        ))
    });
    Ok(spinning.collect())
}

/// What one policy in force can match now.
pub struct Matches {
    pub name: Name,
    /// False: what matches stays on TCP.
    pub pair: bool,
    pub memory_cap: Option<u64>,
    /// How many cgroups it names.
    pub cgroups: usize,
    /// How many of its paths and selectors name none.
    pub waiting: usize,
    /// Says so, if a path waits.
    pub note: Option<String>,
}

/// Whether the policies in force can match anything.
pub struct Health {
    pub policies: Vec<Matches>,
    /// Cgroups that came for which the programs had no memory.
    pub missed: u64,
}

impl Health {
    /// None without a policy.
    pub fn read() -> Result<Option<Self>> {
        let _lock = pin::Lock::share()?;
        let Some(dir) = pin::live() else {
            return Ok(None);
        };
        let (policies, now) = Now::pinned(dir)?;
        let matches = |(i, policy): (usize, &Policy)| Matches {
            name: policy.name.clone(),
            pair: policy.pair,
            memory_cap: policy.memory_cap,
            cgroups: now.count(i),
            waiting: {
                let (paths, selectors) = now.waiting(i, policy);
                paths.len() + selectors.len()
            },
            note: now.note(i, policy),
        };
        Ok(Some(Health {
            policies: policies.iter().enumerate().map(matches).collect(),
            missed: program::missed(dir)?,
        }))
    }

    /// No policy that pairs names a cgroup that there is.
    pub fn matches_nothing(&self) -> bool {
        let mut pairing = self.policies.iter().filter(|p| p.pair);
        pairing.all(|policy| policy.cgroups == 0)
    }

    pub fn notes(&self) -> Vec<String> {
        self.policies
            .iter()
            .filter_map(|p| p.note.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_within_its_component() {
        for (pattern, path) in [
            ("/a", "/a"),
            ("/", "/"),
            ("/*", "/a"),
            ("/a/*", "/a/b"),
            ("/a/**", "/a/b"),
            ("/*/b", "/a/b"),
            ("/a*c", "/abc"),
            ("/a*c", "/ac"),
            ("/a*bc*", "/abbcbc"),
            ("/*a*b", "/aabab"),
            ("/a-*.scope", "/a-0*.scope"),
        ] {
            assert!(names(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/a", "/b"),
            ("/*", "/a/b"),
            ("/a/*", "/a"),
            ("/a/**", "/a"),
            ("/a*c", "/ab/c"),
            ("/a*bc", "/abcb"),
            ("/*aa", "/a"),
            ("/a*a", "/a"),
            ("/é*", "/e"),
        ] {
            assert!(!names(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn a_cgroup_counts_once_for_its_policy() {
        let list = |ids: &[u64]| -> Vec<Cgroup> {
            let path = String::from("/x");
            let one = |id: &u64| Cgroup {
                path: path.clone(),
                id: *id,
            };
            ids.iter().map(one).collect()
        };
        let named = HashMap::from([("/x".into(), list(&[7])), ("/*".into(), list(&[7, 8]))]);
        assert_eq!(Now(vec![named, HashMap::new()]).count(0), 2);
        assert_eq!(Now(vec![HashMap::new()]).count(0), 0);
    }

    #[test]
    fn masks_of_a_path() {
        let policy = |name: &str, cgroups: &[&str]| Policy {
            cgroups: cgroups.iter().map(|c| c.to_string()).collect(),
            ..Policy::new(name.parse().unwrap())
        };
        let policies = [policy("a", &["/x", "/x/*"]), policy("b", &["/", "/x"])];
        let paths = Paths::of(&policies, &Entries::new());
        assert_eq!((paths.exact.len(), paths.patterns.len()), (2, 1));
        for (path, mask) in [("/", 2), ("/x", 3), ("/x/y", 1), ("/y", 0)] {
            assert_eq!(paths.mask(path), mask, "{path}");
        }
        let none = Now(vec![HashMap::new()]).notes(&[policy("c", &[])]);
        assert_eq!(none, ["policy c names no cgroup, so it matches nothing"]);
        let now = Now(vec![HashMap::new(); 2]);
        assert_eq!(
            now.notes(&policies)[0],
            "policy a matches nothing yet: there is no cgroup /x /x/* now"
        );
    }
}
