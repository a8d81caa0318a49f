// SPDX-License-Identifier: GPL-2.0
//! A client's connection and the target's, joined.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::meter::{Meter, Sums};
use super::mode::Chosen;
use super::{Bucket, Kernel, Mode, Pipes, Wanted};
use crate::net::Stream;

/// What a link keeps to.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    pub wanted: Wanted,
    pub idle: Option<Duration>,
    /// bytes, each way
    pub max_bytes: Option<u64>,
    /// bytes a second, each way
    pub bandwidth: Option<u64>,
    /// what all connections of a listener share
    pub shared: Option<Arc<Bucket>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Client,
    Target,
}

const NEVER: u64 = u64::MAX;

/// One direction's state, for both directions and for status requests.
pub struct Way {
    pub meter: Meter,
    pub chosen: Chosen,
    pub bucket: Option<Bucket>,
    done: AtomicBool,
    /// the number of bytes at which the idle time was last over
    quiet: AtomicU64,
    /// the error by which its splice ended, where a write of the other direction took it
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

    /// Tells the direction how its splice has ended.
    pub fn tell(&self, error: io::Error) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.told.notify_one();
    }

    /// What it was told, once.
    pub fn taken(&self) -> Option<io::Error> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Waits until it is told.
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

    /// Whether it has been idle, and still is if it has moved `bytes` by now.
    pub fn is_quiet_at(&self, bytes: u64) -> bool {
        self.quiet.load(Ordering::Acquire) == bytes
    }
}

pub struct Link {
    pub client: Stream,
    pub target: Stream,
    /// from the client to the target
    pub up: Way,
    pub down: Way,
    pub limits: Limits,
    pub kernel: Arc<Kernel>,
    pub pipes: Arc<Pipes>,
}

impl Link {
    pub fn new(
        client: Stream,
        target: Stream,
        limits: Limits,
        kernel: Arc<Kernel>,
        pipes: Arc<Pipes>,
    ) -> Link {
        let both_tcp = client.is_tcp() && target.is_tcp();
        let way = || Way::new(&limits, first_mode(limits.wanted, both_tcp, &kernel));
        let (up, down) = (way(), way());
        Link {
            client,
            target,
            up,
            down,
            limits,
            kernel,
            pipes,
        }
    }

    pub fn is_tcp(&self) -> bool {
        self.client.is_tcp() && self.target.is_tcp()
    }

    /// Bytes from the client to the target, and back.
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
