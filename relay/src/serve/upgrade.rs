// SPDX-License-Identifier: GPL-2.0
//! Another process of the program goes on with the same sockets, so that no connection attempt
//! fails: both accept from the same queues until this one leaves.

use std::fmt::Write as _;
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

use super::inherit::PASSED;
use super::relay::Relay;
use crate::net::sys;

/// The variable that names the descriptor by which the new process says that it accepts.
const READY: &str = "SOCKSPLICE_RELAY_READY";

/// How long the new process may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// What this process was started as. The file may be exchanged meanwhile.
pub struct Itself {
    program: PathBuf,
    arguments: Vec<std::ffi::OsString>,
}

impl Itself {
    /// # Errors
    /// /proc is not there.
    pub fn remember() -> io::Result<Itself> {
        Ok(Itself {
            program: std::env::current_exe()?,
            arguments: std::env::args_os().skip(1).collect(),
        })
    }

    /// Starts the program that is there now, and waits until it accepts.
    ///
    /// # Errors
    /// It does not start, or ends, or takes too long: then it is ended, and this process goes on.
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

    /// The copies of the descriptors, which the child gets, are closed here by the caller.
    fn spawn(&self, relay: &Relay, tell: &OwnedFd) -> io::Result<(Child, Vec<OwnedFd>)> {
        let mut held = Vec::new();
        let mut passed = String::new();
        for (address, bound) in relay.sockets() {
            // dup(2) leaves out the flag that would close it on execve(2)
            let copy = dup(bound)?;
            let _ = writeln!(passed, "{}={address}", copy.as_raw_fd());
            held.push(copy);
        }
        let tell = dup(tell)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env(PASSED, passed)
            .env(READY, tell.as_raw_fd().to_string())
            // they are for this process alone
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .env_remove("WATCHDOG_PID");
        held.push(tell);
        Ok((command.spawn()?, held))
    }
}

/// Whether a byte comes before the end.
async fn is_ready(pipe: OwnedFd) -> io::Result<bool> {
    Ok(Receiver::from_owned_fd(pipe)?.read(&mut [0u8]).await? > 0)
}

/// The descriptor by which to tell the process that this one replaces, if there is one.
pub fn successor_of() -> Option<OwnedFd> {
    let fd: RawFd = std::env::var(READY).ok()?.parse().ok()?;
    sys::inherited(fd)
}

/// Tells it that this process accepts.
pub fn tell_ready(predecessor: OwnedFd) {
    let _ = File::from(predecessor).write_all(b"1");
}
