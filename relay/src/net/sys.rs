// SPDX-License-Identifier: GPL-2.0
//! System calls for which no safe wrapper is at hand, and the descriptor limit.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes that a socket has not sent yet, or whose receipt the peer has not acknowledged.
pub fn unsent(socket: impl AsFd) -> io::Result<u32> {
    const SIOCOUTQ: Opcode = 0x5411;
    // SAFETY: SIOCOUTQ writes one int, which is what the getter has room for.
    #[allow(unsafe_code)]
    let bytes: i32 = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new())? };
    Ok(bytes.try_into().unwrap_or(0))
}

/// A descriptor that the environment says this process was started with. `None` if it is not
/// open.
///
/// The caller must take each number once, before anything else was opened.
pub fn inherited(fd: RawFd) -> Option<OwnedFd> {
    if fd <= 2 || !std::path::Path::new(&format!("/proc/self/fd/{fd}")).exists() {
        return None;
    }
    // SAFETY: the descriptor is open, and by the contract above nobody else owns it.
    #[allow(unsafe_code)]
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(fd)
}

/// Raises the limit of open files as far as the hard limit allows, and returns it.
pub fn raise_descriptor_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current < maximum || maximum.is_none() {
        let wanted = Rlimit {
            current: maximum.or(Some(1 << 20)),
            maximum,
        };
        let _ = setrlimit(Resource::Nofile, wanted);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20)
}

/// Whether an error says that something is short that may be there again soon.
pub fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

/// Whether an error is this one.
pub fn is(error: &io::Error, errno: rustix::io::Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
