// SPDX-License-Identifier: GPL-2.0
//! What the parts of a running relay know of one another.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::registry::Registry;
use super::sources::Sources;
use super::stats::Stats;
use crate::balance::{Backends, Known};
use crate::config::Listener;
use crate::log::{Format, Log};
use crate::net::Stream;
use crate::transfer::{Bucket, Kernel, Pipes};

/// What all connections share.
pub struct Shared {
    pub kernel: Arc<Kernel>,
    pub pipes: Arc<Pipes>,
    pub registry: Arc<Registry>,
    pub known: Arc<Known>,
    pub log: Log,
    /// one for each connection that there may be: descriptors set the limit
    pub slots: Arc<Semaphore>,
    pub most: usize,
    /// ends all connections
    pub cut: CancellationToken,
    pub started: Instant,
    pub reloads: Mutex<(u64, u64)>,
    /// serves connections to the admin sockets
    pub admin: Admin,
    stats: Mutex<BTreeMap<String, Arc<Stats>>>,
}

pub type Admin = fn(Stream, Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

impl Shared {
    /// `most` is the number of connections that there may be.
    pub fn new(log: Log, most: usize, admin: Admin) -> Shared {
        Shared {
            kernel: Arc::default(),
            pipes: Arc::default(),
            registry: Arc::default(),
            known: Arc::default(),
            log,
            slots: Arc::new(Semaphore::new(most)),
            most,
            cut: CancellationToken::new(),
            started: Instant::now(),
            reloads: Mutex::default(),
            admin,
            stats: Mutex::default(),
        }
    }

    pub fn stats_of(&self, listener: &str) -> Arc<Stats> {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.entry(listener.into()).or_default().clone()
    }

    /// By the listeners' names, those of former configurations included.
    pub fn stats(&self) -> BTreeMap<String, Arc<Stats>> {
        self.stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A listener of the present configuration.
pub struct Service {
    pub name: Arc<str>,
    pub spec: Listener,
    pub log: Format,
    /// for what no route takes
    pub pool: Option<Arc<Backends>>,
    pub routes: Vec<Arc<Backends>>,
    pub sources: Arc<Sources>,
    pub bandwidth: Option<Arc<Bucket>>,
    pub rate: Option<Bucket>,
    pub stats: Arc<Stats>,
}

/// What connections to a socket are for.
#[derive(Clone)]
pub enum Role {
    /// The service is replaced by a reload.
    Serve(Arc<RwLock<Arc<Service>>>),
    Admin,
}
