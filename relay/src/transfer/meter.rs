// SPDX-License-Identifier: GPL-2.0
//! What a direction has moved.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Mode, kernel};
use crate::net::Stream;

/// Bytes by each of the ways.
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
    /// The kernel counts besides what is in `sums`.
    spliced: bool,
    /// What it had counted when somebody last asked: a module that is drained forgets the counts
    /// of the splices that it ends.
    seen: u64,
}

impl State {
    fn look(&mut self, source: &Stream) -> u64 {
        self.seen = self.seen.max(kernel::moved(source));
        self.seen
    }
}

/// The counter of one direction. Its lock makes the moments at which the kernel's count begins
/// and ends atomic, so that a reader sees no byte twice and none goes missing.
#[derive(Default)]
pub struct Meter(Mutex<State>);

impl Meter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes so far, those that the kernel just moves from `source` included.
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

    /// Begins a splice by `start`; the kernel counts from there on.
    pub fn begin(&self, start: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        start()?;
        state.spliced = true;
        state.seen = 0;
        Ok(())
    }

    /// Whether a splice is under way, or its end not noticed yet.
    pub fn is_spliced(&self) -> bool {
        self.lock().spliced
    }

    /// Takes over what the kernel has counted for the splice, which has ended.
    pub fn end(&self, source: &Stream) -> u64 {
        let mut state = self.lock();
        let bytes = state.look(source);
        state.sums.sosplice += bytes;
        state.spliced = false;
        bytes
    }
}
