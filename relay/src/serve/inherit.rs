// SPDX-License-Identifier: GPL-2.0
//! Listening sockets that this process was started with. systemd passes them, or the process that
//! this one replaces.

use std::env;
use std::os::fd::{OwnedFd, RawFd};

use crate::log::say;
use crate::net::{Address, Bound, sys};

/// The environment variable by which a relay passes its sockets on, in the lines that
/// [`passed_line`] writes.
pub const PASSED: &str = "SOCKSPLICE_RELAY_PASSED";

/// The second word of a line, if the relay owns the file of the socket.
const OWN: &str = "own";
const NOT_OWN: &str = "-";

/// A descriptor that this process was started with.
pub struct Inherited {
    fd: OwnedFd,
    name: Address,
    /// True if the predecessor owned the file of the socket.
    own: bool,
}

/// Returns a line that passes on the socket `bound` as descriptor `fd`.
pub fn passed_line(fd: RawFd, bound: &Bound, address: &Address) -> String {
    let own = if bound.owns_file() { OWN } else { NOT_OWN };
    format!("{fd} {own} {address}\n")
}

/// Takes ownership of the descriptors that the environment names. Call this once, before the
/// process opens others.
///
/// # Errors
/// Returns a message if one of them is not open.
pub fn inherited() -> Result<Vec<Inherited>, String> {
    // Without LISTEN_PID, or if it names another process, systemd has passed no sockets.
    let systemd = sd_notify::listen_fds_with_names(false)
        .into_iter()
        .flatten();
    let systemd = systemd.map(|(fd, name)| (fd, false, Address::Passed(name)));
    let lines = env::var(PASSED).unwrap_or_default();
    let all = lines.lines().filter_map(parsed_line).chain(systemd);
    let take = |(fd, own, name)| match sys::inherited(fd) {
        Some(fd) => Ok(Inherited { fd, name, own }),
        None => Err(format!(
            "the socket passed as descriptor {fd} ({name}) is not open"
        )),
    };
    all.map(take).collect()
}

/// The sockets that were passed, each with its names: one given by the passer, and its address.
#[derive(Default)]
pub struct Passed(Vec<(Vec<Address>, Bound)>);

impl Passed {
    /// Turns the descriptors into listeners.
    ///
    /// # Errors
    /// Returns a message if one of them is not a listening socket.
    pub fn adopt(inherited: Vec<Inherited>) -> Result<Passed, String> {
        let adopt = |Inherited { fd, name, own }| {
            let bound = Bound::adopt(fd, own).map_err(|e| format!("the socket {name}: {e}"))?;
            let mut names = vec![name];
            names.extend(bound.address());
            Ok((names, bound))
        };
        inherited
            .into_iter()
            .map(adopt)
            .collect::<Result<_, _>>()
            .map(Passed)
    }

    /// Removes and returns the socket whose name or address is `address`.
    pub fn take(&mut self, address: &Address) -> Option<Bound> {
        let at = self
            .0
            .iter()
            .position(|(names, _)| names.contains(address))?;
        Some(self.0.swap_remove(at).1)
    }

    /// Closes the sockets that no listener has taken: clients would wait there in vain. Reports them,
    /// and removes the files of those that a relay bound.
    pub fn close(self) {
        for (names, bound) in self.0 {
            if let Some(name) = names.first() {
                say(format!(
                    "the socket {name} was passed, and no listener wants it"
                ));
            }
            bound.remove_file();
        }
    }
}

fn parsed_line(line: &str) -> Option<(RawFd, bool, Address)> {
    let mut words = line.splitn(3, ' ');
    let (fd, own, address) = (words.next()?, words.next()?, words.next()?);
    Some((fd.parse().ok()?, own == OWN, address.parse().ok()?))
}
