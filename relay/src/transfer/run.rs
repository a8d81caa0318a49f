// SPDX-License-Identifier: GPL-2.0
//! Runs both directions of a link at the same time, until both streams have ended.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use rustix::io::Errno;
use tokio::pin;
use tokio_util::sync::CancellationToken;

use super::direction::{Direction, End};
use super::kernel;
use super::link::{Link, Which};

/// How a link ended.
#[derive(Debug)]
pub enum Ending {
    /// Both streams came to their ends.
    Closed,
    /// The connection of one end failed.
    Error(Which, io::Error),
    Idle,
    Limit,
    Loop,
    Refused(io::Error),
    /// The relay stops.
    Stopped,
}

/// Time that bytes received from an end have to reach the other one, after the first end failed. A
/// relay that stops waits no longer.
const LAST_BYTES: Duration = Duration::from_secs(5);

impl Link {
    /// Forwards until both streams have ended, or until a limit, an error or `stop` ends the link.
    pub async fn run(&self, stop: &CancellationToken) -> Ending {
        let up = Direction::new(self, true).run();
        let down = Direction::new(self, false).run();
        pin!(up, down);
        // Exists once one stream has ended. In a box, so that an idle connection is small.
        let mut failure = None;
        loop {
            let failed = async {
                match &mut failure {
                    Some(failure) => Pin::as_mut(failure).await,
                    None => pending().await,
                }
            };
            let (is_up, end) = tokio::select! {
                end = &mut up, if !self.up.is_done() => (true, end),
                end = &mut down, if !self.down.is_done() => (false, end),
                (which, e) = failed => return Box::pin(self.cut(Ending::Error(which, e))).await,
                () = stop.cancelled() => return Box::pin(self.cut(Ending::Stopped)).await,
            };
            let (source, sink) = if is_up {
                (Which::Client, Which::Target)
            } else {
                (Which::Target, Which::Client)
            };
            let ending = match self.judge(end, is_up) {
                End::Eof => {
                    self.way(is_up).finish();
                    // If this fails with ENOTCONN, the other direction will find the error.
                    let _ = self.end(sink).shutdown_write();
                    if self.up.is_done() && self.down.is_done() {
                        // TCP goes on to deliver the last bytes after close(2).
                        self.client.close_resets(false);
                        self.target.close_resets(false);
                        return Ending::Closed;
                    }
                    // Nothing reads from this end any more, so only this notices a reset.
                    failure = Some(Box::pin(async move {
                        (source, self.end(source).failed().await)
                    }));
                    continue;
                }
                End::Limit => Ending::Limit,
                End::Idle => Ending::Idle,
                End::Loop => Ending::Loop,
                End::Refused(e) => Ending::Refused(e),
                End::Source(e) => Ending::Error(source, e),
                End::Sink(e) => {
                    // A server may answer and close before it has read everything. Its answer must
                    // still arrive.
                    if !self.way(!is_up).is_done() {
                        let rest = async { if is_up { down.await } else { up.await } };
                        tokio::select! {
                            _ = Box::pin(tokio::time::timeout(LAST_BYTES, rest)) => {}
                            () = stop.cancelled() => {}
                        }
                    }
                    Ending::Error(sink, e)
                }
            };
            return Box::pin(self.cut(ending)).await;
        }
    }

    /// Turns a false end of stream into an error. After a reset of the source, a write of the other
    /// direction may have taken the error. A read then only finds an end of stream.
    fn judge(&self, end: End, is_up: bool) -> End {
        let source = self.end(if is_up { Which::Client } else { Which::Target });
        match end {
            End::Eof
                if source.is_tcp() && !self.way(!is_up).is_done() && !source.is_connected() =>
            {
                End::Source(Errno::CONNRESET.into())
            }
            end => end,
        }
    }

    /// Resets both ends. A receiver would otherwise take a stream that was cut off for a complete
    /// one.
    async fn cut(&self, ending: Ending) -> Ending {
        kernel::unsplice(&self.client);
        kernel::unsplice(&self.target);
        tokio::join!(self.client.reset(), self.target.reset());
        ending
    }
}
