// SPDX-License-Identifier: GPL-2.0
//! Upgrade: a new process of the program takes over the listening sockets. Both processes accept
//! from the same queues until this one stops, so no connection attempt fails.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::dup;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::inherit::{PASSED, passed_line};
use super::relay::Relay;
use crate::net::sys;

/// The environment variable with the number of a descriptor. The new process writes to it when it
/// accepts connections.
const READY: &str = "SOCKSPLICE_RELAY_READY";

/// Time within which the new process must accept connections.
const PATIENCE: Duration = Duration::from_secs(30);

/// The path of the program, and the arguments of this process. The file may be replaced while this
/// process runs.
pub struct Itself {
    program: PathBuf,
    arguments: Vec<std::ffi::OsString>,
}

impl Itself {
    /// Reads the path and the arguments of this process.
    ///
    /// # Errors
    /// Returns an error if /proc is not mounted.
    pub fn remember() -> io::Result<Itself> {
        Ok(Itself {
            program: std::env::current_exe()?,
            arguments: std::env::args_os().skip(1).collect(),
        })
    }

    /// Starts the program from its path, and waits until it accepts. Returns its process ID.
    ///
    /// # Errors
    /// Returns a message if the new process does not start, ends, or takes too long and is killed.
    /// This process then goes on.
    pub async fn start_anew(&self, relay: &Relay) -> Result<u32, String> {
        let (ready, tell) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| format!("pipe: {e}"))?;
        let (mut child, held) = self.spawn(relay, &tell).map_err(|e| e.to_string())?;
        drop((tell, held));
        let id = child.id().unwrap_or_default();
        match timeout(PATIENCE, is_ready(ready)).await {
            Ok(Ok(true)) => Ok(id),
            Ok(_) => {
                let status = child
                    .wait()
                    .await
                    .map_or(String::new(), |s| format!(": {s}"));
                Err(format!("the new process ended before it accepted{status}"))
            }
            Err(_) => {
                let _ = child.kill().await;
                Err("the new process did not begin to accept in time".into())
            }
        }
    }

    /// Starts the process. The child inherits the returned copies of descriptors, and the caller
    /// closes them in this process.
    fn spawn(&self, relay: &Relay, tell: &OwnedFd) -> io::Result<(Child, Vec<OwnedFd>)> {
        let mut held = Vec::new();
        let mut passed = String::new();
        for (address, bound) in relay.sockets() {
            // dup(2) does not copy FD_CLOEXEC, so the copy stays open over execve(2).
            let copy = dup(bound)?;
            passed += &passed_line(copy.as_raw_fd(), bound, address);
            held.push(copy);
        }
        let tell = dup(tell)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env(PASSED, passed)
            .env(READY, tell.as_raw_fd().to_string())
            // systemd has set these variables for this process only.
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .env_remove("WATCHDOG_PID");
        held.push(tell);
        Ok((command.spawn()?, held))
    }
}

/// Returns true if the new process writes a byte before it closes the pipe.
async fn is_ready(pipe: OwnedFd) -> io::Result<bool> {
    Ok(Receiver::from_owned_fd(pipe)?.read(&mut [0u8]).await? > 0)
}

/// Returns the descriptor by which this process reports to the one that it replaces, if any.
pub fn successor_of() -> Option<OwnedFd> {
    let fd: RawFd = std::env::var(READY).ok()?.parse().ok()?;
    sys::inherited(fd)
}

/// Tells the `predecessor` that this process accepts.
pub fn tell_ready(predecessor: OwnedFd) {
    let _ = File::from(predecessor).write_all(b"1");
}
