// SPDX-License-Identifier: GPL-2.0
//! Policies: which connections are accelerated. This room reads and writes them as a file,
//! as the bytes of a BPF program and as what is pinned. It may call `kernel`, `containers` and
//! what is below them. Commands call it, and the grammar uses its types.

pub mod cgroups;
pub mod config;
pub mod decide;
pub mod enact;
pub mod file;
pub mod found;
pub mod health;
mod keys;
pub mod pin;
mod program;

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};
use crate::kernel::module::{self, Module, Setting, Status};
use crate::uapi::{A_STATUS_MEMORY_CAP, A_STATUS_PAIRING, A_STATUS_SO_SPLICE, A_STATUS_SPLICE};

use config::Policy;
pub use config::{Name, OnCapture};
use file::{Features, MemoryCap};

pub fn require_btf(status: &Status) -> Result<()> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Error::new("this kernel has no BTF")
            .remedy("boot one with CONFIG_DEBUG_INFO_BTF=y, as Debian's are"));
    }
    if !status.btf || !Path::new(module::BTF).exists() {
        return Err(
            Error::new("the module has no usable BTF, BPF cannot call it").remedy(
                "install the kernel's headers and pahole (package dwarves), then build it again",
            ),
        );
    }
    Ok(())
}

impl Features {
    pub fn of(status: &Status) -> Self {
        Features {
            pairing: Some(status.pairing),
            splice: Some(status.splice),
            so_splice: Some(status.so_splice),
            memory_cap: Some(MemoryCap(status.memory_cap)),
        }
    }

    /// The switches to set before the policies are exchanged, and those to set afterwards.
    /// Pairing is switched on afterwards. The first set asks the module for everything else,
    /// so a refusal comes before the exchange.
    fn split(self, before: &Status) -> (Self, Self) {
        let first = Features {
            pairing: self.pairing.map(|on| on && before.pairing),
            ..self
        };
        let last = Features {
            pairing: self.pairing.filter(|on| *on && !before.pairing),
            ..Features::default()
        };
        (first, last)
    }

    /// These switches, and those of `other` where these say nothing.
    pub fn or(self, other: Features) -> Self {
        Features {
            pairing: self.pairing.or(other.pairing),
            splice: self.splice.or(other.splice),
            so_splice: self.so_splice.or(other.so_splice),
            memory_cap: self.memory_cap.or(other.memory_cap),
        }
    }

    /// Only the switches that `other` sets.
    fn where_set(self, other: Features) -> Self {
        Features {
            pairing: other.pairing.and(self.pairing),
            splice: other.splice.and(self.splice),
            so_splice: other.so_splice.and(self.so_splice),
            memory_cap: other.memory_cap.and(self.memory_cap),
        }
    }
}

/// In one message: all of them or none.
fn switch(module: &Module, features: Features) -> Result<()> {
    let cap = features.memory_cap.map(|cap| Setting::Limit(cap.0));
    let settings: Vec<(u16, Setting)> = [
        (A_STATUS_PAIRING, features.pairing.map(Setting::Switch)),
        (A_STATUS_SPLICE, features.splice.map(Setting::Switch)),
        (A_STATUS_SO_SPLICE, features.so_splice.map(Setting::Switch)),
        (A_STATUS_MEMORY_CAP, cap),
    ]
    .into_iter()
    .filter_map(|(attribute, setting)| Some((attribute, setting?)))
    .collect();
    match settings.is_empty() {
        true => Ok(()),
        false => module.set(&settings),
    }
}

pub fn is_in_force(name: &Name) -> Result<bool> {
    Ok(live()?.iter().any(|policy| policy.name == *name))
}

/// The policies in force, in their order.
pub fn live() -> Result<Vec<Policy>> {
    let _lock = pin::Lock::share()?;
    match pin::live() {
        Some(dir) => program::read(dir),
        None => Ok(Vec::new()),
    }
}

/// The same for [`decide::decide`]: the cgroups of the containers that a policy names are among
/// its paths.
pub fn live_with_containers() -> Result<Vec<Policy>> {
    let _lock = pin::Lock::share()?;
    let Some(dir) = pin::live() else {
        return Ok(Vec::new());
    };
    let mut policies = program::read(dir)?;
    let masks = cgroups::Paths::of(&policies, &program::found(dir)?).found;
    for (i, policy) in policies.iter_mut().enumerate() {
        let found = masks.iter().filter(|(_, mask)| *mask & (1 << i) != 0);
        policy.cgroups.extend(found.map(|(path, _)| path.clone()));
    }
    Ok(policies)
}

/// How long they have been in force.
pub fn age() -> Result<Option<Duration>> {
    let _lock = pin::Lock::share()?;
    let loaded = pin::live().and_then(program::loaded);
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    Ok(loaded.map(|loaded| now.saturating_sub(loaded)))
}
