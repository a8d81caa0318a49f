// SPDX-License-Identifier: GPL-2.0
//! Status as JSON. `version` increases when a field is removed or changes its meaning.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use serde::Serialize;

use crate::serve::{Entry, Shared};
use crate::transfer::{Mode, Sums};

const VERSION: u32 = 1;

#[derive(Serialize)]
pub struct Bytes {
    pub sosplice: u64,
    pub pipe: u64,
    pub copy: u64,
}

impl From<&Sums> for Bytes {
    fn from(s: &Sums) -> Bytes {
        Bytes {
            sosplice: s.sosplice,
            pipe: s.pipe,
            copy: s.copy,
        }
    }
}

#[derive(Serialize)]
struct Summary {
    version: u32,
    program: &'static str,
    pid: u32,
    uptime_seconds: u64,
    sosplice: bool,
    sosplice_why_not: Option<String>,
    connections: usize,
    max_connections: usize,
    reloads: u64,
    failed_reloads: u64,
    log_lines_lost: u64,
    listeners: BTreeMap<String, Listener>,
    targets: Vec<Target>,
}

#[derive(Serialize)]
struct Listener {
    open: usize,
    accepted: u64,
    ended: BTreeMap<&'static str, u64>,
    bytes_up: Bytes,
    bytes_down: Bytes,
}

#[derive(Serialize)]
struct Target {
    target: String,
    address: String,
    up: bool,
    connections: usize,
    connections_total: u64,
    failures_total: u64,
}

#[derive(Serialize)]
struct Connections {
    version: u32,
    connections: Vec<Connection>,
}

#[derive(Serialize)]
struct Connection {
    id: u64,
    listener: String,
    client: String,
    target: Option<String>,
    sni: Option<String>,
    mode_up: Option<&'static str>,
    mode_down: Option<&'static str>,
    why: Option<String>,
    bytes_up: u64,
    bytes_down: u64,
    seconds: f64,
}

/// Returns the bytes up and down of each listener, by its name. They include the bytes of live
/// connections.
pub fn bytes(shared: &Shared) -> BTreeMap<String, (Sums, Sums)> {
    let mut all = BTreeMap::new();
    // The registry's lock makes each connection either live or ended here. If a live one ends
    // before its sums are read below, its link still has the final sums.
    let (live, ended) = shared.registry.all_and(|| {
        let stats = shared.stats().into_iter();
        stats
            .map(|(name, stats)| (name, stats.ended()))
            .collect::<Vec<_>>()
    });
    for (name, ended) in ended {
        all.insert(name, (ended.up, ended.down));
    }
    for entry in live {
        if let (Some(joined), Some(sums)) = (entry.joined.get(), all.get_mut(&*entry.listener)) {
            let (up, down) = joined.link.sums();
            sums.0.add(&up);
            sums.1.add(&down);
        }
    }
    all
}

pub fn summary(shared: &Shared) -> String {
    let mut bytes = bytes(shared);
    let listeners = shared.stats().into_iter().map(|(name, stats)| {
        let (up, down) = bytes.remove(&name).unwrap_or_default();
        let listener = Listener {
            open: stats.open(),
            accepted: stats.accepted.load(Ordering::Relaxed),
            ended: stats.ended().by_reason,
            bytes_up: (&up).into(),
            bytes_down: (&down).into(),
        };
        (name, listener)
    });
    let (reloads, failed_reloads) = *shared
        .reloads
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let summary = Summary {
        version: VERSION,
        program: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        uptime_seconds: shared.started.elapsed().as_secs(),
        sosplice: shared.kernel.is_available(),
        sosplice_why_not: (!shared.kernel.is_available())
            .then(|| shared.kernel.why_not().to_string()),
        connections: shared.registry.len(),
        max_connections: shared.most,
        reloads,
        failed_reloads,
        log_lines_lost: shared.log.lost(),
        listeners: listeners.collect(),
        targets: targets(shared),
    };
    json(&summary)
}

fn targets(shared: &Shared) -> Vec<Target> {
    let all = shared.known.all().into_iter();
    all.map(|t| Target {
        target: t.name.to_string(),
        address: t.peer.to_string(),
        up: t.is_up(),
        connections: t.active(),
        connections_total: t.connections.load(Ordering::Relaxed),
        failures_total: t.failures.load(Ordering::Relaxed),
    })
    .collect()
}

pub fn connections(shared: &Shared) -> String {
    let all = shared.registry.all();
    json(&Connections {
        version: VERSION,
        connections: all.iter().map(|e| connection(e)).collect(),
    })
}

fn connection(entry: &Entry) -> Connection {
    let joined = entry.joined.get();
    let (up, down) = joined.map_or_else(Default::default, |j| j.link.sums());
    let modes = joined.map(|j| (j.link.up.chosen.get(), j.link.down.chosen.get()));
    let name = |mode: &(Mode, Arc<str>)| mode.0.name();
    Connection {
        id: entry.id,
        listener: entry.listener.to_string(),
        client: joined.map_or_else(|| entry.peer.to_string(), |j| j.client.to_string()),
        target: joined.map(|j| j.target.to_string()),
        sni: joined.and_then(|j| j.server_name.clone()),
        mode_up: modes.as_ref().map(|m| name(&m.0)),
        mode_down: modes.as_ref().map(|m| name(&m.1)),
        why: modes.map(|m| m.1.1.to_string()),
        bytes_up: up.total(),
        bytes_down: down.total(),
        seconds: entry.began.elapsed().as_secs_f64(),
    }
}

fn json(value: &impl Serialize) -> String {
    let mut text =
        serde_json::to_string(value).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"));
    text.push('\n');
    text
}
