// SPDX-License-Identifier: GPL-2.0
//! Where the policies live while nobody runs: /sys/fs/bpf/socksplice/policy.
//!
//! All of them are one BPF program, whose directory has its link, program and
//! maps. A new one is made next to the old one, attached, and then the two
//! directories are exchanged in one system call: whoever looks sees one whole
//! set of policies, and there is no moment without one; who reads more than one file of
//! it takes the lock, shared. A command that dies in
//! between leaves the directory NEXT, perhaps with a program that is attached like
//! the live one; whoever takes the lock removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with, statfs};

use crate::error::{Error, Result};

const BPFFS: &str = "/sys/fs/bpf";
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

const ROOT: &str = "/sys/fs/bpf/socksplice";
const LIVE: &str = "/sys/fs/bpf/socksplice/policy";
const NEXT: &str = "/sys/fs/bpf/socksplice/policy_next";

pub fn bpffs_is_mounted() -> bool {
    statfs(BPFFS).is_ok_and(|s| s.f_type as u64 == BPF_FS_MAGIC)
}

fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    move |e| Error::new(format!("cannot {what}: {e}"))
}

/// Whoever may write here could put his policy in our place, and who made it a link
/// chooses what we remove.
fn is_ours(m: &fs::Metadata) -> bool {
    m.is_dir() && m.uid() == 0 && m.mode() & 0o022 == 0
}

/// The directory of the live policy, if there is one.
pub fn live() -> Option<&'static Path> {
    let live = Path::new(LIVE);
    let ours = fs::symlink_metadata(ROOT).is_ok_and(|m| is_ours(&m));
    (ours && live.exists()).then_some(live)
}

/// Of the directory. Released when dropped.
pub struct Lock {
    _root: File,
}

impl Lock {
    /// For whoever reads: its files are those of one set of policies. None if there
    /// never was one.
    pub fn share() -> Result<Option<Self>> {
        match Path::new(ROOT).exists() {
            true => lock(FlockOperation::LockShared).map(Some),
            false => Ok(None),
        }
    }

    /// Exclusive use of it.
    pub fn take() -> Result<Self> {
        if !bpffs_is_mounted() {
            return Err(
                Error::new(format!("no BPF file system is mounted on {BPFFS}"))
                    .remedy(format!("run 'mount -t bpf bpf {BPFFS}'")),
            );
        }
        // Who can open it can lock it, and keep everybody waiting.
        if let Err(e) = fs::DirBuilder::new().mode(0o700).create(ROOT) {
            if e.kind() != io::ErrorKind::AlreadyExists {
                return Err(failed(&format!("make {ROOT}"))(e));
            }
        }
        let taken = lock(FlockOperation::LockExclusive)?;
        remove(Path::new(NEXT))?;
        Ok(taken)
    }

    /// Make `fill` put a new policy into the directory it is given, and let it
    /// take the old one's place.
    pub fn replace(&self, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let next = Path::new(NEXT);
        fs::create_dir(next).map_err(failed(&format!("make {NEXT}")))?;
        let result = fill(next).and_then(|()| {
            let flags = match live() {
                Some(_) => RenameFlags::EXCHANGE,
                None => RenameFlags::NOREPLACE,
            };
            renameat_with(CWD, NEXT, CWD, LIVE, flags)
                .map_err(|e| failed(&format!("rename {NEXT}"))(e.into()))
        });
        // Now the old policy, or what there is of one that failed.
        let removed = remove(next);
        result.and(removed)
    }

    pub fn clear(&self) -> Result<()> {
        remove(Path::new(LIVE))
    }
}

fn lock(how: FlockOperation) -> Result<Lock> {
    if !fs::symlink_metadata(ROOT).is_ok_and(|m| is_ours(&m)) {
        return Err(Error::new(format!("{ROOT} belongs to another user"))
            .remedy("remove it, then try again"));
    }
    // A directory of root's in one whose files only their owners move (bpffs is sticky).
    let root = File::open(ROOT).map_err(failed(&format!("open {ROOT}")))?;
    flock(&root, how).map_err(|e| failed(&format!("lock {ROOT}"))(e.into()))?;
    Ok(Lock { _root: root })
}

/// Removing the link's last name detaches the program.
fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(failed(&format!("remove {}", dir.display()))(e))
        }
        _ => Ok(()),
    }
}
