// SPDX-License-Identifier: GPL-2.0
//! A pool of targets: resolves their names, checks them, and picks one for each connection.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connect::{is_own_shortage, once};
use super::health::{Attempt, Target};
use crate::config::{Balance, Check, Pool};
use crate::log::say;
use crate::net::{Address, Peer, Stream, source_key};

/// All targets of the process, by name and address. Pools with a target in common share its
/// health and its counters. So do a pool and its successor after a reload.
#[derive(Default)]
pub struct Known(Mutex<HashMap<(Address, Peer), Weak<Target>>>);

impl Known {
    fn get(&self, name: &Address, peer: Peer) -> Arc<Target> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.clone(), peer.clone());
        if let Some(target) = map.get(&key).and_then(Weak::upgrade) {
            return target;
        }
        map.retain(|_, target| target.strong_count() > 0);
        let target = Arc::new(Target::new(name.clone(), peer));
        map.insert(key, Arc::downgrade(&target));
        target
    }

    /// Returns the targets in use, sorted by name.
    pub fn all(&self) -> Vec<Arc<Target>> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = map.values().filter_map(Weak::upgrade).collect();
        all.sort_by_cached_key(|t| (t.name.clone(), t.peer.to_string()));
        all
    }
}

pub struct Backends {
    pub spec: Pool,
    targets: RwLock<Arc<Vec<Arc<Target>>>>,
    turn: AtomicUsize,
}

/// Time limit of one name look-up, with the wait for its turn.
const LOOK_UP: Duration = Duration::from_secs(5);

/// Permits of name look-ups. getaddrinfo(3) blocks a thread and cannot be cancelled, so each thread
/// holds a permit until it returns. Clients have permits of their own: their look-ups delay none of
/// the configuration.
type LookUps = &'static Semaphore;
static FOR_TARGETS: Semaphore = Semaphore::const_new(32);
static FOR_CLIENTS: Semaphore = Semaphore::const_new(64);

impl Backends {
    /// Resolves the names of `spec`.
    ///
    /// # Errors
    /// Returns a message if a name cannot be resolved.
    pub async fn new(spec: Pool, known: &Known) -> Result<Backends, String> {
        let mut targets = Vec::new();
        for name in &spec.to {
            let peers = look_up(name, &FOR_TARGETS).await;
            let peers = peers.map_err(|e| format!("cannot resolve the target {name}: {e}"))?;
            targets.extend(peers.into_iter().map(|p| known.get(name, p)));
        }
        Ok(Backends {
            spec,
            targets: RwLock::new(Arc::new(targets)),
            turn: AtomicUsize::new(0),
        })
    }

    pub fn targets(&self) -> Arc<Vec<Arc<Target>>> {
        self.targets
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Resolves the names again. A name that cannot be resolved keeps its targets.
    async fn refresh(&self, known: &Known) {
        let before = self.targets();
        let mut targets = Vec::new();
        for name in &self.spec.to {
            match look_up(name, &FOR_TARGETS).await {
                Ok(peers) => targets.extend(peers.into_iter().map(|p| known.get(name, p))),
                Err(e) => {
                    say(format!(
                        "{name} cannot be resolved, its addresses stay: {e}"
                    ));
                    targets.extend(before.iter().filter(|t| t.name == *name).cloned());
                }
            }
        }
        *self.targets.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(targets);
    }

    /// Resolves the names every `interval` and runs the checks, until `stop` is cancelled.
    pub async fn tend(
        self: Arc<Self>,
        known: Arc<Known>,
        interval: Duration,
        stop: CancellationToken,
    ) {
        let names = async {
            while self.spec.to.iter().any(|a| matches!(a, Address::Name(..))) {
                sleep(interval).await;
                self.refresh(&known).await;
            }
            std::future::pending::<()>().await;
        };
        let checks = async {
            while let Some(check) = &self.spec.check {
                self.check_all(check).await;
                sleep(check.interval).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = names => {}
            () = checks => {}
            () = stop.cancelled() => {}
        }
    }

    async fn check_all(self: &Arc<Self>, check: &Check) {
        let mut running = JoinSet::new();
        for target in self.targets().iter() {
            if let Some(attempt) = target.begin(Instant::now()) {
                let (pool, check) = (self.clone(), check.clone());
                running.spawn(async move {
                    match timeout(check.timeout, try_out(attempt.target(), &check)).await {
                        Ok(Ok(())) => pool.succeeded(attempt, true),
                        Ok(Err(e)) if is_own_shortage(&e) => {}
                        Ok(Err(e)) => pool.failed(attempt, &format!("check: {e}")),
                        Err(_) => pool.failed(attempt, "check: no answer in time"),
                    }
                });
            }
        }
        while running.join_next().await.is_some() {}
    }

    pub fn succeeded(&self, attempt: Attempt, by_check: bool) {
        let target = attempt.target().clone();
        if attempt.succeeded(&self.spec, by_check) {
            say(format!("target {} is up", describe(&target)));
        }
    }

    pub fn failed(&self, attempt: Attempt, why: &str) {
        let target = attempt.target().clone();
        if attempt.failed(&self.spec) {
            say(format!("target {} is down: {why}", describe(&target)));
        }
    }

    /// Chooses a target for a connection of `source`, but none of those in `tried`, and none that the
    /// address `from` cannot connect to. Begins the attempt to connect to it.
    pub fn pick(
        &self,
        source: Option<IpAddr>,
        from: Option<IpAddr>,
        tried: &[Arc<Target>],
    ) -> Option<Attempt> {
        let now = Instant::now();
        let targets = self.targets();
        loop {
            let fit = |t: &&Arc<Target>| {
                !tried.iter().any(|u| Arc::ptr_eq(t, u))
                    && t.peer.may_be_reached(from)
                    && t.may_try(&self.spec, now)
            };
            let fit: Vec<_> = targets.iter().filter(fit).collect();
            let chosen = self.choose(&fit, source)?;
            // Another connection may have begun the trial of this target meanwhile.
            if let Some(attempt) = chosen.begin(now) {
                return Some(attempt);
            }
        }
    }

    fn choose<'t>(
        &self,
        fit: &[&'t Arc<Target>],
        source: Option<IpAddr>,
    ) -> Option<&'t Arc<Target>> {
        if fit.is_empty() {
            return None;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..fit.len()).map(|i| fit[(turn + i) % fit.len()]);
        match (self.spec.balance, source) {
            (Balance::LeastConnections, _) => in_turn.min_by_key(|t| t.active()),
            (Balance::SourceHash, Some(ip)) => fit.iter().copied().max_by_key(|t| weight(ip, t)),
            _ => in_turn.into_iter().next(),
        }
    }
}

fn describe(target: &Target) -> String {
    let (name, peer) = (target.name.to_string(), target.peer.to_string());
    if name == peer {
        name
    } else {
        format!("{name} ({peer})")
    }
}

/// Returns the weight of `target` for `source` in rendezvous hashing. A source goes to its target
/// of the highest weight. If a target goes away, only its sources move. The weights are the same in
/// every process and version.
fn weight(source: IpAddr, target: &Target) -> u64 {
    let text = format!("{} {}", source_key(source), target.peer);
    // FNV-1a, then the finalizer of SplitMix64.
    let mut x = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| {
        (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Resolves a name to its addresses, sorted. Any other address stands for itself.
async fn look_up(name: &Address, permits: LookUps) -> io::Result<Vec<Peer>> {
    match name {
        Address::Ip(a) => Ok(vec![Peer::Ip(*a)]),
        Address::Unix(path) => Ok(vec![Peer::Unix(path.clone())]),
        Address::Name(host, port) => {
            let (host, port) = (host.clone(), *port);
            let ask = move || (host.as_str(), port).to_socket_addrs();
            let found = timeout(LOOK_UP, in_a_thread(permits, ask)).await;
            let mut found: Vec<_> = found.map_err(|_| io::ErrorKind::TimedOut)??.collect();
            found.sort();
            found.dedup();
            match found.is_empty() {
                true => Err(io::Error::other("the name has no address")),
                false => Ok(found.into_iter().map(Peer::Ip).collect()),
            }
        }
        Address::Any(_) | Address::Passed(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Resolves the destination that a client of CONNECT or SOCKS5 asks for.
pub async fn resolve(address: &Address) -> io::Result<Vec<Peer>> {
    look_up(address, &FOR_CLIENTS).await
}

/// Runs `call`, which blocks, in a thread. The thread keeps a permit until `call` returns, though this
/// future may have been dropped before.
async fn in_a_thread<T: Send + 'static>(
    permits: LookUps,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let permit = permits.acquire().await.map_err(io::Error::other)?;
    let run = move || {
        let result = call();
        drop(permit);
        result
    };
    tokio::task::spawn_blocking(run)
        .await
        .map_err(io::Error::other)?
}

async fn try_out(target: &Target, check: &Check) -> io::Result<()> {
    let stream = once(&target.peer, None).await?;
    if let Some(bytes) = &check.send {
        stream.write_all(bytes).await?;
    }
    let result = match &check.expect {
        Some(expected) => read_expected(&stream, expected).await,
        None => Ok(()),
    };
    // A reset frees the server from keeping a connection that nobody will use.
    stream.close_resets(true);
    result
}

async fn read_expected(stream: &Stream, expected: &[u8]) -> io::Result<()> {
    let mut answer = Vec::new();
    while answer.len() < expected.len() {
        if stream.read_more(&mut answer, 4096).await? == 0 {
            return Err(io::Error::other("the answer is too short"));
        }
    }
    if answer.starts_with(expected) {
        Ok(())
    } else {
        Err(io::Error::other("another answer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pool(balance: &str, targets: &str) -> Backends {
        let text = format!(
            "[[listener]]\nlisten = '127.0.0.1:0'\nbalance = '{balance}'\nto = [{targets}]\n\
             health = {{ fall = 1 }}"
        );
        let config = crate::config::parse(&text).unwrap();
        let spec = config.listeners[0].pool.clone().unwrap();
        Backends::new(spec, &Known::default()).await.unwrap()
    }

    const THREE: &str = "'127.0.0.1:1', '127.0.0.1:2', '127.0.0.1:3'";

    #[tokio::test]
    async fn in_turn_and_without_those_that_were_tried() {
        let pool = pool("round-robin", THREE).await;
        let picked: Vec<_> = (0..6)
            .map(|_| {
                pool.pick(None, None, &[])
                    .unwrap()
                    .target()
                    .name
                    .to_string()
            })
            .collect();
        assert_eq!(picked[..3], picked[3..]);
        assert_ne!(picked[0], picked[1]);
        let tried = pool.targets()[..2].to_vec();
        assert_eq!(
            pool.pick(None, None, &tried)
                .unwrap()
                .target()
                .name
                .to_string(),
            "127.0.0.1:3"
        );
        assert!(pool.pick(None, None, &pool.targets()).is_none());
    }

    #[tokio::test]
    async fn an_address_gets_only_targets_of_its_family() {
        let pool = pool("round-robin", "'[::1]:1', '127.0.0.1:2', '[::1]:3'").await;
        let from = Some(IpAddr::from([10, 0, 0, 1]));
        for _ in 0..3 {
            let attempt = pool.pick(from, from, &[]).unwrap();
            assert_eq!(attempt.target().name.to_string(), "127.0.0.1:2");
        }
        let tried = pool.targets()[1..2].to_vec();
        assert!(pool.pick(from, from, &tried).is_none());
        assert!(pool.pick(from, None, &tried).is_some());
    }

    #[tokio::test]
    async fn the_least_busy_one() {
        let pool = pool("least-connections", THREE).await;
        let targets = pool.targets();
        let _held = (targets[0].enter(), targets[2].enter());
        for _ in 0..3 {
            let attempt = pool.pick(None, None, &[]).unwrap();
            assert!(Arc::ptr_eq(attempt.target(), &targets[1]));
        }
    }

    #[tokio::test]
    async fn a_source_keeps_its_target_when_another_goes_down() {
        let pool = pool("source-hash", THREE).await;
        let sources = || (0..200u8).map(|i| Some(IpAddr::from([10, 0, 0, i])));
        let pick = |source| pool.pick(source, None, &[]).unwrap().target().clone();
        let before: Vec<_> = sources().map(pick).collect();
        let lost = pool.targets()[0].clone();
        let share = before.iter().filter(|t| Arc::ptr_eq(t, &lost)).count();
        assert!((30..110).contains(&share), "{share} of 200");
        pool.failed(lost.begin(Instant::now()).unwrap(), "test");
        for (source, old) in sources().zip(&before) {
            let new = pick(source);
            assert!(Arc::ptr_eq(&new, old) || Arc::ptr_eq(old, &lost));
            assert!(!Arc::ptr_eq(&new, &lost));
        }
    }

    #[tokio::test]
    async fn look_ups_that_were_given_up_keep_their_permits() {
        static TWO: Semaphore = Semaphore::const_new(2);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..2 {
            let held = held.clone();
            let call = move || {
                let held = held.lock().unwrap();
                held.recv().map_err(io::Error::other)
            };
            let given_up = timeout(Duration::from_millis(1), in_a_thread(&TWO, call)).await;
            assert!(given_up.is_err());
        }
        assert_eq!(TWO.available_permits(), 0);
        let third = tokio::spawn(in_a_thread(&TWO, || Ok(3)));
        release.send(()).unwrap();
        assert_eq!(third.await.unwrap().unwrap(), 3);
        release.send(()).unwrap();
    }

    #[tokio::test]
    async fn a_name_that_is_none_is_an_error() {
        let text = "[[listener]]\nlisten='127.0.0.1:0'\nto='no-such-host.invalid:1'";
        let spec = crate::config::parse(text).unwrap().listeners[0]
            .pool
            .clone()
            .unwrap();
        let why = Backends::new(spec, &Known::default()).await.err().unwrap();
        assert!(
            why.starts_with("cannot resolve the target no-such-host.invalid:1"),
            "{why}"
        );
    }
}
