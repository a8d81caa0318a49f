// SPDX-License-Identifier: GPL-2.0
//! Front ends: read what a client sends before the relay forwards bytes.

use std::net::SocketAddr;

use crate::config::{Front, Listener, Route};
use crate::net::{Address, Peer, Stream};
use crate::wire::hello::{self, Hello};
use crate::wire::proxy::{self, Header};
use crate::wire::socks::{self, Reply};
use crate::wire::tlv::Tlvs;
use crate::wire::{Parsed, connect};

/// What the client has sent so far.
pub struct Opening {
    /// The client's address, by the PROXY header if there is one.
    pub client: Peer,
    /// The client's address, and the address that it connected to.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// What the target is told in a PROXY header besides the addresses: from the client's header,
    /// and from its ClientHello.
    pub tlvs: Tlvs,
    /// Bytes read from the client. Those that are left after parsing go to the target.
    pub bytes: Vec<u8>,
    pub hello: Option<Hello>,
    /// The destination that a client of CONNECT or SOCKS5 asked for.
    pub destination: Option<Address>,
    /// True from when on the client expects an answer to a request. A client of SOCKS5 first expects
    /// that to its greeting.
    expects_answer: bool,
}

/// Why a connection is not served: a reason, under which it is counted, and details for the log.
#[derive(Debug)]
pub struct Failure {
    pub reason: &'static str,
    pub detail: String,
}

impl Failure {
    pub fn new(reason: &'static str, detail: impl Into<String>) -> Failure {
        let detail = detail.into();
        Failure { reason, detail }
    }
}

/// Most bytes of one read.
const READ: usize = 4096;

/// Parses a message at the start of `bytes` and removes it. While the message is incomplete, reads
/// more bytes from the client.
async fn message<T>(
    client: &Stream,
    bytes: &mut Vec<u8>,
    longest: usize,
    parse: impl Fn(&[u8]) -> Parsed<T>,
) -> Result<T, Failure> {
    loop {
        match parse(bytes) {
            Parsed::Done(value, used) => {
                bytes.drain(..used);
                return Ok(value);
            }
            Parsed::Bad(why) => return Err(Failure::new("bad-header", why)),
            Parsed::More if bytes.len() >= longest => {
                return Err(Failure::new("bad-header", "too long"));
            }
            Parsed::More => more(client, bytes, longest - bytes.len()).await?,
        }
    }
}

async fn more(client: &Stream, bytes: &mut Vec<u8>, most: usize) -> Result<(), Failure> {
    match client.read_more(bytes, READ.min(most)).await {
        // A check whether the port is open, or a client that gave up.
        Ok(0) if bytes.is_empty() => Err(Failure::new("no-header", "the client closed")),
        Ok(0) => Err(Failure::new(
            "bad-header",
            "the client closed in the middle of it",
        )),
        Ok(_) => Ok(()),
        Err(e) => Err(Failure::new("client-error", e.to_string())),
    }
}

impl Opening {
    pub fn new(peer: Peer, local: Option<SocketAddr>) -> Opening {
        Opening {
            addresses: peer.socket_address().zip(local),
            client: peer,
            tlvs: Tlvs::default(),
            bytes: Vec::new(),
            hello: None,
            destination: None,
            expects_answer: false,
        }
    }

    /// Reads the PROXY header, if the listener expects one.
    pub async fn proxy(&mut self, client: &Stream, l: &Listener) -> Result<(), Failure> {
        let Some(version) = l.proxy_in else {
            return Ok(());
        };
        let parse = |bytes: &[u8]| proxy::parse(bytes, version);
        let header: Header = message(client, &mut self.bytes, proxy::LONGEST, parse).await?;
        self.tlvs = header.tlvs;
        if let Some((source, destination)) = header.addresses {
            self.client = Peer::Ip(source);
            self.addresses = Some((source, destination));
        }
        Ok(())
    }

    /// Reads what the front end expects.
    pub async fn front(&mut self, client: &Stream, front: Front) -> Result<(), Failure> {
        match front {
            Front::Plain => Ok(()),
            Front::Tls => self.hello(client).await,
            Front::Connect => self.connect(client).await,
            Front::Socks5 => self.socks(client).await,
        }
    }

    /// Takes what a ClientHello tells about the connection. The protocol is known only if the client
    /// offers no other: the target chooses among several.
    pub fn learn(&mut self, hello: &Hello) {
        if let Some(name) = &hello.server_name {
            self.tlvs.authority = Some(name.as_bytes().to_vec());
        }
        match &hello.alpn[..] {
            [] => {}
            [only] => self.tlvs.alpn = Some(only.clone()),
            _ => self.tlvs.alpn = None,
        }
    }

    async fn hello(&mut self, client: &Stream) -> Result<(), Failure> {
        let mut reader = hello::Reader::default();
        let mut seen = 0;
        loop {
            let found = reader.feed(&self.bytes[seen..]);
            seen = self.bytes.len();
            match found {
                Ok(Some(hello)) => {
                    self.hello = Some(hello);
                    return Ok(());
                }
                Ok(None) if seen >= hello::LONGEST => {
                    return Err(Failure::new("bad-header", "the ClientHello is too long"));
                }
                Ok(None) => more(client, &mut self.bytes, hello::LONGEST - seen).await?,
                Err(why) => {
                    return Err(Failure::new("bad-header", format!("no ClientHello: {why}")));
                }
            }
        }
    }

    async fn connect(&mut self, client: &Stream) -> Result<(), Failure> {
        self.expects_answer = true;
        let asked = message(client, &mut self.bytes, connect::LONGEST, connect::parse).await;
        let (status, failure) = match asked {
            Ok(Ok(address)) => {
                self.destination = Some(address);
                return Ok(());
            }
            Ok(Err(refusal)) => (
                refusal.status(),
                Failure::new("bad-header", refusal.detail()),
            ),
            Err(failure) => (400, failure),
        };
        let _ = client.write_all(&connect::refusal(status)).await;
        Err(failure)
    }

    async fn socks(&mut self, client: &Stream) -> Result<(), Failure> {
        let said = |e: std::io::Error| Failure::new("client-error", e.to_string());
        if !message(client, &mut self.bytes, socks::LONGEST, socks::greeting).await? {
            let _ = client.write_all(socks::NO_METHOD).await;
            return Err(Failure::new(
                "bad-header",
                "the client wants to authenticate",
            ));
        }
        client
            .write_all(socks::NO_AUTHENTICATION)
            .await
            .map_err(said)?;
        self.expects_answer = true;
        match message(client, &mut self.bytes, socks::LONGEST, socks::request).await? {
            Ok(address) => {
                self.destination = Some(address);
                Ok(())
            }
            Err(reply) => {
                let _ = client.write_all(&socks::answer(reply)).await;
                Err(Failure::new("bad-header", format!("SOCKS: {reply:?}")))
            }
        }
    }
}

/// Returns the index of the first route whose names and protocols both match the ClientHello.
pub fn route(routes: &[Route], hello: &Hello) -> Option<usize> {
    let fits = |r: &Route| {
        let name = || match &hello.server_name {
            Some(name) => r.sni.iter().any(|p| p.matches(name)),
            None => false,
        };
        let offers = |p: &String| hello.alpn.iter().any(|a| a == p.as_bytes());
        (r.sni.is_empty() || name()) && (r.alpn.is_empty() || r.alpn.iter().any(offers))
    };
    routes.iter().position(fits)
}

/// Tells a client of CONNECT or SOCKS5 that it is connected.
pub async fn granted(client: &Stream, front: Front) -> std::io::Result<()> {
    match front {
        Front::Connect => client.write_all(connect::OPEN).await,
        Front::Socks5 => client.write_all(&socks::answer(Reply::Granted)).await,
        Front::Plain | Front::Tls => Ok(()),
    }
}

/// Tells a client of CONNECT or SOCKS5 that it cannot be connected, and why.
pub async fn refused(client: &Stream, front: Front, opening: &Opening, reason: &str) {
    if !opening.expects_answer {
        return;
    }
    let (status, reply) = match reason {
        "header-timeout" => (408, Reply::Failure),
        "forbidden" => (403, Reply::Forbidden),
        "connect-timeout" => (504, Reply::TimedOut),
        "unresolved" => (502, Reply::HostUnreachable),
        "connect-failed" => (502, Reply::Refused),
        _ => (502, Reply::Failure),
    };
    let _ = match front {
        Front::Connect => client.write_all(&connect::refusal(status)).await,
        Front::Socks5 => client.write_all(&socks::answer(reply)).await,
        Front::Plain | Front::Tls => return,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_taken_in_order() {
        let text = "[[listener]]\nlisten='127.0.0.1:0'\n\
            [[listener.route]]\nsni='a.example'\nalpn='h2'\nto='127.0.0.1:1'\n\
            [[listener.route]]\nsni=['*.example','b.test']\nto='127.0.0.1:2'\n\
            [[listener.route]]\nalpn='acme-tls/1'\nto='127.0.0.1:3'\n";
        let routes = crate::config::parse(text)
            .unwrap()
            .listeners
            .remove(0)
            .routes;
        let to = |name: &str, alpn: &str| {
            let hello = Hello {
                server_name: Some(name.to_string()).filter(|n| !n.is_empty()),
                alpn: vec![alpn.as_bytes().to_vec()],
            };
            route(&routes, &hello).map(|i| routes[i].pool.to[0].to_string())
        };
        assert_eq!(to("a.example", "h2").as_deref(), Some("127.0.0.1:1"));
        assert_eq!(to("a.example", "http/1.1").as_deref(), Some("127.0.0.1:2"));
        assert_eq!(to("b.test", "").as_deref(), Some("127.0.0.1:2"));
        assert_eq!(to("", "acme-tls/1").as_deref(), Some("127.0.0.1:3"));
        assert_eq!(to("c.test", "h2"), None);
    }
}
