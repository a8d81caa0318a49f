// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwards between two connected sockets, both ways, until both streams have ended.

mod blocking;
pub(crate) mod engine;
mod flow;
mod report;

#[cfg(feature = "tokio")]
pub(crate) use blocking::{LAST_BYTES, PAUSE, Pauses};
pub use blocking::{forward, forward_by};
pub use report::{Error, Report, Side, Traffic, Way};

use std::io;
use std::os::fd::AsFd;

/// A socket as the engine sees it. An event loop that remembers readiness clears it if a call
/// returns `EAGAIN`.
pub(crate) trait Socket: AsFd {
    /// Runs a call that reads.
    fn reading<R>(&self, call: impl FnOnce() -> io::Result<R>) -> io::Result<R>;
    /// Runs a call that writes.
    fn writing<R>(&self, call: impl FnOnce() -> io::Result<R>) -> io::Result<R>;
    /// Runs a call that looks for the end of a splice: bytes, the end of the stream, or an error.
    fn ending<R>(&self, call: impl FnMut() -> io::Result<R>) -> io::Result<R>;
}
