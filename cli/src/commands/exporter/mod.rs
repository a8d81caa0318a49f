// SPDX-License-Identifier: GPL-2.0
//! `exporter`: the module's counters for Prometheus, and what each policy holds.
//!
//! The labels come from the names of the module's counters, and from those of policies, of
//! which there are 32 at most. So the number of series does not depend on the connections.

mod exposition;
mod http;
pub mod reader;

use std::fmt;
use std::io;
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
use crate::kernel::module::{Module, Status, VERSION};
use crate::output::{Answer, SCHEMA, say};
use crate::policy::health::{Id, Report, State};
use crate::system::privilege::User;
use crate::uapi::counters::help;

use exposition::Format;
use http::Page;
use reader::Reader;

const PATH: &str = "/metrics";

type Labels = Vec<(&'static str, String)>;

/// Counters that have a metric of their own: the name of the metric, and the counter.
const PLAIN: [(&str, &str); 30] = [
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
    ("so_splice_datagrams", "so_splice_datagrams"),
    ("so_splice_copied_bytes", "so_splice_copied_bytes"),
    ("so_splice_from_ring_bytes", "so_splice_from_ring_bytes"),
    ("so_splice_to_ring_bytes", "so_splice_to_ring_bytes"),
    ("so_splice_loops", "so_splice_loops"),
    ("so_splice_throttled", "so_splice_throttled"),
];

/// The gauges of a policy: name, help text, and the value if there is one.
type PolicyGauge = (&'static str, &'static str, fn(&State) -> Option<u64>);

const POLICY: [PolicyGauge; 6] = [
    (
        "policy_pairs",
        "Live pairs with an end of the policy",
        |policy| Some(policy.pairs),
    ),
    (
        "policy_ring_memory_bytes",
        "Bytes allocated now for the rings that ends of the policy send into",
        |policy| Some(policy.ring_memory),
    ),
    (
        "policy_memory_cap_bytes",
        "Most bytes that these rings may hold; absent if the policy sets no limit",
        |policy| policy.memory_cap,
    ),
    (
        "policy_cgroups",
        "Cgroups that the policy names now",
        |policy| Some(policy.cgroups as u64),
    ),
    (
        "policy_waiting_paths",
        "Paths of the policy that name no cgroup now",
        |policy| Some(policy.waiting as u64),
    ),
    (
        "policy_healthy",
        "1 if the policy names a cgroup now, 0 if it matches nothing",
        |policy| Some(policy.is_healthy().into()),
    ),
];

/// The values of one scrape.
struct Scrape {
    version: String,
    pairing: bool,
    /// 0: no limit.
    memory_cap: u64,
    counters: Vec<(String, u64)>,
    /// None if the policies cannot be read now.
    report: Option<Report>,
}

impl Scrape {
    fn new(status: Status, counters: Vec<(String, u64)>) -> Self {
        Scrape {
            version: status.version,
            pairing: status.pairing,
            memory_cap: status.memory_cap,
            counters,
            report: None,
        }
    }
}

pub fn run(arguments: Exporter, json: bool) -> Result<Answer> {
    let (module, _) = Module::open()?;
    let user = User::find(&arguments.user)?;
    let refused = |e| Error::new(format!("cannot listen on {}: {e}", arguments.listen));
    let listener = TcpListener::bind(arguments.listen).map_err(refused)?;
    let reader = Reader::start()?;
    user.become_for_good()?;

    let listening = |address| match json {
        true => say(json!({ "schema": SCHEMA, "listening": address })).map(drop),
        false => say(format_args!("listening on {address}")).map(drop),
    };
    serve(listener, module, reader, listening)?;
    Ok(Answer::said())
}

/// Where a scrape takes what the policies hold. An error ends the server.
pub trait Reports: Send + 'static {
    /// Begins to read a new report, if there is something to wait for.
    fn ask(&mut self) -> io::Result<()>;
    /// None if the policies cannot be read now.
    fn report(&mut self) -> io::Result<Option<Report>>;
}

/// Answers requests until SIGTERM or SIGINT. `ready` gets the address.
pub fn serve(
    listener: TcpListener,
    module: Module,
    reports: impl Reports,
    ready: impl FnOnce(String) -> Result<()>,
) -> Result<()> {
    let failed = |e| Error::new(format!("cannot serve metrics: {e}"));
    let address = listener.local_addr().map_err(failed)?.to_string();
    let sources = Mutex::new((module, reports));
    let pages = move |path: &str, format| match path {
        PATH => {
            let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
            let (module, reports) = &mut *sources;
            reports.ask()?;
            let mut scrape = scrape(module);
            let report = reports.report()?;
            if let Some(scrape) = &mut scrape {
                scrape.report = report;
            }
            Ok(metrics(scrape.as_ref(), format))
        }
        "/" => Ok(Page::text(
            StatusCode::OK,
            format!("socksplice {VERSION}: see {PATH}\n"),
        )),
        _ => Ok(Page::text(StatusCode::NOT_FOUND, format!("see {PATH}\n"))),
    };
    let serving = format!("cannot serve on {address}");
    http::serve(listener, Arc::new(pages), || {
        ready(address).map_err(|e| io::Error::other(e.message))
    })
    .map_err(|e| Error::new(format!("{serving}: {e}")))
}

/// Reads over the socket that root opened. The module checks nothing else. None if it is not
/// loaded.
fn scrape(module: &mut Module) -> Option<Scrape> {
    let read =
        |module: &Module| -> Result<Scrape> { Ok(Scrape::new(module.status()?, module.stats()?)) };
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
            (
                "pairing_enabled",
                self.pairing.into(),
                "1 if new connections may be paired, as feature set pairing says",
            ),
            (
                "policies_readable",
                self.report.is_some().into(),
                "1 if the exporter could read the policies and the pairs",
            ),
        ] {
            gauge(registry, name, help, value);
        }
        if self.memory_cap > 0 {
            gauge(
                registry,
                "memory_cap_bytes",
                "Most bytes that all rings may hold; absent without a limit",
                self.memory_cap,
            );
        }
        if let Some(report) = &self.report {
            register_report(report, registry);
        }

        let build = [
            ("version", self.version.clone()),
            ("exporter_version", VERSION.to_string()),
        ];
        registry.register("build", "The module that is loaded", Info::new(build));
    }
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge = Gauge::<i64>::default();
    gauge.set(value as i64);
    registry.register(name, help, gauge);
}

fn register_report(report: &Report, registry: &mut Registry) {
    let family = |registry: &mut Registry, name: &str, help: &str| {
        let family = Family::<Labels, Gauge>::default();
        registry.register(name, help, family.clone());
        family
    };
    for (name, help, of) in POLICY {
        let family = family(registry, name, help);
        for policy in &report.policies {
            if let Some(value) = of(policy) {
                let labels = vec![("policy", policy.name.clone())];
                family.get_or_create(&labels).set(value as i64);
            }
        }
    }
    let complaints = family(
        registry,
        "complaint",
        "1 for what keeps connections from being paired now, as doctor says it; else 0",
    );
    for id in Id::ALL {
        let labels = vec![("complaint", id.name().to_string())];
        let present = report.has(id);
        complaints.get_or_create(&labels).set(present.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::health::Complaint;
    use crate::uapi::counters::COUNTERS;

    fn scrape(counters: &[(String, u64)], report: Option<Report>) -> Scrape {
        Scrape {
            version: "1.2".into(),
            pairing: true,
            memory_cap: 0,
            counters: counters.to_vec(),
            report,
        }
    }

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|l| l == line), "no {line} in {text}");
    }

    #[test]
    fn policies_by_their_names() {
        let state = |name: &str, memory_cap, cgroups| State {
            name: name.into(),
            pairs: 3,
            ring_memory: 8192,
            memory_cap,
            cgroups,
            waiting: 2,
        };
        let report = Report {
            // No policy can have the second name.
            policies: vec![
                state("db._-1", Some(1 << 20), 4),
                state("a\"b\\c\nd", None, 0),
            ],
            complaints: vec![Complaint {
                id: Id::PairingOff,
                text: String::new(),
                remedy: String::new(),
            }],
            ..Report::default()
        };
        let capped = Scrape {
            memory_cap: 1 << 30,
            pairing: false,
            ..scrape(&[], Some(report))
        };
        let text = render(Some(&capped)).unwrap();
        let second = r#"a\"b\\c\nd"#;
        for (name, first_value, second_value) in [
            ("pairs", 3, Some(3)),
            ("ring_memory_bytes", 8192, Some(8192)),
            ("memory_cap_bytes", 1 << 20, None),
            ("cgroups", 4, Some(0)),
            ("waiting_paths", 2, Some(2)),
            ("healthy", 1, Some(0)),
        ] {
            let name = format!("socksplice_policy_{name}");
            has(&text, &format!("# TYPE {name} gauge"));
            has(&text, &format!("{name}{{policy=\"db._-1\"}} {first_value}"));
            match second_value {
                Some(n) => has(&text, &format!("{name}{{policy=\"{second}\"}} {n}")),
                None => assert!(!text.contains(&format!("{name}{{policy=\"a"))),
            }
        }
        has(&text, "socksplice_memory_cap_bytes 1073741824");
        has(&text, "socksplice_pairing_enabled 0");
        has(&text, "socksplice_policies_readable 1");
        for id in Id::ALL {
            let value = u8::from(id == Id::PairingOff);
            let name = id.name();
            has(
                &text,
                &format!("socksplice_complaint{{complaint=\"{name}\"}} {value}"),
            );
        }
    }

    #[test]
    fn policies_that_cannot_be_read() {
        let text = render(Some(&scrape(&[], None))).unwrap();
        has(&text, "socksplice_policies_readable 0");
        has(&text, "socksplice_pairing_enabled 1");
        for name in ["memory_cap_bytes", "policy_", "complaint"] {
            assert!(!text.contains(&format!("socksplice_{name}")), "{name}");
        }
    }

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
        let counters = counters.map(|c| (c.0.to_string(), c.1));
        let text = render(Some(&scrape(&counters, None))).unwrap();
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
            has(&text, line);
        }
        assert!(text.contains("socksplice_build_info{version=\"1.2\""));
        assert!(!text.contains("port="));
    }

    #[test]
    fn no_counter_of_the_module_is_left_out() {
        let with =
            |name: &str, value| render(Some(&scrape(&[(name.to_string(), value)], None))).unwrap();
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
        let text = render(Some(&scrape(&[], None)));
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
