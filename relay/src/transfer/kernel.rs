// SPDX-License-Identifier: GPL-2.0
//! `SO_SPLICE`: whether the kernel accepts splices now, and all calls of the crate so-splice.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::net::{Stream, sys};

/// Whether the kernel accepts splices. All connections of the process share it.
pub struct Kernel {
    /// Odd while the kernel accepts splices. Each change adds one, so a direction also notices a
    /// change that happened while it slept.
    state: AtomicU64,
    why_not: Mutex<Arc<str>>,
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel {
            state: AtomicU64::new(0),
            why_not: Mutex::new("not asked yet".into()),
        }
    }
}

impl Kernel {
    /// Asks the kernel whether it accepts splices, and records the answer.
    pub fn probe(&self) {
        self.hear(so_splice::probe());
    }

    /// Records an answer. If descriptors or memory are short, the former one stays.
    fn hear(&self, answer: io::Result<()>) {
        match answer {
            Ok(()) => self.set(true),
            Err(e) if sys::is(&e, Errno::NOPROTOOPT) => {
                self.unavailable("the module socksplice is not loaded, or its so-splice off");
            }
            Err(e) if sys::is(&e, Errno::PERM) => {
                self.unavailable("the module permits no splices here");
            }
            Err(e) if sys::is_shortage(&e) && self.state() != 0 => {}
            Err(e) => self.unavailable(&format!("no socket to ask with: {e}")),
        }
    }

    pub fn is_available(&self) -> bool {
        self.state() % 2 == 1
    }

    /// Returns a number that changes with each change of the answer.
    pub fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    pub fn why_not(&self) -> Arc<str> {
        self.why_not
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Records that the kernel accepts no splices, until [`probe`](Self::probe) finds that it does.
    pub fn unavailable(&self, why: &str) {
        *self.why_not.lock().unwrap_or_else(PoisonError::into_inner) = why.into();
        self.set(false);
    }

    pub(super) fn set(&self, available: bool) {
        let change = |state: u64| (state % 2 != u64::from(available)).then_some(state + 1);
        let _ = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }
}

/// Starts a splice: the kernel forwards the bytes of `source` to `sink`.
#[allow(clippy::field_reassign_with_default)]
pub fn splice(
    source: &Stream,
    sink: &Stream,
    max: Option<u64>,
    idle: Option<Duration>,
) -> io::Result<()> {
    let mut options = so_splice::Options::default();
    options.max = max;
    options.idle = idle;
    so_splice::splice(source, sink, options)
}

/// Returns the bytes moved by the present splice of `source`, or else by its last one.
pub fn moved(source: &Stream) -> u64 {
    so_splice::moved(source).unwrap_or(0)
}

/// Ends the splice of `source`, if there is one.
pub fn unsplice(source: &Stream) {
    let _ = so_splice::unsplice(source);
}

/// True if the connection should use another mode after [`splice`] has returned `error`.
pub fn is_unavailable(error: &io::Error) -> bool {
    so_splice::is_unavailable(error) || sys::is(error, Errno::BUSY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_seen() {
        let kernel = Kernel::default();
        assert!(!kernel.is_available());
        let first = kernel.state();
        kernel.set(false);
        assert_eq!(kernel.state(), first);
        kernel.set(true);
        assert!(kernel.is_available());
        kernel.unavailable("drained");
        assert!(!kernel.is_available());
        assert_eq!(&*kernel.why_not(), "drained");
        assert_ne!(kernel.state(), first);
    }

    #[test]
    fn a_shortage_of_descriptors_changes_no_answer() {
        let kernel = Kernel::default();
        kernel.set(true);
        for short in [Errno::MFILE, Errno::NFILE] {
            kernel.hear(Err(short.into()));
            assert!(kernel.is_available());
        }
        kernel.hear(Err(Errno::AFNOSUPPORT.into()));
        assert!(!kernel.is_available());
    }
}
