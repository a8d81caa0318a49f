// SPDX-License-Identifier: GPL-2.0
//! `exporter`: the module's counters for Prometheus.
//!
//! The labels come from the names of the module's counters. So the number of series does not
//! depend on the connections.

mod exposition;
mod http;

use std::fmt;
use std::net::TcpListener;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use serde_json::json;

use crate::cli::Exporter;
use crate::error::{Error, Result};
use crate::kernel::module::{Module, VERSION};
use crate::output::{Answer, SCHEMA, say};
use crate::system::privilege::User;
use crate::uapi::counters::help;

use exposition::Format;
use http::Page;

const PATH: &str = "/metrics";

type Labels = Vec<(&'static str, String)>;

/// Counters that have a metric of their own: the name of the metric, and the counter.
const PLAIN: [(&str, &str); 29] = [
    ("no_policy", "no_policy"),
    ("enrolled", "enrolled"),
    ("hash_doubts", "doubt_hash"),
    ("pairs_ended", "pairs_ended"),
    ("pairs_dropped", "pairs_dropped"),
    ("paths_lost", "probes_lost"),
    ("probes_sent", "probes_sent"),
    ("ring_messages", "ring_messages"),
    ("spills", "spills"),
    ("writer_waits", "writer_waits"),
    ("busy_poll_hits", "busy_poll_hits"),
    ("napi_polls", "napi_polls"),
    ("ends_limited", "ends_limited"),
    ("rings_grown", "rings_grown"),
    ("rings_given_back", "rings_given_back"),
    ("pages_reclaimed", "pages_reclaimed"),
    ("rings_capped", "rings_capped"),
    ("events_lost", "events_lost"),
    ("capture_records", "capture_records"),
    ("capture_dropped", "capture_dropped"),
    ("psock_splice_calls", "psock_splice_calls"),
    ("so_splices_made", "so_splices_made"),
    ("so_splices_ended", "so_splices_ended"),
    ("so_splice_bytes", "so_splice_bytes"),
    ("so_splice_copied_bytes", "so_splice_copied_bytes"),
    ("so_splice_from_ring_bytes", "so_splice_from_ring_bytes"),
    ("so_splice_to_ring_bytes", "so_splice_to_ring_bytes"),
    ("so_splice_loops", "so_splice_loops"),
    ("so_splice_throttled", "so_splice_throttled"),
];

/// The values of one scrape.
struct Scrape {
    version: String,
    counters: Vec<(String, u64)>,
}

pub fn run(arguments: Exporter, json: bool) -> Result<Answer> {
    let (module, _) = Module::open()?;
    let user = User::find(&arguments.user)?;
    let refused = |e| Error::new(format!("cannot listen on {}: {e}", arguments.listen));
    let listener = TcpListener::bind(arguments.listen).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    user.become_for_good()?;

    let listening = || match json {
        true => say(json!({ "schema": SCHEMA, "listening": address.to_string() })),
        false => say(format_args!("listening on {address}")),
    };
    let module = Mutex::new(module);
    let pages = move |path: &str, format| match path {
        PATH => {
            let mut module = module.lock().unwrap_or_else(PoisonError::into_inner);
            metrics(scrape(&mut module).as_ref(), format)
        }
        "/" => Page::text(
            StatusCode::OK,
            format!("socksplice {VERSION}: see {PATH}\n"),
        ),
        _ => Page::text(StatusCode::NOT_FOUND, format!("see {PATH}\n")),
    };
    http::serve(listener, Arc::new(pages), || {
        listening()
            .map(drop)
            .map_err(|e| std::io::Error::other(e.message))
    })
    .map_err(|e| Error::new(format!("cannot serve on {address}: {e}")))?;
    Ok(Answer::said())
}

/// Reads over the socket that root opened. The module checks nothing else. None if it is not
/// loaded.
fn scrape(module: &mut Module) -> Option<Scrape> {
    let read = |module: &Module| -> Result<Scrape> {
        Ok(Scrape {
            version: module.status()?.version,
            counters: module.stats()?,
        })
    };
    if let Ok(scrape) = read(module) {
        return Some(scrape);
    }
    module.reconnect().ok()?;
    read(module).ok()
}

fn metrics(scrape: Option<&Scrape>, format: Format) -> Page {
    match render(scrape) {
        Ok(text) => Page {
            status: StatusCode::OK,
            kind: format.content_type(),
            body: format.render(text),
        },
        Err(e) => Page::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{e}\n")),
    }
}

/// As OpenMetrics.
fn render(scrape: Option<&Scrape>) -> std::result::Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("socksplice");
    let up = Gauge::<i64>::default();
    up.set(scrape.is_some().into());
    registry.register("up", "1 if the module is loaded and answers", up);
    if let Some(scrape) = scrape {
        scrape.register(&mut registry);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

impl Scrape {
    fn value(&self, name: &str) -> u64 {
        let counter = self.counters.iter().find(|c| c.0 == name);
        counter.map_or(0, |c| c.1)
    }

    /// The counters whose names begin so, with the rest of the name.
    fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let counters = self.counters.iter();
        counters.filter_map(move |(name, n)| Some((name.strip_prefix(prefix)?, *n)))
    }

    fn register(&self, registry: &mut Registry) {
        let labels = |list: &[(&'static str, &str)]| -> Labels {
            list.iter().map(|l| (l.0, l.1.to_string())).collect()
        };
        let counter = |registry: &mut Registry, name: &str, help: &str| {
            let family = Family::<Labels, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };

        let tcp: u64 = self.with_prefix("tcp_bytes_").map(|c| c.1).sum();
        let bytes = counter(
            registry,
            "bytes",
            "Bytes that paired connections sent, by the path they took",
        );
        for (path, n) in [("ring", self.value("ring_bytes")), ("tcp", tcp)] {
            bytes.get_or_create(&labels(&[("path", path)])).inc_by(n);
        }
        let reasons = counter(
            registry,
            "tcp_bytes",
            "Bytes that paired connections sent by TCP, by the reason",
        );
        for (reason, n) in self.with_prefix("tcp_bytes_") {
            let labels = labels(&[("reason", reason)]);
            reasons.get_or_create(&labels).inc_by(n);
        }

        let attempts = counter(
            registry,
            "pair_attempts",
            "Verdicts: pairs made (also in shadow mode), ends that were declined, ends whose peer never came",
        );
        let verdicts = [
            ("paired", "", self.value("pairs_made")),
            ("paired", "shadow", self.value("shadow_matches")),
        ];
        let declined = self.with_prefix("declined_");
        let declined = declined.map(|(reason, n)| ("declined", reason, n));
        let expired = self.with_prefix("expired_");
        let expired = expired.map(|(reason, n)| ("expired", reason, n));
        for (result, reason, n) in verdicts.into_iter().chain(declined).chain(expired) {
            let labels = labels(&[("result", result), ("reason", reason)]);
            attempts.get_or_create(&labels).inc_by(n);
        }

        let psock = counter(
            registry,
            "psock_splice_bytes",
            "Bytes that splice(2) took from sockmap sockets: pages given on, or copied",
        );
        for (path, source) in [
            ("reference", "psock_splice_ref_bytes"),
            ("copy", "psock_splice_copy_bytes"),
        ] {
            let labels = labels(&[("path", path)]);
            psock.get_or_create(&labels).inc_by(self.value(source));
        }

        for (name, source) in PLAIN {
            let counter = Counter::<u64>::default();
            counter.inc_by(self.value(source));
            registry.register(name, help(source), counter);
        }

        let busy = Counter::<f64, AtomicU64>::default();
        busy.inc_by(self.value("busy_poll_nsec") as f64 / 1e9);
        registry.register(
            "busy_poll_seconds",
            "What readers spent looking for bytes",
            busy,
        );

        for (name, value, help) in [
            ("pairs", self.value("pairs_live"), "Pairs that live now"),
            (
                "ring_memory_bytes",
                self.value("ring_memory_bytes"),
                "Bytes allocated for rings now",
            ),
            (
                "so_splices",
                self.value("so_splices_live"),
                "Splices (SO_SPLICE) that there are now",
            ),
        ] {
            let gauge = Gauge::<i64>::default();
            gauge.set(value as i64);
            registry.register(name, help, gauge);
        }

        let build = [
            ("version", self.version.clone()),
            ("exporter_version", VERSION.to_string()),
        ];
        registry.register("build", "The module that is loaded", Info::new(build));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uapi::counters::COUNTERS;

    #[test]
    fn names_as_documented() {
        let counters = [
            ("pairs_made", 3),
            ("declined_ulp", 4),
            ("expired_elsewhere", 7),
            ("ring_bytes", 1000),
            ("tcp_bytes_spill", 5),
            ("tcp_bytes_startup", 6),
            ("pairs_live", 2),
            ("ring_memory_bytes", 65536),
        ];
        let text = render(Some(&Scrape {
            version: "1.2".into(),
            counters: counters.map(|c| (c.0.to_string(), c.1)).to_vec(),
        }))
        .unwrap();
        for line in [
            "socksplice_up 1",
            "socksplice_bytes_total{path=\"ring\"} 1000",
            "socksplice_bytes_total{path=\"tcp\"} 11",
            "socksplice_tcp_bytes_total{reason=\"spill\"} 5",
            "socksplice_pairs 2",
            "socksplice_ring_memory_bytes 65536",
            "socksplice_pair_attempts_total{result=\"paired\",reason=\"\"} 3",
            "socksplice_pair_attempts_total{result=\"declined\",reason=\"ulp\"} 4",
            "socksplice_pair_attempts_total{result=\"expired\",reason=\"elsewhere\"} 7",
            "# TYPE socksplice_pair_attempts counter",
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line} in {text}");
        }
        assert!(text.contains("socksplice_build_info{version=\"1.2\""));
        assert!(!text.contains("port="));
    }

    #[test]
    fn no_counter_of_the_module_is_left_out() {
        let with = |name: &str, value| {
            render(Some(&Scrape {
                version: "1.2".into(),
                counters: vec![(name.to_string(), value)],
            }))
            .unwrap()
        };
        for (name, _) in COUNTERS {
            let shown = with(name, 7_654_321);
            let value = if *name == "busy_poll_nsec" {
                " 0.007654321\n"
            } else {
                " 7654321\n"
            };
            assert!(shown.contains(value), "no {name}");
        }
        assert!(COUNTERS.len() > 40);
    }

    #[test]
    fn help_texts_are_those_of_the_module() {
        let text = render(Some(&Scrape {
            version: "1.2".into(),
            counters: Vec::new(),
        }));
        let line = format!("# HELP socksplice_paths_lost {}.", help("probes_lost"));
        assert!(text.unwrap().lines().any(|l| l == line));
    }

    #[test]
    fn without_the_module_it_is_down() {
        let text = render(None).unwrap();
        assert!(text.contains("socksplice_up 0\n") && text.ends_with("# EOF\n"));
        assert!(!text.contains("socksplice_pairs"));
    }
}
