// SPDX-License-Identifier: GPL-2.0
//! System calls that no crate wraps safely, the limit of open files, and tests of errors.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns the number of bytes that a socket has not sent yet, or that its peer has not
/// acknowledged.
pub fn unsent(socket: impl AsFd) -> io::Result<u32> {
    const SIOCOUTQ: Opcode = 0x5411;
    // SAFETY: SIOCOUTQ writes one int, and the getter has room for one.
    #[allow(unsafe_code)]
    let bytes: i32 = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new())? };
    Ok(bytes.try_into().unwrap_or(0))
}

/// Has connect(2) choose the local port, not bind(2): it then only has to differ from those of other
/// connections to the same target.
pub fn choose_port_late(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the kernel reads one int, which is there.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes ownership of a descriptor that this process was started with. Returns `None` if it is not
/// open.
///
/// The caller must take each number only once, and before the process opens other descriptors.
pub fn inherited(fd: RawFd) -> Option<OwnedFd> {
    if fd <= 2 || !std::path::Path::new(&format!("/proc/self/fd/{fd}")).exists() {
        return None;
    }
    // SAFETY: the descriptor is open, and by the contract above nothing else owns it.
    #[allow(unsafe_code)]
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(fd)
}

/// Raises the limit of open files to the hard limit. Returns the limit that is then in force.
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

/// True if the error is a shortage of descriptors or memory, which may soon be over.
pub fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

/// True if the error is `errno`.
pub fn is(error: &io::Error, errno: rustix::io::Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
