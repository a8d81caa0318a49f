// SPDX-License-Identifier: MIT OR Apache-2.0
//! relay-mio LISTEN TO: what the example relay does, with one thread and mio's event loop.

use std::collections::HashMap;
use std::env;
use std::io;
use std::net::SocketAddr;
use std::process::exit;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use so_splice::mio::{Forwarder, Progress};
use so_splice::{Report, Traffic};

const LISTENER: Token = Token(0);
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);
/// Time after which to try again if accept(2) has failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Time that bytes have to reach their peers after a connection has failed.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// Time between two looks at them.
const PAUSE: Duration = Duration::from_millis(5);

/// A connection to the server that is being made, or both.
enum Session {
    Connecting(TcpStream, TcpStream),
    Forwarding(Box<Forwarder>),
}

fn words(way: &str, traffic: &Traffic) -> String {
    if let Some(e) = traffic.refused() {
        eprintln!("relay: SO_SPLICE: {e}: by {}", traffic.way);
    }
    let otherwise = traffic.piped + traffic.copied;
    format!("{way} {} spliced {otherwise} otherwise", traffic.spliced)
}

fn say(report: &Report) {
    let (up, down) = (words("up", &report.a_to_b), words("down", &report.b_to_a));
    println!("{up} {down}");
}

struct Relay {
    poll: Poll,
    to: SocketAddr,
    sessions: HashMap<Token, Session>,
    next: usize,
    /// Those that have failed, and when.
    failed: Vec<(Box<Forwarder>, Instant)>,
    /// When to call accept(2) without an event.
    accept_again: Option<Instant>,
}

impl Relay {
    /// Accepts all clients that there are.
    fn accept(&mut self, listener: &TcpListener) {
        self.accept_again = None;
        loop {
            match listener.accept() {
                Ok((client, _)) => {
                    // A client that cannot be served is dropped, alone.
                    if let Err(e) = self.connect(client) {
                        eprintln!("relay: {}: {e}", self.to);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                // Descriptors or memory are short, which may pass. No event would tell.
                Err(e) => {
                    eprintln!("relay: accept: {e}: waiting");
                    self.accept_again = Some(Instant::now() + ACCEPT_AGAIN);
                    return;
                }
            }
        }
    }

    fn connect(&mut self, client: TcpStream) -> io::Result<()> {
        let mut server = TcpStream::connect(self.to)?;
        self.next += 1;
        let token = Token(self.next);
        self.poll.registry().register(&mut server, token, BOTH)?;
        self.sessions
            .insert(token, Session::Connecting(client, server));
        Ok(())
    }

    /// Does what can be done for one session. Returns true if there is more to do at once.
    fn advance(&mut self, token: Token) -> io::Result<bool> {
        let session = match self.sessions.remove(&token) {
            None => return Ok(false),
            Some(Session::Connecting(client, mut server)) => {
                if let Some(e) = server.take_error()? {
                    return Err(e);
                }
                if server.peer_addr().is_err() {
                    let session = Session::Connecting(client, server);
                    self.sessions.insert(token, session);
                    return Ok(false);
                }
                self.poll.registry().deregister(&mut server)?;
                let mut forwarder = Box::new(Forwarder::new(client, server));
                self.poll
                    .registry()
                    .register(&mut *forwarder, token, BOTH)?;
                forwarder
            }
            Some(Session::Forwarding(forwarder)) => forwarder,
        };
        let mut forwarder = session;
        match forwarder.advance() {
            Ok(Progress::Done(report)) => say(&report),
            Ok(progress) => {
                self.sessions.insert(token, Session::Forwarding(forwarder));
                return Ok(progress == Progress::More);
            }
            Err(e) => {
                self.failed.push((forwarder, Instant::now()));
                return Err(e.into());
            }
        }
        Ok(false)
    }

    /// Drops the forwarders that have failed, which resets their connections, once their last bytes
    /// have arrived.
    fn drop_failed(&mut self) {
        self.failed
            .retain(|(forwarder, since)| forwarder.has_unsent() && since.elapsed() < LAST_BYTES);
    }

    /// Returns how long to wait for an event.
    fn wait(&self, more: bool) -> Option<Duration> {
        if more {
            return Some(Duration::ZERO);
        }
        let look = (!self.failed.is_empty()).then_some(PAUSE);
        let accept = self
            .accept_again
            .map(|at| at.saturating_duration_since(Instant::now()));
        look.into_iter().chain(accept).min()
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().collect();
    let [_, listen, to] = args.as_slice() else {
        eprintln!("usage: relay-mio LISTEN-ADDRESS TO-ADDRESS");
        exit(2);
    };
    let address = |text: &str| text.parse().map_err(io::Error::other);
    let mut listener = TcpListener::bind(address(listen)?)?;
    println!("listening {}", listener.local_addr()?);
    let mut relay = Relay {
        poll: Poll::new()?,
        to: address(to)?,
        sessions: HashMap::new(),
        next: 0,
        failed: Vec::new(),
        accept_again: None,
    };
    let registry = relay.poll.registry();
    registry.register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(256);
    let mut more: Vec<Token> = Vec::new();
    loop {
        relay.drop_failed();
        let wait = relay.wait(!more.is_empty());
        match relay.poll.poll(&mut events, wait) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
        if relay.accept_again.is_some_and(|at| at <= Instant::now()) {
            relay.accept(&listener);
        }
        let ready: Vec<Token> = events.iter().map(|e| e.token()).collect();
        for token in more.drain(..).chain(ready).collect::<Vec<_>>() {
            if token == LISTENER {
                relay.accept(&listener);
                continue;
            }
            match relay.advance(token) {
                Ok(true) => more.push(token),
                Ok(false) => {}
                Err(e) => eprintln!("relay: {}: {e}", relay.to),
            }
        }
    }
}
