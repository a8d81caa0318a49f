// SPDX-License-Identifier: GPL-2.0
//! Statistics of a listener. They are kept by its name, so they go on over a reload.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::transfer::Sums;

#[derive(Default)]
pub struct Stats {
    pub accepted: AtomicU64,
    open: AtomicUsize,
    /// Notified when an open connection has ended.
    freed: Notify,
    ended: Mutex<Ended>,
}

/// Totals of the connections that have ended.
#[derive(Clone, Default)]
pub struct Ended {
    pub by_reason: BTreeMap<&'static str, u64>,
    pub up: Sums,
    pub down: Sums,
}

impl Stats {
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// True if fewer than `most` connections are open.
    pub fn is_below(&self, most: Option<usize>) -> bool {
        most.is_none_or(|most| self.open() < most)
    }

    /// Waits until fewer than `most` connections are open.
    pub async fn below(&self, most: Option<usize>) {
        self.once(|| self.is_below(most).then_some(())).await;
    }

    /// Counts a connection as open until the guard is dropped. Returns `None` if `most` are open
    /// already.
    pub fn try_enter(self: &Arc<Self>, most: Option<usize>) -> Option<Live> {
        let most = most.unwrap_or(usize::MAX);
        let one_more = |open| (open < most).then_some(open + 1);
        let order = Ordering::AcqRel;
        self.open
            .fetch_update(order, Ordering::Acquire, one_more)
            .ok()?;
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(Live(self.clone()))
    }

    /// Like [`try_enter`](Self::try_enter), but waits while `most` connections are open.
    pub async fn enter(self: &Arc<Self>, most: Option<usize>) -> Live {
        self.once(|| self.try_enter(most)).await
    }

    /// Calls `ask` at once, and again whenever a connection has ended, until it returns a value.
    async fn once<T>(&self, ask: impl Fn() -> Option<T>) -> T {
        loop {
            let told = self.freed.notified();
            tokio::pin!(told);
            // Register before asking, so that no notification is missed.
            told.as_mut().enable();
            if let Some(answer) = ask() {
                return answer;
            }
            told.await;
        }
    }

    pub fn end(&self, reason: &'static str, up: &Sums, down: &Sums) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.by_reason.entry(reason).or_default() += 1;
        ended.up.add(up);
        ended.down.add(down);
    }

    pub fn ended(&self) -> Ended {
        self.ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

pub struct Live(Arc<Stats>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_waiters();
    }
}
