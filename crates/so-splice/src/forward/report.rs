// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was forwarded, and how it ended.

use std::error;
use std::fmt;
use std::io;

/// A way by which bytes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// The kernel forwards, by `SO_SPLICE`.
    #[default]
    Splice,
    /// This program calls splice(2), from the source into a pipe and from there to the sink.
    Pipe,
    /// This program reads and writes.
    Copy,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Splice => "SO_SPLICE",
            Way::Pipe => "splice(2)",
            Way::Copy => "copy",
        })
    }
}

/// What went in one direction. Each byte was accepted by the sink's TCP, and is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// The way that was taken last: the first one that worked, unless an administrator has ended
    /// the splice.
    pub way: Way,
    /// Number of bytes by `SO_SPLICE`, as the kernel has counted them.
    pub spliced: u64,
    /// Number of bytes by splice(2).
    pub piped: u64,
    /// Number of bytes by read and write.
    pub copied: u64,
    pub(super) refused: Option<i32>,
    pub(super) uncounted: bool,
}

impl Traffic {
    /// Returns the bytes of all ways. After `socksplice drain` they may be too few: see
    /// [`is_exact`](Self::is_exact).
    #[must_use]
    pub fn total(&self) -> u64 {
        self.spliced + self.piped + self.copied
    }

    /// Returns the error by which the kernel has refused to splice, if it has.
    #[must_use]
    pub fn refused(&self) -> Option<io::Error> {
        self.refused.map(io::Error::from_raw_os_error)
    }

    /// False if an administrator has ended the splice (`socksplice drain`) and the kernel has
    /// discarded its count. [`spliced`](Self::spliced) is then too low.
    ///
    /// True is no proof after a drain. If no bytes follow it before the stream ends or fails, a
    /// discarded count looks like that of a splice that has moved nothing. Then `spliced` is 0, and
    /// may be too low.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.uncounted
    }
}

/// What went in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// From `a` to `b`.
    pub a_to_b: Traffic,
    /// From `b` to `a`.
    pub b_to_a: Traffic,
}

impl Report {
    /// Returns the bytes of both directions. After `socksplice drain` they may be too few: see
    /// [`Traffic::is_exact`].
    #[must_use]
    pub fn total(&self) -> u64 {
        self.a_to_b.total() + self.b_to_a.total()
    }
}

/// One of the two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The first argument.
    A,
    /// The second argument.
    B,
}

/// The connection of one side failed. What was forwarded before is in [`report`](Self::report).
///
/// It turns into an [`io::Error`], of the same kind.
#[derive(Debug)]
pub struct Error {
    report: Report,
    side: Side,
    error: io::Error,
}

impl Error {
    pub(crate) fn new(report: Report, side: Side, error: io::Error) -> Self {
        Error {
            report,
            side,
            error,
        }
    }

    /// Returns what was forwarded before.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Returns the side whose connection failed.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the error of that connection. `ELOOP` means that the bytes would come back to their
    /// source.
    #[must_use]
    pub fn io_error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::A => "first",
            Side::B => "second",
        };
        write!(f, "the {side} connection: {}", self.error)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error.error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(error.error.kind(), error),
        }
    }
}
