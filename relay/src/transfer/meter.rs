// SPDX-License-Identifier: GPL-2.0
//! Counts the bytes that a direction has moved.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Mode, kernel};
use crate::net::Stream;

/// Bytes moved in each mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub sosplice: u64,
    pub pipe: u64,
    pub copy: u64,
}

impl Sums {
    pub fn total(&self) -> u64 {
        self.sosplice + self.pipe + self.copy
    }

    pub fn add(&mut self, other: &Sums) {
        self.sosplice += other.sosplice;
        self.pipe += other.pipe;
        self.copy += other.copy;
    }
}

#[derive(Default)]
struct State {
    sums: Sums,
    /// True while the kernel counts the bytes of a splice, which `sums` does not include yet.
    spliced: bool,
    /// The kernel's count when it was last read. A module that is drained forgets the counts of the
    /// splices that it ends. The relay then uses this one.
    seen: u64,
}

impl State {
    fn look(&mut self, source: &Stream) -> u64 {
        self.seen = self.seen.max(kernel::moved(source));
        self.seen
    }
}

/// The counter of one direction. Its lock covers the moments at which the kernel's count begins and
/// ends. A reader therefore counts no byte twice, and misses none.
#[derive(Default)]
pub struct Meter(Mutex<State>);

impl Meter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes moved so far. They include those that the present splice of `source` has
    /// moved.
    pub fn sums(&self, source: &Stream) -> Sums {
        let mut state = self.lock();
        let mut sums = state.sums;
        if state.spliced {
            sums.sosplice += state.look(source);
        }
        sums
    }

    pub fn add(&self, mode: Mode, bytes: u64) {
        let mut state = self.lock();
        match mode {
            Mode::Sosplice => state.sums.sosplice += bytes,
            Mode::Pipe => state.sums.pipe += bytes,
            Mode::Copy => state.sums.copy += bytes,
        }
    }

    /// Calls `start`, which starts a splice. From then on the kernel counts.
    pub fn begin(&self, start: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        start()?;
        state.spliced = true;
        state.seen = 0;
        Ok(())
    }

    /// True if a splice runs, or has ended but this direction has not noticed yet.
    pub fn is_spliced(&self) -> bool {
        self.lock().spliced
    }

    /// Adds the kernel's count of the splice, which has ended, to the sums. Returns the count.
    pub fn end(&self, source: &Stream) -> u64 {
        let mut state = self.lock();
        let bytes = state.look(source);
        state.sums.sosplice += bytes;
        state.spliced = false;
        bytes
    }
}
