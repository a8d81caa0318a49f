// SPDX-License-Identifier: GPL-2.0
//! A link: the connection of a client and that of its target.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::meter::{Meter, Sums};
use super::mode::Chosen;
use super::{Bucket, Kernel, Mode, Pipes, Wanted};
use crate::net::Stream;

/// The limits of a link, and the mode that it is to use.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    pub wanted: Wanted,
    pub idle: Option<Duration>,
    /// Limit of bytes, for each direction.
    pub max_bytes: Option<u64>,
    /// Bytes per second, for each direction.
    pub bandwidth: Option<u64>,
    /// The bandwidth that both directions of all connections of the listener share.
    pub shared: Option<Arc<Bucket>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Client,
    Target,
}

const NEVER: u64 = u64::MAX;

/// The state of one direction. The other direction and status requests use it too.
pub struct Way {
    pub meter: Meter,
    pub chosen: Chosen,
    pub bucket: Option<Bucket>,
    done: AtomicBool,
    /// Number of bytes moved when this direction was last found idle. `NEVER` if it never was.
    quiet: AtomicU64,
    /// The error that ended its splice, if a write of the other direction took it from the socket.
    error: Mutex<Option<io::Error>>,
    told: Notify,
}

impl Way {
    fn new(limits: &Limits, chosen: Chosen) -> Self {
        Way {
            meter: Meter::default(),
            chosen,
            bucket: limits.bandwidth.map(Bucket::bandwidth),
            done: AtomicBool::new(false),
            quiet: AtomicU64::new(NEVER),
            error: Mutex::new(None),
            told: Notify::new(),
        }
    }

    /// Tells this direction the error that has ended its splice.
    pub fn tell(&self, error: io::Error) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.told.notify_one();
    }

    /// Takes the error that this direction was told, if any.
    pub fn taken(&self) -> Option<io::Error> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Waits until this direction is told an error, and takes it.
    pub async fn told(&self) -> io::Error {
        loop {
            if let Some(error) = self.taken() {
                return error;
            }
            self.told.notified().await;
        }
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    pub fn finish(&self) {
        self.done.store(true, Ordering::Release);
    }

    pub fn fall_quiet(&self, bytes: u64) {
        self.quiet.store(bytes, Ordering::Release);
    }

    /// True if this direction was found idle and has moved no byte since. `bytes` is its present
    /// total.
    pub fn is_quiet_at(&self, bytes: u64) -> bool {
        self.quiet.load(Ordering::Acquire) == bytes
    }
}

pub struct Link {
    pub client: Stream,
    pub target: Stream,
    /// From the client to the target.
    pub up: Way,
    pub down: Way,
    pub limits: Limits,
    pub kernel: Arc<Kernel>,
    /// [`Kernel::state`] before the first mode was chosen.
    pub asked: u64,
    /// True if each direction copies its first bytes, and splices when more come. A splice takes
    /// longer to begin and to end than the copy of one request, and a short connection has no more.
    pub copies_first: bool,
    pub pipes: Arc<Pipes>,
}

impl Link {
    /// Links two streams. Closing the target must reset its connection already, as
    /// [`connect`](crate::balance::connect) sees to. Closing them resets their connections until
    /// [`run`](Self::run) has ended with [`Ending::Closed`](super::Ending::Closed), so even the end
    /// of the process cannot make a stream look complete that was cut off.
    pub fn new(
        client: Stream,
        target: Stream,
        limits: Limits,
        kernel: Arc<Kernel>,
        pipes: Arc<Pipes>,
    ) -> Link {
        let asked = kernel.state();
        let both_tcp = client.is_tcp() && target.is_tcp();
        let copies_first = limits.wanted == Wanted::Auto && both_tcp && kernel.is_available();
        let chosen = || match limits.wanted {
            Wanted::Auto if copies_first => Chosen::new(Mode::Copy, "its first bytes"),
            wanted => first_mode(wanted, both_tcp, &kernel),
        };
        let way = || Way::new(&limits, chosen());
        let (up, down) = (way(), way());
        client.close_resets(true);
        Link {
            client,
            target,
            up,
            down,
            limits,
            kernel,
            asked,
            copies_first,
            pipes,
        }
    }

    pub fn is_tcp(&self) -> bool {
        self.client.is_tcp() && self.target.is_tcp()
    }

    /// Returns the bytes forwarded from the client to the target, and back.
    pub fn sums(&self) -> (Sums, Sums) {
        (
            self.up.meter.sums(&self.client),
            self.down.meter.sums(&self.target),
        )
    }

    pub fn way(&self, is_up: bool) -> &Way {
        if is_up { &self.up } else { &self.down }
    }

    pub fn end(&self, which: Which) -> &Stream {
        match which {
            Which::Client => &self.client,
            Which::Target => &self.target,
        }
    }
}

fn first_mode(wanted: Wanted, both_tcp: bool, kernel: &Kernel) -> Chosen {
    match wanted {
        Wanted::Only(Mode::Copy) => Chosen::new(Mode::Copy, "as configured"),
        _ if !both_tcp => Chosen::new(Mode::Copy, "an end is a Unix socket"),
        Wanted::Only(mode) => Chosen::new(mode, "as configured"),
        Wanted::Auto if kernel.is_available() => Chosen::new(Mode::Sosplice, "the module is there"),
        Wanted::Auto => Chosen::new(Mode::Pipe, kernel.why_not()),
    }
}
