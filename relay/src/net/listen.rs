// SPDX-License-Identifier: GPL-2.0
//! Listening sockets.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use super::{Address, Peer, Stream, tune};

/// A listening socket, TCP or Unix.
#[derive(Debug)]
pub enum Bound {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// True if the relay bound the socket. It then removes the socket's file too. systemd keeps
        /// the sockets that it has passed, and their files must stay.
        own: bool,
    },
}

/// A connection, and the address of its client.
pub struct Accepted {
    pub stream: Stream,
    pub peer: Peer,
}

/// Most connections that wait in the accept queue of a socket.
pub const BACKLOG: i32 = 4096;

impl Bound {
    /// Listens at `address`.
    ///
    /// # Errors
    /// Returns those of socket(2), bind(2) and listen(2).
    pub fn bind(address: &Address) -> io::Result<Bound> {
        match address {
            Address::Ip(a) => Self::tcp(*a, true),
            Address::Any(port) => Self::tcp(
                SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, *port, 0, 0).into(),
                false,
            ),
            Address::Unix(path) => Self::unix(path),
            Address::Name(..) | Address::Passed(_) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no such socket was passed by systemd",
            )),
        }
    }

    fn tcp(address: SocketAddr, only_v6: bool) -> io::Result<Bound> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking(),
            None,
        )?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(only_v6)?;
        }
        tune(&socket);
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Bound::Tcp(TcpListener::from_std(socket.into())?))
    }

    /// Listens at `path`. Replaces the file of a socket that no process listens at any more.
    fn unix(path: &Path) -> io::Result<Bound> {
        let address = SockAddr::unix(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        match socket.bind(&address) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && is_left_over(path, &address) => {
                std::fs::remove_file(path)?;
                socket.bind(&address)?;
            }
            result => result?,
        }
        let listen = || {
            socket.listen(BACKLOG)?;
            UnixListener::from_std(socket.into())
        };
        match listen() {
            Ok(listener) => Ok(Bound::Unix {
                listener,
                own: true,
            }),
            Err(e) => {
                let _ = std::fs::remove_file(path);
                Err(e)
            }
        }
    }

    /// Takes over a listening socket that another process has passed on. `own` is true if that
    /// process was a relay, and bound the socket.
    ///
    /// # Errors
    /// Returns an error if the socket does not listen, or is neither TCP nor Unix.
    pub fn adopt(fd: OwnedFd, own: bool) -> io::Result<Bound> {
        let socket = Socket::from(fd);
        socket.set_nonblocking(true)?;
        let other = || io::Error::new(io::ErrorKind::InvalidInput, "not a listening stream socket");
        if !socket.is_listener()? || socket.r#type()? != Type::STREAM {
            return Err(other());
        }
        match socket.domain()? {
            Domain::IPV4 | Domain::IPV6 => {
                tune(&socket);
                Ok(Bound::Tcp(TcpListener::from_std(socket.into())?))
            }
            Domain::UNIX => Ok(Bound::Unix {
                listener: UnixListener::from_std(socket.into())?,
                own,
            }),
            _ => Err(other()),
        }
    }

    /// Returns the address at which the socket listens, in the form of the configuration.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Bound::Tcp(l) => {
                let address = l.local_addr()?;
                let both = address.is_ipv6()
                    && address.ip().is_unspecified()
                    && !SockRef::from(l).only_v6()?;
                Ok(if both {
                    Address::Any(address.port())
                } else {
                    Address::Ip(address)
                })
            }
            Bound::Unix { listener, .. } => listener
                .local_addr()?
                .as_pathname()
                .map(|p| Address::Unix(p.into()))
                .ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidInput, "a nameless Unix socket")
                }),
        }
    }

    /// True if the socket has a file, and the relay bound it.
    pub fn owns_file(&self) -> bool {
        matches!(self, Bound::Unix { own: true, .. })
    }

    /// Removes the file of a Unix socket that the relay bound. Call this if no process listens
    /// there any more.
    pub fn remove_file(&self) {
        if self.owns_file() {
            if let Ok(Address::Unix(path)) = self.address() {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// # Errors
    /// Returns those of accept(2).
    pub async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Bound::Tcp(l) => {
                let (stream, peer) = l.accept().await?;
                Ok(Accepted {
                    stream: Stream::Tcp(stream),
                    peer: Peer::Ip(peer),
                })
            }
            Bound::Unix { listener, .. } => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted {
                    stream: Stream::Unix(stream),
                    peer: Peer::unix(peer.as_pathname()),
                })
            }
        }
    }
}

/// True if no process listens at the socket's file. The connect(2) never waits: a listener whose
/// accept queue is full answers `EAGAIN`, so the address is in use.
fn is_left_over(path: &Path, address: &SockAddr) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    is_socket
        && Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)
            .and_then(|s| s.connect(address))
            .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Bound::Tcp(l) => l.as_fd(),
            Bound::Unix { listener, .. } => listener.as_fd(),
        }
    }
}
