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
use crate::system::cgroup::Hierarchy;
use crate::system::epoll::EpollSet;
use crate::system::process::Process;

/// Microseconds by descriptor.
type Times = HashMap<i32, u32>;

/// What the agent gave the sets of a process.
struct Given {
    /// When the process began: its number may be another one's later.
    began: u64,
    times: Times,
}

/// What the agent gave, by process. A set that has the time already that its policy gives counts
/// as given: another agent may have done it.
#[derive(Default)]
pub struct Loops(HashMap<u32, Given>);

impl Loops {
    /// Makes it so that all spin as the policies in force say. One sentence for what could not be
    /// done.
    pub fn look(&mut self) -> Result<Vec<String>> {
        let spinning = cgroups::spinning()?;
        if spinning.is_empty() && self.0.is_empty() {
            return Ok(Vec::new());
        }
        let mut wanted = wanted(&spinning)?;
        let mut before = std::mem::take(&mut self.0);
        for pid in before.keys() {
            wanted.entry(*pid).or_insert(0);
        }
        let mut failed = Vec::new();
        for (pid, usec) in wanted {
            let process = Process::of(pid);
            let Some(began) = process.began() else {
                continue;
            };
            let given = before.remove(&pid).filter(|given| given.began == began);
            let given = given.map(|given| given.times).unwrap_or_default();
            if usec == 0 && given.is_empty() {
                continue;
            }
            let (times, result) = change(pid, usec, given);
            if !times.is_empty() {
                self.0.insert(pid, Given { began, times });
            }
            match result {
                // It has ended meanwhile.
                Ok(()) | Err(Errno::SRCH | Errno::NOENT) => {}
                Err(e) => failed.push((process, e)),
            }
        }
        Ok(sentence(&failed).into_iter().collect())
    }
}

/// The processes whose event loops spin, and for how long. By the lists that the cgroups have of
/// them: what /proc says of a process's cgroup is told from the reader's own, which may be one of a
/// container.
fn wanted(spinning: &[(u32, Vec<String>)]) -> Result<HashMap<u32, u32>> {
    let mut wanted = HashMap::new();
    let hierarchy = Hierarchy::find()?;
    for (usec, paths) in spinning {
        for path in paths {
            for pid in hierarchy.processes(path)? {
                wanted.entry(pid).or_insert(*usec);
            }
        }
    }
    Ok(wanted)
}

/// Gives the sets of a process `wanted`, 0 for none. Returns what they have by us then, and the last
/// error.
fn change(pid: u32, wanted: u32, given: Times) -> (Times, std::result::Result<(), Errno>) {
    let sets = match EpollSet::of_process(pid) {
        Ok(sets) => sets,
        Err(e) => return (given, Err(e)),
    };
    let mut times = Times::new();
    let mut result = Ok(());
    for set in sets {
        let had = given.get(&set.fd).copied();
        let has = match change_one(&set, wanted, had) {
            Ok(has) => has,
            // The process has given the number to another file meanwhile.
            Err(Errno::NOTTY) => None,
            Err(e) => {
                result = Err(e);
                had
            }
        };
        if let Some(usec) = has.filter(|usec| *usec != 0) {
            times.insert(set.fd, usec);
        }
    }
    (times, result)
}

/// The time that the set has by us then.
fn change_one(
    set: &EpollSet,
    wanted: u32,
    given: Option<u32>,
) -> std::result::Result<Option<u32>, Errno> {
    let now = set.usec()?;
    let next = decide(now, given, wanted);
    if let Some(next) = next.filter(|next| *next != now) {
        set.set_usec(next)?;
    }
    Ok(next)
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
