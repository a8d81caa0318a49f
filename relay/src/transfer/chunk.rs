// SPDX-License-Identifier: GPL-2.0
//! What the modes `pipe` and `copy` hold while bytes are on their way: a pipe, or a buffer.
//! A connection that waits for bytes holds neither.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;

use crate::net::Stream;

/// Bytes that one splice(2) moves at most, and what a pipe has room for.
pub const CHUNK: usize = 256 << 10;

/// Bytes that one read takes at most: they should still be in the cache when they are written.
const BUFFER_SIZE: usize = 64 << 10;

const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // an unprivileged user may have used up what users may have in larger pipes
        let _ = fcntl_setpipe_size(&write, CHUNK);
        Ok(Pipe { read, write })
    }

    /// From the socket into the pipe, which is empty: `EAGAIN` is the socket's.
    pub fn fill(&self, source: &Stream, most: usize) -> io::Result<usize> {
        source.try_io(Interest::READABLE, || {
            Ok(splice(source, None, &self.write, None, most, FLAGS)?)
        })
    }

    pub fn drain(&self, sink: &Stream, most: usize) -> io::Result<usize> {
        sink.try_io(Interest::WRITABLE, || {
            Ok(splice(&self.read, None, sink, None, most, FLAGS)?)
        })
    }
}

/// Empty pipes that wait for use.
#[derive(Default)]
pub struct Pipes(Mutex<Vec<Pipe>>);

/// Pipes that are kept: two descriptors each, and no page while they are empty.
const KEPT: usize = 32;

impl Pipes {
    /// # Errors
    /// `EMFILE`, `ENFILE`
    pub fn take(&self) -> io::Result<Pipe> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(Pipe::new, Ok)
    }

    /// The caller has emptied it.
    pub fn give_back(&self, pipe: Pipe) {
        let mut pipes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pipes.len() < KEPT {
            pipes.push(pipe);
        }
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER_SIZE]);
}

/// What came of moving bytes by a buffer.
pub struct Moved {
    pub bytes: usize,
    /// those of them that the sink had no room for yet
    pub rest: Vec<u8>,
    /// why the sink did not take them, unless it had no room
    pub error: Option<io::Error>,
}

/// Reads into the thread's buffer and writes from there.
///
/// # Errors
/// The source's. The sink's are in what is returned.
pub fn copy(source: &Stream, sink: &Stream, most: usize) -> io::Result<Moved> {
    BUFFER.with_borrow_mut(|buffer| {
        let most = most.min(buffer.len());
        let bytes = source.try_read(&mut buffer[..most])?;
        let mut written = 0;
        let mut error = None;
        while written < bytes {
            match sink.try_write(&buffer[written..bytes]) {
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
        }
        Ok(Moved {
            bytes,
            rest: buffer[written..bytes].to_vec(),
            error,
        })
    })
}
