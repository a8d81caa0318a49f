// SPDX-License-Identifier: GPL-2.0
//! `poll`: how long the event loops of running processes spin before they sleep.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::json;

use rustix::io::Errno;

use crate::cli::{PollProcesses, PollSet};
use crate::error::{Error, Result};
use crate::output::{Align, Answer, SCHEMA, Table};
use crate::system::cgroup::Hierarchy;
use crate::system::epoll::EpollSet;
use crate::system::process::{self, Process};

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    process: Process,
    fd: i32,
    usec: u32,
}

pub fn set(arguments: &PollSet) -> Result<Answer> {
    change(&arguments.processes, arguments.usec)
}

pub fn clear(processes: &PollProcesses) -> Result<Answer> {
    change(processes, 0)
}

/// The sets that spin, of all processes that the caller may look into.
pub fn show() -> Result<Answer> {
    let mut rows = Vec::new();
    for process in process::list() {
        for set in EpollSet::of_process(process.pid).unwrap_or_default() {
            match set.usec() {
                Ok(0) | Err(_) => {}
                Ok(usec) => rows.push(row(&process, &set, usec)),
            }
        }
    }
    Ok(answer(&rows))
}

fn row(process: &Process, set: &EpollSet, usec: u32) -> Row {
    Row {
        process: process.clone(),
        fd: set.fd,
        usec,
    }
}

fn answer(rows: &[Row]) -> Answer {
    use Align::{Left, Right};
    let mut table = Table::new(&[("PROCESS", Left), ("FD", Right), ("USEC", Right)]);
    for row in rows {
        let process = row.process.to_string();
        table.row(vec![process, row.fd.to_string(), row.usec.to_string()]);
    }
    let text = match rows.is_empty() {
        true => "no epoll set has a time of its own; 'socksplice poll set' gives them one\n".into(),
        false => table.render(),
    };
    Answer::new(text, json!({ "schema": SCHEMA, "sets": rows }))
}

/// Goes on after a process that it cannot change, and fails at the end.
fn change(processes: &PollProcesses, usec: u32) -> Result<Answer> {
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    let selected = selected(processes)?;
    if selected.is_empty() {
        return Err(Error::new("no process matches").remedy("name processes that run"));
    }
    for process in selected {
        match change_process(&process, usec, &mut rows) {
            // It has ended meanwhile.
            Ok(()) | Err(Errno::SRCH | Errno::NOENT) => {}
            Err(e) => failed.push((process, e)),
        }
    }
    if let Some((process, e)) = failed.first() {
        let message = format!(
            "{} of the processes could not be changed, such as {process}: {e}; \
             {} epoll sets were changed",
            failed.len(),
            rows.len()
        );
        return Err(Error::new(message).remedy(match *e {
            Errno::PERM | Errno::ACCESS => "run it as root",
            _ => "ioctl_eventpoll(2) has the reasons",
        }));
    }
    if rows.is_empty() {
        return Err(Error::new("none of the processes has an epoll set")
            .remedy("only event loops that use epoll have one; name a process that runs"));
    }
    Ok(answer(&rows))
}

/// Adds what was changed to `rows`, also if it fails then.
fn change_process(
    process: &Process,
    usec: u32,
    rows: &mut Vec<Row>,
) -> std::result::Result<(), Errno> {
    for set in EpollSet::of_process(process.pid)? {
        match set.set_usec(usec) {
            Ok(()) => rows.push(row(process, &set, usec)),
            // The process has given the number to another file meanwhile.
            Err(Errno::NOTTY) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The processes that one of the arguments names.
fn selected(arguments: &PollProcesses) -> Result<Vec<Process>> {
    let all = process::list();
    if let Some(pid) = arguments
        .pids
        .iter()
        .find(|pid| !all.iter().any(|p| p.pid == **pid))
    {
        return Err(Error::new(format!("there is no process {pid}")));
    }
    let mut inside = HashSet::new();
    if !arguments.cgroups.is_empty() || !arguments.units.is_empty() {
        let hierarchy = Hierarchy::find()?;
        for path in &arguments.cgroups {
            inside.extend(hierarchy.processes(&hierarchy.path(path)?)?);
        }
        for unit in &arguments.units {
            inside.extend(hierarchy.processes(&hierarchy.of_unit(unit)?)?);
        }
    }
    let wanted = |process: &Process| {
        arguments.pids.contains(&process.pid)
            || arguments.names.contains(&process.name)
            || inside.contains(&process.pid)
    };
    Ok(all.into_iter().filter(wanted).collect())
}
