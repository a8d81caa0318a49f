// SPDX-License-Identifier: MIT OR Apache-2.0
//! The option itself: begin a splice, end it, count its bytes.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use crate::raw::{LEVEL, SO_SPLICE, Splice};

/// The limits of a splice. It also ends with the source's stream, and with an error.
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
    /// Number of bytes, 1 to `i64::MAX`, after which the splice ends. The source's `SO_ERROR` is
    /// then `EFBIG`. `None` means no limit.
    pub max: Option<u64>,
    /// Time without a moved byte after which the splice ends. The source's `SO_ERROR` is then
    /// `ETIMEDOUT`. The time must be above zero, and is rounded up to microseconds. `None` means no
    /// limit.
    pub idle: Option<Duration>,
}

impl Options {
    /// Returns options without limits.
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

    fn argument(&self, fd: c_int) -> io::Result<Splice> {
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
        Ok(Splice {
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

/// Starts a splice: the kernel forwards to `sink` the bytes that `source` receives. Bytes that
/// `source` has received and nobody has read go first.
///
/// Both sockets are TCP, or both are UDP. Of UDP whole datagrams move, and `sink` must be connected.
///
/// ```
/// use std::net::UdpSocket;
///
/// # fn main() -> std::io::Result<()> {
/// let (client, server) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
/// let (source, sink) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
/// sink.connect(server.local_addr()?)?;
/// match so_splice::splice(&source, &sink, so_splice::Options::new()) {
///     Ok(()) => {
///         client.send_to(b"question", source.local_addr()?)?;
///         let mut datagram = [0; 100];
///         assert_eq!(server.recv(&mut datagram)?, 8);
///     }
///     Err(e) if so_splice::is_unavailable(&e) => println!("this program will copy: {e}"),
///     Err(e) => return Err(e),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns the errors of so_splice(4). Both sockets are then unchanged. [`is_unavailable`] tells
/// after which of them a program should copy.
///
/// Returns [`io::ErrorKind::InvalidInput`] also if `options` are out of range. In a 32-bit
/// program, returns [`io::ErrorKind::Unsupported`] if they are not the default.
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
        mem::size_of::<Splice>(),
    )
}

/// Ends the splice of `source`. Bytes that were not sent can then be read from `source`.
///
/// # Errors
/// Returns `ENOTCONN` if `source` is not spliced.
pub fn unsplice(source: impl AsFd) -> io::Result<()> {
    let none: c_int = -1;
    set(source, ptr::from_ref(&none).cast(), mem::size_of::<c_int>())
}

/// Returns the bytes that the splice of `source` has moved so far. After the splice, returns
/// the bytes that the last one moved, or 0 if an administrator's `socksplice drain` has discarded
/// that count.
///
/// # Errors
/// Returns `ENOPROTOOPT` if the module is not loaded, and `EPROTONOSUPPORT` if `source` is neither
/// a TCP nor a UDP socket.
pub fn moved(source: impl AsFd) -> io::Result<u64> {
    let mut bytes = 0u64;
    let mut len = mem::size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `bytes`, and the length to `len`.
    // The descriptor is borrowed, so it is open.
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

/// True if a program should copy after [`splice`] has returned `error`. The copy then works,
/// or its own error tells what is wrong. These are the errors:
/// - `ENOPROTOOPT`: the module is not loaded, or the feature is off.
/// - `EPERM`: the caller may not splice.
/// - `EINVAL`: a socket is in other use, such as kTLS.
/// - `EPROTONOSUPPORT`: the sockets are not both TCP or both UDP. One may be MPTCP, which a server may get without
///   asking for it, as with Go's listeners from 1.24 on.
/// - `ENOMEM`: there is no memory for the splice, which is charged to the caller.
/// - `ENOTCONN`: a connection has ended. The bytes that the source received before can still be
///   read. A server may have answered and closed before the program spliced this direction.
/// - `EACCES`: a security module does not let the caller read the source or write to the sink.
/// - `EOPNOTSUPP`: a socket listens, or the kernel cannot splice at present.
/// - `EINTR`: a signal came before a byte was moved.
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
                | libc::EACCES
                | libc::EOPNOTSUPP
                | libc::EINTR
        )
    )
}

/// Asks whether this process may splice now. It does so with a socket of its own, which is not
/// connected: the kernel checks the feature and the caller's rights before it checks the socket.
///
/// # Errors
/// Returns `ENOPROTOOPT` if the module is not loaded or the feature is off, `EPERM` if the caller
/// may not splice, and the errors of `socket(2)`, such as `EMFILE`.
///
/// ```
/// match so_splice::probe() {
///     Ok(()) => println!("the kernel splices"),
///     Err(e) => println!("this program will copy: {e}"),
/// }
/// ```
pub fn probe() -> io::Result<()> {
    // SAFETY: the call takes numbers alone.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    match splice(&socket, &socket, Options::default()) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EPERM)) => Err(e),
        _ => Ok(()),
    }
}

fn set(source: impl AsFd, value: *const c_void, len: usize) -> io::Result<()> {
    // SAFETY: all callers pass a value that lives in their frame, and its size. The kernel
    // only reads it. The descriptor is borrowed, so it is open.
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
        assert_eq!(mem::size_of::<Splice>(), 32);
        assert_eq!(mem::offset_of!(Splice, sp_max), 8);
        assert_eq!(mem::offset_of!(Splice, sp_idle), 16);
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
