// SPDX-License-Identifier: GPL-2.0
//! The running listeners. A reload applies the whole new configuration, or nothing of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::accept;
use super::inherit::Passed;
use super::shared::{Role, Service, Shared};
use crate::balance::Backends;
use crate::config::{Config, Listener, Pool};
use crate::log::Format;
use crate::net::{Address, Bound};
use crate::transfer::Bucket;

/// A listening socket, and the task that accepts its connections.
struct Open {
    bound: Arc<Bound>,
    role: Role,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// A configuration that is ready to run: its names are resolved, and its sockets are bound.
struct Next {
    services: Vec<Arc<Service>>,
    sockets: Vec<(Address, Arc<Bound>, Option<Arc<Service>>)>,
}

pub struct Relay {
    pub shared: Arc<Shared>,
    open: HashMap<Address, Open>,
    services: Vec<Arc<Service>>,
    /// Cancelled to stop the look-ups and checks of the present configuration.
    tending: CancellationToken,
    pub config: Config,
}

impl Relay {
    /// Starts to listen and to accept.
    ///
    /// # Errors
    /// Returns all problems, such as addresses in use and names that cannot be resolved.
    pub async fn start(
        config: Config,
        shared: Arc<Shared>,
        passed: &mut Passed,
    ) -> Result<Relay, Vec<String>> {
        let mut relay = Relay {
            shared,
            open: HashMap::new(),
            services: Vec::new(),
            tending: CancellationToken::new(),
            config,
        };
        let next = relay.prepare(&relay.config, passed).await?;
        relay.commit(next).await;
        Ok(relay)
    }

    /// Changes to another configuration. Live connections keep the one that they began with.
    ///
    /// # Errors
    /// Returns all problems, as [`start`](Self::start) does. The old configuration then goes on.
    pub async fn reload(&mut self, config: Config) -> Result<(), Vec<String>> {
        let next = self.prepare(&config, &mut Passed::default()).await?;
        self.config = config;
        self.commit(next).await;
        Ok(())
    }

    async fn prepare(&self, config: &Config, passed: &mut Passed) -> Result<Next, Vec<String>> {
        let mut problems = Vec::new();
        let mut new = Vec::new();
        let mut next = Next {
            services: Vec::new(),
            sockets: Vec::new(),
        };
        for spec in &config.listeners {
            let service = self.service(spec, config.log).await;
            let service = service.map_err(|e| problems.extend(e)).ok();
            for address in &spec.listen {
                match self.socket(address, passed, &mut new) {
                    Ok(bound) => next.sockets.push((address.clone(), bound, service.clone())),
                    Err(e) => problems.push(e),
                }
            }
            next.services.extend(service);
        }
        for address in &config.admin {
            match self.socket(address, passed, &mut new) {
                Ok(bound) => next.sockets.push((address.clone(), bound, None)),
                Err(e) => problems.push(e),
            }
        }
        if problems.is_empty() {
            Ok(next)
        } else {
            // A predecessor may go on with the sockets that it passed: their files stay.
            new.iter().for_each(|bound| bound.remove_file());
            Err(problems)
        }
    }

    /// Returns the socket for an address: the one that is open, one that was passed, or a new one.
    /// Adds a new one to `new`.
    fn socket(
        &self,
        address: &Address,
        passed: &mut Passed,
        new: &mut Vec<Arc<Bound>>,
    ) -> Result<Arc<Bound>, String> {
        if let Some(open) = self.open.get(address) {
            return Ok(open.bound.clone());
        }
        if let Some(bound) = passed.take(address) {
            return Ok(Arc::new(bound));
        }
        let bound = Bound::bind(address).map_err(|e| format!("cannot listen at {address}: {e}"))?;
        let bound = Arc::new(bound);
        new.push(bound.clone());
        Ok(bound)
    }

    async fn service(&self, spec: &Listener, log: Format) -> Result<Arc<Service>, Vec<String>> {
        let mut problems = Vec::new();
        let known = &self.shared.known;
        let mut backends = async |pool: &Pool| {
            let found = Backends::new(pool.clone(), known).await;
            found
                .map(Arc::new)
                .map_err(|e| problems.push(format!("{}: {e}", spec.name)))
                .ok()
        };
        let pool = match &spec.pool {
            Some(pool) => backends(pool).await,
            None => None,
        };
        let mut routes = Vec::new();
        for route in &spec.routes {
            routes.extend(backends(&route.pool).await);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let before = self.services.iter().find(|s| *s.name == *spec.name);
        Ok(Arc::new(Service {
            name: spec.name.as_str().into(),
            log,
            pool,
            routes,
            sources: before.map(|s| s.sources.clone()).unwrap_or_default(),
            bandwidth: kept(
                before.and_then(|s| s.bandwidth.as_ref()),
                spec.total_bandwidth,
                Bucket::bandwidth,
            ),
            rate: kept(before.and_then(|s| s.rate.as_ref()), spec.rate, |rate| {
                Bucket::new(rate, rate)
            }),
            stats: self.shared.stats_of(&spec.name),
            spec: spec.clone(),
        }))
    }

    async fn commit(&mut self, next: Next) {
        for service in &next.services {
            self.shared.keep_stats(service);
        }
        let mut before = std::mem::take(&mut self.open);
        for (address, bound, service) in next.sockets {
            let open = before.remove(&address);
            let open = match (open, service) {
                (Some(open), Some(service)) if open.replace(&service) => open,
                (Some(open), None) if matches!(open.role, Role::Admin) => open,
                (was, service) => {
                    // The old and the new task may share the socket. It is closed when both have
                    // dropped it.
                    if let Some(was) = was {
                        was.stop.cancel();
                    }
                    self.begin(bound, service)
                }
            };
            self.open.insert(address, open);
        }
        for open in before.into_values() {
            open.stop.cancel();
            let _ = open.task.await;
            open.bound.remove_file();
        }
        self.services = next.services;
        self.tend();
    }

    fn begin(&self, bound: Arc<Bound>, service: Option<Arc<Service>>) -> Open {
        let role = match service {
            Some(service) => Role::Serve(Arc::new(watch::Sender::new(service))),
            None => Role::Admin,
        };
        let stop = CancellationToken::new();
        let shared = self.shared.clone();
        let task = accept::start(bound.clone(), role.clone(), shared, stop.clone());
        Open {
            bound,
            role,
            stop,
            task,
        }
    }

    /// Stops the look-ups and checks of the old configuration, and starts those of the present one.
    fn tend(&mut self) {
        std::mem::take(&mut self.tending).cancel();
        for service in &self.services {
            for pool in service.pool.iter().chain(&service.routes) {
                let (pool, known) = (pool.clone(), self.shared.known.clone());
                tokio::spawn(pool.tend(known, self.config.resolve, self.tending.clone()));
            }
        }
    }

    /// Returns the listening sockets, with the addresses by which another process will know them.
    pub fn sockets(&self) -> impl Iterator<Item = (&Address, &Bound)> {
        self.open
            .iter()
            .map(|(address, open)| (address, &*open.bound))
    }

    /// Stops accepting, and closes the sockets. `last` is false if another process goes on with
    /// them.
    pub async fn close(&mut self, last: bool) {
        self.shared.handed_over.store(!last, Ordering::Release);
        for open in self.open.values() {
            open.stop.cancel();
        }
        for (_, open) in self.open.drain() {
            let _ = open.task.await;
            if last {
                open.bound.remove_file();
            }
        }
        self.tending.cancel();
    }
}

impl Open {
    /// Gives the accepting task another service. Returns false if the task accepts for the admin
    /// pages.
    fn replace(&self, service: &Arc<Service>) -> bool {
        match &self.role {
            Role::Serve(slot) => {
                slot.send_replace(service.clone());
                true
            }
            Role::Admin => false,
        }
    }
}

/// Returns a bucket for `rate`: the one `before` a reload if the rate is still the same, because
/// live connections go on with that one. Otherwise calls `new`.
fn kept(
    before: Option<&Arc<Bucket>>,
    rate: Option<u64>,
    new: impl FnOnce(u64) -> Bucket,
) -> Option<Arc<Bucket>> {
    let rate = rate?;
    match before {
        Some(bucket) if bucket.rate() == rate => Some(bucket.clone()),
        _ => Some(Arc::new(new(rate))),
    }
}
