// SPDX-License-Identifier: GPL-2.0
//! Cgroups, between a path and the id that sockets carry.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::statfs;

use crate::error::{Error, Result};
use crate::system::{files, unit};

const CGROUP_SUPER_MAGIC: u64 = 0x27e0eb;
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// As POLICY_CGROUP_DEPTH: the root is the first of them.
pub const DEPTH: usize = 64;
/// As POLICY_PATH: bytes of a path from the root, with a NUL.
pub const PATH: usize = 512;

/// The id of the root of the hierarchy.
const ROOT: u64 = 1;

/// The mount of cgroup version 2.
pub struct Hierarchy {
    mount: PathBuf,
}

impl Hierarchy {
    pub fn find() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .map_err(|e| Error::new(format!("cannot read /proc/self/mountinfo: {e}")))?;
        match mount_of(&mounts, "cgroup2") {
            Some(mount) => Ok(Hierarchy { mount }),
            None if mount_of(&mounts, "cgroup").is_some() => {
                Err(Error::new("only cgroup version 1 is mounted").remedy(
                    "boot with systemd.unified_cgroup_hierarchy=1, or \
                     'mount -t cgroup2 none /sys/fs/cgroup/unified'",
                ))
            }
            None => Err(Error::new("cgroup version 2 is not mounted")
                .remedy("run 'mount -t cgroup2 none /sys/fs/cgroup'")),
        }
    }

    pub fn mount(&self) -> &Path {
        &self.mount
    }

    #[cfg(test)]
    pub fn at(mount: &str) -> Self {
        Hierarchy {
            mount: mount.into(),
        }
    }

    /// The id of the cgroup that a path under the mount, or relative to it,
    /// names.
    pub fn id(&self, path: &Path) -> Result<u64> {
        let full = self.directory(path)?;
        // The inode number of a cgroup's directory is the cgroup's id.
        fs::metadata(&full)
            .map(|m| m.ino())
            .map_err(|e| Error::new(format!("cannot look at {}: {e}", path.display())))
    }

    /// The path of a cgroup from the root of the hierarchy, for one that a user gives as for
    /// [`Self::id`]. The cgroup need not exist. Each '*' stands for any bytes but '/', and a
    /// last component '**' for every cgroup below.
    pub fn path(&self, path: &Path) -> Result<String> {
        let shown = path.display();
        let pattern = path.to_string_lossy().contains('*');
        let under = path.strip_prefix(&self.mount).or(path.strip_prefix("/"));
        let under = under.unwrap_or(path);
        let elsewhere = path.is_absolute() && path.exists();
        let full = match !pattern && (self.mount.join(under).exists() || elsewhere) {
            true => self.directory(path)?,
            false => self.mount.join(under),
        };
        let below = full.strip_prefix(&self.mount).unwrap_or(&full);
        let mut text = String::new();
        let last = below.components().count();
        for (i, component) in below.components().enumerate() {
            let Component::Normal(name) = component else {
                return Err(Error::usage(format!("'..' in the cgroup {shown}"))
                    .remedy("write its path from the root of the hierarchy"));
            };
            let name = name.to_str().filter(|n| !n.contains(char::is_control));
            let name = name.ok_or_else(|| {
                Error::usage(format!(
                    "the cgroup {shown} has a name that is not plain text"
                ))
            })?;
            if name.contains("**") && (name != "**" || i + 1 < last) {
                return Err(Error::usage(format!("'**' inside the cgroup {shown}"))
                    .remedy("'**' can only be the last component; '*' stays within one"));
            }
            text += "/";
            text += name;
        }
        if last >= DEPTH {
            return Err(too_deep(path));
        }
        if text.len() >= PATH {
            return Err(Error::usage(format!(
                "the path of the cgroup {shown} has {PATH} or more bytes"
            ))
            .remedy("name a cgroup above it, or use '*'"));
        }
        Ok(match text.is_empty() {
            true => "/".into(),
            false => text,
        })
    }

    /// The path of the cgroup of a systemd unit. It keeps to the same bounds.
    pub fn of_unit(&self, name: &str) -> Result<String> {
        self.path(Path::new(&unit::cgroup(name)?))
    }

    /// Calls `look` with the path from the root and the id of each cgroup.
    pub fn each(&self, mut look: impl FnMut(&str, u64)) -> Result<()> {
        each_below(self.mount.clone(), |dir, id| {
            let below = dir.strip_prefix(&self.mount).unwrap_or(dir);
            // One with another name can be named by nothing but a cgroup above it.
            if let Some(below) = below.to_str() {
                look(&format!("/{below}"), id);
            }
            true
        })
    }

    /// Fails if the mount shows only a part of the hierarchy, as in a cgroup namespace.
    pub fn require_root(&self) -> Result<()> {
        match fs::metadata(&self.mount).map(|m| m.ino()) {
            Ok(ROOT) => Ok(()),
            _ => Err(Error::new(format!(
                "{} is not the root of the machine's cgroups",
                self.mount.display()
            ))
            .remedy(
                "run this in the first cgroup namespace: 'nsenter -t 1 -C -m -- socksplice …'",
            )),
        }
    }

    /// The ids of that cgroup and of all below it.
    pub fn subtree(&self, path: &Path) -> Result<HashSet<u64>> {
        let mut ids = HashSet::new();
        each_below(self.directory(path)?, |_, id| {
            ids.insert(id);
            true
        })?;
        Ok(ids)
    }

    /// The processes of the cgroup at `path` from the root, and of all below it. Those that the
    /// caller's pid namespace does not have are left out.
    pub fn processes(&self, path: &str) -> Result<HashSet<u32>> {
        let mut pids = HashSet::new();
        each_below(self.mount.join(path.trim_start_matches('/')), |dir, _| {
            // One of threads cannot be read: the processes of those are in the list of one above.
            let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            true
        })?;
        pids.remove(&0);
        Ok(pids)
    }

    fn directory(&self, path: &Path) -> Result<PathBuf> {
        let full = if path.starts_with(&self.mount) {
            path.to_path_buf()
        } else {
            self.mount.join(path.strip_prefix("/").unwrap_or(path))
        };
        // An absolute path that exists elsewhere was meant as it stands, and
        // is no cgroup: a version 1 hierarchy, most likely.
        let elsewhere = path.is_absolute() && path != Path::new("/") && !full.exists();
        let full = if elsewhere && path.exists() {
            path.to_path_buf()
        } else {
            full
        };

        let shown = path.display();
        // A link of another user is refused: it could lead to another cgroup a moment later.
        let full = files::real_path(&full).map_err(|e| {
            if e.kind() == io::ErrorKind::PermissionDenied {
                return Error::new(format!("cannot look at {shown}: {e}"))
                    .remedy("name the cgroup itself");
            }
            Error::new(format!("there is no cgroup {shown}")).remedy(format!(
                "name a directory under {}, 'systemd-cgls' lists them",
                self.mount.display()
            ))
        })?;
        let filesystem = statfs(&full).map(|s| s.f_type as u64).unwrap_or(0);
        if filesystem == CGROUP_SUPER_MAGIC {
            return Err(Error::new(format!("{shown} is a cgroup of version 1"))
                .remedy(format!("name one under {}", self.mount.display())));
        }
        if filesystem != CGROUP2_SUPER_MAGIC || !full.is_dir() {
            return Err(Error::new(format!("{shown} is not a cgroup"))
                .remedy(format!("name a directory under {}", self.mount.display())));
        }
        let below = full.strip_prefix(&self.mount).unwrap_or(&full);
        if below.components().count() >= DEPTH {
            return Err(too_deep(path));
        }
        Ok(full)
    }

    /// The directories of all cgroups, each before those below it.
    pub fn all(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        // What cannot be read is left out.
        let _ = each_below(self.mount.clone(), |dir, _| {
            all.push(dir.to_path_buf());
            true
        });
        all
    }

    /// The paths, relative to the mount, of those ids that still exist.
    pub fn paths(&self, ids: &[u64]) -> HashMap<u64, String> {
        let mut found = HashMap::new();
        // What cannot be read has no path.
        let _ = each_below(self.mount.clone(), |dir, id| {
            if ids.contains(&id) {
                let below = dir.strip_prefix(&self.mount).unwrap_or(dir);
                found.insert(id, format!("/{}", below.display()));
            }
            found.len() < ids.len()
        });
        found
    }
}

fn too_deep(path: &Path) -> Error {
    Error::new(format!("{} is {DEPTH} or more levels deep", path.display()))
        .remedy("name a cgroup above it")
}

/// Calls `look` for a directory and each below it, with its inode number, as long as
/// that returns true. One that is removed meanwhile is left out. Goes on after an error, and
/// returns the first.
fn each_below(dir: PathBuf, mut look: impl FnMut(&Path, u64) -> bool) -> Result<()> {
    let mut pending = vec![dir];
    let mut result = Ok(());
    while let Some(dir) = pending.pop() {
        match visit(&dir, &mut look, &mut pending) {
            Ok(true) => {}
            Ok(false) => break,
            // Its entries, too, can be read until it is removed.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound) => {}
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {}
            Err(e) => {
                let dir = dir.display();
                let error = Error::new(format!("cannot read the cgroup {dir}: {e}"));
                result = result.and(Err(error));
            }
        }
    }
    result
}

/// One directory of [`each_below`]: true to go on.
fn visit(
    dir: &Path,
    look: &mut impl FnMut(&Path, u64) -> bool,
    pending: &mut Vec<PathBuf>,
) -> io::Result<bool> {
    if !look(dir, fs::metadata(dir)?.ino()) {
        return Ok(false);
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            pending.push(entry.path());
        }
    }
    Ok(true)
}

/// Where the first file system of a type is mounted.
fn mount_of(mountinfo: &str, kind: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        // Before " - ": id, parent, device, root, mount point, …; after it: type, …
        let (left, right) = line.split_once(" - ")?;
        if right.split(' ').next()? != kind {
            return None;
        }
        left.split(' ').nth(4).map(|path| unescape(path).into())
    })
}

/// The kernel writes a space as \040, and so on.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest
            .get(at + 1..at + 4)
            .and_then(|o| u8::from_str_radix(o, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte.into());
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "\
21 1 0:19 / /proc rw - proc proc rw
30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw
";
    const HYBRID: &str = "\
30 1 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/net_cls rw - cgroup cgroup rw,net_cls
32 30 0:28 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw
";

    #[test]
    fn lists_processes_below() {
        let mount = std::env::temp_dir().join(format!("socksplice-cgroup-{}", std::process::id()));
        fs::create_dir_all(mount.join("a/b")).unwrap();
        fs::create_dir_all(mount.join("ab")).unwrap();
        // 0: one that this pid namespace does not have.
        fs::write(mount.join("a/cgroup.procs"), "0\n12\n").unwrap();
        fs::write(mount.join("a/b/cgroup.procs"), "7\n").unwrap();
        fs::write(mount.join("ab/cgroup.procs"), "8\n").unwrap();
        let hierarchy = Hierarchy::at(mount.to_str().unwrap());
        let of = |path| hierarchy.processes(path).unwrap();
        assert_eq!(of("/a"), HashSet::from([7, 12]));
        assert_eq!(of("/"), HashSet::from([7, 8, 12]));
        assert_eq!(of("/gone"), HashSet::new());
        fs::remove_dir_all(mount).unwrap();
    }

    #[test]
    fn finds_the_mount() {
        assert_eq!(mount_of(UNIFIED, "cgroup2"), Some("/sys/fs/cgroup".into()));
        assert_eq!(mount_of(UNIFIED, "cgroup"), None);
        assert_eq!(
            mount_of(HYBRID, "cgroup2"),
            Some("/sys/fs/cgroup/uni fied".into())
        );
        assert_eq!(
            mount_of(HYBRID, "cgroup"),
            Some("/sys/fs/cgroup/net_cls".into())
        );
        assert_eq!(mount_of("", "cgroup2"), None);
    }

    #[test]
    fn unescapes() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/a\\"), "/a\\");
        assert_eq!(unescape("/a\\9é"), "/a\\9é");
    }

    #[test]
    fn a_directory_elsewhere_is_no_cgroup() {
        let hierarchy = Hierarchy {
            mount: "/nonexistent-mount".into(),
        };
        let error = hierarchy.id(Path::new("/usr")).unwrap_err().to_string();
        assert!(error.contains("/usr is not a cgroup"), "{error}");
        let error = hierarchy.id(Path::new("gone")).unwrap_err().to_string();
        assert!(error.contains("no cgroup gone"), "{error}");
        let error = hierarchy.path(Path::new("/usr")).unwrap_err().to_string();
        assert!(error.contains("/usr is not a cgroup"), "{error}");
    }

    #[test]
    fn paths_are_from_the_root() {
        let hierarchy = Hierarchy::at("/nonexistent-mount");
        let path = |text: &str| hierarchy.path(Path::new(text));
        for (text, expected) in [
            ("a/b", "/a/b"),
            ("/a//b/./", "/a/b"),
            ("/nonexistent-mount/a", "/a"),
            ("/a/*-x/**", "/a/*-x/**"),
        ] {
            assert_eq!(path(text).unwrap(), expected);
        }
        let deep = "/a".repeat(DEPTH);
        let long = format!("/{}", "a".repeat(PATH - 1));
        for (text, says) in [
            ("/a/../b", "'..'"),
            ("/a/**/b", "'**' inside"),
            ("/a/x**", "'**' inside"),
            ("/a\n", "plain text"),
            (&deep, "levels deep"),
            (&long, "or more bytes"),
        ] {
            let error = path(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        // Each dash of a slice's name makes the path longer by the name up to there.
        let slice = format!("{}a.slice", "a-".repeat(30));
        let error = hierarchy.of_unit(&slice).unwrap_err().to_string();
        assert!(error.contains("or more bytes"), "{error}");
    }
}
