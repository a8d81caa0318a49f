// SPDX-License-Identifier: GPL-2.0
//! What a listener has seen. Kept by name, so a reload goes on counting.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::transfer::Sums;

#[derive(Default)]
pub struct Stats {
    pub accepted: AtomicU64,
    open: AtomicUsize,
    /// tells when an open one has ended
    freed: Notify,
    ended: Mutex<Ended>,
}

/// Connections that have ended.
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

    /// Waits until fewer than `most` are open.
    pub async fn below(&self, most: Option<usize>) {
        let fewer = || most.is_none_or(|most| self.open() < most).then_some(());
        self.once(fewer).await;
    }

    /// Counts a connection as open until the guard is dropped, if fewer than `most` are.
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

    /// The same; waits while `most` are.
    pub async fn enter(self: &Arc<Self>, most: Option<usize>) -> Live {
        self.once(|| self.try_enter(most)).await
    }

    /// Asks at once, and again whenever a connection has ended.
    async fn once<T>(&self, ask: impl Fn() -> Option<T>) -> T {
        loop {
            let told = self.freed.notified();
            tokio::pin!(told);
            // what is told from here on is not missed
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
