// SPDX-License-Identifier: GPL-2.0
//! Metrics in the text format of OpenMetrics. Each scrape builds them from the relay's counters.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::status;
use crate::serve::Shared;
use crate::transfer::Sums;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByListener {
    listener: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReason {
    listener: String,
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByPath {
    listener: String,
    way: &'static str,
    path: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByTarget {
    target: String,
    address: String,
}

pub fn text(shared: &Shared) -> String {
    let mut registry = Registry::with_prefix("socksplice_relay");
    process(&mut registry, shared);
    listeners(&mut registry, shared);
    targets(&mut registry, shared);
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => text,
        Err(_) => "# EOF\n".into(),
    }
}

fn process(registry: &mut Registry, shared: &Shared) {
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The program", build);
    let gauge = |value: i64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(value);
        gauge
    };
    let counter = |value: u64| {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        counter
    };
    let available = gauge(shared.kernel.is_available().into());
    registry.register(
        "sosplice_available",
        "Whether the kernel accepts splices",
        available,
    );
    registry.register(
        "max_connections",
        "Connections that there may be, by the limit of open files or the configuration",
        gauge(shared.most as i64),
    );
    let (reloads, failed) = *shared
        .reloads
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    registry.register("reloads", "Reloads", counter(reloads));
    registry.register(
        "failed_reloads",
        "Reloads that changed nothing",
        counter(failed),
    );
    registry.register(
        "log_lines_lost",
        "Lines of the log lost",
        counter(shared.log.lost()),
    );
}

fn listeners(registry: &mut Registry, shared: &Shared) {
    let open = Family::<ByListener, Gauge>::default();
    let accepted = Family::<ByListener, Counter>::default();
    let ended = Family::<ByReason, Counter>::default();
    let bytes = Family::<ByPath, Counter>::default();
    for (listener, stats) in shared.stats() {
        let label = ByListener {
            listener: listener.clone(),
        };
        open.get_or_create(&label).set(stats.open() as i64);
        accepted
            .get_or_create(&label)
            .inc_by(stats.accepted.load(Ordering::Relaxed));
        for (reason, count) in stats.ended().by_reason {
            let (listener, reason) = (listener.clone(), reason.to_string());
            ended
                .get_or_create(&ByReason { listener, reason })
                .inc_by(count);
        }
    }
    for (listener, (up, down)) in status::bytes(shared) {
        for (way, sums) in [("up", up), ("down", down)] {
            for (path, count) in by_path(&sums) {
                let listener = listener.clone();
                bytes
                    .get_or_create(&ByPath {
                        listener,
                        way,
                        path,
                    })
                    .inc_by(count);
            }
        }
    }
    registry.register("connections", "Connections that live", open);
    registry.register("accepted", "Connections that were accepted", accepted);
    registry.register("ended", "Connections that have ended, and why", ended);
    registry.register("bytes", "Bytes forwarded, of live connections too", bytes);
}

fn by_path(sums: &Sums) -> [(&'static str, u64); 3] {
    [
        ("sosplice", sums.sosplice),
        ("pipe", sums.pipe),
        ("copy", sums.copy),
    ]
}

fn targets(registry: &mut Registry, shared: &Shared) {
    let up = Family::<ByTarget, Gauge>::default();
    let open = Family::<ByTarget, Gauge>::default();
    let connections = Family::<ByTarget, Counter>::default();
    let failures = Family::<ByTarget, Counter>::default();
    for target in shared.known.all() {
        let label = ByTarget {
            target: target.name.to_string(),
            address: target.peer.to_string(),
        };
        up.get_or_create(&label).set(target.is_up().into());
        open.get_or_create(&label).set(target.active() as i64);
        connections
            .get_or_create(&label)
            .inc_by(target.connections.load(Ordering::Relaxed));
        failures
            .get_or_create(&label)
            .inc_by(target.failures.load(Ordering::Relaxed));
    }
    registry.register("target_up", "Whether connections go to the target", up);
    registry.register(
        "target_connections",
        "Connections that the target has",
        open,
    );
    registry.register(
        "target_connects",
        "Connections that were tried",
        connections,
    );
    registry.register(
        "target_failures",
        "Connections and checks that failed",
        failures,
    );
}
