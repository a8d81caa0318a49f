// SPDX-License-Identifier: GPL-2.0
//! A connected socket, TCP or Unix, used by both directions at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};

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

    /// Runs a system call that says `EAGAIN` where the socket is not ready, and has the next
    /// [`ready`](Self::ready) wait if it does.
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

    /// Whether there is something to be read: `Ok(false)` at the end of the stream. Of tokio's
    /// readiness it knows nothing: for use within [`try_io`](Self::try_io).
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

    /// Appends to `buffer` what comes next, `most` bytes at most; 0 at the end of the stream.
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

    /// Waits until a write that said `EAGAIN` is worth another try.
    ///
    /// An error that was taken from the socket leaves tokio's "closed for writing" set for
    /// ever, and it would not wait any more: then this waits by the clock.
    pub async fn writable(&self) -> io::Result<()> {
        let ready = self.ready(Interest::WRITABLE).await?;
        if ready.is_write_closed() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// The socket's pending error, which is cleared.
    pub fn take_error(&self) -> Option<io::Error> {
        SockRef::from(self).take_error().ok().flatten()
    }

    /// Whether the socket is still connected: not reset, and not closed by both ends.
    pub fn is_connected(&self) -> bool {
        rustix::net::getpeername(self).is_ok()
    }

    /// Its own address, where that is one of IP.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(s) => s.local_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(shutdown(self, Shutdown::Write)?)
    }

    /// Has the close of the socket reset the connection, or not.
    pub fn close_resets(&self, yes: bool) {
        let linger = yes.then_some(Duration::ZERO);
        let _ = SockRef::from(self).set_linger(linger);
    }

    /// Resets the connection, as soon as the peer has acknowledged all bytes that were sent,
    /// or after a second: a reset overtakes bytes that still wait.
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

    /// Has small writes sent at once, and a dead peer noticed.
    pub fn tune(&self) {
        if self.is_tcp() {
            let socket = SockRef::from(self);
            let _ = socket.set_tcp_nodelay(true);
            let _ = socket.set_keepalive(true);
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(s) => s.as_fd(),
            Stream::Unix(s) => s.as_fd(),
        }
    }
}
