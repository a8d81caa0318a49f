// SPDX-License-Identifier: GPL-2.0
//! Policies and switches take the place of others as one transaction: all of them are in
//! force, or the command failed and all is as it was.
//!
//! The steps, each of which has its way back:
//! 1. The switches are set, but pairing is not switched on yet.
//! 2. The engines are asked for the machine's containers, if a policy names some. The new
//!    policies are attached, and exchanged with the old ones in one system call.
//! 3. The old policies are detached. Up to here a signal means the way back.
//! 4. Pairing is switched on, if it was off and the file says on: never for the old ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::unregister;

use crate::error::{Error, Result};
use crate::kernel::module::{Module, Status};

use super::config::Policy;
use super::file::Features;
use super::found::Entries;
use super::{found, pin, program, require_btf, switch};

/// What a transaction has done.
pub struct Done {
    /// There were policies before. They no longer enrol anything.
    pub had_old: bool,
    /// The cgroups of the containers that the new ones name.
    pub found: Entries,
    /// One sentence for each thing that keeps containers from being found.
    pub troubles: Vec<String>,
}

/// Puts policies in the place of those that are in force.
pub fn policies(policies: &[Policy]) -> Result<Done> {
    let lock = pin::Lock::take()?;
    let signals = Signals::hold()?;
    transact(&lock, &signals, policies, None)
}

/// Puts what `change` makes of the policies in force in their place, and returns it. No other
/// command sets policies meanwhile.
pub fn edit(
    change: impl FnOnce(Vec<Policy>) -> Result<Vec<Policy>>,
) -> Result<(Vec<Policy>, Done)> {
    let lock = pin::Lock::take()?;
    let signals = Signals::hold()?;
    let old = match pin::live() {
        Some(dir) => program::read(dir)?,
        None => Vec::new(),
    };
    let new = change(old)?;
    let done = transact(&lock, &signals, &new, None)?;
    Ok((new, done))
}

/// The same with what is set of the module.
pub fn file(module: &Module, features: Features, policies: &[Policy]) -> Result<Done> {
    let lock = pin::Lock::take()?;
    let signals = Signals::hold()?;
    // Read when nobody else can be between its own two steps.
    let before = module.status()?;
    if !policies.is_empty() {
        require_btf(&before)?;
    }
    let switches = Switches::new(module, features, &before);
    let done = switches
        .first()
        .and_then(|()| transact(&lock, &signals, policies, Some(&switches)));
    done.map_err(|e| undone(e, switches.back()))
}

fn transact(
    lock: &pin::Lock,
    signals: &Signals,
    policies: &[Policy],
    switches: Option<&Switches>,
) -> Result<Done> {
    let last = switches.filter(|switches| switches.has_last());
    // To attach them again: what is detached is gone. Those of another version cannot be
    // read; that matters only if there has to be a way back from the last step.
    let old = match (last, pin::live()) {
        (Some(_), Some(dir)) => program::read(dir).and_then(|old| Ok((old, program::found(dir)?))),
        _ => Ok((Vec::new(), Entries::new())),
    };
    // Before anything is exchanged: an engine may take its time.
    let found = found::resolve(policies)?;
    signals.check().map_err(|e| undone(e, Ok(())))?;
    let replaced = replace(lock, signals, policies, found)?;
    let Some(last) = last else {
        return Ok(replaced);
    };
    let done = last.last();
    done.map(|()| replaced).map_err(|e| {
        let back = last
            .back()
            .and(old)
            .and_then(|(old, found)| replace(lock, &Signals::none(), &old, (found, Vec::new())));
        undone(e, back.map(drop))
    })
}

/// Steps 2 and 3, without the question to the engines.
fn replace(
    lock: &pin::Lock,
    signals: &Signals,
    policies: &[Policy],
    (found, troubles): (Entries, Vec<String>),
) -> Result<Done> {
    let fill = |dir: &Path| {
        program::install(policies, &found, dir)?;
        signals.check()
    };
    let fill: Option<pin::Fill> = match policies.is_empty() {
        true => None,
        false => Some(&fill),
    };
    let exchanged = lock.exchange(fill).map_err(|e| undone(e, lock.finish()))?;
    let done = |had_old, found| Done {
        had_old,
        found,
        troubles,
    };
    let Some(old) = exchanged.old() else {
        return match signals.check() {
            Ok(()) => Ok(done(false, found)),
            Err(e) => Err(undone(e, lock.undo(exchanged))),
        };
    };
    let detached = signals.check().and_then(|()| program::detach(old));
    match detached {
        Ok(detached) => {
            // What is left of them is attached nowhere; the next command finds it.
            let _ = lock.finish();
            detached.wait();
            Ok(done(true, found))
        }
        Err(e) => Err(undone(e, lock.undo(exchanged))),
    }
}

/// What went wrong, and what that means. A step back that works does not make up for one that
/// failed before it.
fn undone(mut error: Error, way_back: Result<()>) -> Error {
    const AS_IT_WAS: &str = "; everything is as it was";
    const NO_WAY_BACK: &str = "; the way back failed, too: ";
    let message = &mut error.message;
    match way_back {
        Ok(()) if message.ends_with(AS_IT_WAS) || message.contains(NO_WAY_BACK) => {}
        Ok(()) => *message += AS_IT_WAS,
        Err(e) => {
            let message = message.trim_end_matches(AS_IT_WAS);
            let message = format!("{message}{NO_WAY_BACK}{}", e.message);
            return Error::new(message).remedy("see 'socksplice policy show' and 'feature show'");
        }
    }
    error
}

/// What is set of the module: before the policies are exchanged, and after.
struct Switches<'a> {
    module: &'a Module,
    first: Features,
    last: Features,
    before: Features,
}

impl<'a> Switches<'a> {
    fn new(module: &'a Module, features: Features, before: &Status) -> Self {
        let (first, last) = features.split(before);
        Switches {
            module,
            first,
            last,
            before: Features::of(before).where_set(first),
        }
    }

    fn first(&self) -> Result<()> {
        switch(self.module, self.first)
    }

    fn has_last(&self) -> bool {
        self.last != Features::default()
    }

    fn last(&self) -> Result<()> {
        switch(self.module, self.last)
    }

    /// The module may have done what it could not answer to.
    fn back(&self) -> Result<()> {
        switch(self.module, self.before).or_else(|e| {
            let now = self.module.status().map_err(|_| e.clone())?;
            match Features::of(&now).where_set(self.first) == self.before {
                true => Ok(()),
                false => Err(e),
            }
        })
    }
}

/// Signals that end a process are only noted, until this is dropped.
struct Signals {
    came: Arc<AtomicBool>,
    registered: Vec<SigId>,
    over: Arc<AtomicBool>,
}

impl Signals {
    fn none() -> Self {
        Signals {
            came: Arc::default(),
            registered: Vec::new(),
            over: Arc::default(),
        }
    }

    fn hold() -> Result<Self> {
        let failed = |e| Error::new(format!("cannot wait for a signal: {e}"));
        let mut signals = Signals::none();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let over = signals.over.clone();
            flag::register_conditional_default(signal, over).map_err(failed)?;
            let id = flag::register(signal, signals.came.clone()).map_err(failed)?;
            signals.registered.push(id);
        }
        Ok(signals)
    }

    fn check(&self) -> Result<()> {
        match self.came.load(Ordering::Relaxed) {
            true => Err(Error::new("interrupted by a signal")),
            false => Ok(()),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            unregister(id);
        }
        // From now on they do what they do by default.
        self.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_in_force() {
        let error = undone(Error::new("no").remedy("try"), Ok(()));
        assert_eq!(error.to_string(), "no; everything is as it was; try");
        let error = undone(error, Ok(()));
        assert_eq!(error.message, "no; everything is as it was");
        let error = undone(error, Err(Error::new("stuck")));
        assert_eq!(error.message, "no; the way back failed, too: stuck");
        // A later step back does not make up for that, whether it works or not.
        let error = undone(error, Ok(()));
        assert_eq!(error.message, "no; the way back failed, too: stuck");
        let error = undone(error, Err(Error::new("again")));
        assert!(!error.message.contains("as it was"));
    }

    #[test]
    fn a_signal_is_noted() {
        let signals = Signals::hold().unwrap();
        assert!(signals.check().is_ok());
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert!(signals.check().is_err());
        assert!(Signals::none().check().is_ok());
    }
}
