// SPDX-License-Identifier: GPL-2.0
//! `pair drop` and `drain`: back to TCP.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::cli::{PairDrop, Wait};
use crate::commands::filter::Filter;
use crate::error::{Error, Result};
use crate::kernel::module::{self, Module, Setting};
use crate::kernel::pair::{self, Pair};
use crate::output::{Answer, SCHEMA};
use crate::policy::pin;
use crate::system::process::{self, Process, Sockets};
use crate::uapi::{A_STATUS_PAIRING, A_STATUS_SO_SPLICE, A_STATUS_SPLICE};

const INTERVAL: Duration = Duration::from_millis(50);

/// An end that has bytes to read before its pair can go.
#[derive(Serialize)]
struct Holder {
    pair: u64,
    connection: String,
    processes: Vec<Process>,
}

pub fn drop(arguments: PairDrop) -> Result<Answer> {
    let module = Module::open_any()?;
    let mut pairs = pair::list(&module)?;
    let exists = |id: &u32| pairs.iter().any(|pair| pair.id == u64::from(*id));
    // Checked before the first is dropped, so that a list with a mistake changes nothing.
    if let Some(id) = arguments.ids.iter().find(|id| !exists(id)) {
        return Err(Error::new(format!("there is no pair {id}"))
            .remedy("'socksplice pair show' lists those that there are"));
    }
    if arguments.all {
        return unpair(Some(&module), &arguments.wait);
    }
    let mut ids: HashSet<u64> = arguments.ids.iter().map(|id| u64::from(*id)).collect();
    if ids.is_empty() {
        let filter = Filter::new(&arguments.filter)?;
        filter.keep(&mut pairs)?;
        ids.extend(pairs.iter().map(|pair| pair.id));
    }
    for (done, id) in ids.iter().enumerate() {
        module.drop_pair(*id as u32).map_err(|mut e| {
            e.message += &format!(" for pair {id}; {done} of {} are on their way", ids.len());
            e
        })?;
    }
    finish(&module, &arguments.wait, ids.len(), |pair| {
        ids.contains(&pair.id)
    })
}

/// Un-pairs all pairs. Without a module there are none.
pub fn unpair(module: Option<&Module>, wait: &Wait) -> Result<Answer> {
    let Some(module) = module else {
        return Ok(answer(&[], None, 0));
    };
    let many = pair::list(module)?.len();
    module.drop_all()?;
    finish(module, wait, many, |pair| pair.draining)
}

/// Waits until the pairs that `mine` selects are gone, and lists the processes that hold the
/// rest. `many`: how many pairs were dropped.
fn finish(
    module: &Module,
    arguments: &Wait,
    many: usize,
    mine: impl Fn(&Pair) -> bool,
) -> Result<Answer> {
    let left = wait(arguments, || {
        let mut pairs = pair::list(module)?;
        pairs.retain(&mine);
        Ok((pairs.is_empty(), pairs))
    })?;
    Ok(answer(&holders(&left, &Sockets::read()), None, many))
}

pub fn drain(arguments: Wait) -> Result<Answer> {
    let module = Module::open_any()?;
    let before = module.status()?;
    let switches = |pairing, so_splice, splice| {
        let of = |attribute, on| (attribute, Setting::Switch(on));
        module.set(&[
            of(A_STATUS_PAIRING, pairing),
            of(A_STATUS_SO_SPLICE, so_splice),
            of(A_STATUS_SPLICE, splice),
        ])
    };
    switches(false, false, false)?; // a refusal leaves all as it was
    // The switches stay off when the time is up. After an error they are set back.
    drain_all(&module, &arguments).map_err(|mut e| {
        e.message += match switches(before.pairing, before.so_splice, before.splice) {
            Ok(()) => "; the switches are as they were",
            Err(_) => "; some of pairing, so-splice and splice may be off",
        };
        e
    })
}

fn drain_all(module: &Module, arguments: &Wait) -> Result<Answer> {
    let policy = pin::live().is_some();
    let many = pair::list(module)?.len();
    let mut uses = Uses::default();
    let left = wait(arguments, || {
        // Repeated each time, because a handshake may have been under way.
        module.drop_all()?;
        module.end_splices()?;
        let pairs = pair::list(module)?;
        uses = Uses {
            references: module::references().unwrap_or(0),
            policy,
            inside: Vec::new(),
        };
        Ok((uses.are_over() && pairs.is_empty(), pairs))
    })?;
    if uses.references > 0 {
        uses.inside = process::inside_module();
    }
    Ok(answer(&holders(&left, &Sockets::read()), Some(uses), many))
}

/// The references to the module other than pairs.
#[derive(Default)]
struct Uses {
    references: u64,
    policy: bool,
    /// Processes that are in a system call that the module serves.
    inside: Vec<Process>,
}

impl Uses {
    /// A policy goes on using the module until it is cleared.
    fn are_over(&self) -> bool {
        self.references == 0 || self.policy
    }
}

/// The pairs that are left when `look` says that it is enough, or when the time is up.
fn wait(
    arguments: &Wait,
    mut look: impl FnMut() -> Result<(bool, Vec<Pair>)>,
) -> Result<Vec<Pair>> {
    let until = Instant::now() + Duration::from_secs(arguments.timeout.into());
    loop {
        let (enough, pairs) = look()?;
        if enough || Instant::now() >= until {
            return Ok(pairs);
        }
        sleep(INTERVAL);
    }
}

/// The ends that have bytes to read. If no end of a pair has, both ends: one of them sleeps
/// in the middle of a call.
fn holders(pairs: &[Pair], sockets: &Sockets) -> Vec<Holder> {
    let of = |pair: &Pair| -> Vec<Holder> {
        let queued = |i: usize| pair.ends.len() == 2 && pair.ends[1 - i].ring.queued > 0;
        let any = (0..pair.ends.len()).any(queued);
        let ends = pair.ends.iter().enumerate();
        ends.filter(|(i, end)| !end.closed && (queued(*i) || !any))
            .map(|(_, end)| Holder {
                pair: pair.id,
                connection: end.addresses(),
                processes: sockets.holders(end.inode).to_vec(),
            })
            .collect()
    };
    pairs.iter().flat_map(of).collect()
}

fn answer(holders: &[Holder], uses: Option<Uses>, many: usize) -> Answer {
    let mut text = match many {
        0 => String::new(),
        1 => "1 pair was told to go back to TCP\n".into(),
        n => format!("{n} pairs were told to go back to TCP\n"),
    };
    for holder in holders {
        let names: Vec<String> = holder.processes.iter().map(|p| p.to_string()).collect();
        let names = match names.is_empty() {
            true => "no process".to_string(),
            false => names.join(" "),
        };
        text += &format!(
            "pair {} waits for {names} to read: {}\n",
            holder.pair, holder.connection
        );
    }
    let drained = holders.is_empty() && uses.as_ref().is_none_or(Uses::are_over);
    let mut json =
        json!({ "schema": SCHEMA, "drained": drained, "pairs": many, "waiting": holders });
    if let Some(Uses {
        references,
        policy,
        inside,
    }) = uses
    {
        for process in &inside {
            text += &format!("{process} is in a call that the module serves\n");
        }
        json["inside"] = json!(inside);
        if references == 0 {
            text += "nothing uses the module: it can be unloaded\n";
        } else if policy {
            text += "the policy uses the module: run 'socksplice policy clear' to unload it\n";
        } else if holders.is_empty() {
            text += &format!(
                "calls that sleep, BPF programs or a capture use the module ({references})\n"
            );
        }
        json["references"] = references.into();
    }
    Answer {
        text,
        json,
        failed: !drained,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_who_does_not_read() {
        let holder = Holder {
            pair: 7,
            connection: "127.0.0.1:1 -> 127.0.0.1:2".into(),
            processes: vec![Process {
                pid: 42,
                name: "sleepy".into(),
            }],
        };
        let bad = answer(&[holder], None, 2);
        assert!(bad.failed);
        assert_eq!(
            bad.text,
            "2 pairs were told to go back to TCP\n\
             pair 7 waits for sleepy(42) to read: 127.0.0.1:1 -> 127.0.0.1:2\n"
        );
        assert_eq!(bad.json["waiting"][0]["processes"][0]["pid"], 42);
    }

    #[test]
    fn says_what_uses_the_module() {
        let of = |references, policy| {
            let inside = vec![Process {
                pid: 42,
                name: "sleepy".into(),
            }];
            let uses = Uses {
                references,
                policy,
                inside,
            };
            answer(&[], Some(uses), 0)
        };
        assert!(!of(0, false).failed && of(0, false).text.contains("can be unloaded"));
        assert!(!of(3, true).failed && of(3, true).text.contains("policy clear"));
        assert!(of(3, false).failed && of(3, false).text.contains("(3)"));
        assert_eq!(of(3, false).json["references"], 3);
        assert!(of(3, false).text.starts_with("sleepy(42) is in a call"));
        assert_eq!(of(3, false).json["inside"][0]["pid"], 42);
    }
}
