// SPDX-License-Identifier: MIT OR Apache-2.0
//! `SO_SPLICE`: the kernel forwards what one TCP socket, the *source*, receives into
//! another one, the *sink*. so_splice(4) describes what it does, which errors it gives,
//! and what the administrator has to do: `socksplice feature set so-splice on`.
//!
//! A proxy's direction, which copies where it cannot be spliced:
//!
//! ```no_run
//! use std::io;
//! use std::net::{Shutdown, TcpStream};
//!
//! fn forward(mut source: &TcpStream, mut sink: &TcpStream) -> io::Result<u64> {
//!     if let Err(error) = so_splice::splice(source, sink, so_splice::Options::default()) {
//!         if !so_splice::is_unavailable(&error) {
//!             return Err(error);
//!         }
//!     }
//!     // While spliced, a read waits: this returns after the splice has ended, and
//!     // carries what it left.
//!     let copied = io::copy(&mut source, &mut sink)?;
//!     // No end of stream is sent on by a splice.
//!     sink.shutdown(Shutdown::Write)?;
//!     Ok(so_splice::moved(source).unwrap_or(0) + copied)
//! }
//! ```
//!
//! Where this fails, reset the sink (`SO_LINGER` of zero, and close). Otherwise its peer takes
//! a stream that was cut off for a whole one. `examples/relay.rs` does that.
//!
//! A splice belongs to the source's socket in the kernel, not to a value of the program:
//! it goes on when the descriptors that it was made with are dropped but others of the
//! same sockets live, and ends by itself. So there is no guard here that would end one.
//!
//! For Linux only. A 32-bit program can splice, but not set [`Options`]: the kernel takes the
//! struct of 64-bit programs.

#[cfg(not(target_os = "linux"))]
compile_error!("so-splice is for Linux only: SO_SPLICE comes from the kernel module socksplice");

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

// As in include/socksplice.h.
const LEVEL: c_int = libc::IPPROTO_IP;
const SO_SPLICE: c_int = 0x5350;

/// `struct splice` of include/socksplice.h
#[repr(C)]
struct Argument {
    sp_fd: c_int,
    sp_max: i64,
    sp_idle: libc::timeval,
}

/// When a splice ends by itself, besides the end of the source's stream and errors.
///
/// ```
/// use std::time::Duration;
///
/// let options = so_splice::Options::new()
///     .with_max(1 << 20)
///     .with_idle(Duration::from_secs(30));
/// assert_eq!(options.max, Some(1 << 20));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Bytes after which the source's `SO_ERROR` is `EFBIG`: 1 to `i64::MAX`. `None`: no
    /// limit.
    pub max: Option<u64>,
    /// Time without a byte moved after which it is `ETIMEDOUT`: above zero; counted in
    /// microseconds, rounded up. `None`: for ever.
    pub idle: Option<Duration>,
}

impl Options {
    /// No limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`max`](Self::max).
    #[must_use]
    pub fn with_max(mut self, bytes: u64) -> Self {
        self.max = Some(bytes);
        self
    }

    /// Sets [`idle`](Self::idle).
    #[must_use]
    pub fn with_idle(mut self, time: Duration) -> Self {
        self.idle = Some(time);
        self
    }

    fn argument(&self, fd: c_int) -> io::Result<Argument> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let max = match self.max {
            None => 0,
            Some(0) => return Err(invalid("a limit of no bytes")),
            Some(n) => i64::try_from(n).map_err(|_| invalid("a limit above 2^63 - 1 bytes"))?,
        };
        let idle = match self.idle {
            None => Duration::ZERO,
            Some(Duration::ZERO) => return Err(invalid("an idle time of zero")),
            Some(t) => Duration::from_micros(
                u64::try_from(t.as_nanos().div_ceil(1000))
                    .map_err(|_| invalid("an idle time that is too long"))?,
            ),
        };
        Ok(Argument {
            sp_fd: fd,
            sp_max: max,
            sp_idle: libc::timeval {
                tv_sec: libc::time_t::try_from(idle.as_secs())
                    .map_err(|_| invalid("an idle time that is too long"))?,
                tv_usec: idle.subsec_micros() as libc::suseconds_t,
            },
        })
    }
}

/// Has the kernel forward to `sink` what `source` receives, beginning with what it has
/// received and nobody has read.
///
/// # Errors
/// Those of so_splice(4), with both sockets as they were. [`is_unavailable`] tells those
/// after which a program should copy. [`io::ErrorKind::InvalidInput`] also for `options` that are
/// out of range, and [`io::ErrorKind::Unsupported`] for any but the default in a 32-bit program.
pub fn splice(source: impl AsFd, sink: impl AsFd, options: Options) -> io::Result<()> {
    let argument = options.argument(sink.as_fd().as_raw_fd())?;
    if cfg!(not(target_pointer_width = "64")) {
        if options != Options::default() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        return set(
            source,
            ptr::from_ref(&argument.sp_fd).cast(),
            mem::size_of::<c_int>(),
        );
    }
    set(
        source,
        ptr::from_ref(&argument).cast(),
        mem::size_of::<Argument>(),
    )
}

/// Ends the splice whose source this is. What it has not sent is there to be read.
///
/// # Errors
/// `ENOTCONN` where there is none.
pub fn unsplice(source: impl AsFd) -> io::Result<()> {
    let none: c_int = -1;
    set(source, ptr::from_ref(&none).cast(), mem::size_of::<c_int>())
}

/// Bytes that the splice of `source` has moved so far; or, once it has ended, that the
/// last one did.
///
/// # Errors
/// `ENOPROTOOPT` where the module is not loaded, `EPROTONOSUPPORT` for what is not TCP.
pub fn moved(source: impl AsFd) -> io::Result<u64> {
    let mut bytes = 0u64;
    let mut len = mem::size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `bytes`, and the length to `len`;
    // the descriptor is borrowed, so open.
    let status = unsafe {
        libc::getsockopt(
            source.as_fd().as_raw_fd(),
            LEVEL,
            SO_SPLICE,
            ptr::from_mut(&mut bytes).cast(),
            &mut len,
        )
    };
    if status == 0 {
        Ok(bytes)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether after this error of [`splice`] a program should copy, which works, or tells what
/// is the matter:
/// - `ENOPROTOOPT`: the module is not loaded, or the feature off;
/// - `EPERM`: the caller may not splice;
/// - `EINVAL`: a socket is used in another way, such as by kTLS;
/// - `EPROTONOSUPPORT`: a socket is not TCP; MPTCP is what a server may have without having
///   asked for it (Go's listeners, from 1.24);
/// - `ENOMEM`: a splice takes memory of the kernel's, which is charged to the caller;
/// - `ENOTCONN`: a connection has ended. What the source received before can be read all the
///   same: a server may have answered and closed before anybody came to splice this way.
pub fn is_unavailable(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENOPROTOOPT
                | libc::EPERM
                | libc::EINVAL
                | libc::EPROTONOSUPPORT
                | libc::ENOMEM
                | libc::ENOTCONN
        )
    )
}

fn set(source: impl AsFd, value: *const c_void, len: usize) -> io::Result<()> {
    // SAFETY: all callers pass a value that lives in their frame, and its size; the
    // kernel only reads it. The descriptor is borrowed, so open.
    let status = unsafe {
        libc::setsockopt(
            source.as_fd().as_raw_fd(),
            LEVEL,
            SO_SPLICE,
            value,
            len as libc::socklen_t,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_argument_is_that_of_the_header() {
        assert_eq!(mem::size_of::<Argument>(), 32);
        assert_eq!(mem::offset_of!(Argument, sp_max), 8);
        assert_eq!(mem::offset_of!(Argument, sp_idle), 16);
    }

    #[test]
    fn limits_are_passed_on() {
        let options = Options::new()
            .with_max(5)
            .with_idle(Duration::from_millis(2500));
        let a = options.argument(7).unwrap();
        assert_eq!((a.sp_fd, a.sp_max), (7, 5));
        assert_eq!((a.sp_idle.tv_sec, a.sp_idle.tv_usec), (2, 500_000));
        let a = Options::default().argument(7).unwrap();
        assert_eq!((a.sp_max, a.sp_idle.tv_sec, a.sp_idle.tv_usec), (0, 0, 0));
    }

    #[test]
    fn an_idle_time_is_never_rounded_to_none() {
        let options = Options {
            idle: Some(Duration::from_nanos(1)),
            ..Options::default()
        };
        assert_eq!(options.argument(0).unwrap().sp_idle.tv_usec, 1);
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        for options in [
            Options {
                max: Some(0),
                ..Options::default()
            },
            Options {
                max: Some(1 << 63),
                ..Options::default()
            },
            Options {
                idle: Some(Duration::ZERO),
                ..Options::default()
            },
            Options {
                idle: Some(Duration::MAX),
                ..Options::default()
            },
        ] {
            let error = options.argument(0).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_refused() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(splice(&a, &b, Options::default()).is_err());
        assert!(unsplice(&a).is_err());
        assert!(moved(&a).is_err());
    }
}
