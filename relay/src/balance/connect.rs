// SPDX-License-Identifier: GPL-2.0
//! connect(2) with a time limit.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep, timeout_at};

use crate::net::{Peer, Stream, sys, transparent, tune};

/// Connects to `peer` within `time`, from the address `from` if there is one and `peer` has an IP
/// address. While descriptors or memory are short, tries again. Closing the
/// stream resets the connection until its owner ends it cleanly: however the process ends, the
/// target never takes a stream that was cut off for a complete one.
///
/// # Errors
/// Returns those of socket(2) and connect(2), or `TimedOut` after `time`.
pub async fn connect(peer: &Peer, from: Option<IpAddr>, time: Duration) -> io::Result<Stream> {
    let end = Instant::now() + time;
    loop {
        let result = match timeout_at(end, once(peer, from)).await {
            Ok(result) => result,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        match result {
            Err(e) if sys::is_shortage(&e) && Instant::now() < end => {
                sleep(PAUSE).await;
            }
            Ok(stream) => {
                if stream.is_tcp() {
                    tune(&stream);
                }
                stream.close_resets(true);
                return Ok(stream);
            }
            Err(e) => return Err(e),
        }
    }
}

/// True if the error of a connect attempt is a shortage of descriptors, memory or local ports. It
/// tells nothing about the peer.
pub fn is_own_shortage(error: &io::Error) -> bool {
    sys::is_shortage(error) || error.kind() == io::ErrorKind::AddrNotAvailable
}

/// Time between two attempts while something is short.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects to `peer`. Waits while the accept queue of a Unix listener is full, as TCP does of
/// itself, but for no resources of this process.
pub(super) async fn once(peer: &Peer, from: Option<IpAddr>) -> io::Result<Stream> {
    match (peer, from) {
        (Peer::Ip(to), None) => TcpStream::connect(to).await.map(Stream::Tcp),
        (Peer::Ip(to), Some(from)) => transparent::connect_from(from, *to).await.map(Stream::Tcp),
        (Peer::Unix(path), _) => loop {
            match UnixStream::connect(path).await {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE).await,
                result => return result.map(Stream::Unix),
            }
        },
        (Peer::Unnamed, _) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}
