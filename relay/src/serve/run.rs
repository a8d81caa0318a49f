// SPDX-License-Identifier: GPL-2.0
//! The life of the process: its start, its signals and its end.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::inherit::{self, Passed};
use super::relay::Relay;
use super::shared::{Admin, Shared};
use super::upgrade::{self, Itself};
use crate::config::{self, Config};
use crate::log::{Log, say};
use crate::net::{sys, transparent};
use crate::transfer::{Kernel, Mode, Wanted};

/// Messages that tell why the process ends with status 1.
pub type Failures = Vec<String>;

/// Time between two probes of whether the kernel accepts splices.
const ASK: Duration = Duration::from_secs(2);

/// Time that connections have to end after they were cut.
const CUT: Duration = Duration::from_secs(3);

/// Runs the relay until a signal ends it. `file` is the file from which `config` was read, if any.
/// `admin` serves the connections to the admin sockets.
///
/// # Errors
/// Returns the problems that prevent the start.
pub fn run(
    config: Config,
    file: Option<PathBuf>,
    workers: Option<usize>,
    admin: Admin,
) -> Result<(), Failures> {
    let one = |what: &str| {
        let what = what.to_string();
        move |e: io::Error| vec![format!("{what}: {e}")]
    };
    // Do this first: a descriptor opened earlier could be mistaken for one that was passed.
    let predecessor = upgrade::successor_of();
    let inherited = inherit::inherited().map_err(|e| vec![e])?;
    let itself = Itself::remember().map_err(one("cannot tell what program this is"))?;
    let log = Log::start().map_err(one("no thread for the log"))?;
    let mut builder = Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers);
    }
    let runtime = builder.enable_all().build().map_err(one("no threads"))?;
    let result = runtime.block_on(async {
        let mut passed = Passed::adopt(inherited).map_err(|e| vec![e])?;
        let most = connections_for(sys::raise_descriptor_limit(), &config);
        let shared = Arc::new(Shared::new(log, most, admin));
        shared.kernel.probe();
        insist(&config, &shared.kernel)?;
        let relay = Relay::start(config, shared.clone(), &mut passed).await?;
        passed.close();
        let process = Process {
            relay,
            shared: shared.clone(),
            file,
            itself,
        };
        let result = process.live(predecessor).await;
        if !shared.log.flush() {
            say("lines of the log are lost: standard output takes no more");
        }
        result.map_err(one("signals"))
    });
    // A name look-up may block its thread for long. Wait for a second only.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Returns the limit of connections. Each takes two descriptors. Some descriptors are reserved for
/// listeners, pipes and libraries.
fn connections_for(descriptors: u64, config: &Config) -> usize {
    let spare = (descriptors / 8).clamp(16, 256);
    let most = (descriptors.saturating_sub(spare) / 2).max(1) as usize;
    config
        .max_connections
        .map_or(most, |wanted| wanted.min(most))
}

/// Returns an error if a listener has the mode `sosplice` and the kernel accepts no splices, or if
/// one is transparent and the kernel does not permit that.
fn insist(config: &Config, kernel: &Kernel) -> Result<(), Failures> {
    if let Some(l) = config.listeners.iter().find(|l| l.transparent) {
        transparent::permitted().map_err(|e| vec![format!("{}: {}", l.name, forbids(&e))])?;
    }
    let wants = |l: &&config::Listener| l.mode == Wanted::Only(Mode::Sosplice);
    match config.listeners.iter().find(wants) {
        Some(l) if !kernel.is_available() => Err(vec![format!(
            "{}: mode sosplice: {}",
            l.name,
            kernel.why_not()
        )]),
        _ => Ok(()),
    }
}

/// Says why no listener can be transparent.
fn forbids(e: &io::Error) -> String {
    if sys::is(e, rustix::io::Errno::PERM) {
        format!("transparent: it needs the capability CAP_NET_ADMIN: {e}")
    } else {
        format!("transparent: the kernel cannot be asked whether it is permitted: {e}")
    }
}

struct Process {
    relay: Relay,
    shared: Arc<Shared>,
    file: Option<PathBuf>,
    itself: Itself,
}

struct Signals {
    reload: Signal,
    upgrade: Signal,
    term: Signal,
    int: Signal,
}

impl Process {
    async fn live(mut self, predecessor: Option<std::os::fd::OwnedFd>) -> io::Result<()> {
        let mut signals = Signals {
            reload: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        };
        self.announce();
        if let Some(predecessor) = predecessor {
            upgrade::tell_ready(predecessor);
        }
        notify(&[NotifyState::Ready]);
        tokio::spawn(watchdog());
        tokio::spawn(ask_again(self.shared.kernel.clone()));
        let time = loop {
            tokio::select! {
                _ = signals.reload.recv() => self.reload().await,
                _ = signals.upgrade.recv() => {
                    if self.upgrade().await {
                        self.relay.close(false).await;
                        break None;
                    }
                }
                _ = signals.term.recv() => {
                    notify(&[NotifyState::Stopping]);
                    self.relay.close(true).await;
                    break Some(self.relay.config.drain);
                }
                // SIGINT comes from a terminal, whose user does not want to wait.
                _ = signals.int.recv() => {
                    self.relay.close(true).await;
                    self.shared.cut.cancel();
                    break None;
                }
            }
        };
        self.drain(&mut signals, time).await;
        Ok(())
    }

    /// Reports the addresses at which the relay listens. The kernel chose the port if the
    /// configuration has port 0.
    fn announce(&self) {
        let mut lines: Vec<_> = self.relay.sockets().collect();
        lines.sort_by_key(|(address, _)| (*address).clone());
        for (_, bound) in lines {
            if let Ok(address) = bound.address() {
                say(format!("listening at {address}"));
            }
        }
        let kernel = &self.shared.kernel;
        match kernel.is_available() {
            true => say("SO_SPLICE is there"),
            false => say(format!("no SO_SPLICE: {}", kernel.why_not())),
        }
    }

    async fn reload(&mut self) {
        let Some(file) = &self.file else {
            say("no reload: the configuration came from the command line");
            return;
        };
        if let Ok(since) = NotifyState::monotonic_usec_now() {
            notify(&[NotifyState::Reloading, since]);
        }
        let problems = match config::load(file) {
            Ok(config) => match insist(&config, &self.shared.kernel) {
                Ok(()) => {
                    let most = connections_for(sys::raise_descriptor_limit(), &config);
                    let result = self.relay.reload(config).await;
                    if result.is_ok() && most != self.shared.most {
                        let now = self.shared.most;
                        say(format!(
                            "max_connections stays {now}: {most} needs a restart or an upgrade"
                        ));
                    }
                    result.err().unwrap_or_default()
                }
                Err(problems) => problems,
            },
            Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
        };
        let mut counts = self
            .shared
            .reloads
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if problems.is_empty() {
            counts.0 += 1;
            say(format!("{}: reloaded", file.display()));
        } else {
            counts.1 += 1;
            for problem in problems {
                say(format!("{}: {problem}", file.display()));
            }
            say("not reloaded: all stays as it was");
        }
        drop(counts);
        notify(&[NotifyState::Ready]);
    }

    /// Starts a new process. Returns true if that has taken over.
    async fn upgrade(&self) -> bool {
        match self.itself.start_anew(&self.relay).await {
            Ok(id) => {
                say(format!("process {id} has taken over"));
                notify(&[NotifyState::MainPid(id), NotifyState::Ready]);
                true
            }
            Err(why) => {
                say(format!("no upgrade: {why}"));
                false
            }
        }
    }

    /// Waits until all connections have ended, for at most `time`, or until a second signal. Then
    /// cuts those that are left.
    async fn drain(&self, signals: &mut Signals, time: Option<Duration>) {
        let (shared, registry) = (&self.shared, &self.shared.registry);
        if !registry.is_empty() && !shared.cut.is_cancelled() {
            let how_long = time.map_or(String::new(), |t| format!(" for {} s", t.as_secs()));
            say(format!(
                "{} connections may go on{how_long}",
                registry.len()
            ));
        }
        let over = async {
            match time {
                Some(time) => sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.ended() => return,
            () = over => {}
            () = shared.cut.cancelled() => {}
            _ = signals.term.recv() => {}
            _ = signals.int.recv() => {}
        }
        let left = registry.len();
        shared.cut.cancel();
        let _ = timeout(CUT, shared.ended()).await;
        if left > 0 {
            say(format!("{left} connections were cut"));
        }
    }
}

fn notify(states: &[NotifyState]) {
    let _ = sd_notify::notify(false, states);
}

/// Probes regularly whether the kernel accepts splices, and reports each change.
async fn ask_again(kernel: Arc<Kernel>) {
    let mut tick = interval(ASK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let before = kernel.is_available();
        kernel.probe();
        match (before, kernel.is_available()) {
            (false, true) => say("SO_SPLICE is there now"),
            (true, false) => say(format!("no SO_SPLICE any more: {}", kernel.why_not())),
            _ => {}
        }
    }
}

/// Tells systemd regularly that this process still runs its tasks.
async fn watchdog() {
    let Some(time) = watchdog_time() else { return };
    let mut tick = interval(time / 3);
    loop {
        tick.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// Returns the time within which systemd expects to hear from this process, if it does.
/// `WATCHDOG_PID` names the process that systemd watches. A process that took over from another one
/// has no such variable, and is watched in its place.
fn watchdog_time() -> Option<Duration> {
    let named = std::env::var("WATCHDOG_PID").ok();
    let microseconds = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    let mine = named.is_none_or(|pid| pid == std::process::id().to_string());
    (mine && microseconds >= 3000).then(|| Duration::from_micros(microseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_limit_connections() {
        let text = "max_connections = 50\n[[listener]]\nlisten='127.0.0.1:0'\nto='127.0.0.1:1'\n";
        let mut config = config::parse(text).unwrap();
        assert_eq!(connections_for(100_000, &config), 50);
        config.max_connections = None;
        assert_eq!(connections_for(64, &config), 24);
        assert_eq!(connections_for(41_000, &config), 20_372);
    }

    #[test]
    fn only_a_lack_of_rights_reads_as_one() {
        for (errno, named) in [(libc::EPERM, true), (libc::EMFILE, false)] {
            let said = forbids(&io::Error::from_raw_os_error(errno));
            assert_eq!(said.contains("CAP_NET_ADMIN"), named, "{said}");
        }
    }
}
