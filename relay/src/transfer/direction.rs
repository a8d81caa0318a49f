// SPDX-License-Identifier: GPL-2.0
//! One direction of a link. It forwards bytes from its source to its sink, in any mode, until it
//! ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use tokio::io::{Interest, Ready};

use super::chunk::{self, CHUNK};
use super::link::{Link, Way};
use super::rate::Share;
use super::{Bucket, Mode, Wanted, kernel};
use crate::net::{Stream, sys};

/// Why a direction has ended.
#[derive(Debug)]
pub enum End {
    /// The source's stream has ended, and all of it was sent.
    Eof,
    /// `max_bytes` were sent.
    Limit,
    /// No byte moved in either direction for the idle time.
    Idle,
    /// The kernel found that the bytes would come back to the source.
    Loop,
    /// The configured mode is `sosplice`, and the kernel refused the splice.
    Refused(io::Error),
    Source(io::Error),
    Sink(io::Error),
}

/// The result of one step: the direction goes on in the mode chosen by then, or it has ended.
enum Step {
    Again,
    End(End),
}

/// How a splice in the kernel ended.
enum Over {
    Eof,
    /// The source has bytes to read, which the splice has not moved.
    Left,
    /// poll(2) shows an error, but `SO_ERROR` reads 0 at the moment.
    Unclear,
    Error(io::Error),
}

/// How many bytes a direction may move before it has to ask the limits again. What it has not spent of
/// the bandwidth when this is dropped goes back.
struct Grant<'b> {
    most: Option<u64>,
    shares: [Option<Share<'b>>; 2],
}

impl Grant<'_> {
    fn without_shares(most: Option<u64>) -> Self {
        Grant {
            most,
            shares: [None, None],
        }
    }

    fn spend(&mut self, bytes: u64) {
        for share in self.shares.iter_mut().flatten() {
            share.spend(bytes);
        }
    }
}

/// Time after which a splice that moves nothing ends and gives back its slice of the bandwidth.
const SLICE_IDLE: Duration = Duration::from_millis(200);

/// Time within which tokio must learn of bytes in the source. epoll reports them at once.
const UNHEARD: Duration = Duration::from_secs(1);

/// Number of reads after which a direction lets other tasks use the thread.
const ROUNDS: u32 = 16;

/// Bytes that a direction copies at most before it splices. See [`Link::copies_first`].
const FIRST_BYTES: u64 = 64 << 10;

pub struct Direction<'a> {
    pub link: &'a Link,
    pub source: &'a Stream,
    pub sink: &'a Stream,
    pub way: &'a Way,
    pub other: &'a Way,
    /// [`Kernel::state`](super::Kernel::state) before this direction last chose whether to splice.
    asked: u64,
    /// True until this direction has copied its first bytes, if it does so before it splices.
    copies_first: bool,
}

impl<'a> Direction<'a> {
    pub fn new(link: &'a Link, up: bool) -> Self {
        let (client, target) = (&link.client, &link.target);
        let (source, sink) = if up {
            (client, target)
        } else {
            (target, client)
        };
        let (way, other) = if up {
            (&link.up, &link.down)
        } else {
            (&link.down, &link.up)
        };
        Direction {
            link,
            source,
            sink,
            way,
            other,
            asked: link.asked,
            copies_first: link.copies_first,
        }
    }

    /// Forwards until the direction ends. What only a transfer needs is in a box, so that an idle
    /// connection is small.
    pub async fn run(mut self) -> End {
        loop {
            self.ask_again();
            let step = match self.way.chosen.mode() {
                _ if self.remaining() == Some(0) => Step::End(End::Limit),
                Mode::Sosplice => self.spliced().await,
                mode => match self.wait_readable().await {
                    Ok(()) => Box::pin(self.moved(mode)).await,
                    Err(end) => Step::End(end),
                },
            };
            if let Step::End(end) = step {
                return end;
            }
        }
    }

    /// Changes to `SO_SPLICE` if the kernel accepts splices, and its state has changed since this
    /// direction last asked.
    fn ask_again(&mut self) {
        let state = self.link.kernel.state();
        let wanted = self.link.limits.wanted;
        if matches!(wanted, Wanted::Auto | Wanted::Only(Mode::Sosplice))
            && self.way.chosen.mode() != Mode::Sosplice
            && state != self.asked
            && self.link.is_tcp()
        {
            self.asked = state;
            if self.link.kernel.is_available() {
                self.way.chosen.set(Mode::Sosplice, "the module came");
            }
        }
    }

    /// Forwards what the source has, without a splice.
    async fn moved(&mut self, mode: Mode) -> Step {
        if mode == Mode::Copy && self.copies_first && self.total() > 0 {
            self.copies_first = false;
            self.way.chosen.set(Mode::Sosplice, "the module is there");
            return Step::Again;
        }
        let mut grant = self.grant().await;
        if mode == Mode::Pipe {
            return self.piped(grant).await;
        }
        if self.copies_first {
            grant.most = Some(grant.most.unwrap_or(FIRST_BYTES).min(FIRST_BYTES));
        }
        self.copy_burst(grant).await
    }

    fn do_without(&self, mode: Mode, why: impl Into<Arc<str>>) -> Step {
        self.way.chosen.set(mode, why);
        Step::Again
    }

    fn total(&self) -> u64 {
        self.way.meter.sums(self.source).total()
    }

    /// Returns the bytes that are left of `max_bytes`, or `None` if there is no such limit.
    fn remaining(&self) -> Option<u64> {
        let max = self.link.limits.max_bytes?;
        Some(max.saturating_sub(self.total()))
    }

    /// Records that this direction was idle for the idle time. Returns true if the other one was
    /// too, or has ended.
    fn idle_out(&self) -> bool {
        self.way.fall_quiet(self.total());
        // This direction's sink is the source of the other one.
        let total = self.other.meter.sums(self.sink).total();
        self.other.is_done() || self.other.is_quiet_at(total)
    }

    /// Waits until the source is readable.
    async fn wait_readable(&self) -> Result<(), End> {
        let ready = if self.link.limits.idle.is_some() {
            Box::pin(self.readable_within_idle()).await?
        } else {
            self.source.ready(Interest::READABLE).await
        };
        ready.map(drop).map_err(End::Source)
    }

    async fn readable_within_idle(&self) -> Result<io::Result<Ready>, End> {
        loop {
            let ready = self.source.ready(Interest::READABLE);
            if let Some(ready) = self.within_idle(ready).await? {
                return Ok(ready);
            }
        }
    }

    /// Waits until the source is readable and the sink has room.
    async fn wait_both(&self) -> Result<(), End> {
        self.wait_readable().await?;
        loop {
            // The kernel has filled the sink without tokio's knowledge. On `EAGAIN` tokio forgets
            // that the sink was writable. poll(2) has told TCP that somebody waits for room.
            let room = self.sink.try_io(Interest::WRITABLE, || {
                if self.sink.has_room() {
                    Ok(())
                } else {
                    would_block()
                }
            });
            match room {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_writable().await?,
                // The splice finds an error of the sink.
                _ => return Ok(()),
            }
        }
    }

    async fn wait_writable(&self) -> Result<(), End> {
        loop {
            match self.within_idle(self.sink.writable()).await? {
                None => {}
                Some(Ok(())) => return Ok(()),
                Some(Err(e)) => return Err(End::Sink(e)),
            }
        }
    }

    /// Runs `wait` for at most the idle time. If that is over, returns [`End::Idle`] if the whole
    /// connection was idle, and otherwise `None`.
    async fn within_idle<T>(&self, wait: impl Future<Output = T>) -> Result<Option<T>, End> {
        let Some(idle) = self.link.limits.idle else {
            return Ok(Some(wait.await));
        };
        match tokio::time::timeout(idle, wait).await {
            Ok(result) => Ok(Some(result)),
            Err(_) if self.idle_out() => Err(End::Idle),
            Err(_) => Ok(None),
        }
    }

    fn is_paced(&self) -> bool {
        self.way.bucket.is_some() || self.link.limits.shared.is_some()
    }

    /// The buckets that limit this direction: its own one, and that of the listener.
    fn buckets(&self) -> [Option<&'a Bucket>; 2] {
        [self.way.bucket.as_ref(), self.link.limits.shared.as_deref()]
    }

    /// Waits for a slice of the bandwidth, if the bandwidth is limited. The smallest bucket decides
    /// its size, and each bucket gives as much. If a large bucket gave more, others would wait for
    /// bytes that this direction cannot use. For the same reason a direction takes no more of a shared
    /// bucket than its source has.
    async fn grant(&self) -> Grant<'a> {
        let buckets = self.buckets();
        let slice = buckets.iter().flatten().map(|b| b.slice()).min();
        let here = self.link.limits.shared.as_ref().map(|_| self.waiting());
        let most = [slice, self.remaining(), here].into_iter().flatten().min();
        let mut shares = [None, None];
        for (share, bucket) in shares.iter_mut().zip(buckets) {
            if let Some(bucket) = bucket {
                *share = Some(bucket.take(most.unwrap_or(0)).await);
            }
        }
        Grant { most, shares }
    }

    /// Returns the number of bytes that the source has. At the end of its stream that is 1, so that a
    /// read can find the end.
    fn waiting(&self) -> u64 {
        match rustix::io::ioctl_fionread(self.source) {
            Ok(bytes) if bytes > 0 => bytes,
            // The count ends at an urgent mark.
            _ if matches!(self.source.peek_now(), Ok(true)) => u64::MAX,
            _ => 1,
        }
    }

    async fn spliced(&mut self) -> Step {
        // Take no slice of the bandwidth before the source has bytes and the sink has room. A splice
        // that cannot move a byte would keep its slice from others. It would also end long before
        // the idle time, so that this direction never found itself idle.
        let mut grant = if self.is_paced() {
            if let Err(end) = Box::pin(self.wait_both()).await {
                return Step::End(end);
            }
            Box::pin(self.grant()).await
        } else {
            Grant::without_shares(self.remaining())
        };
        // Read this before the attempt: if the module comes after the attempt, the number changes.
        self.asked = self.link.kernel.state();
        let idle = if self.is_paced() {
            Some(SLICE_IDLE)
        } else {
            self.link.limits.idle
        };
        // Discard an error that an earlier splice has left, here and in tokio's readiness.
        self.way.taken();
        let _ = self.source.try_io(Interest::ERROR, would_block::<()>);
        let begun = self
            .way
            .meter
            .begin(|| kernel::splice(self.source, self.sink, grant.most, idle));
        if let Err(e) = begun {
            return self.refused(e);
        }
        let over = self.wait_end().await;
        if matches!(over, Over::Error(_)) {
            // The error may be the connection's own, and the kernel may not have ended the splice
            // yet. End it, so that its count is final and the remaining bytes can be read.
            kernel::unsplice(self.source);
        }
        let moved = self.way.meter.end(self.source);
        grant.spend(moved);
        drop(grant);
        match over {
            Over::Eof => Step::End(End::Eof),
            Over::Left | Over::Unclear => self.left(),
            Over::Error(e) if sys::is(&e, Errno::FBIG) => Step::Again,
            Over::Error(e) if sys::is(&e, Errno::TIMEDOUT) && self.source.is_connected() => {
                if !self.is_paced() && self.idle_out() {
                    Step::End(End::Idle)
                } else {
                    Step::Again
                }
            }
            Over::Error(e) if sys::is(&e, Errno::LOOP) => Step::End(End::Loop),
            // The kernel reports an error of the sink at the source. If the source is still
            // connected, it had no error of its own. EPIPE is one of the source too, if it was reset
            // after the end of its stream.
            Over::Error(e)
                if self.source.is_connected()
                    || sys::is(&e, Errno::PIPE) && !self.sink.is_connected() =>
            {
                Step::End(End::Sink(e))
            }
            Over::Error(e) => Box::pin(self.last_bytes(e)).await,
        }
    }

    /// Waits for the splice to end. Until then reads return `EAGAIN`, and poll(2) shows nothing.
    async fn wait_end(&self) -> Over {
        let interest = Interest::READABLE | Interest::ERROR;
        let mut pause = Duration::from_millis(1);
        loop {
            let ready = tokio::select! {
                ready = self.source.ready(interest) => ready,
                e = self.way.told() => {
                    // The other direction's write has taken the error of a splice. If it was an
                    // earlier splice, the present one still runs: end it. The next step begins
                    // another one.
                    kernel::unsplice(self.source);
                    return Over::Error(e);
                }
            };
            let ready = match ready {
                Ok(ready) => ready,
                Err(e) => return Over::Error(e),
            };
            // `try_io` never runs a call for a combination of interests: choose one that is ready.
            let shown = if ready.is_error() {
                Interest::ERROR
            } else {
                Interest::READABLE
            };
            let unclear = match self.source.try_io(shown, || self.look()) {
                Ok(Over::Unclear) => true,
                Ok(over) => return over,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready.is_read_closed(),
                Err(e) => return Over::Error(e),
            };
            // tokio would return at once here: it knows the end of the stream already, or the error
            // is unclear. Sleep instead.
            if unclear {
                Box::pin(tokio::time::sleep(pause)).await;
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        }
    }

    /// Returns how the splice has ended, or `EAGAIN` while it runs.
    fn look(&self) -> io::Result<Over> {
        let over = match self.source.peek_now() {
            Ok(true) => Ok(Over::Left),
            Ok(false) => Ok(Over::Eof),
            Err(e) => Err(e),
        };
        // The kernel sets the splice's error at the moment from which reads return bytes again, so
        // look for it afterwards.
        match over {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            over => match self.error() {
                Some(e) => Ok(Over::Error(e)),
                None if has_error(self.source) => Ok(Over::Unclear),
                None => over,
            },
        }
    }

    fn error(&self) -> Option<io::Error> {
        self.source.take_error().or_else(|| self.way.taken())
    }

    /// Handles the error of a write. Returns `None` if this direction can go on.
    ///
    /// The sink may be the source of the other direction's splice. If the kernel ends that splice
    /// with an error, a write to the sink can take that error from the socket. The sink itself is
    /// then still connected, and this function tells the other direction the error.
    fn write_failed(&self, e: io::Error) -> Option<End> {
        if self.other.meter.is_spliced() && self.sink.is_connected() {
            self.other.tell(e);
            return None;
        }
        Some(End::Sink(e))
    }

    /// Chooses how to go on after the kernel has refused to splice with the error `e`.
    fn refused(&self, e: io::Error) -> Step {
        if sys::is(&e, Errno::NOTCONN) && self.link.limits.wanted != Wanted::Auto {
            // The source may have received bytes before its connection ended: copy them.
            return self.do_without(Mode::Copy, "a connection had ended before");
        }
        if !kernel::is_unavailable(&e) {
            return Step::End(End::Source(e));
        }
        if self.link.limits.wanted != Wanted::Auto {
            return Step::End(End::Refused(e));
        }
        if sys::is(&e, Errno::NOPROTOOPT) || sys::is(&e, Errno::PERM) {
            self.link.kernel.probe();
        }
        let why: Arc<str> = match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOPROTOOPT) => self.link.kernel.why_not(),
            Some(Errno::INVAL) => "a socket is in other use, such as kTLS".into(),
            Some(Errno::PROTONOSUPPORT) => "a socket is not TCP, such as MPTCP".into(),
            Some(Errno::NOTCONN) => "a connection had ended before".into(),
            _ => format!("SO_SPLICE: {e}").into(),
        };
        self.do_without(Mode::Pipe, why)
    }

    /// Goes on in another mode. An administrator has ended the splice, or it met bytes that it
    /// cannot move.
    fn left(&mut self) -> Step {
        self.asked = self.link.kernel.state();
        self.link.kernel.probe();
        let why = if self.link.kernel.is_available() {
            "the kernel ended the splice".into()
        } else {
            self.link.kernel.why_not()
        };
        self.do_without(Mode::Pipe, why)
    }

    /// Forwards what the source had received before it failed with `error`, then ends.
    async fn last_bytes(&mut self, error: io::Error) -> Step {
        while self.remaining() != Some(0) {
            match self.copy_some(CHUNK as u64).await {
                Ok(n) if n > 0 => {}
                Err(end @ (End::Sink(_) | End::Idle)) => return Step::End(end),
                // The source has bytes, but tokio does not read before epoll has reported them.
                Err(End::Source(_)) if matches!(self.source.peek_now(), Ok(true)) => {
                    let wait = tokio::time::timeout(UNHEARD, self.wait_readable());
                    if !matches!(wait.await, Ok(Ok(()))) {
                        break;
                    }
                }
                _ => break,
            }
        }
        Step::End(End::Source(error))
    }

    async fn piped(&mut self, mut grant: Grant<'_>) -> Step {
        let pipe = match self.link.pipes.take() {
            Ok(pipe) => pipe,
            // Descriptors are short: copy instead.
            Err(_) => return self.copy_burst(grant).await,
        };
        let mut used = 0;
        let mut rounds = 0;
        let step = loop {
            let left = grant.most.map_or(u64::MAX, |most| most - used);
            if left == 0 || rounds == ROUNDS {
                tokio::task::yield_now().await;
                break Step::Again;
            }
            match pipe.fill(self.source, CHUNK.min(clamp(left))) {
                Ok(0) => break Step::End(End::Eof),
                Ok(n) => {
                    used += n as u64;
                    grant.spend(n as u64);
                    if let Err(end) = self.drain(&pipe, n).await {
                        // The pipe still holds bytes, so no other connection may use it.
                        return Step::End(end);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Step::Again,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if sys::is(&e, Errno::INVAL) => {
                    break self.do_without(Mode::Copy, format!("splice(2): {e}"));
                }
                Err(e) => break Step::End(End::Source(e)),
            }
            rounds += 1;
        };
        self.link.pipes.give_back(pipe);
        step
    }

    /// Moves the `n` bytes in the pipe to the sink.
    async fn drain(&self, pipe: &chunk::Pipe, mut n: usize) -> Result<(), End> {
        while n > 0 {
            match pipe.drain(self.sink, n) {
                Ok(0) => return Err(End::Sink(io::ErrorKind::WriteZero.into())),
                Ok(sent) => {
                    n -= sent;
                    self.way.meter.add(Mode::Pipe, sent as u64);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_writable().await?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => self.write_failed(e).map_or(Ok(()), Err)?,
            }
        }
        Ok(())
    }

    async fn copy_burst(&self, mut grant: Grant<'_>) -> Step {
        let mut used = 0;
        let mut rounds = 0;
        loop {
            let left = grant.most.map_or(u64::MAX, |most| most - used);
            if left == 0 || rounds == ROUNDS {
                tokio::task::yield_now().await;
                break Step::Again;
            }
            match self.copy_some(left).await {
                Ok(0) => break Step::End(End::Eof),
                Ok(n) => {
                    used += n;
                    grant.spend(n);
                }
                Err(End::Source(e)) if e.kind() == io::ErrorKind::WouldBlock => break Step::Again,
                Err(end) => break Step::End(end),
            }
            rounds += 1;
        }
    }

    /// Reads once and writes all of it. Returns the number of bytes, 0 at the end of the stream.
    async fn copy_some(&self, most: u64) -> Result<u64, End> {
        let moved = chunk::copy(self.source, self.sink, clamp(most)).map_err(End::Source)?;
        let mut rest = &moved.rest[..];
        self.way
            .meter
            .add(Mode::Copy, (moved.bytes - rest.len()) as u64);
        if let Some(e) = moved.error {
            self.write_failed(e).map_or(Ok(()), Err)?;
        }
        while !rest.is_empty() {
            match self.sink.try_write(rest) {
                Ok(n) => {
                    rest = &rest[n..];
                    self.way.meter.add(Mode::Copy, n as u64);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_writable().await?,
                Err(e) => self.write_failed(e).map_or(Ok(()), Err)?,
            }
        }
        Ok(moved.bytes as u64)
    }
}

fn clamp(bytes: u64) -> usize {
    bytes.min(CHUNK as u64) as usize
}

fn would_block<T>() -> io::Result<T> {
    Err(io::ErrorKind::WouldBlock.into())
}

fn has_error(socket: &Stream) -> bool {
    socket.poll_now(PollFlags::empty()).contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::super::{Kernel, Limits, Pipes};
    use super::*;

    async fn stream() -> Stream {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        Stream::Tcp(tokio::net::TcpStream::connect(address).await.unwrap())
    }

    #[tokio::test]
    async fn it_notices_a_module_that_came_before_it_began() {
        let kernel = Arc::new(Kernel::default());
        let pipes = Arc::new(Pipes::default());
        let (client, target) = (stream().await, stream().await);
        let link = Link::new(client, target, Limits::default(), kernel.clone(), pipes);
        kernel.set(true);
        for up in [true, false] {
            let mut direction = Direction::new(&link, up);
            assert_eq!(direction.way.chosen.mode(), Mode::Pipe);
            direction.ask_again();
            assert_eq!(direction.way.chosen.mode(), Mode::Sosplice);
            // The kernel refuses this connection. The direction tries again only if that changes.
            direction.do_without(Mode::Pipe, "refused");
            direction.ask_again();
            assert_eq!(direction.way.chosen.mode(), Mode::Pipe);
        }
    }
}
