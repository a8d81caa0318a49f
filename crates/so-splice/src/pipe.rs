// SPDX-License-Identifier: MIT OR Apache-2.0
//! splice(2): bytes go from a socket into a pipe, and from there into the other socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::sys;

/// A pipe by which splice(2) moves bytes from one socket to another one. No call waits, if the
/// sockets are non-blocking (`O_NONBLOCK`).
///
/// A write to a socket whose connection is gone raises `SIGPIPE`, as splice(2) has no flag against
/// it. Rust's runtime ignores the signal; a program whose `main()` is in C has to do that.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// # let listener = TcpListener::bind("127.0.0.1:0")?;
/// # let mut client = TcpStream::connect(listener.local_addr()?)?;
/// # let (source, _) = listener.accept()?;
/// # let sink = TcpStream::connect(listener.local_addr()?)?;
/// # let (mut server, _) = listener.accept()?;
/// let pipe = so_splice::Pipe::new()?;
/// client.write_all(b"hello")?;
/// let mut held = pipe.fill(&source, 5)?;
/// while held > 0 {
///     held -= pipe.drain(&sink, held)?;
/// }
/// let mut got = [0; 5];
/// server.read_exact(&mut got)?;
/// assert_eq!(&got, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// Most bytes that one call moves, and the size that is requested for the pipe.
    pub const SIZE: usize = 256 << 10;

    /// Makes an empty pipe.
    ///
    /// # Errors
    /// Returns `EMFILE` or `ENFILE` if descriptors are short.
    pub fn new() -> io::Result<Self> {
        let (read, write) = sys::pipe()?;
        // This fails if an unprivileged user has reached the limit of pages in pipes. The pipe then
        // keeps its default size.
        let _ = sys::set_pipe_size(&write, Self::SIZE);
        Ok(Self { read, write })
    }

    /// Moves at most `most` bytes from the socket into the pipe, and returns how many. 0 is the end
    /// of the socket's stream. The pipe must be empty, so that `EAGAIN` comes from the socket.
    ///
    /// # Errors
    /// Returns those of splice(2). `EINVAL` means that the socket does not support it.
    pub fn fill(&self, source: impl AsFd, most: usize) -> io::Result<usize> {
        sys::splice(source, &self.write, most.min(Self::SIZE))
    }

    /// Moves at most `most` bytes from the pipe into the socket, and returns how many.
    ///
    /// # Errors
    /// Returns those of splice(2), such as `EAGAIN` if the socket has no room.
    pub fn drain(&self, sink: impl AsFd, most: usize) -> io::Result<usize> {
        sys::splice(&self.read, sink, most)
    }
}
