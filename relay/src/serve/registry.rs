// SPDX-License-Identifier: GPL-2.0
//! The registry of live connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::stats::Stats;
use crate::net::Peer;
use crate::transfer::Link;

/// A live connection. It is in the registry from accept(2) on.
pub struct Entry {
    pub id: u64,
    pub listener: Arc<str>,
    pub stats: Arc<Stats>,
    pub peer: Peer,
    pub began: Instant,
    /// Set once the client is linked to a target.
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

    /// Returns all live connections, oldest first.
    pub fn all(&self) -> Vec<Arc<Entry>> {
        self.all_and(|| ()).0
    }

    /// Returns all live connections, and the result of `also`. The lock is held while `also` runs,
    /// so no connection starts or ends in between.
    pub fn all_and<T>(&self, also: impl FnOnce() -> T) -> (Vec<Arc<Entry>>, T) {
        let live = self.lock();
        let mut all: Vec<_> = live.values().cloned().collect();
        let also = also();
        drop(live);
        all.sort_unstable_by_key(|e| e.id);
        (all, also)
    }
}

/// A connection's place in the registry. Dropping it removes the connection.
pub struct Registered {
    registry: Arc<Registry>,
    pub entry: Arc<Entry>,
}

impl Registered {
    /// Removes the connection, and calls `count` under the same lock to count it as ended. A reader
    /// of both never sees it twice, and never misses it.
    pub fn leave(self, count: impl FnOnce()) {
        let mut live = self.registry.lock();
        live.remove(&self.entry.id);
        count();
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.entry.id);
    }
}
