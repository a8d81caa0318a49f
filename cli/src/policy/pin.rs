// SPDX-License-Identifier: GPL-2.0
//! Where the policies live while no command runs: /sys/fs/bpf/socksplice/policy.
//!
//! All policies are one BPF program. Its directory has its link, program and maps. A new
//! program is pinned beside the old one and attached. Then one system call exchanges the two
//! directories. So a reader always finds one whole set of policies. A reader of several files
//! of the set takes the lock, shared. A command that dies in between leaves the directory
//! NEXT, perhaps with a program that is attached like the live one. The next command that
//! takes the lock removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{
    CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, open, renameat_with, statfs,
};
use rustix::io::Errno;

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

/// A user with write access could put another policy in place of ours. A user who made the
/// directory a link would choose what we remove.
fn is_ours(m: &fs::Metadata) -> bool {
    m.is_dir() && m.uid() == 0 && m.mode() & 0o022 == 0
}

/// Nobody but root can give the name to another directory. A BPF file system is sticky
/// unless somebody mounted it otherwise.
fn above_is_ours() -> bool {
    const STICKY: u32 = 0o1000;
    let ours = |m: fs::Metadata| m.uid() == 0 && (m.mode() & 0o022 == 0 || m.mode() & STICKY != 0);
    fs::symlink_metadata(BPFFS).is_ok_and(ours)
}

/// The directory of the live policy, if there is one.
pub fn live() -> Option<&'static Path> {
    let live = Path::new(LIVE);
    let ours = fs::symlink_metadata(ROOT).is_ok_and(|m| is_ours(&m)) && above_is_ours();
    (ours && live.exists()).then_some(live)
}

/// Which set of policies is live: differs for any two sets.
pub fn identity() -> Option<(u64, i64, i64)> {
    let m = fs::metadata(live()?).ok()?;
    Some((m.ino(), m.ctime(), m.ctime_nsec()))
}

/// Puts new policies into a directory.
pub type Fill<'a> = &'a dyn Fn(&Path) -> Result<()>;

/// Of the directory. Released when dropped.
pub struct Lock {
    _root: File,
}

impl Lock {
    /// For readers: while it is held, all files belong to one set of policies. None if there
    /// never was a set.
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
        // A process that can open it can lock it, and then every command waits.
        if let Err(e) = fs::DirBuilder::new().mode(0o700).create(ROOT) {
            if e.kind() != io::ErrorKind::AlreadyExists {
                return Err(failed(&format!("make {ROOT}"))(e));
            }
        }
        let taken = lock(FlockOperation::LockExclusive)?;
        remove(Path::new(NEXT))?;
        Ok(taken)
    }

    /// The same without a wait. None if another command has it.
    pub fn attempt() -> Result<Option<Self>> {
        let root = open_root()?;
        match flock(&root, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _root: root })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(failed(&format!("lock {ROOT}"))(e.into())),
        }
    }

    /// Lets `fill` put new policies into the directory that it is given, and lets them take
    /// the place of the live ones; without `fill`, nothing does. If that fails, those stay,
    /// and `finish` removes what there is of the new ones.
    pub fn exchange(&self, fill: Option<Fill>) -> Result<Exchanged> {
        let exchanged = match (live().is_some(), fill.is_some()) {
            (true, true) => Exchanged::Both,
            (true, false) => Exchanged::Removed,
            (false, true) => Exchanged::Added,
            (false, false) => return Ok(Exchanged::Nothing),
        };
        let made = match fill {
            Some(fill) => fs::create_dir(NEXT)
                .map_err(failed(&format!("make {NEXT}")))
                .and_then(|()| fill(Path::new(NEXT))),
            None => Ok(()),
        };
        made.and_then(|()| exchanged.rename())?;
        Ok(exchanged)
    }

    /// What was exchanged is exchanged again, and what was new goes.
    pub fn undo(&self, exchanged: Exchanged) -> Result<()> {
        match exchanged {
            Exchanged::Both => exchanged.rename().and_then(|()| remove(Path::new(NEXT))),
            Exchanged::Added => remove(Path::new(LIVE)),
            Exchanged::Removed => rename(NEXT, LIVE, RenameFlags::NOREPLACE),
            Exchanged::Nothing => Ok(()),
        }
    }

    /// Removes what is beside the live policies.
    pub fn finish(&self) -> Result<()> {
        remove(Path::new(NEXT))
    }
}

/// Which policies there were, and which there are.
pub enum Exchanged {
    Both,
    Added,
    Removed,
    Nothing,
}

impl Exchanged {
    /// Where the old ones are now, attached as before.
    pub fn old(&self) -> Option<&'static Path> {
        match self {
            Exchanged::Both | Exchanged::Removed => Some(Path::new(NEXT)),
            Exchanged::Added | Exchanged::Nothing => None,
        }
    }

    fn rename(&self) -> Result<()> {
        match self {
            Exchanged::Both => rename(NEXT, LIVE, RenameFlags::EXCHANGE),
            Exchanged::Added => rename(NEXT, LIVE, RenameFlags::NOREPLACE),
            Exchanged::Removed => rename(LIVE, NEXT, RenameFlags::NOREPLACE),
            Exchanged::Nothing => Ok(()),
        }
    }
}

fn rename(from: &str, to: &str, flags: RenameFlags) -> Result<()> {
    renameat_with(CWD, from, CWD, to, flags)
        .map_err(|e| failed(&format!("rename {from}"))(e.into()))
}

fn lock(how: FlockOperation) -> Result<Lock> {
    let root = open_root()?;
    flock(&root, how).map_err(|e| failed(&format!("lock {ROOT}"))(e.into()))?;
    Ok(Lock { _root: root })
}

fn open_root() -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = open(ROOT, flags, Mode::empty()).map(File::from);
    // What is open is looked at, and it keeps its name: see is_ours() and above_is_ours().
    let ours = |root: &File| root.metadata().is_ok_and(|m| is_ours(&m)) && above_is_ours();
    match root {
        Ok(root) if ours(&root) => Ok(root),
        Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => {
            Err(Error::new(format!("{ROOT} belongs to another user"))
                .remedy("remove it, then try again"))
        }
        Err(e) => Err(failed(&format!("open {ROOT}"))(e.into())),
    }
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
