// SPDX-License-Identifier: GPL-2.0
//! Every file that a command opens by a name that its caller gave.
//!
//! The caller is root most of the time, and other users may write to the folder. So no link
//! of another user is followed, whatever fs.protected_symlinks says. Each step begins at a
//! descriptor, so the file that was checked is the file that is used. `/dev/stdin`,
//! `/dev/stdout` and `/dev/fd/N` are descriptors that the caller has opened.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, open, openat,
    readlinkat, renameat, statat, unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, Result};

/// As many links as the kernel follows.
const LINKS: usize = 40;

/// The one device that may stand in the place of a file.
const NULL: &str = "/dev/null";

/// The permissions of users other than the owner to write.
const OTHERS: u32 = 0o022;

/// Creates a file that takes the place of one of the same name at once. A process that has
/// the old file open, or may read it, sees nothing of what is written to the new one.
pub fn create(path: &Path, mode: u32) -> Result<File> {
    let failed = |why: Refusal| why.explain("write", path);
    if let Some(number) = descriptor(path) {
        return inherit(number).map_err(failed);
    }
    if path == Path::new(NULL) {
        return open_there(NULL, OFlags::WRONLY).map_err(failed);
    }
    let (folder, name) = folder_of(path).map_err(failed)?;
    match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => may_replace(&stat).map_err(failed)?,
        Err(Errno::NOENT) => {}
        Err(e) => return Err(failed(e.into())),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let beside = beside(&name).map_err(|e| failed(e.into()))?;
    let file =
        openat(&folder, &beside, flags, Mode::from_raw_mode(mode)).map_err(|e| failed(e.into()))?;
    if let Err(e) = renameat(&folder, &beside, &folder, &name) {
        let _ = unlinkat(&folder, &beside, AtFlags::empty());
        return Err(failed(e.into()));
    }
    Ok(file.into())
}

/// Opens a file that says what a command does. Only root and the caller may have
/// written it.
pub fn open_trusted(path: &Path) -> Result<File> {
    let failed = |why: Refusal| why.explain("read", path);
    if let Some(number) = descriptor(path) {
        return inherit(number).map_err(failed);
    }
    if path == Path::new(NULL) {
        return open_there(NULL, OFlags::RDONLY).map_err(failed);
    }
    let found = resolve(path).map_err(failed)?;
    let stat = fstat(&found).map_err(|e| failed(e.into()))?;
    may_trust(&stat).map_err(failed)?;
    // Opened only now, because opening a device can already have an effect.
    let again = format!("/proc/self/fd/{}", found.as_raw_fd());
    open_there(&again, OFlags::RDONLY).map_err(failed)
}

fn open_there(path: &str, how: OFlags) -> std::result::Result<File, Refusal> {
    Ok(open(path, how | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Where a name leads to, without a link of another user on the way.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    let found = resolve(path).map_err(|why| match why {
        Refusal::Errno(e) => e.into(),
        why => io::Error::new(io::ErrorKind::PermissionDenied, why.text().0),
    })?;
    std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Why a name is not used.
#[derive(Debug, PartialEq)]
enum Refusal {
    Errno(Errno),
    /// A link on the way, made by another user.
    ForeignLink(OsString),
    /// A link of /proc, which leads elsewhere than its text says.
    ProcLink(OsString),
    /// The name is not that of a regular file.
    Kind(&'static str),
    /// The name is a link, where a file is to be made.
    Link,
    /// The file belongs to another user.
    Foreign(u32),
    /// Others may write to the file.
    Writable,
}

impl From<Errno> for Refusal {
    fn from(e: Errno) -> Self {
        Refusal::Errno(e)
    }
}

impl Refusal {
    /// What is wrong, and what to do.
    fn text(&self) -> (String, Option<&'static str>) {
        let by_descriptor = "name a regular file, or hand it over by a redirection of the shell";
        match self {
            Refusal::Errno(e) => (io::Error::from(*e).to_string(), None),
            Refusal::ForeignLink(name) => (
                format!(
                    "{} is a link that another user made",
                    name.to_string_lossy()
                ),
                Some("name the place that is meant"),
            ),
            Refusal::ProcLink(name) => (
                format!("{} is a link of /proc", name.to_string_lossy()),
                Some(by_descriptor),
            ),
            Refusal::Kind(kind) => (format!("it is {kind}"), Some(by_descriptor)),
            Refusal::Link => (
                "it is a symbolic link".into(),
                Some("name the file that is meant, or remove the link"),
            ),
            Refusal::Foreign(uid) => (
                format!("it belongs to another user ({uid})"),
                Some("'chown' it, name another file, or use a redirection of the shell"),
            ),
            Refusal::Writable => (
                "others than its owner may write it".into(),
                Some("run 'chmod go-w' on it"),
            ),
        }
    }

    fn explain(&self, what: &str, path: &Path) -> Error {
        let (text, remedy) = self.text();
        let error = Error::new(format!("cannot {what} {}: {text}", path.display()));
        match remedy {
            Some(remedy) => error.remedy(remedy),
            None => error,
        }
    }
}

fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Only a regular file of the caller's or of root's. rename(2) would replace a link, a FIFO
/// or a device as well, but the caller may not know that it is one.
fn may_replace(stat: &Stat) -> std::result::Result<(), Refusal> {
    match kind(stat) {
        FileType::Symlink => Err(Refusal::Link),
        _ => is_own_file(stat),
    }
}

fn may_trust(stat: &Stat) -> std::result::Result<(), Refusal> {
    is_own_file(stat)?;
    match stat.st_mode & OTHERS {
        0 => Ok(()),
        _ => Err(Refusal::Writable),
    }
}

fn is_own_file(stat: &Stat) -> std::result::Result<(), Refusal> {
    match kind(stat) {
        FileType::RegularFile if is_ours(stat.st_uid) => Ok(()),
        FileType::RegularFile => Err(Refusal::Foreign(stat.st_uid)),
        FileType::Directory => Err(Refusal::Kind("a directory")),
        FileType::Fifo => Err(Refusal::Kind("a FIFO")),
        FileType::Socket => Err(Refusal::Kind("a socket")),
        _ => Err(Refusal::Kind("a device")),
    }
}

pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-") || descriptor(path) == Some(1)
}

/// The number in the names that the shell and others give to open descriptors.
fn descriptor(path: &Path) -> Option<i32> {
    let text = path.to_str()?;
    match text {
        "/dev/stdin" => return Some(0),
        "/dev/stdout" => return Some(1),
        "/dev/stderr" => return Some(2),
        _ => {}
    }
    let number = text
        .strip_prefix("/dev/fd/")
        .or_else(|| text.strip_prefix("/proc/self/fd/"))?;
    let digits = number.bytes().all(|b| b.is_ascii_digit());
    number.parse().ok().filter(|_| digits)
}

/// A copy of a descriptor that the caller has opened. It is used as it is.
fn inherit(number: i32) -> std::result::Result<File, Refusal> {
    // SAFETY: the descriptor is only duplicated; if none is open, that fails.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(fcntl_dupfd_cloexec(borrowed, 3)?.into())
}

/// A name that no other process can guess.
fn beside(name: &OsStr) -> std::result::Result<OsString, Errno> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{:016x}", u64::from_ne_bytes(random)));
    Ok(beside)
}

/// The directory that has the name, and the last part of it.
fn folder_of(path: &Path) -> std::result::Result<(OwnedFd, OsString), Refusal> {
    let Some(name) = path.file_name() else {
        return Err(Refusal::Kind("a directory"));
    };
    // "x/" and "x/." name a directory, though file_name() says "x".
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.ends_with(".") {
        return Err(Refusal::Kind("a directory"));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let folder = resolve(folder)?;
    match kind(&fstat(&folder)?) {
        FileType::Directory => Ok((folder, name.into())),
        _ => Err(Errno::NOTDIR.into()),
    }
}

/// A descriptor (O_PATH) of what a name leads to. The empty name is that of the current
/// directory.
fn resolve(path: &Path) -> std::result::Result<OwnedFd, Refusal> {
    let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = openat(CWD, ".", step, Mode::empty())?;
    let mut left = VecDeque::new();
    push(&mut left, path);
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        let next = openat(&at, &part, step, Mode::empty())?;
        let stat = fstat(&next)?;
        if kind(&stat) != FileType::Symlink {
            at = next;
            continue;
        }
        if !is_ours(stat.st_uid) {
            return Err(Refusal::ForeignLink(part));
        }
        if fstatfs(&next)?.f_type == PROC_SUPER_MAGIC && part != "self" {
            return Err(Refusal::ProcLink(part));
        }
        links += 1;
        if links > LINKS {
            return Err(Errno::LOOP.into());
        }
        push(&mut left, &target(next.as_fd())?);
    }
    Ok(at)
}

fn target(link: BorrowedFd) -> std::result::Result<PathBuf, Errno> {
    let target = readlinkat(link, "", Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()).into())
}

/// Puts the parts of a path before those that are left.
fn push(left: &mut VecDeque<OsString>, path: &Path) {
    for part in path.components().rev() {
        match part {
            Component::RootDir => left.push_front("/".into()),
            Component::ParentDir => left.push_front("..".into()),
            Component::Normal(name) => left.push_front(name.into()),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    /// An empty directory, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("files-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Folder(path)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn says<T>(result: Result<T>) -> String {
        result.err().unwrap().to_string()
    }

    #[test]
    fn a_new_file_takes_the_place_of_the_old_one() {
        let folder = Folder::new("create");
        let path = folder.at("file");
        fs::write(&path, "old").unwrap();
        let mut old = File::open(&path).unwrap();
        create(&path, 0o600).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut text = String::new();
        old.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn only_a_regular_file_is_replaced() {
        let folder = Folder::new("replace");
        let target = folder.at("target");
        fs::write(&target, "precious").unwrap();
        symlink(&target, folder.at("link")).unwrap();
        symlink("nowhere", folder.at("dangling")).unwrap();
        for (name, why) in [
            ("link", "symbolic link"),
            ("dangling", "symbolic link"),
            (".", "directory"),
            ("target/", "directory"),
            ("target/x", "Not a directory"),
            ("absent/x", "No such file"),
        ] {
            let text = says(create(&folder.at(name), 0o600));
            assert!(text.contains(why), "{name}: {text}");
        }
        assert!(says(create(Path::new("/dev/zero"), 0o600)).contains("a device"));
        assert!(create(Path::new("/dev/null"), 0o600).is_ok());
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        assert!(
            fs::symlink_metadata(folder.at("link"))
                .unwrap()
                .is_symlink()
        );
    }

    #[test]
    fn own_links_on_the_way_are_followed() {
        let folder = Folder::new("way");
        fs::create_dir(folder.at("real")).unwrap();
        symlink("real", folder.at("own")).unwrap();
        symlink("../real/../own", folder.at("real/twice")).unwrap();
        symlink("loop", folder.at("loop")).unwrap();
        create(&folder.at("own/file"), 0o644).unwrap();
        create(&folder.at("real/twice/other"), 0o644).unwrap();
        assert!(folder.at("real/file").exists() && folder.at("real/other").exists());
        let own = real_path(&folder.at("own/../own/file")).unwrap();
        assert_eq!(own, fs::canonicalize(folder.at("real/file")).unwrap());
        assert!(says(create(&folder.at("loop/x"), 0o600)).contains("symbolic link"));
        assert!(says(open_trusted(Path::new("/proc/self/root/etc/passwd"))).contains("/proc"));
    }

    #[test]
    fn trusts_what_nobody_else_writes() {
        let folder = Folder::new("trust");
        let path = folder.at("file");
        fs::write(&path, "text").unwrap();
        symlink("file", folder.at("link")).unwrap();
        for (mode, trusted) in [(0o644, true), (0o600, true), (0o664, false), (0o646, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            for name in ["file", "link"] {
                let opened = open_trusted(&folder.at(name));
                assert_eq!(opened.is_ok(), trusted, "{name} {mode:o}");
            }
        }
        assert!(says(open_trusted(Path::new("/dev/zero"))).contains("a device"));
        assert!(says(open_trusted(&folder.0)).contains("a directory"));
    }

    #[test]
    fn whose_it_is() {
        let mut stat = rustix::fs::stat("/proc/version").unwrap();
        assert_eq!(is_own_file(&stat), Ok(()));
        stat.st_uid = geteuid().as_raw() + 1;
        assert_eq!(is_own_file(&stat), Err(Refusal::Foreign(stat.st_uid)));
        assert_eq!(may_trust(&stat), Err(Refusal::Foreign(stat.st_uid)));
        stat.st_mode = FileType::Fifo.as_raw_mode() | 0o644;
        assert_eq!(may_replace(&stat), Err(Refusal::Kind("a FIFO")));
    }

    #[test]
    fn descriptors_by_name() {
        for (name, number) in [
            ("/dev/stdin", Some(0)),
            ("/dev/stdout", Some(1)),
            ("/dev/fd/63", Some(63)),
            ("/proc/self/fd/7", Some(7)),
            ("/dev/fd/", None),
            ("/dev/fd/+1", None),
            ("/dev/fd/1/x", None),
            ("/dev/fd/99999999999", None),
            ("-", None),
        ] {
            assert_eq!(descriptor(Path::new(name)), number, "{name}");
        }
    }
}
