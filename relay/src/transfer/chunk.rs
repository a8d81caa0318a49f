// SPDX-License-Identifier: GPL-2.0
//! The pipes of the mode `pipe` and the buffers of the mode `copy`. A connection holds one only
//! while bytes are between its source and its sink.

use std::cell::RefCell;
use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::io::Interest;

use crate::net::Stream;

/// Most bytes that one splice(2) moves.
pub const CHUNK: usize = so_splice::Pipe::SIZE;

/// Most bytes of one read. They should still be in the CPU's cache when they are written.
const BUFFER_SIZE: usize = 64 << 10;

/// A pipe whose calls keep tokio's readiness of the sockets right.
pub struct Pipe(so_splice::Pipe);

impl Pipe {
    /// Moves bytes from the socket into the pipe. The pipe must be empty, so that `EAGAIN` always
    /// comes from the socket.
    pub fn fill(&self, source: &Stream, most: usize) -> io::Result<usize> {
        source.try_io(Interest::READABLE, || self.0.fill(source, most))
    }

    pub fn drain(&self, sink: &Stream, most: usize) -> io::Result<usize> {
        sink.try_io(Interest::WRITABLE, || self.0.drain(sink, most))
    }
}

/// Empty pipes, kept for reuse.
#[derive(Default)]
pub struct Pipes(Mutex<Vec<Pipe>>);

/// Number of pipes that are kept. An empty pipe takes two descriptors, but no pages.
const KEPT: usize = 32;

impl Pipes {
    /// Returns an empty pipe.
    ///
    /// # Errors
    /// Returns `EMFILE` or `ENFILE` if descriptors are short.
    pub fn take(&self) -> io::Result<Pipe> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| so_splice::Pipe::new().map(Pipe), Ok)
    }

    /// Keeps `pipe` for reuse. The caller must have emptied it.
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

/// The result of [`copy`].
pub struct Moved {
    /// Number of bytes read from the source.
    pub bytes: usize,
    /// Those bytes that were read, but not written to the sink.
    pub rest: Vec<u8>,
    /// The error of the sink. `None` if it only had no room.
    pub error: Option<io::Error>,
}

/// Reads once from the source into the thread's buffer, and writes to the sink from there.
///
/// # Errors
/// Returns errors of the source. An error of the sink is in [`Moved`].
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
