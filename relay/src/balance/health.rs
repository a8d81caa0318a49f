// SPDX-License-Identifier: GPL-2.0
//! One target, and whether it is up. The results of connections and of health checks decide that.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Pool;
use crate::net::{Address, Peer};

pub struct Target {
    /// The target as it is written in the configuration.
    pub name: Address,
    /// An address that `name` resolved to.
    pub peer: Peer,
    /// Number of live connections and of connect attempts under way.
    active: AtomicUsize,
    pub connections: AtomicU64,
    pub failures: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Failures in a row.
    failed: u32,
    /// Checks that passed in a row while the target is down.
    passed: u32,
    down: Option<Down>,
    /// Number of times that the target went down.
    outages: u64,
}

struct Down {
    until: Instant,
    back_off: Duration,
    /// True while a trial is under way: the one [`Attempt`] that may try the target.
    trying: bool,
}

/// A connect attempt or a check. Its result decides whether the target is up. If it is dropped
/// without a result, another one may try.
pub struct Attempt {
    target: Arc<Target>,
    /// True if this is a trial, the only attempt that may begin while the target is down.
    trial: bool,
    /// [`State::outages`] at its begin. Results from before an outage tell nothing about the time
    /// after it, so they count neither in the outage nor later.
    outages: u64,
}

impl Target {
    pub fn new(name: Address, peer: Peer) -> Target {
        Target {
            name,
            peer,
            active: AtomicUsize::new(0),
            connections: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_up(&self) -> bool {
        self.lock().down.is_none()
    }

    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Counts a connection, from its connect attempt until the guard is dropped.
    pub fn enter(self: &Arc<Self>) -> Entered {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.connections.fetch_add(1, Ordering::Relaxed);
        Entered(self.clone())
    }

    /// True if a connection may go to the target. The target is up, or its back-off is over and no
    /// trial is under way.
    pub fn may_try(&self, pool: &Pool, now: Instant) -> bool {
        match &self.lock().down {
            None => true,
            // Only the health checks try this target.
            Some(_) if pool.check.is_some() => false,
            Some(down) => down.may_try(now),
        }
    }

    /// Begins an attempt. If the target is down, that is a trial. Returns `None` if nothing may try
    /// the target now.
    pub fn begin(self: &Arc<Self>, now: Instant) -> Option<Attempt> {
        let mut state = self.lock();
        let outages = state.outages;
        let trial = match &mut state.down {
            None => false,
            Some(down) if down.may_try(now) => {
                down.trying = true;
                true
            }
            Some(_) => return None,
        };
        drop(state);
        Some(Attempt {
            target: self.clone(),
            trial,
            outages,
        })
    }
}

impl Attempt {
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Records that the connection was made, or that the check passed. Returns true if that brought
    /// the target up.
    pub fn succeeded(mut self, pool: &Pool, by_check: bool) -> bool {
        let mut state = self.target.lock();
        if state.outages != self.outages {
            return false;
        }
        self.trial = false;
        state.failed = 0;
        let Some(down) = &mut state.down else {
            return false;
        };
        down.trying = false;
        if by_check {
            // The back-off must not delay the next check.
            down.until = Instant::now();
            state.passed += 1;
            if state.passed < pool.rise {
                return false;
            }
        }
        *state = State {
            outages: state.outages,
            ..State::default()
        };
        true
    }

    /// Records a failure. Returns true if that took the target down.
    pub fn failed(mut self, pool: &Pool) -> bool {
        self.target.failures.fetch_add(1, Ordering::Relaxed);
        let mut state = self.target.lock();
        if state.outages != self.outages {
            return false;
        }
        self.trial = false;
        let (first, most) = pool.back_off;
        let now = Instant::now();
        match &mut state.down {
            Some(down) => {
                down.trying = false;
                down.back_off = (down.back_off * 2).min(most);
                down.until = now + jittered(down.back_off);
                state.passed = 0;
                false
            }
            None => {
                state.failed = state.failed.saturating_add(1);
                if state.failed < pool.fall {
                    return false;
                }
                state.down = Some(Down {
                    until: now + jittered(first),
                    back_off: first,
                    trying: false,
                });
                state.outages += 1;
                true
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.trial {
            if let Some(down) = &mut self.target.lock().down {
                down.trying = false;
            }
        }
    }
}

impl Down {
    fn may_try(&self, now: Instant) -> bool {
        now >= self.until && !self.trying
    }
}

/// Returns `time` plus up to a fifth, at random. Many relays then do not retry at once.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1000;
    time + time.mul_f64(random as f64 / 5000.0)
}

/// Counts a connection of a target until it is dropped.
pub struct Entered(pub Arc<Target>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(check: bool) -> Pool {
        let health = if check {
            "interval = '1s'\nrise = 2\n"
        } else {
            ""
        };
        let text = format!(
            "[[listener]]\nlisten = '127.0.0.1:0'\nto = 'a:1'\n[listener.health]\nfall = 2\n\
             back_off = '10s'\nback_off_max = '15s'\n{health}"
        );
        crate::config::parse(&text).unwrap().listeners[0]
            .pool
            .clone()
            .unwrap()
    }

    fn target() -> Arc<Target> {
        Arc::new(Target::new("a:1".parse().unwrap(), Peer::Unnamed))
    }

    #[test]
    fn it_is_down_after_some_failures_and_tried_after_the_back_off() {
        let (pool, target) = (pool(false), target());
        let now = Instant::now();
        let begin = |at| target.begin(at).unwrap();
        assert!(!begin(now).failed(&pool) && target.may_try(&pool, now));
        begin(now).succeeded(&pool, false);
        assert!(!begin(now).failed(&pool));
        assert!(begin(now).failed(&pool) && !target.is_up());
        assert!(!target.may_try(&pool, now + Duration::from_secs(9)));
        let later = now + Duration::from_secs(13);
        assert!(target.may_try(&pool, later));
        let trial = begin(later);
        assert!(target.begin(later).is_none(), "one connection tries it out");
        assert!(!trial.failed(&pool));
        assert!(
            !target.may_try(&pool, Instant::now() + Duration::from_secs(14)),
            "15 s now"
        );
        let trial = begin(Instant::now() + Duration::from_secs(19));
        assert!(trial.succeeded(&pool, false) && target.is_up());
    }

    #[test]
    fn checks_bring_it_up_after_some_successes() {
        let (pool, target) = (pool(true), target());
        let later = Instant::now() + Duration::from_secs(100);
        target.begin(later).unwrap().failed(&pool);
        target.begin(later).unwrap().failed(&pool);
        assert!(!target.may_try(&pool, later), "the checks find out");
        let check = || target.begin(later).unwrap().succeeded(&pool, true);
        assert!(!check() && !target.is_up());
        assert!(check() && target.is_up());
    }

    #[test]
    fn attempts_from_before_it_went_down_do_not_count() {
        for with_checks in [false, true] {
            let (pool, target) = (pool(with_checks), target());
            let now = Instant::now();
            let mut old: Vec<_> = (0..5).map(|_| target.begin(now).unwrap()).collect();
            let mut next = || old.pop().unwrap();
            next().failed(&pool);
            assert!(next().failed(&pool) && !target.is_up());
            assert!(!next().succeeded(&pool, false) && !target.is_up());
            let later = now + Duration::from_secs(13);
            let trial = target.begin(later).unwrap();
            next().failed(&pool);
            drop(next());
            assert!(target.begin(later).is_none(), "the trial goes on");
            trial.succeeded(&pool, with_checks);
            assert_ne!(target.is_up(), with_checks, "a second check must pass");
        }
    }

    #[test]
    fn attempts_from_before_an_outage_do_not_count_after_it() {
        let (pool, target) = (pool(false), target());
        let now = Instant::now();
        let mut old: Vec<_> = (0..5).map(|_| target.begin(now).unwrap()).collect();
        let mut next = || old.pop().unwrap();
        next().failed(&pool);
        assert!(next().failed(&pool) && !target.is_up());
        let trial = target.begin(now + Duration::from_secs(13)).unwrap();
        assert!(trial.succeeded(&pool, false) && target.is_up());
        assert!(!next().failed(&pool) && !next().failed(&pool));
        assert!(target.is_up(), "old failures take it down again");
        // Nor does an old success hide a new failure.
        target.begin(now).unwrap().failed(&pool);
        next().succeeded(&pool, false);
        assert!(target.begin(now).unwrap().failed(&pool));
    }

    #[test]
    fn a_trial_without_a_result_lets_another_one_begin() {
        let (pool, target) = (pool(false), target());
        let later = Instant::now() + Duration::from_secs(13);
        for _ in 0..2 {
            target.begin(later).unwrap().failed(&pool);
        }
        drop(target.begin(later).unwrap());
        let trial = target.begin(later).unwrap();
        assert!(trial.succeeded(&pool, false) && target.is_up());
    }
}
