// SPDX-License-Identifier: GPL-2.0
//! One direction of a link: from its source's bytes to its end, whatever the mode.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::io::Interest;

use super::chunk::{self, CHUNK};
use super::link::{Link, Way};
use super::{Mode, Wanted, kernel};
use crate::net::{Stream, sys};

/// Why a direction has ended.
#[derive(Debug)]
pub enum End {
    /// the source's stream has, and all of it is sent
    Eof,
    /// `max_bytes` are sent
    Limit,
    /// nothing moved either way for the idle time
    Idle,
    /// the kernel found that the bytes would come back here
    Loop,
    /// the configuration has `SO_SPLICE` or nothing, and it was refused
    Refused(io::Error),
    Source(io::Error),
    Sink(io::Error),
}

/// A direction goes on in the mode that is then chosen, or has ended.
enum Step {
    Again,
    End(End),
}

/// How a splice in the kernel ended.
enum Over {
    Eof,
    /// there are bytes, and nobody forwards them any more
    Left,
    /// `poll` tells of an error that `SO_ERROR` does not show just now
    Unclear,
    Error(io::Error),
}

/// What may be moved before the limits are asked again.
struct Grant {
    most: Option<u64>,
    slice: Option<u64>,
}

/// While bandwidth is limited a splice that moves nothing for so long gives back its slice.
const SLICE_IDLE: Duration = Duration::from_millis(200);

/// How long tokio may take to hear of bytes that are there: epoll tells of them at once.
const UNHEARD: Duration = Duration::from_secs(1);

/// Rounds that a direction makes before others get the thread.
const ROUNDS: u32 = 16;

pub struct Direction<'a> {
    pub link: &'a Link,
    pub source: &'a Stream,
    pub sink: &'a Stream,
    pub way: &'a Way,
    pub other: &'a Way,
    /// the kernel's state when it last refused to splice this direction
    asked: u64,
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
            asked: link.kernel.state(),
        }
    }

    pub async fn run(mut self) -> End {
        loop {
            self.ask_again();
            let step = match self.way.chosen.mode() {
                _ if self.remaining() == Some(0) => Step::End(End::Limit),
                Mode::Sosplice => self.spliced().await,
                Mode::Pipe => self.piped().await,
                Mode::Copy => self.copied().await,
            };
            if let Step::End(end) = step {
                return end;
            }
        }
    }

    /// Takes `SO_SPLICE` if the kernel has it now and had not when this direction last asked.
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

    fn do_without(&mut self, mode: Mode, why: impl Into<Arc<str>>) -> Step {
        self.asked = self.link.kernel.state();
        self.way.chosen.set(mode, why);
        Step::Again
    }

    fn total(&self) -> u64 {
        self.way.meter.sums(self.source).total()
    }

    /// Bytes that `max_bytes` leaves.
    fn remaining(&self) -> Option<u64> {
        let max = self.link.limits.max_bytes?;
        Some(max.saturating_sub(self.total()))
    }

    /// Whether the whole connection has been idle, now that this direction has.
    fn idle_out(&self) -> bool {
        self.way.fall_quiet(self.total());
        // what the other direction reads from is what this one writes to
        let total = self.other.meter.sums(self.sink).total();
        self.other.is_done() || self.other.is_quiet_at(total)
    }

    /// Waits until the source can be read.
    async fn wait_readable(&self) -> Result<(), End> {
        loop {
            let ready = self.source.ready(Interest::READABLE);
            match self.within_idle(ready).await? {
                None => {}
                Some(Ok(_)) => return Ok(()),
                Some(Err(e)) => return Err(End::Source(e)),
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

    /// `None` if the idle time is over for this direction, but not for the connection.
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

    /// Waits for a slice of the bandwidth, if that is limited.
    async fn grant(&self) -> Grant {
        let shared = self.link.limits.shared.as_deref();
        let mut slice = None;
        for bucket in [self.way.bucket.as_ref(), shared].into_iter().flatten() {
            let part = bucket.slice().await;
            slice = Some(slice.map_or(part, |s: u64| s.min(part)));
        }
        let most = [slice, self.remaining()].into_iter().flatten().min();
        Grant { most, slice }
    }

    fn settle(&self, grant: &Grant, used: u64) {
        let Some(slice) = grant.slice else { return };
        let shared = self.link.limits.shared.as_deref();
        for bucket in [self.way.bucket.as_ref(), shared].into_iter().flatten() {
            bucket.give_back(slice.saturating_sub(used));
        }
    }

    async fn spliced(&mut self) -> Step {
        // A slice is not for a connection that has nothing to say.
        if self.is_paced() {
            if let Err(end) = self.wait_readable().await {
                return Step::End(end);
            }
        }
        let grant = self.grant().await;
        let idle = if self.is_paced() {
            Some(SLICE_IDLE)
        } else {
            self.link.limits.idle
        };
        // What an earlier splice left behind is not of this one.
        self.way.taken();
        let _ = self.source.try_io(Interest::ERROR, would_block::<()>);
        let begun = self
            .way
            .meter
            .begin(|| kernel::splice(self.source, self.sink, grant.most, idle));
        if let Err(e) = begun {
            self.settle(&grant, 0);
            return self.refused(e);
        }
        let over = self.wait_end().await;
        if matches!(over, Over::Error(_)) {
            // The error may be the connection's own, and the kernel's mover not there yet: end
            // the splice, so that the count is final and the rest can be read.
            kernel::unsplice(self.source);
        }
        let moved = self.way.meter.end(self.source);
        self.settle(&grant, moved);
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
            // The kernel hands on the sink's own error. The source has had none if it lives.
            Over::Error(e) if sys::is(&e, Errno::PIPE) || self.source.is_connected() => {
                Step::End(End::Sink(e))
            }
            Over::Error(e) => self.last_bytes(e).await,
        }
    }

    /// Waits for the splice to end. Meanwhile reads say `EAGAIN`, and `poll` shows nothing.
    async fn wait_end(&self) -> Over {
        let interest = Interest::READABLE | Interest::ERROR;
        let mut pause = Duration::from_millis(1);
        loop {
            let ready = tokio::select! {
                ready = self.source.ready(interest) => ready,
                e = self.way.told() => {
                    // a late word of an earlier splice ends this one, which then begins anew
                    kernel::unsplice(self.source);
                    return Over::Error(e);
                }
            };
            let ready = match ready {
                Ok(ready) => ready,
                Err(e) => return Over::Error(e),
            };
            // tokio knows readiness for one of them at a time
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
            // tokio would not wait: the stream's end is already known, or the error unclear
            if unclear {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        }
    }

    /// How the splice has ended, if it has: `EAGAIN` while it lives.
    fn look(&self) -> io::Result<Over> {
        if let Some(e) = self.error() {
            return Ok(Over::Error(e));
        }
        let over = match self.source.peek_now() {
            Ok(true) => Ok(Over::Left),
            Ok(false) => Ok(Over::Eof),
            Err(e) => Err(e),
        };
        // The splice may have ended since: its error is set in the moment in which reads
        // find bytes again.
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

    /// A write has failed. `None` if the sink lives. The sink is the source of the other
    /// direction's splice then: the kernel has ended that splice by this error, and the write has
    /// taken it. So the other direction is told.
    fn write_failed(&self, e: io::Error) -> Option<End> {
        if self.other.meter.is_spliced() && self.sink.is_connected() {
            self.other.tell(e);
            return None;
        }
        Some(End::Sink(e))
    }

    /// The kernel does not begin a splice.
    fn refused(&mut self, e: io::Error) -> Step {
        if sys::is(&e, Errno::NOTCONN) && self.link.limits.wanted != Wanted::Auto {
            // what a source that is gone has left is carried all the same
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

    /// An administrator ended the splice, or it met bytes that it cannot move.
    fn left(&mut self) -> Step {
        self.link.kernel.probe();
        let why = if self.link.kernel.is_available() {
            "the kernel ended the splice".into()
        } else {
            self.link.kernel.why_not()
        };
        self.do_without(Mode::Pipe, why)
    }

    /// The source has failed with `error`: what it had received before still goes on.
    async fn last_bytes(&mut self, error: io::Error) -> Step {
        while self.remaining() != Some(0) {
            match self.copy_some(CHUNK as u64).await {
                Ok(n) if n > 0 => {}
                Err(end @ (End::Sink(_) | End::Idle)) => return Step::End(end),
                // There are bytes, but tokio reads none before it has heard of them.
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

    async fn piped(&mut self) -> Step {
        if let Err(end) = self.wait_readable().await {
            return Step::End(end);
        }
        let grant = self.grant().await;
        let pipe = match self.link.pipes.take() {
            Ok(pipe) => pipe,
            // no descriptor for one just now
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
                    if let Err(end) = self.drain(&pipe, n).await {
                        // the pipe holds bytes: it is not for another connection
                        self.settle(&grant, used);
                        return Step::End(end);
                    }
                    used += n as u64;
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
        self.settle(&grant, used);
        step
    }

    /// Empties the pipe of `n` bytes into the sink.
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

    async fn copied(&mut self) -> Step {
        if let Err(end) = self.wait_readable().await {
            return Step::End(end);
        }
        let grant = self.grant().await;
        self.copy_burst(grant).await
    }

    async fn copy_burst(&self, grant: Grant) -> Step {
        let mut used = 0;
        let mut rounds = 0;
        let step = loop {
            let left = grant.most.map_or(u64::MAX, |most| most - used);
            if left == 0 || rounds == ROUNDS {
                tokio::task::yield_now().await;
                break Step::Again;
            }
            match self.copy_some(left).await {
                Ok(0) => break Step::End(End::Eof),
                Ok(n) => used += n,
                Err(End::Source(e)) if e.kind() == io::ErrorKind::WouldBlock => break Step::Again,
                Err(end) => break Step::End(end),
            }
            rounds += 1;
        };
        self.settle(&grant, used);
        step
    }

    /// One read, written in full. The number of bytes; 0 at the stream's end.
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
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::ERR)
}
