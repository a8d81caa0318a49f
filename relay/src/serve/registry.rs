// SPDX-License-Identifier: GPL-2.0
//! The connections that live.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::stats::Stats;
use crate::net::Peer;
use crate::transfer::Link;

/// One connection, from when it is accepted.
pub struct Entry {
    pub id: u64,
    pub listener: Arc<str>,
    pub stats: Arc<Stats>,
    pub peer: Peer,
    pub began: Instant,
    /// once it is joined to a target's
    pub joined: OnceLock<Joined>,
}

pub struct Joined {
    pub client: Peer,
    pub target: Peer,
    pub server_name: Option<String>,
    pub link: Arc<Link>,
}

#[derive(Default)]
pub struct Registry {
    next: AtomicU64,
    live: Mutex<HashMap<u64, Arc<Entry>>>,
    /// tells when the last one has gone
    empty: Notify,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(
        self: &Arc<Self>,
        listener: Arc<str>,
        stats: Arc<Stats>,
        peer: Peer,
    ) -> Registered {
        let entry = Arc::new(Entry {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            listener,
            stats,
            peer,
            began: Instant::now(),
            joined: OnceLock::new(),
        });
        self.lock().insert(entry.id, entry.clone());
        Registered {
            registry: self.clone(),
            entry,
        }
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<Arc<Entry>> {
        self.all_and(|| ()).0
    }

    /// The same with what `also` says in a moment at which none of them ends.
    pub fn all_and<T>(&self, also: impl FnOnce() -> T) -> (Vec<Arc<Entry>>, T) {
        let live = self.lock();
        let mut all: Vec<_> = live.values().cloned().collect();
        let also = also();
        drop(live);
        all.sort_unstable_by_key(|e| e.id);
        (all, also)
    }

    /// Waits until there are none.
    pub async fn emptied(&self) {
        loop {
            let told = self.empty.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.is_empty() {
                return;
            }
            told.await;
        }
    }
}

/// A connection's place in the registry, which it leaves when this is dropped.
pub struct Registered {
    registry: Arc<Registry>,
    pub entry: Arc<Entry>,
}

impl Registered {
    /// Leaves, and has `count` count the connection as ended in the same moment.
    pub fn leave(self, count: impl FnOnce()) {
        let mut live = self.registry.lock();
        live.remove(&self.entry.id);
        count();
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut live = self.registry.lock();
        live.remove(&self.entry.id);
        let last = live.is_empty();
        drop(live);
        if last {
            self.registry.empty.notify_waiters();
        }
    }
}
