// SPDX-License-Identifier: GPL-2.0
//! State that the parts of a running relay share.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::registry::Registry;
use super::sources::Sources;
use super::stats::Stats;
use crate::balance::{Backends, Known};
use crate::config::Listener;
use crate::log::{Format, Log};
use crate::net::Stream;
use crate::transfer::{Bucket, Kernel, Pipes};

/// State that all connections share.
pub struct Shared {
    pub kernel: Arc<Kernel>,
    pub pipes: Arc<Pipes>,
    pub registry: Arc<Registry>,
    pub known: Arc<Known>,
    pub log: Log,
    /// One permit for each connection that the relay may have, `most` in total.
    pub slots: Arc<Semaphore>,
    pub most: usize,
    /// Set when another process goes on with the listening sockets. [`Relay`](super::Relay) writes it
    /// before it stops the accepting tasks, which read it.
    pub handed_over: AtomicBool,
    /// Cancelled to end all connections.
    pub cut: CancellationToken,
    pub started: Instant,
    /// Numbers of reloads that succeeded, and that failed.
    pub reloads: Mutex<(u64, u64)>,
    /// Serves a connection to an admin socket.
    pub admin: Admin,
    stats: Mutex<BTreeMap<String, Arc<Stats>>>,
}

pub type Admin = fn(Stream, Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

impl Shared {
    /// `most` is the limit of connections.
    pub fn new(log: Log, most: usize, admin: Admin) -> Shared {
        Shared {
            kernel: Arc::default(),
            pipes: Arc::default(),
            registry: Arc::default(),
            known: Arc::default(),
            log,
            slots: Arc::new(Semaphore::new(most)),
            most,
            handed_over: AtomicBool::new(false),
            cut: CancellationToken::new(),
            started: Instant::now(),
            reloads: Mutex::default(),
            admin,
            stats: Mutex::default(),
        }
    }

    /// Waits until each accepted connection has ended, with its line in the queue of the log. This
    /// includes those that are accepted and still wait for the limit of their listener. All
    /// listeners must be closed: a task that accepts holds a permit too.
    pub async fn ended(&self) {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        let _ = self.slots.acquire_many(all).await;
    }

    /// Returns the statistics of a listener, or new ones if no listener has had this name.
    pub fn stats_of(&self, listener: &str) -> Arc<Stats> {
        let stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.get(listener).cloned().unwrap_or_default()
    }

    /// Adds the statistics of a listener to those that the metrics show.
    pub fn keep_stats(&self, service: &Service) {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.insert(service.name.to_string(), service.stats.clone());
    }

    /// Returns the statistics of each listener by its name. This includes listeners that a reload
    /// has removed.
    pub fn stats(&self) -> BTreeMap<String, Arc<Stats>> {
        self.stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A listener as its configuration describes it, and what its connections share.
pub struct Service {
    pub name: Arc<str>,
    pub spec: Listener,
    pub log: Format,
    /// The targets of connections that no route matches.
    pub pool: Option<Arc<Backends>>,
    pub routes: Vec<Arc<Backends>>,
    pub sources: Arc<Sources>,
    pub bandwidth: Option<Arc<Bucket>>,
    pub rate: Option<Arc<Bucket>>,
    pub stats: Arc<Stats>,
}

/// The present service of a listening socket.
pub type Slot = watch::Sender<Arc<Service>>;

/// What the connections to a listening socket are for.
#[derive(Clone)]
pub enum Role {
    /// They are forwarded. A reload replaces the service, and wakes tasks that wait at a limit of the
    /// old one.
    Serve(Arc<Slot>),
    /// They are requests for the admin pages.
    Admin,
}
