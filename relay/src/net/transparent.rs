// SPDX-License-Identifier: GPL-2.0
//! Connections from an address that is not this host's (`IP_TRANSPARENT`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

use super::sys;

/// Asks whether this process may connect from other hosts' addresses.
///
/// # Errors
/// Returns `EPERM` without `CAP_NET_ADMIN`. Another error tells nothing about that.
pub fn permitted() -> io::Result<()> {
    Socket::new(Domain::IPV4, Type::STREAM, None)?.set_ip_transparent_v4(true)
}

/// Connects to `to` from the address `from`. The kernel chooses the port.
///
/// # Errors
/// Returns those of setsockopt(2), bind(2) and connect(2), or `AddrNotAvailable` if the two addresses
/// are of different families, or if `from` is link-local: its device is not known here.
pub async fn connect_from(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let unusable = |why| {
        let what = format!("transparent: the client's address {from} is {why}");
        Err(io::Error::new(io::ErrorKind::AddrNotAvailable, what))
    };
    if from.is_ipv4() != to.is_ipv4() {
        return unusable("of another family");
    }
    if matches!(from, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        return unusable("link-local");
    }
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // The kernel takes this option of IP on sockets of both families.
    SockRef::from(&socket).set_ip_transparent_v4(true)?;
    sys::choose_port_late(&socket)?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_that_cannot_be_used_are_named() {
        for (from, why) in [
            ("127.0.0.1", "of another family"),
            ("fe80::1", "link-local"),
        ] {
            let result = connect_from(from.parse().unwrap(), "[::1]:1".parse().unwrap()).await;
            let said = result.unwrap_err().to_string();
            assert_eq!(
                said,
                format!("transparent: the client's address {from} is {why}")
            );
        }
    }
}
