// SPDX-License-Identifier: GPL-2.0
//! One agent runs at a time. It holds a lock, by which others see that it runs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use crate::error::{Error, Result};

const DIR: &str = "/run/socksplice";
const FILE: &str = "/run/socksplice/agent.lock";

/// Another process may be looking whether the lock is held.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Held until the process ends.
pub struct Lock(#[allow(dead_code)] File);

pub fn take() -> Result<Lock> {
    let failed = |e: io::Error| Error::new(format!("cannot lock {FILE}: {e}"));
    match fs::DirBuilder::new().mode(0o755).create(DIR) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
        _ => {}
    }
    let m = fs::symlink_metadata(DIR).map_err(failed)?;
    if !m.is_dir() || m.uid() != 0 || m.mode() & 0o022 != 0 {
        return Err(Error::new(format!("{DIR} belongs to another user"))
            .remedy("remove it, then try again"));
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(FILE, flags, Mode::RUSR | Mode::WUSR);
    let file = File::from(file.map_err(|e| failed(e.into()))?);
    for _ in 0..TRIES {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock(file)),
            Err(Errno::WOULDBLOCK) => sleep(PAUSE),
            Err(e) => return Err(failed(e.into())),
        }
    }
    Err(Error::new("an agent runs already").remedy("'systemctl status socksplice-agent' shows it"))
}

/// Whether an agent runs.
pub fn runs() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = open(FILE, flags, Mode::empty()) else {
        return false;
    };
    flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}
