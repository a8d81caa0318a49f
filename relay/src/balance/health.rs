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
}

struct Down {
    until: Instant,
    back_off: Duration,
    /// When the current trial began: the one connection or check that may try the target.
    trying: Option<Instant>,
}

/// Time after which a trial that has reported no result no longer excludes another one.
const TRIAL: Duration = Duration::from_secs(60);

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

    /// True if the caller may connect now. If the target is down, this begins a trial, and nothing
    /// else may try the target until that has a result.
    pub fn begin_trial(&self, now: Instant) -> bool {
        match &mut self.lock().down {
            None => true,
            Some(down) if down.may_try(now) => {
                down.trying = Some(now);
                true
            }
            Some(_) => false,
        }
    }

    /// Records a connection that was made, or a check that passed. Returns true if that brought the
    /// target up.
    pub fn succeeded(&self, pool: &Pool, by_check: bool) -> bool {
        let mut state = self.lock();
        state.failed = 0;
        let Some(down) = &mut state.down else {
            return false;
        };
        down.trying = None;
        if by_check {
            // The back-off must not delay the next check.
            down.until = Instant::now();
            state.passed += 1;
            if state.passed < pool.rise {
                return false;
            }
        }
        *state = State::default();
        true
    }

    /// Records a connect attempt or a check that failed. Returns true if that took the target down.
    pub fn failed(&self, pool: &Pool) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        state.passed = 0;
        state.failed = state.failed.saturating_add(1);
        let enough = state.failed >= pool.fall;
        let (first, most) = pool.back_off;
        let now = Instant::now();
        match &mut state.down {
            // This is no trial: the attempt began while the target was up.
            Some(down) if down.trying.is_none() => false,
            Some(down) => {
                down.back_off = (down.back_off * 2).min(most);
                down.until = now + jittered(down.back_off);
                down.trying = None;
                false
            }
            None if enough => {
                state.down = Some(Down {
                    until: now + jittered(first),
                    back_off: first,
                    trying: None,
                });
                true
            }
            None => false,
        }
    }
}

impl Down {
    fn may_try(&self, now: Instant) -> bool {
        let tried = self
            .trying
            .is_some_and(|since| now.duration_since(since) < TRIAL);
        now >= self.until && !tried
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

    fn target() -> Target {
        Target::new("a:1".parse().unwrap(), Peer::Unnamed)
    }

    #[test]
    fn it_is_down_after_some_failures_and_tried_after_the_back_off() {
        let (pool, target) = (pool(false), target());
        let now = Instant::now();
        assert!(!target.failed(&pool) && target.may_try(&pool, now));
        target.succeeded(&pool, false);
        assert!(!target.failed(&pool));
        assert!(target.failed(&pool) && !target.is_up());
        assert!(!target.may_try(&pool, now + Duration::from_secs(9)));
        let later = now + Duration::from_secs(13);
        assert!(target.may_try(&pool, later) && target.begin_trial(later));
        assert!(!target.begin_trial(later), "one connection tries it out");
        assert!(!target.failed(&pool));
        assert!(
            !target.may_try(&pool, Instant::now() + Duration::from_secs(14)),
            "15 s now"
        );
        assert!(target.begin_trial(Instant::now() + Duration::from_secs(19)));
        assert!(target.succeeded(&pool, false) && target.is_up());
    }

    #[test]
    fn checks_bring_it_up_after_some_successes() {
        let (pool, target) = (pool(true), target());
        let later = Instant::now() + Duration::from_secs(100);
        target.failed(&pool);
        target.failed(&pool);
        assert!(!target.may_try(&pool, later), "the checks find out");
        assert!(target.begin_trial(later));
        assert!(!target.succeeded(&pool, true) && !target.is_up());
        assert!(target.succeeded(&pool, true) && target.is_up());
    }
}
