// SPDX-License-Identifier: GPL-2.0
//! A connected socket, TCP or Unix. Both directions of a link use it at the same time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};

use super::address::plain;
use super::sys;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub fn is_tcp(&self) -> bool {
        matches!(self, Stream::Tcp(_))
    }

    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Stream::Tcp(s) => s.ready(interest).await,
            Stream::Unix(s) => s.ready(interest).await,
        }
    }

    /// Runs a non-blocking system call on the socket. If `call` returns `EAGAIN`, tokio clears the
    /// readiness, so that the next [`ready`](Self::ready) waits.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        match self {
            Stream::Tcp(s) => s.try_io(interest, call),
            Stream::Unix(s) => s.try_io(interest, call),
        }
    }

    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_io(Interest::READABLE, || {
            let (n, _) = recv(self, &mut *buffer, RecvFlags::DONTWAIT)?;
            Ok(n)
        })
    }

    /// Returns true if a byte can be read, and false at the end of the stream. Ignores tokio's
    /// readiness: to clear it on `EAGAIN`, call this within [`try_io`](Self::try_io).
    pub fn peek_now(&self) -> io::Result<bool> {
        let mut byte = [0u8];
        let (n, _) = recv(self, &mut byte[..], RecvFlags::DONTWAIT | RecvFlags::PEEK)?;
        Ok(n > 0)
    }

    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_io(Interest::WRITABLE, || {
            Ok(send(
                self,
                bytes,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            )?)
        })
    }

    /// Waits for bytes and appends at most `most` of them to `buffer`. Returns their number, 0 at
    /// the end of the stream.
    pub async fn read_more(&self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        let before = buffer.len();
        loop {
            self.ready(Interest::READABLE).await?;
            buffer.resize(before + most, 0);
            let result = self.try_read(&mut buffer[before..]);
            buffer.truncate(before + *result.as_ref().unwrap_or(&0));
            match result {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Waits until a write that returned `EAGAIN` may be tried again.
    ///
    /// An error of the socket sets tokio's "closed for writing". That stays set after the error has
    /// been taken, and tokio then never waits again. In this case the function asks poll(2)
    /// regularly.
    pub async fn writable(&self) -> io::Result<()> {
        let mut pause = Duration::from_millis(2);
        while self.ready(Interest::WRITABLE).await?.is_write_closed() && !self.has_room() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        Ok(())
    }

    /// True if a write would return at once: the socket has room, or an error.
    pub fn has_room(&self) -> bool {
        !self.poll_now(PollFlags::OUT).is_empty()
    }

    /// Returns what poll(2) shows: those of `events` that hold, and errors. If poll(2) fails,
    /// returns nothing.
    pub fn poll_now(&self, events: PollFlags) -> PollFlags {
        let mut fds = [PollFd::new(self, events)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&now)) {
            Ok(_) => fds[0].revents(),
            Err(_) => PollFlags::empty(),
        }
    }

    /// Returns the socket's pending error (`SO_ERROR`) and clears it.
    pub fn take_error(&self) -> Option<io::Error> {
        SockRef::from(self).take_error().ok().flatten()
    }

    /// True while the socket is connected, that is, until a reset or until both ends have closed.
    pub fn is_connected(&self) -> bool {
        rustix::net::getpeername(self).is_ok()
    }

    /// Waits until a TCP connection has failed, by a reset or a timeout, and returns the error. That
    /// of a Unix socket always counts as connected.
    pub async fn failed(&self) -> io::Error {
        while self.is_connected() {
            if let Err(e) = self.ready(Interest::ERROR).await {
                return e;
            }
            // tokio also remembers an error that an earlier splice has left: forget that.
            let _ = self.try_io(Interest::ERROR, || {
                if self.is_connected() {
                    Err(io::ErrorKind::WouldBlock.into())
                } else {
                    Ok(())
                }
            });
        }
        self.take_error()
            .unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// Returns the socket's own address if it is a TCP socket. That of an IPv4 connection to a socket
    /// of both families is an IPv4 address, as the peer's is.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(s) => {
                let address = s.local_addr().ok()?;
                Some(match plain(address.ip()) {
                    v4 @ IpAddr::V4(_) => SocketAddr::new(v4, address.port()),
                    IpAddr::V6(_) => address,
                })
            }
            Stream::Unix(_) => None,
        }
    }

    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(shutdown(self, Shutdown::Write)?)
    }

    /// Sets whether closing the socket resets the connection (`SO_LINGER` of zero).
    pub fn close_resets(&self, yes: bool) {
        let linger = yes.then_some(Duration::ZERO);
        let _ = SockRef::from(self).set_linger(linger);
    }

    /// Prepares the socket so that closing it resets the connection. First waits, a second at most,
    /// until the peer has acknowledged all bytes: a reset discards those still in the send queue.
    pub async fn reset(&self) {
        let mut pause = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        while self.is_tcp()
            && waited < Duration::from_secs(1)
            && self.is_connected()
            && sys::unsent(self).is_ok_and(|n| n > 0)
        {
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        self.close_resets(true);
    }
}

/// Sets `TCP_NODELAY`, which sends small writes at once, and keepalive, which notices a dead peer, on
/// a TCP socket. A listening socket hands both on to the connections that it accepts.
pub fn tune(socket: impl AsFd) {
    let socket = SockRef::from(&socket);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_keepalive(true);
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(s) => s.as_fd(),
            Stream::Unix(s) => s.as_fd(),
        }
    }
}
