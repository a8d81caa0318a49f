// SPDX-License-Identifier: GPL-2.0
//! The TCP connections of a network namespace, as sock_diag(7) has them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use netlink_sys::{Socket as Netlink, SocketAddr as NetlinkAddress, protocols::NETLINK_SOCK_DIAG};

use crate::kernel::netlink::{Attributes, uninterrupted};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_HEADER: usize = 16;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;

/// Lengths of `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const REQUEST: usize = 56;
const ANSWER: usize = 72;

const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_ULP_INFO: u16 = 19;
const INET_DIAG_CGROUP_ID: u16 = 21;
const INET_ULP_INFO_NAME: u16 = 1;

/// Members of `struct tcp_info`: milliseconds since something happened, and bytes a second.
const LAST_DATA_SENT: usize = 44;
const LAST_DATA_RECEIVED: usize = 52;
const LAST_ACK_RECEIVED: usize = 56;
const MAX_PACING_RATE: usize = 112;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// The handshake is not over.
    Opening,
    Established,
    Closing,
}

/// TCP's numbers of the states that a connection passes through.
const OPENING: [u8; 2] = [2, 3];
const ESTABLISHED: u8 = 1;
const CLOSING: [u8; 5] = [4, 5, 8, 9, 11];

#[derive(Clone, Debug)]
pub struct Socket {
    pub state: State,
    /// v4-mapped addresses as IPv4.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// As SO_COOKIE.
    pub cookie: u64,
    /// 0 if no process has it.
    pub inode: u64,
    /// The id of its cgroup.
    pub cgroup: u64,
    /// The name of its ULP.
    pub ulp: Option<String>,
    /// SO_MAX_PACING_RATE is set.
    pub paced: bool,
    /// The connection is at least so old. It is no older if nothing was received since the
    /// handshake.
    pub least_age: Duration,
}

/// The connections of the calling thread's network namespace. With `ports`, only those with this
/// local and this remote port.
pub fn list(ports: Option<(u16, u16)>) -> io::Result<Vec<Socket>> {
    let mut netlink = Netlink::new(NETLINK_SOCK_DIAG)?;
    netlink.bind_auto()?;
    netlink.connect(&NetlinkAddress::new(0, 0))?;
    let mut sockets = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let request = request(family, ports.unwrap_or((0, 0)));
        uninterrupted(|| netlink.send(&request, 0))?;
        loop {
            let (datagram, sender) = uninterrupted(|| netlink.recv_from_full())?;
            // Only the kernel is believed.
            if sender.port_number() == 0 && take(&datagram, &mut sockets)? {
                break;
            }
        }
    }
    Ok(sockets)
}

fn request(family: u8, ports: (u16, u16)) -> Vec<u8> {
    let states = OPENING.iter().chain(&CLOSING).chain(&[ESTABLISHED]);
    let states = states.fold(0u32, |mask, state| mask | 1 << state);
    let mut bytes = Vec::with_capacity(NLMSG_HEADER + REQUEST);
    bytes.extend(((NLMSG_HEADER + REQUEST) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    bytes.extend(states.to_ne_bytes());
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.resize(NLMSG_HEADER + REQUEST, 0);
    bytes
}

fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an odd answer of sock_diag")
}

/// Takes the sockets of one datagram. True if it was the last one.
fn take(datagram: &[u8], sockets: &mut Vec<Socket>) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let length = u32_at(rest, 0).ok_or_else(odd)? as usize;
        let payload = rest.get(NLMSG_HEADER..length).ok_or_else(odd)?;
        let kind = u16::from_ne_bytes([rest[4], rest[5]]);
        match kind {
            NLMSG_ERROR | NLMSG_DONE => {
                return match u32_at(payload, 0).unwrap_or(0) as i32 {
                    error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                    _ => Ok(true),
                };
            }
            SOCK_DIAG_BY_FAMILY => sockets.push(Socket::parse(payload)?),
            _ => {}
        }
        // Messages start at multiples of four.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(false)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at + 8)?;
    Some(u64::from_ne_bytes(eight.try_into().ok()?))
}

impl Socket {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let (head, attributes) = bytes.split_at_checked(ANSWER).ok_or_else(odd)?;
        let attributes = Attributes::parse(attributes)?;
        let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let address = |at: usize| {
            let bytes: [u8; 16] = head[at..at + 16].try_into().expect("16 bytes");
            match head[0] {
                AF_INET => IpAddr::from(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
                _ => IpAddr::from(Ipv6Addr::from(bytes)).to_canonical(),
            }
        };
        let ulp = attributes.bytes(INET_DIAG_ULP_INFO);
        let ulp = ulp.map(Attributes::parse).transpose()?;
        let info = attributes.bytes(INET_DIAG_INFO).unwrap_or(&[]);
        let since = [LAST_DATA_SENT, LAST_DATA_RECEIVED, LAST_ACK_RECEIVED]
            .map(|at| u32_at(info, at).unwrap_or(0));
        Ok(Socket {
            state: match head[1] {
                ESTABLISHED => State::Established,
                state if OPENING.contains(&state) => State::Opening,
                _ => State::Closing,
            },
            local: SocketAddr::new(address(8), port(4)),
            remote: SocketAddr::new(address(24), port(6)),
            cookie: u64_at(head, 44).unwrap_or(0),
            inode: u32_at(head, 68).unwrap_or(0).into(),
            cgroup: attributes.number(INET_DIAG_CGROUP_ID),
            ulp: ulp.and_then(|ulp| ulp.string(INET_ULP_INFO_NAME)),
            paced: u64_at(info, MAX_PACING_RATE).is_some_and(|rate| rate != u64::MAX),
            least_age: Duration::from_millis(since.into_iter().max().unwrap_or(0).into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn finds_both_ends_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        let own = client.local_addr().unwrap();
        let Ok(found) = list(Some((own.port(), port))) else {
            return; // this kernel has no sock_diag
        };
        let [socket] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (socket.local, socket.remote),
            (own, server.local_addr().unwrap())
        );
        assert!(socket.state == State::Established && socket.cookie != 0 && socket.inode != 0);
        assert!(socket.ulp.is_none() && !socket.paced);
        assert!(socket.least_age < Duration::from_secs(60));
        let all = list(None).unwrap();
        let mirrors = |other: &Socket| other.local == socket.remote && other.remote == socket.local;
        assert!(all.iter().any(mirrors));
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        assert_eq!(
            list(Some((own.port(), port))).unwrap()[0].state,
            State::Closing
        );
    }

    #[test]
    fn odd_answers_are_errors() {
        let mut sockets = Vec::new();
        for odd in [&[1u8][..], &[255, 0, 0, 0, 20, 0, 0, 0], &[3; 16]] {
            assert!(take(odd, &mut sockets).is_err(), "{odd:?}");
        }
        let mut done = vec![0; 20];
        done[0] = 20;
        done[4] = NLMSG_DONE as u8;
        assert!(take(&done, &mut sockets).unwrap());
        done[4] = NLMSG_ERROR as u8;
        done[16..].copy_from_slice(&(-2i32).to_ne_bytes());
        assert!(take(&done, &mut sockets).is_err());
        done[4] = SOCK_DIAG_BY_FAMILY as u8;
        assert!(take(&done, &mut sockets).is_err());
        assert!(sockets.is_empty());
    }
}
