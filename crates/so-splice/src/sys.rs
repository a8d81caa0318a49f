// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on sockets and pipes. All `unsafe` code of the crate is here and in `option.rs`.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

fn number(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn status(result: c_int) -> io::Result<()> {
    number(result as isize).map(drop)
}

/// Reads without waiting. Returns 0 at the end of the stream.
pub(crate) fn recv(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (to, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: `buffer` has room for `len` bytes. The descriptor is borrowed, so it is open.
    number(unsafe { libc::recv(socket.as_fd().as_raw_fd(), to, len, libc::MSG_DONTWAIT) })
}

/// Returns true if a byte can be read, and false at the end of the stream.
pub(crate) fn peek(socket: impl AsFd) -> io::Result<bool> {
    let mut byte = 0u8;
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: there is room for one byte. The descriptor is borrowed, so it is open.
    let got = unsafe {
        libc::recv(
            socket.as_fd().as_raw_fd(),
            ptr::from_mut(&mut byte).cast(),
            1,
            flags,
        )
    };
    Ok(number(got)? > 0)
}

/// Writes without waiting, and without `SIGPIPE`.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (from, len) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: the kernel reads `len` bytes of `bytes`. The descriptor is borrowed, so it is open.
    number(unsafe { libc::send(socket.as_fd().as_raw_fd(), from, len, flags) })
}

pub(crate) fn shutdown_write(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: the call takes numbers alone. The descriptor is borrowed, so it is open.
    status(unsafe { libc::shutdown(socket.as_fd().as_raw_fd(), libc::SHUT_WR) })
}

/// True until a reset, or until both streams have ended.
pub(crate) fn is_connected(socket: impl AsFd) -> bool {
    // SAFETY: all zeros are a value of this struct, which has room for an address of any family.
    let mut address: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&address) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes to `address`, and the length to `len`.
    unsafe { libc::getpeername(fd, ptr::from_mut(&mut address).cast(), &mut len) == 0 }
}

fn get<T>(socket: impl AsFd, name: c_int, mut value: T) -> io::Result<T>
where
    T: Copy,
{
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    let (fd, to) = (socket.as_fd().as_raw_fd(), ptr::from_mut(&mut value).cast());
    // SAFETY: the callers pass an int or a struct of ints, for which every value is valid. The
    // kernel writes at most `len` bytes to it.
    status(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, to, &mut len) })?;
    Ok(value)
}

/// Returns the socket's pending error and clears it.
pub(crate) fn take_error(socket: impl AsFd) -> Option<io::Error> {
    match get(socket, libc::SO_ERROR, 0 as c_int) {
        Ok(0) => None,
        Ok(number) => Some(io::Error::from_raw_os_error(number)),
        Err(e) => Some(e),
    }
}

/// `SO_LINGER`: what closing the socket does.
pub(crate) type Linger = libc::linger;

pub(crate) fn linger(socket: impl AsFd) -> io::Result<Linger> {
    let none = Linger {
        l_onoff: 0,
        l_linger: 0,
    };
    get(socket, libc::SO_LINGER, none)
}

pub(crate) fn set_linger(socket: impl AsFd, value: Linger) -> io::Result<()> {
    let len = mem::size_of::<Linger>() as libc::socklen_t;
    let (fd, from) = (socket.as_fd().as_raw_fd(), ptr::from_ref(&value).cast());
    // SAFETY: the kernel reads `len` bytes of `value`.
    status(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, from, len) })
}

/// Returns the number of bytes that the socket has not sent, or that its peer has not acknowledged.
pub(crate) fn unsent(socket: impl AsFd) -> usize {
    let mut bytes: c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ, writes one int.
    let done = unsafe {
        libc::ioctl(
            socket.as_fd().as_raw_fd(),
            libc::TIOCOUTQ,
            ptr::from_mut(&mut bytes),
        )
    };
    if done == 0 {
        bytes.try_into().unwrap_or(0)
    } else {
        0
    }
}

/// One entry of `poll(2)`: the socket, if it is of interest, and the events.
pub(crate) type Entry<'a> = (Option<std::os::fd::BorrowedFd<'a>>, libc::c_short);

/// Waits, `milliseconds` at most or for ever if negative. Returns the events of each entry.
pub(crate) fn poll<const N: usize>(
    entries: [Entry; N],
    milliseconds: c_int,
) -> io::Result<[libc::c_short; N]> {
    let mut fds = entries.map(|(fd, events)| libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events,
        revents: 0,
    });
    // SAFETY: the array has N entries. The descriptors are borrowed, so they are open.
    let done = unsafe { libc::poll(fds.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
    status(done)?;
    Ok(fds.map(|fd| fd.revents))
}

/// True if `poll(2)` shows an error of the socket, which `SO_ERROR` may not show at the moment.
pub(crate) fn has_error(socket: impl AsFd) -> bool {
    let entry = (Some(socket.as_fd()), 0);
    poll([entry], 0).is_ok_and(|[events]| events & libc::POLLERR != 0)
}

pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0 as c_int; 2];
    // SAFETY: the kernel writes two ints.
    status(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    // SAFETY: the descriptors are new, and nothing else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

pub(crate) fn set_pipe_size(pipe: impl AsFd, bytes: usize) -> io::Result<()> {
    let size = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    // SAFETY: the call takes numbers alone. The descriptor is borrowed, so it is open.
    status(unsafe { libc::fcntl(pipe.as_fd().as_raw_fd(), libc::F_SETPIPE_SZ, size) })
}

/// Sets or clears `O_NONBLOCK`. Returns what it was before.
pub(crate) fn set_nonblocking(socket: impl AsFd, yes: bool) -> io::Result<bool> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the call takes numbers alone. The descriptor is borrowed, so it is open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    status(flags)?;
    let before = flags & libc::O_NONBLOCK != 0;
    if before != yes {
        // SAFETY: as above.
        status(unsafe { libc::fcntl(fd, libc::F_SETFL, flags ^ libc::O_NONBLOCK) })?;
    }
    Ok(before)
}

/// splice(2) of at most `most` bytes, without waiting.
pub(crate) fn splice(from: impl AsFd, to: impl AsFd, most: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    // SAFETY: the call takes numbers, and no pointer to an offset. The descriptors are borrowed,
    // so they are open.
    let moved = unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), most, flags) };
    number(moved)
}
