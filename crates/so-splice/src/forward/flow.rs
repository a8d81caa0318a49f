// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction: forwards from its source to its sink, a system call a step.

use std::io;
use std::thread;
use std::time::Duration;

use super::{Socket, Traffic, Way};
use crate::{Options, Pipe, is_unavailable, moved, splice, sys, unsplice};

/// Most bytes of one read. They should still be in the CPU's cache when they are written.
const BUFFER: usize = 64 << 10;

/// Number of looks at an error that poll(2) shows and `SO_ERROR` does not. The kernel hides a
/// source's error for the time of one send on that socket, and reports no event after that. So look
/// again here: the first ones at once, the others a millisecond apart.
const LOOKS: u32 = 70;
const YIELDS: u32 = 50;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Start,
    /// The kernel forwards. Reads return `EAGAIN` until the splice has ended.
    Spliced,
    /// This program forwards.
    Carry,
    Done,
}

pub(super) enum Step {
    Moved,
    /// The source has no bytes, or the sink has no room.
    Blocked,
    Eof,
    /// The connection of the source failed.
    Source(io::Error),
    /// A write failed. The error may be that of the sink's own splice.
    Write(io::Error),
    /// The kernel's splice failed at its sink.
    Sink(io::Error),
    /// The bytes would come back to the source.
    Loop(io::Error),
}

/// How a splice in the kernel ended.
enum Over {
    Eof,
    /// The source has bytes to read, which the splice has not moved.
    Left,
    Error(io::Error),
}

pub(super) struct Flow {
    pub state: State,
    pub traffic: Traffic,
    /// The error that ended this flow's splice, if a write of the other flow took it from the
    /// socket.
    pub told: Option<io::Error>,
    /// The error of the source, to report after the bytes that it had received before.
    at_end: Option<io::Error>,
    pipe: Option<Pipe>,
    buffer: Vec<u8>,
    /// Bytes read and not yet written: in the pipe, or in the buffer up to `filled`.
    held: usize,
    filled: usize,
    looks: u32,
}

impl Flow {
    pub fn new(first: Way) -> Self {
        Flow {
            state: State::Start,
            traffic: Traffic {
                way: first,
                ..Traffic::default()
            },
            told: None,
            at_end: None,
            pipe: None,
            buffer: Vec::new(),
            held: 0,
            filled: 0,
            looks: 0,
        }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// True if the next step writes.
    pub fn waits_for_sink(&self) -> bool {
        self.state == State::Carry && self.held > 0
    }

    /// Ends this flow, and gives back its memory and descriptors.
    pub fn finish(&mut self, source: &impl Socket) {
        if self.state == State::Spliced {
            self.end_splice(source);
        }
        self.state = State::Done;
        self.pipe = None;
        self.buffer = Vec::new();
    }

    fn end_splice(&mut self, source: &impl Socket) -> u64 {
        // It may have ended. If not, end it, so that its count is final.
        let _ = unsplice(source);
        let bytes = moved(source);
        self.traffic.uncounted = bytes.is_err();
        self.traffic.spliced = bytes.unwrap_or(0);
        self.state = State::Carry;
        self.traffic.spliced
    }

    pub fn step(&mut self, source: &impl Socket, sink: &impl Socket) -> Step {
        match self.state {
            State::Start => self.start(source, sink),
            State::Spliced => self.spliced(source, sink),
            State::Done => Step::Blocked,
            State::Carry => {
                let by_pipe = self.pipe.is_some() && self.filled == 0;
                let result = match (self.held > 0, by_pipe) {
                    (true, true) => return self.drain(sink),
                    (true, false) => return self.write(sink),
                    (false, _) if self.traffic.way == Way::Pipe && self.at_end.is_none() => {
                        self.fill(source)
                    }
                    (false, _) => self.read(source),
                };
                match result {
                    Ok(0) => self.at_end.take().map_or(Step::Eof, Step::Source),
                    Ok(_) => Step::Moved,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => Step::Moved,
                    // The source has failed before. Nothing more will come of it.
                    Err(e) => match self.at_end.take() {
                        Some(first) => Step::Source(first),
                        None if e.kind() == io::ErrorKind::WouldBlock => Step::Blocked,
                        None => Step::Source(e),
                    },
                }
            }
        }
    }

    fn start(&mut self, source: &impl Socket, sink: &impl Socket) -> Step {
        self.state = State::Carry;
        if self.traffic.way != Way::Splice {
            return Step::Moved;
        }
        match splice(source, sink, Options::default()) {
            Ok(()) => self.state = State::Spliced,
            Err(e) if is_unavailable(&e) => {
                self.traffic.refused = e.raw_os_error();
                self.traffic.way = Way::Pipe;
            }
            Err(e) => return Step::Source(e),
        }
        Step::Moved
    }

    fn spliced(&mut self, source: &impl Socket, sink: &impl Socket) -> Step {
        let over = match source.ending(|| self.look(source)) {
            Ok(over) => over,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Step::Blocked,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Step::Moved,
            Err(e) => Over::Error(e),
        };
        let bytes = self.end_splice(source);
        match over {
            Over::Eof => Step::Eof,
            Over::Left => {
                // An administrator has ended the splice, or it met bytes that it cannot move. After
                // `drain` the kernel knows no count any more, and returns 0.
                self.traffic.uncounted |= bytes == 0;
                self.traffic.way = Way::Pipe;
                Step::Moved
            }
            Over::Error(e) if e.raw_os_error() == Some(libc::ELOOP) => Step::Loop(e),
            // The kernel reports an error of the sink at the source. If the source is still
            // connected, it had no error of its own. EPIPE is one of the source too, if it was reset
            // after the end of its stream.
            Over::Error(e)
                if sys::is_connected(source)
                    || e.raw_os_error() == Some(libc::EPIPE) && !sys::is_connected(sink) =>
            {
                Step::Sink(e)
            }
            Over::Error(e) => {
                self.at_end = Some(e);
                Step::Moved
            }
        }
    }

    /// Returns how the splice has ended, or `EAGAIN` while it runs.
    fn look(&mut self, source: &impl Socket) -> io::Result<Over> {
        loop {
            if let Some(e) = self.error(source) {
                return Ok(Over::Error(e));
            }
            let over = match sys::peek(source) {
                Ok(true) => Ok(Over::Left),
                Ok(false) => Ok(Over::Eof),
                Err(e) => Err(e),
            };
            // The splice may have ended after the first look for its error. The kernel sets the
            // error at the moment from which reads return bytes again, so look again.
            if let Some(e) = self.error(source) {
                return Ok(Over::Error(e));
            }
            // An error queue that the program does not read makes poll(2) show an error for ever.
            // So the looks of a whole connection are counted.
            if self.looks == LOOKS || !sys::has_error(source) {
                return over;
            }
            self.looks += 1;
            if self.looks < YIELDS {
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn error(&mut self, source: &impl Socket) -> Option<io::Error> {
        sys::take_error(source).or_else(|| self.told.take())
    }

    fn fill(&mut self, source: &impl Socket) -> io::Result<usize> {
        if self.pipe.is_none() {
            match Pipe::new() {
                Ok(pipe) => self.pipe = Some(pipe),
                // Descriptors or memory are short: copy instead.
                Err(_) => {
                    self.traffic.way = Way::Copy;
                    return self.read(source);
                }
            }
        }
        let pipe = self.pipe.as_ref().expect("made above");
        match source.reading(|| pipe.fill(source, Pipe::SIZE)) {
            Ok(bytes) => {
                self.held = bytes;
                Ok(bytes)
            }
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                self.pipe = None;
                self.traffic.way = Way::Copy;
                self.read(source)
            }
            Err(e) => Err(e),
        }
    }

    fn drain(&mut self, sink: &impl Socket) -> Step {
        let (pipe, held) = (self.pipe.as_ref().expect("it holds the bytes"), self.held);
        match sink.writing(|| pipe.drain(sink, held)) {
            Ok(bytes) => self.written(bytes),
            Err(e) => unwritten(e),
        }
    }

    fn read(&mut self, source: &impl Socket) -> io::Result<usize> {
        self.buffer.resize(BUFFER, 0);
        let buffer = &mut self.buffer[..];
        let bytes = if self.at_end.is_some() {
            // An event loop may not have heard of these bytes yet, and need not.
            sys::recv(source, buffer)?
        } else {
            source.reading(|| sys::recv(source, buffer))?
        };
        self.held = bytes;
        self.filled = bytes;
        Ok(bytes)
    }

    fn write(&mut self, sink: &impl Socket) -> Step {
        let rest = &self.buffer[self.filled - self.held..self.filled];
        match sink.writing(|| sys::send(sink, rest)) {
            Ok(bytes) => self.written(bytes),
            Err(e) => unwritten(e),
        }
    }

    fn written(&mut self, bytes: usize) -> Step {
        if bytes == 0 {
            return Step::Sink(io::ErrorKind::WriteZero.into());
        }
        self.held -= bytes;
        if self.filled > 0 {
            self.traffic.copied += bytes as u64;
        } else {
            self.traffic.piped += bytes as u64;
        }
        if self.held == 0 {
            self.filled = 0;
        }
        Step::Moved
    }
}

fn unwritten(e: io::Error) -> Step {
    match e.kind() {
        io::ErrorKind::WouldBlock => Step::Blocked,
        io::ErrorKind::Interrupted => Step::Moved,
        _ => Step::Write(e),
    }
}
