// SPDX-License-Identifier: MIT OR Apache-2.0
//! `forward()` for sockets of the standard library: the calling thread waits by poll(2).

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use super::engine::{Engine, Interest, Progress};
use super::{Error, Report, Side, Socket, Way};
use crate::sys;

/// Time that bytes received from one side have to reach the other one after the first one failed.
pub(crate) const LAST_BYTES: Duration = Duration::from_secs(1);

/// Time between two looks at what no event reports.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// How long to sleep after wake-ups that have led to nothing. poll(2) or an event loop may go on to
/// report an error, or an end of stream, that is not what the engine waits for.
#[derive(Default)]
pub(crate) struct Pauses {
    vain: u32,
}

impl Pauses {
    /// Returns the pause before the next wait, after a run that has moved something or not. One
    /// wake-up for nothing is usual.
    pub fn next(&mut self, moved: bool) -> Option<Duration> {
        self.vain = if moved { 0 } else { self.vain + 1 };
        match self.vain {
            0 | 1 => None,
            n => Some((PAUSE * (1 << (n - 2).min(5))).min(20 * PAUSE)),
        }
    }
}

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

/// Forwards between two connected sockets, both ways, until both streams have ended. Returns what
/// went each way, and how.
///
/// Each direction uses the first way that works: `SO_SPLICE`, splice(2), read and write. When one
/// stream ends, its end is passed on (a half-close), and the other direction goes on.
///
/// The calling thread waits, so give each connection a thread. While the function runs, the sockets
/// are non-blocking and no other code may read from or write to them. That includes other
/// descriptors of the same sockets, such as those of `try_clone()`.
///
/// # Errors
/// Returns an [`Error`] if one of the connections fails; it has the byte counts too. From the start
/// of the function, closing the sockets resets their connections (`SO_LINGER` of zero). A success
/// undoes that. So after a failure drop both sockets: their peers must not take a stream that was
/// cut off for a complete one.
///
/// # Example
/// ```
/// use std::io::{Read, Write};
/// use std::net::{Shutdown, TcpListener, TcpStream};
/// use std::thread;
///
/// # fn main() -> std::io::Result<()> {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut client = TcpStream::connect(listener.local_addr()?)?;
/// let (a, _) = listener.accept()?;
/// let b = TcpStream::connect(listener.local_addr()?)?;
/// let (mut server, _) = listener.accept()?;
///
/// let relay = thread::spawn(move || so_splice::forward(&a, &b));
/// client.write_all(b"ping")?;
/// client.shutdown(Shutdown::Write)?;
/// let mut request = String::new();
/// server.read_to_string(&mut request)?;
/// server.write_all(b"pong!")?;
/// drop(server);
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert_eq!((&*request, &*answer), ("ping", "pong!"));
///
/// let report = relay.join().unwrap()?;
/// assert_eq!((report.a_to_b.total(), report.b_to_a.total()), (4, 5));
/// println!("up by {}, down by {}", report.a_to_b.way, report.b_to_a.way);
/// # Ok(())
/// # }
/// ```
pub fn forward(a: &TcpStream, b: &TcpStream) -> Result<Report, Error> {
    forward_by(Way::Splice, a, b)
}

/// Does what [`forward`] does, but tries no way before `first`.
///
/// # Errors
/// As [`forward`].
pub fn forward_by(first: Way, a: &TcpStream, b: &TcpStream) -> Result<Report, Error> {
    let ends = [a, b];
    let mut before = [true; 2];
    for (i, side) in [Side::A, Side::B].into_iter().enumerate() {
        before[i] = sys::set_nonblocking(ends[i], true)
            .map_err(|e| Error::new(Report::default(), side, e))?;
    }
    let mut engine = Engine::new(first);
    run(&mut engine, ends);
    if engine.has_failed() {
        let start = Instant::now();
        while Engine::has_unsent(ends) && start.elapsed() < LAST_BYTES {
            thread::sleep(PAUSE);
        }
    }
    for (end, nonblocking) in ends.into_iter().zip(before) {
        let _ = sys::set_nonblocking(end, nonblocking);
    }
    engine.end(ends)
}

fn run(engine: &mut Engine, ends: [&TcpStream; 2]) {
    let mut pauses = Pauses::default();
    loop {
        match engine.run(ends) {
            Progress::Over => return,
            Progress::More => continue,
            Progress::Waits { moved } => {
                if let Some(pause) = pauses.next(moved) {
                    thread::sleep(pause);
                }
            }
        }
        let mut entries = [(None, 0); 2];
        for (
            i,
            Interest {
                readable,
                writable,
                error,
            },
        ) in engine.interest().into_iter().enumerate()
        {
            if readable || writable || error {
                let wanted = |yes, event| if yes { event } else { 0 };
                let events = wanted(readable, libc::POLLIN) | wanted(writable, libc::POLLOUT);
                entries[i] = (Some(ends[i].as_fd()), events);
            }
        }
        // EINTR is a wake-up for nothing.
        let _ = sys::poll(entries, -1);
    }
}
