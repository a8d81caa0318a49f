// SPDX-License-Identifier: GPL-2.0
//! How long the event loops of processes spin, by the policies with `busy-poll-epoll`.
//!
//! The kernel keeps the time with each epoll set, and a process makes its sets when it likes. So
//! the agent looks again and again. What it gave it takes back when no policy wants it any more.
//! A set with another time than that belongs to its program, and stays as it is.

use std::collections::HashMap;

use rustix::io::Errno;

use crate::error::Result;
use crate::policy::cgroups;
use crate::system::cgroup::is_below;
use crate::system::epoll::EpollSet;
use crate::system::process::{self, Process};

/// A process, also when its number is another one's later.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    pid: u32,
    began: u64,
}

/// Microseconds by descriptor.
type Times = HashMap<i32, u32>;

/// What the agent gave the epoll sets of processes. A set that has the time already that its
/// policy gives counts as given: another agent may have done it.
#[derive(Default)]
pub struct Loops(HashMap<Key, Times>);

impl Loops {
    /// Makes it so that all spin as the policies in force say. One sentence for what could not be
    /// done.
    pub fn look(&mut self) -> Result<Vec<String>> {
        let spinning = cgroups::spinning()?;
        let mut before = std::mem::take(&mut self.0);
        if spinning.is_empty() && before.is_empty() {
            return Ok(Vec::new());
        }
        let mut failed = Vec::new();
        for process in process::list() {
            let Some(began) = process.began() else {
                continue;
            };
            let key = Key {
                pid: process.pid,
                began,
            };
            let given = before.remove(&key).unwrap_or_default();
            let cgroup = process.cgroup();
            let of = spinning.iter().find(|(_, paths)| is_below(&cgroup, paths));
            let wanted = of.map_or(0, |(usec, _)| *usec);
            if wanted == 0 && given.is_empty() {
                continue;
            }
            match change(process.pid, wanted, &given) {
                Ok(times) if times.is_empty() => {}
                Ok(times) => drop(self.0.insert(key, times)),
                // It has ended meanwhile.
                Err(Errno::SRCH | Errno::NOENT) => {}
                Err(e) => failed.push((process, e)),
            }
        }
        Ok(sentence(&failed).into_iter().collect())
    }
}

/// Gives the sets of a process `wanted`, 0 for none, and returns those that have it now by us.
fn change(pid: u32, wanted: u32, given: &Times) -> std::result::Result<Times, Errno> {
    let mut times = Times::new();
    for set in EpollSet::of_process(pid)? {
        let done = set.usec().and_then(|now| {
            let next = decide(now, given.get(&set.fd).copied(), wanted);
            if let Some(next) = next.filter(|next| *next != now) {
                set.set_usec(next)?;
            }
            Ok(next)
        });
        match done {
            Ok(Some(usec)) if usec != 0 => drop(times.insert(set.fd, usec)),
            // The process has given the number to another file meanwhile.
            Ok(_) | Err(Errno::NOTTY) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(times)
}

/// The time that a set should have, or None if it is the program's own.
fn decide(now: u32, given: Option<u32>, wanted: u32) -> Option<u32> {
    (now == 0 || now == wanted || given == Some(now)).then_some(wanted)
}

fn sentence(failed: &[(Process, Errno)]) -> Option<String> {
    let (process, e) = failed.first()?;
    let n = failed.len();
    Some(format!(
        "event loops do not spin in {n} of the processes that policies name, such as {process}: {e}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_has_set_stays() {
        // A new set; one that is right; one of another policy before; no policy any more.
        assert_eq!(decide(0, None, 50), Some(50));
        assert_eq!(decide(50, None, 50), Some(50));
        assert_eq!(decide(50, Some(50), 20), Some(20));
        assert_eq!(decide(50, Some(50), 0), Some(0));
        // Its own, also where ours was before.
        assert_eq!(decide(70, None, 50), None);
        assert_eq!(decide(70, Some(50), 20), None);
        assert_eq!(decide(70, Some(50), 0), None);
        assert_eq!(decide(0, Some(50), 0), Some(0));
    }

    #[test]
    fn says_how_many_and_why() {
        assert_eq!(sentence(&[]), None);
        let process = Process {
            pid: 7,
            name: "web".into(),
        };
        assert_eq!(
            sentence(&[(process, Errno::PERM)]).unwrap(),
            "event loops do not spin in 1 of the processes that policies name, such as web(7): \
             Operation not permitted (os error 1)"
        );
    }
}
