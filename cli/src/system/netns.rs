// SPDX-License-Identifier: GPL-2.0
//! Network namespaces: their names, where `ip netns` gave them one, and the way into them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Inode number to name.
pub struct Names(HashMap<u64, String>);

impl Names {
    pub fn read() -> Self {
        let mut names = HashMap::new();
        for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            if let Ok(metadata) = fs::metadata(entry.path()) {
                names.insert(metadata.ino(), entry.file_name().to_string_lossy().into());
            }
        }
        Names(names)
    }

    pub fn all(self) -> Vec<String> {
        self.0.into_values().collect()
    }

    pub fn get(&self, inode: u64) -> Option<&str> {
        self.0.get(&inode).map(String::as_str)
    }

    /// The inode number of a namespace, given as a number or by its name. No namespace has the
    /// number 0, which means all of them to the module.
    pub fn inode(&self, text: &str) -> Option<u64> {
        let named = self.0.iter().find(|(_, name)| *name == text);
        let inode = named.map(|n| *n.0).or_else(|| text.parse().ok());
        inode.filter(|inode| *inode != 0)
    }

    #[cfg(test)]
    pub fn of(list: &[(u64, &str)]) -> Self {
        Names(list.iter().map(|(i, n)| (*i, n.to_string())).collect())
    }
}

/// A network namespace that a process is in, or that has a name.
pub struct Namespace {
    pub inode: u64,
    /// A file that stands for it.
    path: PathBuf,
}

impl Namespace {
    fn at(path: PathBuf) -> io::Result<Self> {
        let inode = fs::metadata(&path)?.ino();
        Ok(Namespace { inode, path })
    }

    pub fn of_process(pid: u32) -> io::Result<Self> {
        Namespace::at(format!("/proc/{pid}/ns/net").into())
    }

    /// Each of the machine, once: the own one first.
    pub fn all() -> Vec<Self> {
        let own = PathBuf::from("/proc/self/ns/net");
        let entries = |dir: &str| fs::read_dir(dir).into_iter().flatten().flatten();
        let processes = entries("/proc").map(|process| process.path().join("ns/net"));
        let named = entries("/run/netns").map(|name| name.path());
        let mut seen = HashSet::new();
        std::iter::once(own)
            .chain(processes)
            .chain(named)
            .filter_map(|path| Namespace::at(path).ok())
            .filter(|namespace| seen.insert(namespace.inode))
            .collect()
    }

    /// What `work` returns in it. None if it is gone.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<Option<T>> {
        let enter = || {
            let file = fs::File::open(&self.path)?;
            // A process may be in another one by now, and a name may stand for no namespace.
            if file.metadata()?.ino() != self.inode {
                return Err(Errno::NOENT.into());
            }
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(())
        };
        // The namespace is the thread's, and ends with it.
        let entered = thread::scope(|scope| {
            let inside = scope.spawn(|| enter().map(|()| work()));
            inside.join().expect("work does not panic")
        });
        match entered {
            Ok(result) => Ok(Some(result)),
            Err(e) if is_gone(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH, Errno::INVAL];
    gone.iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_comes_first() {
        let own = Namespace::of_process(std::process::id()).unwrap();
        let all = Namespace::all();
        assert_eq!(all[0].inode, own.inode);
        assert_eq!(all.iter().filter(|n| n.inode == own.inode).count(), 1);
        assert!(Namespace::of_process(u32::MAX).is_err());
    }

    #[test]
    fn no_namespace_has_the_number_0() {
        let names = Names::of(&[(7, "blue"), (8, "0")]);
        assert_eq!(names.inode("blue"), Some(7));
        assert_eq!(names.inode("4026531840"), Some(4026531840));
        // the name comes first
        assert_eq!(names.inode("0"), Some(8));
        for none in ["0", "00", "+0", "-1", "green", ""] {
            assert_eq!(Names::of(&[]).inode(none), None, "{none}");
        }
    }
}
