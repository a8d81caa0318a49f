// SPDX-License-Identifier: GPL-2.0
//! One connection, from accept(2) to its line in the log.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::front::{self, Failure, Opening};
use super::registry::{Entry, Joined, Registered};
use super::shared::{Service, Shared};
use super::sources::Admitted;
use super::stats::Live;
use crate::balance::{self, Backends, Entered, Target};
use crate::config::{Front, Listener};
use crate::log::{Line, now};
use crate::net::{Accepted, Address, Peer, Stream};
use crate::transfer::{Ending, Limits, Link, Mode, Sums, Which};
use crate::wire::hello::{Hello, Summary};
use crate::wire::proxy;

/// What the log tells about a connection.
struct Report {
    client: Peer,
    hello: Option<Summary>,
    unique_id: Option<Box<[u8]>>,
    target: Option<Peer>,
    connect: Option<Duration>,
    link: Option<Arc<Link>>,
    reason: &'static str,
    detail: String,
    /// True if the connection gets no line in the log. It was refused because of its source, and a
    /// stranger could fill the log with such lines.
    silent: bool,
}

/// Serves a connection to its end. Until then it keeps `counted`, its share of the limits.
///
/// Spawn this future itself as a task. An async block around it would need the memory twice.
pub async fn serve(
    service: Arc<Service>,
    shared: Arc<Shared>,
    accepted: Accepted,
    counted: (OwnedSemaphorePermit, Live),
) {
    let Accepted { stream, peer } = accepted;
    let (registry, stats) = (&shared.registry, service.stats.clone());
    let registered = registry.enter(service.name.clone(), stats, peer.clone());
    let mut report = Report {
        client: peer,
        hello: None,
        unique_id: None,
        target: None,
        connect: None,
        link: None,
        reason: "",
        detail: String::new(),
        silent: false,
    };
    // The box frees what only this phase needs, before the long phase of forwarding begins.
    let id = registered.entry.id;
    let opened = Box::pin(open(&service, &shared, stream, id, &mut report)).await;
    match opened {
        Ok(opened) => {
            let link = opened.link.clone();
            report.link = Some(opened.link.clone());
            let joined = Joined {
                client: report.client.clone(),
                target: opened.target.clone(),
                server_name: report.hello.as_ref().and_then(|h| h.server_name.clone()),
                link: opened.link,
            };
            let _ = registered.entry.joined.set(joined);
            let ending = link.run(&shared.cut).await;
            (report.reason, report.detail) = reason(ending);
            drop(opened.held);
        }
        Err(failure) => {
            report.reason = failure.reason;
            report.detail = failure.detail;
        }
    }
    finish(&service, &shared, registered, &report);
    drop(counted);
}

/// A link between the client and its target, and the guards that count the connection.
struct Opened {
    link: Arc<Link>,
    target: Peer,
    held: (Option<Admitted>, Option<Entered>),
}

fn reason(ending: Ending) -> (&'static str, String) {
    match ending {
        Ending::Closed => ("closed", String::new()),
        Ending::Error(Which::Client, e) => ("client-error", e.to_string()),
        Ending::Error(Which::Target, e) => ("target-error", e.to_string()),
        Ending::Idle => ("idle", String::new()),
        Ending::Limit => ("max-bytes", String::new()),
        Ending::Loop => ("loop", "the bytes would come back here".into()),
        Ending::Refused(e) => ("no-sosplice", e.to_string()),
        Ending::Stopped => ("shutdown", String::new()),
    }
}

/// Reads what the client sends first, connects to the target, and links the two.
async fn open(
    service: &Service,
    shared: &Shared,
    client: Stream,
    id: u64,
    report: &mut Report,
) -> Result<Opened, Failure> {
    let result = tokio::select! {
        result = join(service, &client, id, report) => result,
        () = shared.cut.cancelled() => Err(Failure::new("shutdown", "")),
    };
    match result {
        Ok(joined) => {
            let limits = limits(service);
            let (kernel, pipes) = (shared.kernel.clone(), shared.pipes.clone());
            let link = Link::new(client, joined.stream, limits, kernel, pipes);
            link.up.meter.add(Mode::Copy, joined.forwarded);
            Ok(Opened {
                link: Arc::new(link),
                target: joined.peer,
                held: (joined.admitted, joined.entered),
            })
        }
        Err(failure) => {
            client.close_resets(!matches!(failure.reason, "no-header"));
            if matches!(service.spec.front, Front::Connect | Front::Socks5) {
                // A reset could discard the answer that tells the client why.
                client.close_resets(false);
                let _ = client.shutdown_write();
            }
            Err(failure)
        }
    }
}

fn limits(service: &Service) -> Limits {
    let spec = &service.spec;
    Limits {
        wanted: spec.mode,
        idle: spec.idle,
        max_bytes: spec.max_bytes,
        bandwidth: spec.bandwidth,
        shared: service.bandwidth.clone(),
    }
}

struct Reached {
    stream: Stream,
    peer: Peer,
    entered: Option<Entered>,
    admitted: Option<Admitted>,
    /// Number of bytes from the client that the target has been sent already.
    forwarded: u64,
}

async fn join(
    service: &Service,
    client: &Stream,
    id: u64,
    report: &mut Report,
) -> Result<Reached, Failure> {
    let spec = &service.spec;
    let peer = report.client.clone();
    // Only a PROXY header tells it.
    let local = spec.proxy_out.and_then(|_| client.local_address());
    let mut opening = Opening::new(peer.clone(), local);
    let reading = async {
        let trusted = spec.proxy_from.is_empty()
            || peer
                .ip()
                .is_some_and(|ip| spec.proxy_from.iter().any(|n| n.contains(ip)));
        if spec.proxy_in.is_some() && !trusted {
            return Err(Failure::new(
                "denied",
                "not one whose PROXY header is believed",
            ));
        }
        opening.proxy(client, spec).await?;
        let admitted = service.sources.admit(spec, opening.client.ip());
        let admitted = admitted.map_err(|reason| Failure::new(reason, ""))?;
        opening.front(client, spec.front).await?;
        Ok(admitted)
    };
    let read = timeout(spec.header_timeout, reading).await;
    let read = read.unwrap_or_else(|_| Err(Failure::new("header-timeout", "")));
    report.client = opening.client.clone();
    // A ClientHello may name thousands of protocols. It is not kept while the target connects.
    let hello = opening.hello.take();
    let route = hello.as_ref().and_then(|h| front::route(&spec.routes, h));
    if let Some(hello) = &hello {
        opening.learn(hello);
    }
    report.hello = hello.map(Hello::summary);
    if spec.proxy_tlvs.unique_id {
        let new = || unique_id(id).into_bytes();
        opening.tlvs.unique_id.get_or_insert_with(new);
    }
    report.unique_id = opening.tlvs.unique_id.as_deref().map(Into::into);
    let admitted = match read {
        Ok(admitted) => admitted,
        Err(failure) => {
            report.silent = matches!(
                failure.reason,
                "denied" | "source-connections" | "source-rate"
            );
            // The front end has answered all else that it understood.
            if failure.reason == "header-timeout" {
                front::refused(client, spec.front, &opening, failure.reason).await;
            }
            return Err(failure);
        }
    };
    if let Some(max) = spec.max_bytes {
        // The link ends at once when it finds the limit reached.
        opening
            .bytes
            .truncate(usize::try_from(max).unwrap_or(usize::MAX));
    }
    let reached = match reach_and_greet(service, &opening, route, report).await {
        Ok(reached) => reached,
        Err(failure) => {
            front::refused(client, spec.front, &opening, failure.reason).await;
            return Err(failure);
        }
    };
    let granted = front::granted(client, spec.front).await;
    granted.map_err(|e| Failure::new("client-error", e.to_string()))?;
    Ok(Reached {
        admitted,
        forwarded: opening.bytes.len() as u64,
        ..reached
    })
}

/// Returns an id that no other connection has, of this process or another one.
fn unique_id(connection: u64) -> String {
    // The keys of the hash are random.
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    format!("{:016x}-{connection:x}", *PROCESS)
}

async fn reach_and_greet(
    service: &Service,
    opening: &Opening,
    route: Option<usize>,
    report: &mut Report,
) -> Result<Reached, Failure> {
    let reached = reach(service, opening, route, report).await?;
    report.target = Some(reached.peer.clone());
    greet(service, opening, &reached.stream).await?;
    Ok(reached)
}

/// Sends the target the PROXY header, if it gets one, and the client's bytes that were read
/// already.
async fn greet(service: &Service, opening: &Opening, target: &Stream) -> Result<(), Failure> {
    let mut bytes = match service.spec.proxy_out {
        Some(version) => {
            let header = proxy::Header {
                addresses: opening.addresses,
                tlvs: opening.tlvs.clone(),
            };
            proxy::write(version, &header, service.spec.proxy_tlvs)
        }
        None => Vec::new(),
    };
    bytes.extend_from_slice(&opening.bytes);
    match timeout(service.spec.connect_timeout, target.write_all(&bytes)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(Failure::new("target-error", e.to_string())),
        Err(_) => Err(Failure::new("connect-timeout", "the target takes no bytes")),
    }
}

/// Connects to the destination that the client asked for, or else to a target of the pool of its
/// `route`. Without a route that is the listener's own pool.
async fn reach(
    service: &Service,
    opening: &Opening,
    route: Option<usize>,
    report: &mut Report,
) -> Result<Reached, Failure> {
    let began = Instant::now();
    let reached = match &opening.destination {
        Some(address) => destination(service, address, opening.client.ip()).await,
        None => {
            let pool = match route {
                Some(route) => service.routes.get(route),
                None => service.pool.as_ref(),
            };
            match pool {
                Some(pool) => target(service, pool, opening.client.ip()).await,
                None => Err(Failure::new("no-route", "no route for this ClientHello")),
            }
        }
    };
    report.connect = Some(began.elapsed());
    reached
}

fn connect_failure(peer: &Peer, e: &std::io::Error) -> Failure {
    let timed_out = e.kind() == ErrorKind::TimedOut;
    let reason = if timed_out {
        "connect-timeout"
    } else {
        "connect-failed"
    };
    Failure::new(reason, format!("{peer}: {e}"))
}

/// Connects to a target of the pool. If one fails, tries others, up to the limit of retries.
async fn target(
    service: &Service,
    pool: &Backends,
    source: Option<IpAddr>,
) -> Result<Reached, Failure> {
    let from = source.filter(|_| service.spec.transparent);
    let mut tried: Vec<Arc<Target>> = Vec::new();
    let fits = |t: &Arc<Target>| t.peer.may_be_reached(from);
    let mut last = match from {
        Some(from) if !pool.targets().iter().any(fits) => other_family(from),
        _ => Failure::new("no-target", "no target is up"),
    };
    for _ in 0..=service.spec.retries {
        let Some(attempt) = pool.pick(source, from, &tried) else {
            break;
        };
        let target = attempt.target().clone();
        let entered = target.enter();
        match balance::connect(&target.peer, from, service.spec.connect_timeout).await {
            Ok(stream) => {
                pool.succeeded(attempt, false);
                return Ok(Reached {
                    stream,
                    peer: target.peer.clone(),
                    entered: Some(entered),
                    admitted: None,
                    forwarded: 0,
                });
            }
            Err(e) => {
                last = connect_failure(&target.peer, &e);
                // The client's address may be why nothing answers. No client takes a target down.
                let answered = from.is_none() || e.kind() == ErrorKind::ConnectionRefused;
                if answered && !balance::is_own_shortage(&e) {
                    pool.failed(attempt, &e.to_string());
                }
            }
        }
        tried.push(target);
    }
    Err(last)
}

fn other_family(from: IpAddr) -> Failure {
    let detail = format!("transparent: the client's address {from} is of another family");
    Failure::new("connect-failed", detail)
}

/// Returns those of the addresses `found` to try from the address `from`, and the failure if there
/// are none.
fn candidates(
    spec: &Listener,
    address: &Address,
    mut found: Vec<Peer>,
    from: Option<IpAddr>,
) -> (Vec<Peer>, Failure) {
    let reach = &spec.reach;
    // The unspecified address reaches this host, whatever network contains it.
    found.retain(|peer| {
        peer.socket_address().is_some_and(|a| {
            !a.ip().is_unspecified()
                && reach.networks.iter().any(|n| n.contains(a.ip()))
                && (reach.ports.is_empty() || reach.ports.contains(&a.port()))
        })
    });
    let failure = match from {
        Some(from) if !found.is_empty() => other_family(from),
        _ => Failure::new("forbidden", format!("{address} is not in connect_to")),
    };
    found.retain(|peer| peer.may_be_reached(from));
    found.truncate(spec.retries as usize + 1);
    (found, failure)
}

/// Connects to the destination that a client of CONNECT or SOCKS5 asked for. Tries only addresses
/// that the configuration lets clients reach.
async fn destination(
    service: &Service,
    address: &Address,
    source: Option<IpAddr>,
) -> Result<Reached, Failure> {
    let time = service.spec.connect_timeout;
    let found = match timeout(time, balance::resolve(address)).await {
        Ok(Ok(found)) => found,
        Ok(Err(e)) => return Err(Failure::new("unresolved", format!("{address}: {e}"))),
        Err(_) => {
            return Err(Failure::new(
                "unresolved",
                format!("{address}: no answer in time"),
            ));
        }
    };
    let from = source.filter(|_| service.spec.transparent);
    let (peers, mut last) = candidates(&service.spec, address, found, from);
    for peer in peers {
        match balance::connect(&peer, from, time).await {
            Ok(stream) => {
                return Ok(Reached {
                    stream,
                    peer,
                    entered: None,
                    admitted: None,
                    forwarded: 0,
                });
            }
            Err(e) => last = connect_failure(&peer, &e),
        }
    }
    Err(last)
}

/// Counts the connection as ended, and writes its line to the log.
fn finish(service: &Service, shared: &Shared, registered: Registered, report: &Report) {
    let (up, down) = report
        .link
        .as_ref()
        .map_or_else(Default::default, |l| l.sums());
    let entry = registered.entry.clone();
    registered.leave(|| service.stats.end(report.reason, &up, &down));
    if !report.silent {
        let line = line(service, &entry, report, &up, &down);
        shared.log.line(service.log, &line);
    }
}

fn line(service: &Service, entry: &Entry, report: &Report, up: &Sums, down: &Sums) -> Line {
    let mut line = Line::default();
    line.text("time", now())
        .number("id", entry.id)
        .text("listener", &*service.name)
        .text("client", report.client.to_string());
    if report.client != entry.peer {
        line.text("via", entry.peer.to_string());
    }
    if let Some(hello) = &report.hello {
        line.text("sni", hello.server_name.clone().unwrap_or_default());
        line.text("alpn", hello.alpn.clone());
    }
    if let Some(unique_id) = &report.unique_id {
        line.text("unique_id", unique_id.escape_ascii().to_string());
    }
    if let Some(target) = &report.target {
        line.text("target", target.to_string());
    }
    if let Some(link) = &report.link {
        let ((up_mode, up_why), (down_mode, down_why)) =
            (link.up.chosen.get(), link.down.chosen.get());
        line.text("mode_up", up_mode.name())
            .text("mode_down", down_mode.name());
        let same = up_why == down_why;
        line.text(
            "why",
            if same {
                up_why.to_string()
            } else {
                format!("up: {up_why}; down: {down_why}")
            },
        );
    }
    line.number("bytes_up", up.total())
        .number("bytes_down", down.total())
        .number("sosplice_up", up.sosplice)
        .number("sosplice_down", down.sosplice);
    if let Some(time) = report.connect {
        line.seconds("connect", time);
    }
    line.seconds("duration", entry.began.elapsed())
        .text("reason", report.reason);
    if !report.detail.is_empty() {
        line.text("detail", report.detail.clone());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_another_family_take_no_retries() {
        let text = "[[listener]]\nlisten='127.0.0.1:0'\nfront='socks5'\nretries=1\n\
            transparent=true\nconnect_to=['127.0.0.0/8', '::1']\n";
        let spec = crate::config::parse(text).unwrap().listeners.remove(0);
        let name: Address = "a.example:1".parse().unwrap();
        let try_from = |found: &[&str], from: Option<&str>| {
            let found = found.iter().map(|a| Peer::Ip(a.parse().unwrap()));
            let from = from.map(|a| a.parse().unwrap());
            let (peers, failure) = candidates(&spec, &name, found.collect(), from);
            let peers: Vec<_> = peers.iter().map(ToString::to_string).collect();
            (peers, failure.reason)
        };
        let found = ["10.0.0.1:1", "127.0.0.1:1", "127.0.0.2:1", "[::1]:1"];
        let (v4, v6) = (Some("10.0.0.9"), Some("fd00::9"));
        assert_eq!(try_from(&found, v6).0, ["[::1]:1"]);
        assert_eq!(try_from(&found, v4).0, ["127.0.0.1:1", "127.0.0.2:1"]);
        assert_eq!(try_from(&found, None).0, ["127.0.0.1:1", "127.0.0.2:1"]);
        assert_eq!(try_from(&found[..3], v6), (vec![], "connect-failed"));
        assert_eq!(try_from(&found[..1], v6), (vec![], "forbidden"));
    }
}
