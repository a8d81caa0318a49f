// SPDX-License-Identifier: GPL-2.0
//! The epoll sets of running processes, and how long they spin before they sleep
//! (ioctl_eventpoll(2)).

use std::fs;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

const GROUP: u8 = 0x8a;
const SET: Opcode = opcode::write::<Parameters>(GROUP, 1);
const GET: Opcode = opcode::read::<Parameters>(GROUP, 2);

/// `struct epoll_params`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters {
    usec: u32,
    budget: u16,
    prefer: u8,
    pad: u8,
}

/// A copy of a process's descriptor of an epoll set.
pub struct EpollSet {
    /// The number that the process knows it by.
    pub fd: i32,
    copy: OwnedFd,
}

impl EpollSet {
    /// The sets of a process. A descriptor that is closed meanwhile is left out.
    pub fn of_process(pid: u32) -> Result<Vec<Self>, Errno> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = pidfd_open(number.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        let mut sets = Vec::new();
        for fd in epoll_descriptors(pid)? {
            match pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()) {
                Ok(copy) => sets.push(EpollSet { fd, copy }),
                Err(Errno::BADF) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(sets)
    }

    /// Microseconds that its waiters spin; 0: as net.core.busy_poll says.
    pub fn usec(&self) -> Result<u32, Errno> {
        Ok(self.parameters()?.usec)
    }

    /// The other parameters stay as they are.
    pub fn set_usec(&self, usec: u32) -> Result<(), Errno> {
        let parameters = Parameters {
            usec,
            ..self.parameters()?
        };
        // SAFETY: this is what the operation takes; the kernel reads it and keeps nothing.
        unsafe { ioctl(&self.copy, Setter::<SET, Parameters>::new(parameters)) }
    }

    fn parameters(&self) -> Result<Parameters, Errno> {
        // SAFETY: this is what the operation writes, and all of it.
        unsafe { ioctl(&self.copy, Getter::<GET, Parameters>::new()) }
    }
}

fn epoll_descriptors(pid: u32) -> Result<Vec<i32>, Errno> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let number = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let name = entry.file_name();
        (target.to_str()? == "anon_inode:[eventpoll]").then(|| name.to_str()?.parse().ok())?
    };
    let mut found: Vec<i32> = entries.flatten().filter_map(number).collect();
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    use rustix::event::epoll;

    #[test]
    fn finds_sets_and_keeps_their_other_parameters() {
        let own = epoll::create(epoll::CreateFlags::empty()).unwrap();
        let sets = EpollSet::of_process(std::process::id()).unwrap();
        let set = sets.iter().find(|set| set.fd == own.as_raw_fd()).unwrap();
        // A kernel before 6.9 has no such parameters.
        let Ok(before) = set.parameters() else {
            return;
        };
        set.set_usec(50).unwrap();
        let after = set.parameters().unwrap();
        assert_eq!(after.usec, 50);
        assert_eq!((after.budget, after.prefer), (before.budget, before.prefer));
    }

    #[test]
    fn says_that_there_is_no_such_process() {
        assert_eq!(EpollSet::of_process(u32::MAX).err(), Some(Errno::SRCH));
    }
}
