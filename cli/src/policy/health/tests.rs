// SPDX-License-Identifier: GPL-2.0
use super::super::cgroups::Matches;
use super::*;
use crate::kernel::module::status_for_tests as status;

fn policy(name: &str, cgroups: usize) -> Matches {
    Matches {
        name: name.parse().unwrap(),
        pair: true,
        memory_cap: Some(2 * PAGE),
        cgroups,
        waiting: usize::from(cgroups == 0),
        note: (cgroups == 0).then(|| format!("policy {name} matches nothing yet")),
    }
}

/// Policy "a" names a cgroup and has a pair.
fn facts(status: &Status) -> Facts<'_> {
    let share = Share {
        pairs: 1,
        ring_memory: PAGE,
    };
    let group = policy("a", 1).name.group();
    Facts {
        release: "6.12.1".into(),
        status,
        health: Some(Health {
            policies: vec![policy("a", 1)],
            missed: 0,
        }),
        shares: HashMap::from([(group, share)]),
        pairs: 1,
        counts: Counts::default(),
        lately: None,
    }
}

fn ids(facts: &Facts) -> Vec<Id> {
    let report = facts.report(|| Ok(true)).ok().unwrap();
    report.complaints.iter().map(|c| c.id).collect()
}

fn counts(made: u64, not_enrolled: u64, unpaired: u64, capped: u64) -> Counts {
    Counts {
        made,
        not_enrolled,
        unpaired,
        capped,
    }
}

fn lately(counts: Counts) -> Option<Lately> {
    let time = Duration::from_secs(330);
    Some(Lately { time, counts })
}

#[test]
fn names_are_those_of_the_json() {
    for id in Id::ALL {
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{}\"", id.name()));
    }
}

#[test]
fn all_is_well() {
    let status = status();
    let report = facts(&status).report(|| Ok(true)).ok().unwrap();
    assert_eq!(report.complaints, []);
    assert_eq!(report.policies[0].pairs, 1);
    assert_eq!(report.policies[0].ring_memory, PAGE);
    assert!(report.policies[0].is_healthy());
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}

#[test]
fn of_the_machine() {
    let hook = std::io::Error::from_raw_os_error(16);
    let bad = Status {
        hook_error: Some(hook),
        pairing: false,
        memory_cap: 2 * PAGE - 1,
        ..status()
    };
    let bad = Facts {
        release: "5.10".into(),
        counts: counts(0, 0, 100, 0),
        pairs: 0,
        lately: lately(counts(0, 100, 100, 0)),
        ..facts(&bad)
    };
    assert_eq!(
        ids(&bad),
        [Id::Kernel, Id::Hook, Id::PairingOff, Id::MemoryCap]
    );
    // Without a policy nothing is said of pairing.
    let bad = Facts {
        health: None,
        ..bad
    };
    assert_eq!(ids(&bad), [Id::Kernel, Id::Hook, Id::MemoryCap]);
}

#[test]
fn of_the_policies() {
    let status = status();
    let waiting = Facts {
        health: Some(Health {
            policies: vec![policy("a", 1), policy("b", 0)],
            missed: 3,
        }),
        ..facts(&status)
    };
    assert_eq!(ids(&waiting), [Id::PolicyWaiting, Id::CgroupsMissed]);
    let report = waiting.report(|| Ok(true)).ok().unwrap();
    assert_eq!(report.complaints[0].text, "policy b matches nothing yet");
    let exempt = Facts {
        health: Some(Health {
            policies: vec![
                policy("a", 1),
                Matches {
                    pair: false,
                    ..policy("b", 0)
                },
            ],
            missed: 0,
        }),
        ..facts(&status)
    };
    assert_eq!(ids(&exempt), []);
    let mut full = facts(&status);
    full.shares.values_mut().for_each(|s| s.ring_memory += PAGE);
    assert_eq!(ids(&full), [Id::MemoryCap]);
    full.lately = lately(counts(1, 0, 0, 9));
    assert_eq!(ids(&full), [Id::MemoryCap]);
    assert_eq!(
        ids(&Facts {
            lately: lately(counts(1, 0, 0, 9)),
            ..facts(&status)
        }),
        [Id::MemoryCap]
    );
}

#[test]
fn no_pair_although_policies_match() {
    let status = status();
    let of = |pairs, counts, lately| Facts {
        pairs,
        counts,
        lately,
        ..facts(&status)
    };
    let all = counts(0, 0, SOME, 0);
    let once = of(0, all, None);
    assert_eq!(ids(&once), [Id::NoPair]);
    let report = once.report(|| Ok(true)).ok().unwrap();
    assert!(report.complaints[0].text.contains("since the module was"));
    // The policies are new.
    let report = once.report(|| Ok(false)).ok().unwrap();
    assert_eq!(report.complaints, []);
    assert_eq!(ids(&of(0, counts(0, 0, SOME - 1, 0), None)), []);
    assert_eq!(ids(&of(1, all, None)), []);
    assert_eq!(ids(&of(0, counts(7, 0, SOME, 0), None)), []);
    // What happened before does not matter to a watch.
    let before = counts(7, 0, 2 * SOME, 0);
    let watched = of(0, before, lately(all));
    assert_eq!(ids(&watched), [Id::NoPair]);
    let report = watched.report(|| Ok(true)).ok().unwrap();
    assert!(report.complaints[0].text.contains("in the last 5 minutes"));
    assert_eq!(ids(&of(0, all, lately(counts(0, 0, 0, 0)))), []);
}

#[test]
fn peers_that_no_policy_names() {
    let status = status();
    let of = |lately| Facts {
        counts: counts(1, BUSY, BUSY, 0),
        lately,
        ..facts(&status)
    };
    assert_eq!(
        ids(&of(lately(counts(9, BUSY, BUSY, 0)))),
        [Id::PeersNotInPolicy]
    );
    assert_eq!(ids(&of(lately(counts(BUSY, BUSY, BUSY, 0)))), []);
    assert_eq!(ids(&of(lately(counts(0, BUSY - 1, BUSY, 0)))), []);
    // One look says that it was so since the module was loaded, and is no complaint.
    let once = of(None);
    assert_eq!(ids(&once), []);
    let report = once.report(|| Ok(true)).ok().unwrap();
    assert!(report.peers_were_missing());
}

#[test]
fn counters_of_the_module() {
    let list = [
        ("pairs_made", 1),
        ("expired_not_enrolled", 2),
        ("expired_elsewhere", 4),
        ("expired_doubt", 8),
        ("declined_ulp", 16),
        ("declined_off", 32),
        ("declined_hook", 64),
        ("rings_capped", 128),
    ];
    let list = list.map(|(name, n)| (name.to_string(), n));
    assert_eq!(Counts::of(&list), counts(1, 2, 26, 128));
}

#[test]
fn a_watch_looks_back_five_minutes() {
    let mut watch = Watch::default();
    let at = Duration::from_secs;
    let made = |n| counts(n, 0, 0, 0);
    assert_eq!(watch.add(at(1000), made(5)), None);
    assert_eq!(watch.add(at(1001), made(6)), None);
    assert_eq!(watch.samples.len(), 1);
    let seen = |time, n| {
        Some(Lately {
            time: at(time),
            counts: made(n),
        })
    };
    assert_eq!(watch.add(at(1299), made(7)), None);
    assert_eq!(watch.add(at(1300), made(8)), seen(300, 3));
    for second in 1301..3000 {
        let lately = watch.add(at(second), made(second)).unwrap();
        assert!(lately.time >= WINDOW);
    }
    assert!(watch.samples.len() <= 32);
    let lately = watch.add(at(3000), made(3000)).unwrap();
    assert!(lately.time < WINDOW + SPACING && lately.counts.made <= 310);
    // Nobody looked for long.
    let lately = watch.add(at(9000), made(3001)).unwrap();
    assert!(lately.time > at(5990) && lately.counts.made < 20);
    // Another module was loaded.
    assert_eq!(watch.add(at(9100), made(1)), None);
    assert_eq!(watch.samples.len(), 1);
}
