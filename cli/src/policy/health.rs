// SPDX-License-Identifier: GPL-2.0
//! What an operator has to know of the policies in force: what each holds, and what keeps
//! them from pairing. `doctor` looks once. A process that stays, such as the exporter, looks
//! again and again, and so it also knows what happened in the last minutes.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::kernel::module::{Module, Status};
use crate::kernel::pair::{self, Share};
use crate::kernel::release;

use super::cgroups::Health;

/// How far back a watch looks.
const WINDOW: Duration = Duration::from_secs(300);
/// Two samples are so far apart at least, so a watch keeps about thirty.
const SPACING: Duration = Duration::from_secs(10);
/// With fewer ends than this, a machine without a pair may just be idle.
const SOME: u64 = 10;
/// Unmatched ends of a busy service: one in ten seconds.
const BUSY: u64 = 30;
/// A ring takes its memory page by page.
const PAGE: u64 = 4096;

/// Names a kind of complaint. The names are an interface: metrics, alerts and logs have them.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Id {
    /// The kernel is not one that was tested, newer than all that were read, or too old.
    Kernel,
    /// The module could not redirect the functions that it must.
    Hook,
    /// Pairing is off while policies are set.
    PairingOff,
    /// Nothing that a policy names has a cgroup.
    PolicyWaiting,
    /// There was no memory to follow cgroups.
    CgroupsMissed,
    /// Policies match connections, and no two ends are paired.
    NoPair,
    /// Most peers of the ends that a policy names are named by none.
    PeersNotInPolicy,
    /// Rings get no more memory.
    MemoryCap,
}

impl Id {
    pub const ALL: [Id; 8] = [
        Id::Kernel,
        Id::Hook,
        Id::PairingOff,
        Id::PolicyWaiting,
        Id::CgroupsMissed,
        Id::NoPair,
        Id::PeersNotInPolicy,
        Id::MemoryCap,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Id::Kernel => "kernel",
            Id::Hook => "hook",
            Id::PairingOff => "pairing_off",
            Id::PolicyWaiting => "policy_waiting",
            Id::CgroupsMissed => "cgroups_missed",
            Id::NoPair => "no_pair",
            Id::PeersNotInPolicy => "peers_not_in_policy",
            Id::MemoryCap => "memory_cap",
        }
    }
}

/// Something that keeps connections from being paired, now.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Complaint {
    pub id: Id,
    /// What is wrong, without a full stop.
    pub text: String,
    /// What to do about it.
    pub remedy: String,
}

impl Complaint {
    fn new(id: Id, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Complaint {
            id,
            text: text.into(),
            remedy: remedy.into(),
        }
    }
}

/// One policy in force.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct State {
    pub name: String,
    pub pairs: u64,
    pub ring_memory: u64,
    pub memory_cap: Option<u64>,
    /// How many cgroups it names now.
    pub cgroups: usize,
    /// How many of its paths and selectors name none.
    pub waiting: usize,
}

impl State {
    pub fn is_healthy(&self) -> bool {
        self.cgroups > 0
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Report {
    pub policies: Vec<State>,
    pub complaints: Vec<Complaint>,
    /// One sentence for each policy of which a path waits.
    pub notes: Vec<String>,
    pub pairs: u64,
    /// What was counted since the module was loaded.
    pub counts: Counts,
}

impl Report {
    /// The complaints of one kind.
    pub fn of(&self, id: Id) -> impl Iterator<Item = &Complaint> {
        self.complaints.iter().filter(move |c| c.id == id)
    }

    pub fn has(&self, id: Id) -> bool {
        self.of(id).next().is_some()
    }

    /// True if most ends that met a peer met one that no policy names. These are counts since
    /// the module was loaded, so this may have been mended since.
    pub fn peers_were_missing(&self) -> bool {
        !self.policies.is_empty() && self.counts.peers_are_missing()
    }
}

/// Counters of the module that complaints are about.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Counts {
    pub made: u64,
    /// Enrolled ends whose peer, in the same namespace, no policy enrolled.
    pub not_enrolled: u64,
    /// These, and the enrolled ends that were declined or could not be proven. Their peers may
    /// be on this machine.
    pub unpaired: u64,
    pub capped: u64,
}

impl Counts {
    fn of(counters: &[(String, u64)]) -> Self {
        let mut counts = Counts::default();
        for (name, n) in counters {
            match name.as_str() {
                "pairs_made" => counts.made = *n,
                "rings_capped" => counts.capped = *n,
                "expired_not_enrolled" => {
                    counts.not_enrolled = *n;
                    counts.unpaired += n;
                }
                "expired_doubt" => counts.unpaired += n,
                // These have complaints of their own.
                "declined_off" | "declined_hook" => {}
                name if name.starts_with("declined_") => counts.unpaired += n,
                _ => {}
            }
        }
        counts
    }

    fn since(&self, before: &Counts) -> Counts {
        Counts {
            made: self.made.saturating_sub(before.made),
            not_enrolled: self.not_enrolled.saturating_sub(before.not_enrolled),
            unpaired: self.unpaired.saturating_sub(before.unpaired),
            capped: self.capped.saturating_sub(before.capped),
        }
    }

    /// True if these cannot follow `before`: another module was loaded meanwhile.
    fn restarted(&self, before: &Counts) -> bool {
        self.made < before.made
            || self.unpaired < before.unpaired
            || self.not_enrolled < before.not_enrolled
            || self.capped < before.capped
    }

    fn peers_are_missing(&self) -> bool {
        self.not_enrolled >= BUSY && self.not_enrolled > self.made
    }
}

/// What was counted in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lately {
    time: Duration,
    counts: Counts,
}

/// The samples of the last minutes, at least [`SPACING`] apart.
#[derive(Default)]
pub struct Watch {
    samples: VecDeque<(Duration, Counts)>,
}

impl Watch {
    /// What the module and the policies say now. A watch that has looked before also tells of
    /// the last minutes.
    pub fn look(&mut self, module: &Module) -> Result<Report> {
        let status = module.status()?;
        let counts = Counts::of(&module.stats()?);
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        let lately = self.add(now, counts);
        let (shares, pairs) = pair::shares(module)?;
        let facts = Facts {
            release: release::running(),
            status: &status,
            health: Health::read()?,
            shares,
            pairs,
            counts,
            lately,
        };
        // This looks at every BPF program of the machine, so only where it matters.
        let settled = || super::age().map(|age| age.is_some_and(|age| age >= WINDOW));
        facts.report(settled)
    }

    /// What was counted since the newest sample that is old enough, if there is one.
    fn add(&mut self, now: Duration, counts: Counts) -> Option<Lately> {
        if self.samples.back().is_some_and(|s| counts.restarted(&s.1)) {
            self.samples.clear();
        }
        let old = |sample: &(Duration, Counts)| now.saturating_sub(sample.0) >= WINDOW;
        while self.samples.get(1).is_some_and(old) {
            self.samples.pop_front();
        }
        let first = self.samples.front().copied().filter(old);
        let apart = |sample: &(Duration, Counts)| now.saturating_sub(sample.0) >= SPACING;
        if self.samples.back().is_none_or(apart) {
            self.samples.push_back((now, counts));
        }
        first.map(|(then, before)| Lately {
            time: now - then,
            counts: counts.since(&before),
        })
    }
}

/// What a report is made of.
struct Facts<'a> {
    release: String,
    status: &'a Status,
    /// None without a policy.
    health: Option<Health>,
    shares: HashMap<u64, Share>,
    pairs: u64,
    counts: Counts,
    lately: Option<Lately>,
}

impl Facts<'_> {
    /// `settled`: whether the policies have been in force for [`WINDOW`].
    fn report(&self, settled: impl Fn() -> Result<bool>) -> Result<Report> {
        let policies = self.policies();
        let mut complaints = Vec::new();
        complaints.extend(self.kernel());
        if let Some(health) = &self.health {
            complaints.extend(self.switches());
            complaints.extend(of_cgroups(health));
            complaints.extend(match self.pairs_nothing() {
                Some(complaint) if settled()? => Some(complaint),
                _ => None,
            });
            complaints.extend(self.peers());
        }
        complaints.extend(self.memory(&policies));
        Ok(Report {
            policies,
            complaints,
            notes: self.health.as_ref().map_or(Vec::new(), Health::notes),
            pairs: self.pairs,
            counts: self.counts,
        })
    }

    fn policies(&self) -> Vec<State> {
        let policies = self.health.iter().flat_map(|health| &health.policies);
        let state = |policy: &super::cgroups::Matches| {
            let share = self.shares.get(&policy.name.group());
            State {
                name: policy.name.to_string(),
                pairs: share.map_or(0, |share| share.pairs),
                ring_memory: share.map_or(0, |share| share.ring_memory),
                memory_cap: policy.memory_cap,
                cgroups: policy.cgroups,
                waiting: policy.waiting,
            }
        };
        policies.map(state).collect()
    }

    fn kernel(&self) -> Vec<Complaint> {
        let mut list = Vec::new();
        let support = release::support(&self.release);
        if let Some(what) = release::complaint(support) {
            let text = format!("the kernel {} {what}", self.release);
            list.push(Complaint::new(Id::Kernel, text, release::remedy(support)));
        }
        if let Some(e) = &self.status.hook_error {
            let text = format!("splice(2) is not hooked, so nothing is paired: {e}");
            list.push(Complaint::new(
                Id::Hook,
                text,
                "'socksplice doctor' says why",
            ));
        }
        list
    }

    fn switches(&self) -> Option<Complaint> {
        (!self.status.pairing && !self.status.shadow).then(|| {
            Complaint::new(
                Id::PairingOff,
                "pairing is off while policies are set, so nothing is paired",
                "run 'socksplice feature set pairing on'",
            )
        })
    }

    /// Whether new connections could be paired at all, as far as the module is concerned.
    fn can_pair(&self) -> bool {
        self.status.pairing && !self.status.shadow && self.status.hook_error.is_none()
    }

    /// Without a sample that is old enough, all that the module has counted is looked at.
    fn pairs_nothing(&self) -> Option<Complaint> {
        let (counts, time) = match &self.lately {
            Some(lately) => (lately.counts, in_the_last(lately.time)),
            None => (self.counts, "since the module was loaded".into()),
        };
        if !self.can_pair() || self.pairs > 0 || counts.made > 0 || counts.unpaired < SOME {
            return None;
        }
        Some(Complaint::new(
            Id::NoPair,
            format!(
                "no pair was made {time}, though {} ends of connections matched a policy",
                counts.unpaired
            ),
            "'socksplice stats show' has the reasons, 'socksplice pair why' those of a connection",
        ))
    }

    fn peers(&self) -> Option<Complaint> {
        let lately = self.lately.filter(|l| l.counts.peers_are_missing())?;
        self.can_pair().then(|| {
            Complaint::new(
                Id::PeersNotInPolicy,
                format!(
                    "{} ends that a policy names met a peer that none names {}, and {} pairs were \
                     made",
                    lately.counts.not_enrolled,
                    in_the_last(lately.time),
                    lately.counts.made
                ),
                HOW_TO_FIND_PEERS,
            )
        })
    }

    fn memory(&self, policies: &[State]) -> Vec<Complaint> {
        let mut list = Vec::new();
        let full = |held: u64, cap: u64| cap > 0 && held + PAGE > cap;
        // Rings that no policy in force has any more count here, too.
        let held: u64 = self.shares.values().map(|share| share.ring_memory).sum();
        let mut add = |text: String| {
            let remedy = "raise the cap, or find the readers that do not read: 'socksplice pair \
                          show --sort memory'";
            list.push(Complaint::new(Id::MemoryCap, text, remedy));
        };
        if full(held, self.status.memory_cap) {
            add("the rings hold all that memory-cap allows, senders go on by TCP".into());
        }
        for policy in policies {
            if full(policy.ring_memory, policy.memory_cap.unwrap_or(0)) {
                add(format!(
                    "the rings of policy {} hold all that its memory-cap allows, senders go on \
                     by TCP",
                    policy.name
                ));
            }
        }
        match &self.lately {
            Some(lately) if list.is_empty() && lately.counts.capped > 0 => {
                let times = lately.counts.capped;
                let text = format!(
                    "a cap on memory kept rings from growing {times} times {}",
                    in_the_last(lately.time)
                );
                vec![Complaint::new(
                    Id::MemoryCap,
                    text,
                    "raise the cap: 'socksplice feature set memory-cap', or the policy's own",
                )]
            }
            _ => list,
        }
    }
}

/// How to see which end no policy names. The counters do not say that.
pub const HOW_TO_FIND_PEERS: &str = "'socksplice pair monitor --event expired' shows such \
    connections, 'socksplice pair why' says of each end whether a policy names it";

fn of_cgroups(health: &Health) -> Vec<Complaint> {
    let waiting = health.policies.iter().filter(|p| p.pair && p.cgroups == 0);
    let mut list: Vec<Complaint> = waiting
        .map(|policy| {
            Complaint::new(
                Id::PolicyWaiting,
                policy.note.clone().unwrap_or_default(),
                "start what is to be paired, or set the policy with another path",
            )
        })
        .collect();
    if health.missed > 0 {
        list.push(Complaint::new(
            Id::CgroupsMissed,
            format!(
                "{} cgroups came for which there was no memory: their connections stay on TCP",
                health.missed
            ),
            "set the policies again: 'socksplice policy export', then 'policy apply'",
        ));
    }
    list
}

fn in_the_last(time: Duration) -> String {
    format!("in the last {} minutes", time.as_secs() / 60)
}

#[cfg(test)]
mod tests;
