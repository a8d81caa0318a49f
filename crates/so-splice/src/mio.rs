// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding between sockets of mio (feature `mio`).

use std::fmt;
use std::io;

use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::forward::Socket;
use crate::forward::engine::{self, Engine};
use crate::{Error, Report, Way};

impl Socket for TcpStream {
    fn reading<R>(&self, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        call()
    }
    fn writing<R>(&self, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        call()
    }
    fn ending<R>(&self, mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        call()
    }
}

/// What [`Forwarder::advance`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Call again after the next event of its token.
    Waiting,
    /// Call again soon, without an event: there is more to do, and others had no turn.
    More,
    /// Both streams have ended. The forwarder can be deregistered and dropped.
    Done(Report),
}

/// Forwards between two connected sockets, both ways, until both streams have ended. It is
/// [`so_splice::forward`](crate::forward()) for programs with an event loop of mio.
///
/// Register it as one source, with a token of its own, and call [`advance`](Self::advance) after
/// each event of that token. While the kernel forwards (`SO_SPLICE`) there are none.
///
/// From the first call on, closing the sockets resets their connections (`SO_LINGER` of zero), until
/// [`Progress::Done`] undoes that. Dropping the forwarder before ends the splices and resets both
/// connections. A reset discards what their peers have not received yet. So after an error keep the
/// forwarder until [`has_unsent`](Self::has_unsent) is false, a second at most, before dropping it.
///
/// # Example
/// ```
/// use std::io::{Read, Write};
/// use std::net::{self, Shutdown};
/// use std::thread;
///
/// use mio::{Events, Interest, Poll, Token};
/// use so_splice::mio::{Forwarder, Progress};
///
/// # fn main() -> std::io::Result<()> {
/// let listener = net::TcpListener::bind("127.0.0.1:0")?;
/// let mut client = net::TcpStream::connect(listener.local_addr()?)?;
/// let (a, _) = listener.accept()?;
/// let b = net::TcpStream::connect(listener.local_addr()?)?;
/// let (mut server, _) = listener.accept()?;
/// let peers = thread::spawn(move || -> std::io::Result<(String, String)> {
///     client.write_all(b"ping")?;
///     client.shutdown(Shutdown::Write)?;
///     let (mut request, mut answer) = (String::new(), String::new());
///     server.read_to_string(&mut request)?;
///     server.write_all(b"pong!")?;
///     drop(server);
///     client.read_to_string(&mut answer)?;
///     Ok((request, answer))
/// });
///
/// a.set_nonblocking(true)?;
/// b.set_nonblocking(true)?;
/// let (a, b) = (mio::net::TcpStream::from_std(a), mio::net::TcpStream::from_std(b));
/// let mut poll = Poll::new()?;
/// let mut events = Events::with_capacity(16);
/// let mut forwarder = Forwarder::new(a, b);
/// poll.registry().register(&mut forwarder, Token(0), Interest::READABLE | Interest::WRITABLE)?;
/// let report = loop {
///     match forwarder.advance()? {
///         Progress::Waiting => poll.poll(&mut events, None)?,
///         Progress::More => {}
///         Progress::Done(report) => break report,
///     }
/// };
/// assert_eq!((report.a_to_b.total(), report.b_to_a.total()), (4, 5));
/// # drop(forwarder);
/// # let (request, answer) = peers.join().unwrap()?;
/// # assert_eq!((&*request, &*answer), ("ping", "pong!"));
/// # Ok(())
/// # }
/// ```
pub struct Forwarder {
    a: TcpStream,
    b: TcpStream,
    engine: Engine,
    ended: bool,
}

impl Forwarder {
    /// Takes two connected sockets. Nothing is forwarded before [`advance`](Self::advance).
    #[must_use]
    pub fn new(a: TcpStream, b: TcpStream) -> Self {
        Self::by(Way::Splice, a, b)
    }

    /// Does what [`new`](Self::new) does, but tries no way before `first`.
    #[must_use]
    pub fn by(first: Way, a: TcpStream, b: TcpStream) -> Self {
        Self {
            a,
            b,
            engine: Engine::new(first),
            ended: false,
        }
    }

    /// Moves what can be moved without waiting. After the end it does nothing, and returns the
    /// report again.
    ///
    /// # Errors
    /// Returns an [`Error`] once, if one of the connections fails; it has the byte counts too.
    /// Dropping the forwarder then resets both connections. Bytes that were forwarded before may
    /// still be on their way: keep it until [`has_unsent`](Self::has_unsent) is false, a second at
    /// most, before dropping it.
    pub fn advance(&mut self) -> Result<Progress, Error> {
        if self.ended {
            return Ok(Progress::Done(self.report()));
        }
        let ends = [&self.a, &self.b];
        match self.engine.run(ends) {
            engine::Progress::Waits { .. } => Ok(Progress::Waiting),
            engine::Progress::More => Ok(Progress::More),
            engine::Progress::Over => {
                self.ended = true;
                self.engine.end(ends).map(Progress::Done)
            }
        }
    }

    /// Returns what was forwarded so far. Bytes of a splice are counted when it has ended;
    /// [`moved`](crate::moved) of [`a`](Self::a) and [`b`](Self::b) has those of one that runs.
    #[must_use]
    pub fn report(&self) -> Report {
        self.engine.report()
    }

    /// True if dropping the forwarder after an error would discard bytes that a peer has not
    /// acknowledged. No event tells when that ends: look again every few milliseconds. A peer that
    /// does not read can keep it true for ever, so set a limit.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        Engine::has_unsent([&self.a, &self.b])
    }

    /// Returns the first socket.
    #[must_use]
    pub fn a(&self) -> &TcpStream {
        &self.a
    }

    /// Returns the second socket.
    #[must_use]
    pub fn b(&self) -> &TcpStream {
        &self.b
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.engine.stop([&self.a, &self.b]);
    }
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder")
            .field("a", &self.a)
            .field("b", &self.b)
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}

/// Registers both sockets with one token. They need both interests, whatever the caller names.
impl Source for Forwarder {
    fn register(&mut self, registry: &Registry, token: Token, _: Interest) -> io::Result<()> {
        registry.register(&mut self.a, token, BOTH)?;
        registry
            .register(&mut self.b, token, BOTH)
            .inspect_err(|_| drop(registry.deregister(&mut self.a)))
    }

    fn reregister(&mut self, registry: &Registry, token: Token, _: Interest) -> io::Result<()> {
        registry.reregister(&mut self.a, token, BOTH)?;
        registry.reregister(&mut self.b, token, BOTH)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut self.a)?;
        registry.deregister(&mut self.b)
    }
}

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);
