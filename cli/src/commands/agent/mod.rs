// SPDX-License-Identifier: GPL-2.0
//! `agent`: a process that keeps policies which name containers true, and says in its log what
//! keeps connections from being paired.
//!
//! What is set lives in the kernel. The agent writes the map `found` and what follows from it, so
//! its end leaves everything in force as it is. Each task below waits for something of its own:
//! the main one for signals, [`follow`] for an engine's events, [`keep_found`] for a reason to look
//! at the containers, [`look`] and [`spin`] for the time. Those that may wait for a lock or a disk
//! do so in a thread, so that the main one always answers the watchdog.

mod conditions;
mod lock;
mod loops;

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::cli::Agent;
use crate::commands::exporter;
use crate::containers::Engine;
use crate::error::{Error, Result};
use crate::kernel::module::{self, Module};
use crate::output::{Answer, say};
use crate::policy::found::{self, Kept, Listing};
use crate::policy::health::{Report, Watch};
use crate::policy::pin;
use crate::system::cgroup::Hierarchy;

use conditions::Conditions;
pub use lock::runs;
use loops::Loops;

/// Reasons to look at the containers that come within this time of a look are one reason.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for an engine that is not there, or for another command's lock.
const RETRY: Duration = Duration::from_secs(2);
/// How often the agent looks whether other policies are set, and tells the watchdog that it
/// lives. A look is one stat(2). inotify would wake it sooner, but a command that sets policies
/// has looked at the containers itself, and the watchdog wants to hear anyway.
const TICK: Duration = Duration::from_secs(1);
/// How often it looks at the containers without a reason: an engine's events can be lost.
const SAFETY: u32 = 60;
/// How often it looks at what keeps connections from being paired, and for new event loops.
const LOOK: Duration = Duration::from_secs(10);
/// The metrics leave out an older report: the agent waits for a lock, or for the disk.
const STALE: Duration = Duration::from_secs(30);

/// What the tasks share.
#[derive(Clone, Default)]
struct Shared {
    /// There is a reason to look at the containers.
    changed: Arc<Notify>,
    /// Other policies were set: for [`look`] and for [`spin`].
    set_anew: [Arc<Notify>; 2],
    conditions: Arc<Mutex<Conditions>>,
    /// For the metrics: the last report, and when it was made.
    report: Arc<Mutex<Option<(Instant, Report)>>>,
}

pub fn run(arguments: Agent) -> Result<Answer> {
    module::require_root()?;
    Hierarchy::find()?.require_root()?;
    let _lock = lock::take()?;
    let shared = Shared::default();
    if let Some(address) = arguments.listen {
        let refused = |e| Error::new(format!("cannot listen on {address}: {e}"));
        let listener = TcpListener::bind(address).map_err(refused)?;
        serve(listener, shared.clone())?;
    }
    let failed = |e| Error::new(format!("cannot wait for events: {e}"));
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    runtime.block_on(live(shared)).map_err(failed)?;
    // A thread that waits for a lock is not waited for.
    runtime.shutdown_background();
    Ok(Answer::said())
}

/// Serves the metrics in a thread, until a signal ends the process.
fn serve(listener: TcpListener, shared: Shared) -> Result<()> {
    let (module, _) = Module::open()?;
    thread::spawn(move || {
        let ready = |address| say(format_args!("listening on {address}")).map(drop);
        if let Err(e) = exporter::serve(listener, module, shared, ready) {
            tell(&format!("no metrics any more: {e}"));
        }
    });
    Ok(())
}

async fn live(shared: Shared) -> io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut tasks = JoinSet::new();
    for engine in Engine::ALL {
        tasks.spawn(follow(engine, shared.clone()));
    }
    tasks.spawn(keep_found(shared.clone()));
    tasks.spawn(look(shared.clone()));
    tasks.spawn(spin(shared.clone()));
    shared.changed.notify_one();

    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watchdog = 0;
    let watched = sd_notify::watchdog_enabled(false, &mut watchdog);
    let mut set = pin::identity();
    let mut ticks = 0;
    notify(&[NotifyState::Ready]);
    loop {
        tokio::select! {
            _ = term.recv() => break,
            _ = int.recv() => break,
            // None ends by itself. systemd starts the agent again.
            Some(_) = tasks.join_next() => return Err(io::Error::other("a task has failed")),
            _ = hangup.recv() => {
                shared.changed.notify_one();
                shared.tell_set_anew();
            }
            _ = tick.tick() => {
                ticks += 1;
                let now = pin::identity();
                if now != set || ticks % SAFETY == 0 {
                    shared.changed.notify_one();
                }
                if now != set {
                    set = now;
                    shared.tell_set_anew();
                }
                if watched {
                    notify(&[NotifyState::Watchdog]);
                }
            }
        }
    }
    notify(&[NotifyState::Stopping]);
    Ok(())
}

/// Listens to an engine while policies have selectors. To connect may start it.
async fn follow(engine: Engine, shared: Shared) {
    loop {
        let wanted = found::in_force().is_ok_and(|selectors| !selectors.is_empty());
        if wanted && engine.socket().is_some() {
            engine.follow(|| shared.changed.notify_one()).await;
            // keep_found() says if it does not answer any more.
            shared.changed.notify_one();
        }
        sleep(RETRY).await;
    }
}

/// Looks at the containers when there is a reason, and keeps the map of those found true.
async fn keep_found(shared: Shared) {
    loop {
        shared.changed.notified().await;
        match keep_once(&shared).await {
            Ok(Kept::Done(lines)) => lines.iter().for_each(|line| tell(line)),
            Ok(Kept::NoPolicies) => {}
            Ok(Kept::Later) => {
                sleep(RETRY).await;
                shared.changed.notify_one();
            }
            Err(e) => {
                shared.say("containers", vec![e.to_string()]);
                sleep(RETRY).await;
                shared.changed.notify_one();
            }
        }
        sleep(PAUSE).await;
    }
}

async fn keep_once(shared: &Shared) -> Result<Kept> {
    let selectors = found::in_force()?;
    let listing = Listing::of(selectors).await;
    let troubles = listing.troubles();
    let kept = spawn_blocking(move || found::keep(&listing)).await;
    let kept = kept.unwrap_or_else(|e| Err(Error::new(e.to_string())))?;
    shared.say("containers", troubles);
    Ok(kept)
}

/// Looks again and again at what keeps connections from being paired.
async fn look(shared: Shared) {
    let mut watch = Watch::default();
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = shared.set_anew[0].notified() => sleep(TICK).await,
        }
        let looked = spawn_blocking(move || {
            let report = Module::open().and_then(|(module, _)| watch.look(&module));
            (watch, report)
        });
        let Ok((same, report)) = looked.await else {
            return;
        };
        watch = same;
        match report {
            Ok(report) => {
                shared.say("policies", conditions::of_report(&report));
                *guard(&shared.report) = Some((Instant::now(), report));
            }
            Err(e) => {
                shared.say("policies", vec![e.to_string()]);
                *guard(&shared.report) = None;
            }
        }
    }
}

/// Looks again and again for event loops that policies want to spin.
async fn spin(shared: Shared) {
    let mut loops = Loops::default();
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = shared.set_anew[1].notified() => {}
        }
        let looked = spawn_blocking(move || {
            let troubles = loops.look();
            (loops, troubles)
        });
        let Ok((same, troubles)) = looked.await else {
            return;
        };
        loops = same;
        let troubles = troubles.unwrap_or_else(|e| vec![e.to_string()]);
        shared.say("event loops", troubles);
    }
}

impl exporter::Reports for Shared {
    /// [`look`] makes a report when it is time.
    fn ask(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn report(&mut self) -> io::Result<Option<Report>> {
        let report = guard(&self.report);
        let fresh = report.as_ref().filter(|(at, _)| at.elapsed() < STALE);
        Ok(fresh.map(|(_, report)| report.clone()))
    }
}

impl Shared {
    fn tell_set_anew(&self) {
        self.set_anew.iter().for_each(|task| task.notify_one());
    }

    /// What is wrong now, by the task that has seen it.
    fn say(&self, by: &'static str, now: Vec<String>) {
        let mut conditions = guard(&self.conditions);
        conditions.set(by, now).iter().for_each(|line| tell(line));
        notify(&[NotifyState::Status(&conditions.summary())]);
    }
}

fn guard<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of the log. Nobody may read it.
fn tell(line: &str) {
    let _ = say(line);
}

fn notify(states: &[NotifyState]) {
    let _ = sd_notify::notify(false, states);
}
