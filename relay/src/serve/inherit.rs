// SPDX-License-Identifier: GPL-2.0
//! Listening sockets that this process was started with. systemd passes them, or the process that
//! this one replaces.

use std::env;
use std::os::fd::{OwnedFd, RawFd};

use crate::net::{Address, Bound, sys};

/// The environment variable by which a relay passes its sockets on, in lines of `FD=ADDRESS`.
pub const PASSED: &str = "SOCKSPLICE_RELAY_PASSED";

/// Takes ownership of the descriptors that the environment names. Call this once, before the
/// process opens others.
///
/// # Errors
/// Returns a message if one of them is not open.
pub fn inherited() -> Result<Vec<(OwnedFd, Address)>, String> {
    // Without LISTEN_PID, or if it names another process, systemd has passed no sockets.
    let systemd = sd_notify::listen_fds_with_names(false)
        .into_iter()
        .flatten();
    let systemd = systemd.map(|(fd, name)| (fd, Address::Passed(name)));
    let all = from_predecessor().into_iter().chain(systemd);
    let take = |(fd, name)| match sys::inherited(fd) {
        Some(owned) => Ok((owned, name)),
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
    pub fn adopt(inherited: Vec<(OwnedFd, Address)>) -> Result<Passed, String> {
        let adopt = |(fd, name): (OwnedFd, Address)| {
            let bound = Bound::adopt(fd).map_err(|e| format!("the socket {name}: {e}"))?;
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

    /// Returns the names of the sockets that no listener has taken.
    pub fn rest(&self) -> impl Iterator<Item = &Address> {
        self.0.iter().filter_map(|(names, _)| names.first())
    }
}

fn from_predecessor() -> Vec<(RawFd, Address)> {
    let text = env::var(PASSED).unwrap_or_default();
    let pair = |line: &str| {
        let (fd, address) = line.split_once('=')?;
        Some((fd.parse().ok()?, address.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}
