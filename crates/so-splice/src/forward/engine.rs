// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both directions, without an event loop: the blocking `forward()` and those of tokio and mio run
//! this engine, and differ in how they wait.

use std::io;

use super::flow::{Flow, State, Step};
use super::{Error, Report, Side, Socket, Way};
use crate::sys;

/// Number of steps of a direction after which the caller may do other work.
const ROUNDS: u32 = 32;

/// The result of a run.
pub(crate) enum Progress {
    /// Nothing moves before one of the sockets becomes ready: see [`Engine::interest`].
    Waits {
        /// True if this run has moved something. If it has not, the caller was woken for nothing.
        moved: bool,
    },
    /// There may be more to do at once.
    More,
    /// Both directions have ended.
    Over,
}

/// What to wait for at a socket.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub readable: bool,
    pub writable: bool,
    /// Also an error alone: the socket's splice may end with one.
    pub error: bool,
}

pub(crate) struct Engine {
    /// From `a` to `b`, and back.
    flows: [Flow; 2],
    failure: Option<(Side, io::Error)>,
    /// What closing the sockets did before.
    lingers: Option<[sys::Linger; 2]>,
}

const SIDES: [Side; 2] = [Side::A, Side::B];

impl Engine {
    pub fn new(first: Way) -> Self {
        Engine {
            flows: [Flow::new(first), Flow::new(first)],
            failure: None,
            lingers: None,
        }
    }

    /// Has the close of each socket reset its connection, until [`end`](Self::end) knows that
    /// nothing was lost. So even the end of the process cannot make a stream look complete that was
    /// cut off.
    fn begin<S: Socket>(&mut self, ends: [&S; 2]) -> Result<(), (Side, io::Error)> {
        let [a, b] = ends;
        let lingers = [
            sys::linger(a).map_err(|e| (Side::A, e))?,
            sys::linger(b).map_err(|e| (Side::B, e))?,
        ];
        self.lingers = Some(lingers);
        let reset = sys::Linger {
            l_onoff: 1,
            l_linger: 0,
        };
        for (side, end) in SIDES.into_iter().zip(ends) {
            sys::set_linger(end, reset).map_err(|e| (side, e))?;
        }
        Ok(())
    }

    /// Moves what can be moved without waiting.
    pub fn run<S: Socket>(&mut self, ends: [&S; 2]) -> Progress {
        if self.lingers.is_none() {
            if let Err((side, e)) = self.begin(ends) {
                self.fail(side, e);
                self.stop(ends);
                return Progress::Over;
            }
        }
        let mut moved = false;
        for _ in 0..ROUNDS {
            let one = self.step(0, ends);
            let other = self.step(1, ends);
            if self.is_over() {
                return Progress::Over;
            }
            if !one && !other {
                return Progress::Waits { moved };
            }
            moved = true;
        }
        Progress::More
    }

    fn is_over(&self) -> bool {
        self.flows.iter().all(Flow::is_done)
    }

    /// Returns what each socket has to become for something to move.
    pub fn interest(&self) -> [Interest; 2] {
        let mut ends = [Interest::default(); 2];
        for (i, flow) in self.flows.iter().enumerate() {
            match flow.state {
                State::Done => {}
                _ if flow.waits_for_sink() => ends[1 - i].writable = true,
                State::Spliced => {
                    ends[i].readable = true;
                    ends[i].error = true;
                }
                _ => {
                    ends[i].readable = true;
                    ends[1 - i].error = self.flows[1 - i].is_done();
                }
            }
        }
        ends
    }

    /// One step of the flow from `ends[i]`. False if it waits.
    fn step<S: Socket>(&mut self, i: usize, ends: [&S; 2]) -> bool {
        let (source, sink) = (ends[i], ends[1 - i]);
        match self.flows[i].step(source, sink) {
            Step::Moved => return true,
            Step::Blocked if self.is_lost(i, sink) => {
                self.sink_failed(i, io::Error::from_raw_os_error(libc::ECONNRESET), ends);
            }
            Step::Blocked => return false,
            Step::Eof => self.end_of_stream(i, ends),
            Step::Source(e) | Step::Loop(e) => {
                self.fail(SIDES[i], e);
                self.stop(ends);
            }
            Step::Write(e) => {
                let other = &mut self.flows[1 - i];
                if other.state == State::Spliced && sys::is_connected(sink) {
                    // The sink is the source of the other flow's splice, whose error this write has
                    // taken from the socket.
                    other.told = Some(e);
                    return true;
                }
                self.sink_failed(i, e, ends);
            }
            Step::Sink(e) => self.sink_failed(i, e, ends),
        }
        true
    }

    /// True if the sink of a flow that waits was reset after the end of its own stream. Nothing
    /// reads from it any more, so no other call finds that. The kernel notices it for a splice.
    fn is_lost(&self, i: usize, sink: &impl Socket) -> bool {
        self.flows[i].state == State::Carry
            && self.flows[1 - i].is_done()
            && !sys::is_connected(sink)
    }

    fn end_of_stream<S: Socket>(&mut self, i: usize, ends: [&S; 2]) {
        let (source, sink) = (ends[i], ends[1 - i]);
        let reset = || io::Error::from_raw_os_error(libc::ECONNRESET);
        let other_is_done = self.flows[1 - i].is_done();
        self.flows[i].finish(source);
        if self.failure.is_some() {
            return;
        }
        if !other_is_done && !sys::is_connected(source) {
            // After a reset of the source, a write of the other flow may have taken the error. A
            // read then only finds an end of stream.
            self.fail(SIDES[i], reset());
            self.stop(ends);
            return;
        }
        match sys::shutdown_write(sink) {
            Ok(()) => {}
            // The other flow reads from this socket, and finds the error.
            Err(e) if e.raw_os_error() == Some(libc::ENOTCONN) && !other_is_done => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOTCONN) => self.fail(SIDES[1 - i], reset()),
            Err(e) => {
                self.fail(SIDES[1 - i], e);
                self.stop(ends);
            }
        }
    }

    fn sink_failed<S: Socket>(&mut self, i: usize, e: io::Error, ends: [&S; 2]) {
        self.fail(SIDES[1 - i], e);
        self.flows[i].finish(ends[i]);
        // A server may answer and close before it has read everything. What it has sent can still be
        // read, and must arrive. If it is still connected, no end of its stream is in sight.
        if sys::is_connected(ends[1 - i]) {
            self.stop(ends);
        }
    }

    /// Records a failure. The first one counts, but a sink that is gone only says `EPIPE`: the other
    /// flow, which reads from there, may find out why.
    fn fail(&mut self, side: Side, e: io::Error) {
        match &self.failure {
            Some((first, epipe)) if *first != side || epipe.raw_os_error() != Some(libc::EPIPE) => {
            }
            _ => self.failure = Some((side, e)),
        }
    }

    /// Ends both flows, and their splices.
    pub fn stop<S: Socket>(&mut self, ends: [&S; 2]) {
        for (flow, end) in self.flows.iter_mut().zip(ends) {
            if !flow.is_done() {
                flow.finish(end);
            }
        }
    }

    pub fn report(&self) -> Report {
        Report {
            a_to_b: self.flows[0].traffic,
            b_to_a: self.flows[1].traffic,
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// True if closing a socket now would discard bytes that its peer has not acknowledged.
    pub fn has_unsent<S: Socket>(ends: [&S; 2]) -> bool {
        ends.iter()
            .any(|end| sys::is_connected(end) && sys::unsent(end) > 0)
    }

    /// Returns the result, after [`Progress::Over`]. After success closing the sockets does what it
    /// did before; after a failure it resets both connections.
    pub fn end<S: Socket>(&mut self, ends: [&S; 2]) -> Result<Report, Error> {
        let report = self.report();
        if let Some((side, e)) = self.failure.take() {
            return Err(Error::new(report, side, e));
        }
        for (end, linger) in ends.into_iter().zip(self.lingers.into_iter().flatten()) {
            let _ = sys::set_linger(end, linger);
        }
        Ok(report)
    }
}
