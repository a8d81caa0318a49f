// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding between sockets of tokio (feature `tokio`).

use std::future::{Future, pending, poll_fn};
use std::io;
use std::mem;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::forward::engine::{self, Engine, Progress};
use crate::forward::{LAST_BYTES, PAUSE, Pauses, Socket};
use crate::{Error, Report, Way};

impl Socket for TcpStream {
    fn reading<R>(&self, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.try_io(Interest::READABLE, call)
    }
    fn writing<R>(&self, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.try_io(Interest::WRITABLE, call)
    }
    fn ending<R>(&self, mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        // For a combination of interests `try_io` never runs the call.
        match self.try_io(Interest::READABLE, &mut call) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.try_io(Interest::ERROR, call),
            result => result,
        }
    }
}

/// Forwards between two connected sockets, both ways, until both streams have ended. Returns what
/// went each way, and how. It is [`so_splice::forward`](crate::forward()) for async programs.
///
/// No thread waits, and while the kernel forwards (`SO_SPLICE`) nothing wakes the task. splice(2)
/// takes a pipe for each direction that it carries, that is, two descriptors.
///
/// While the future exists, no other code may read from or write to the sockets.
///
/// # Cancellation
/// Dropping the future ends the splices. Bytes that were read and not yet written are lost, and
/// closing the sockets resets their connections, as after an error. So drop them too.
///
/// # Errors
/// Returns an [`Error`] if one of the connections fails; it has the byte counts too. From the first
/// poll of the future on, closing the sockets resets their connections (`SO_LINGER` of zero). A
/// success undoes that. After a failure drop both sockets: their peers must not take a stream that
/// was cut off for a complete one.
///
/// # Panics
/// Panics outside of a runtime of tokio, or if its timers are disabled (`enable_time()`).
///
/// # Example
/// ```
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use tokio::net::{TcpListener, TcpStream};
///
/// # #[tokio::main]
/// # async fn main() -> std::io::Result<()> {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let mut client = TcpStream::connect(listener.local_addr()?).await?;
/// let (a, _) = listener.accept().await?;
/// let b = TcpStream::connect(listener.local_addr()?).await?;
/// let (mut server, _) = listener.accept().await?;
///
/// let relay = tokio::spawn(async move { so_splice::tokio::forward(&a, &b).await });
/// client.write_all(b"ping").await?;
/// client.shutdown().await?;
/// let mut request = String::new();
/// server.read_to_string(&mut request).await?;
/// server.write_all(b"pong!").await?;
/// drop(server);
/// let mut answer = String::new();
/// client.read_to_string(&mut answer).await?;
/// assert_eq!((&*request, &*answer), ("ping", "pong!"));
///
/// let report = relay.await.unwrap()?;
/// assert_eq!((report.a_to_b.total(), report.b_to_a.total()), (4, 5));
/// println!("up by {}, down by {}", report.a_to_b.way, report.b_to_a.way);
/// # Ok(())
/// # }
/// ```
pub async fn forward(a: &TcpStream, b: &TcpStream) -> Result<Report, Error> {
    forward_by(Way::Splice, a, b).await
}

/// Does what [`forward`] does, but tries no way before `first`.
///
/// # Errors
/// As [`forward`].
///
/// # Panics
/// As [`forward`].
pub async fn forward_by(first: Way, a: &TcpStream, b: &TcpStream) -> Result<Report, Error> {
    // A runtime without timers panics here rather than when a connection fails.
    drop(sleep(PAUSE));
    let mut run = Run {
        engine: Engine::new(first),
        ends: [a, b],
    };
    run.forward().await;
    if run.engine.has_failed() {
        let start = Instant::now();
        while Engine::has_unsent(run.ends) && start.elapsed() < LAST_BYTES {
            sleep(PAUSE).await;
        }
    }
    run.engine.end(run.ends)
}

struct Run<'a> {
    engine: Engine,
    ends: [&'a TcpStream; 2],
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.engine.stop(self.ends);
    }
}

impl Run<'_> {
    async fn forward(&mut self) {
        let mut pauses = Pauses::default();
        loop {
            match self.engine.run(self.ends) {
                Progress::Over => return,
                Progress::More => {
                    let_others_run().await;
                    continue;
                }
                // tokio never forgets that a stream has ended, or that an error has closed it for
                // writing, and returns from `ready()` at once.
                Progress::Waits { moved } => {
                    if let Some(pause) = pauses.next(moved) {
                        sleep(pause).await;
                    }
                }
            }
            let [a, b] = self.engine.interest();
            let (mut a, mut b) = (pin!(ready(self.ends[0], a)), pin!(ready(self.ends[1], b)));
            poll_fn(|context| {
                if a.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                b.as_mut().poll(context)
            })
            .await;
        }
    }
}

/// Returns to the runtime once.
async fn let_others_run() {
    let mut first = true;
    poll_fn(|context| {
        if !mem::take(&mut first) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits until the socket is what `interest` names, for ever if that is nothing.
async fn ready(socket: &TcpStream, interest: engine::Interest) {
    let mut wanted = None;
    for (yes, one) in [
        (interest.readable, Interest::READABLE),
        (interest.writable, Interest::WRITABLE),
        (interest.error, Interest::ERROR),
    ] {
        if yes {
            wanted = Some(wanted.map_or(one, |others: Interest| others | one));
        }
    }
    match wanted {
        // An error of the runtime that goes down: the next poll will not come.
        Some(wanted) => drop(socket.ready(wanted).await),
        None => pending().await,
    }
}
