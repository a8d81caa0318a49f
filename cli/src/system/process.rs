// SPDX-License-Identifier: GPL-2.0
//! Which processes have a socket open, or are in a function of the module.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    pub pid: u32,
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The process chose the name, and a terminal may read it.
        let name = self.name.replace(char::is_control, "?");
        write!(f, "{name}({})", self.pid)
    }
}

impl Process {
    /// The one of this number, by the name that it has now.
    pub fn of(pid: u32) -> Self {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = name.trim_end().to_string();
        Process { pid, name }
    }

    /// The path of its cgroup in the version 2 hierarchy, from the root; empty if it has ended.
    pub fn cgroup(&self) -> String {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).unwrap_or_default();
        let path = text.lines().find_map(|line| line.strip_prefix("0::"));
        path.unwrap_or_default().to_string()
    }

    /// When it began, in ticks since the machine's boot, which tells it from another one of this
    /// number. None if it has ended.
    pub fn began(&self) -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        // The name may have anything in it, so from its last bracket on: field 3 is the first.
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
    }
}

/// All processes.
pub fn list() -> Vec<Process> {
    all().map(|(process, _)| process).collect()
}

/// All processes, each with its folder in /proc.
fn all() -> impl Iterator<Item = (Process, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((Process::of(pid), entry.path()))
    })
}

/// Processes with a thread that sleeps in a function of the module. The list is empty if the
/// kernel does not show the caller the stacks of tasks.
pub fn inside_module() -> Vec<Process> {
    let sleeps = |folder: &Path| {
        // A kernel thread has no program.
        let tasks =
            fs::read_link(folder.join("exe")).and_then(|_| fs::read_dir(folder.join("task")));
        tasks.into_iter().flatten().flatten().any(|task| {
            let stack = fs::read_to_string(task.path().join("stack"));
            stack.is_ok_and(|stack| stack.contains("[socksplice]"))
        })
    };
    all()
        .filter(|(_, folder)| sleeps(folder))
        .map(|(process, _)| process)
        .collect()
}

/// Inode number of a socket to the processes that have it.
pub struct Sockets(HashMap<u64, Vec<Process>>);

impl Sockets {
    /// Leaves out processes that end meanwhile.
    pub fn read() -> Self {
        Sockets::of(|_| true)
    }

    /// The sockets of the processes that `wanted` selects.
    pub fn of(wanted: impl Fn(&Process) -> bool) -> Self {
        let mut sockets: HashMap<u64, Vec<Process>> = HashMap::new();
        for (process, folder) in all().filter(|(process, _)| wanted(process)) {
            let descriptors = fs::read_dir(folder.join("fd"));
            for descriptor in descriptors.into_iter().flatten().flatten() {
                let Ok(target) = fs::read_link(descriptor.path()) else {
                    continue;
                };
                let Some(inode) = target.to_str().and_then(inode_of) else {
                    continue;
                };
                let holders = sockets.entry(inode).or_default();
                if !holders.contains(&process) {
                    holders.push(process.clone());
                }
            }
        }
        Sockets(sockets)
    }

    /// As people read it: NAME(PID), or "-".
    pub fn names(&self, inode: u64) -> String {
        let names: Vec<_> = self.holders(inode).iter().map(|p| p.to_string()).collect();
        match names.is_empty() {
            true => "-".into(),
            false => names.join(","),
        }
    }

    pub fn holders(&self, inode: u64) -> &[Process] {
        self.0.get(&inode).map_or(&[], Vec::as_slice)
    }
}

fn inode_of(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    #[test]
    fn finds_its_own_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let inode = inode_of(link.to_str().unwrap()).unwrap();
        let sockets = Sockets::read();
        let pids: Vec<u32> = sockets.holders(inode).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [std::process::id()]);
        assert!(sockets.holders(1).is_empty());
    }

    #[test]
    fn a_name_cannot_speak_to_the_terminal() {
        let process = Process {
            pid: 7,
            name: "\x1b[2Ja\nb".into(),
        };
        assert_eq!(process.to_string(), "?[2Ja?b(7)");
    }

    #[test]
    fn other_files_are_no_sockets() {
        assert_eq!(inode_of("socket:[12]"), Some(12));
        assert_eq!(inode_of("pipe:[12]"), None);
        assert_eq!(inode_of("socket:[x]"), None);
    }
}
