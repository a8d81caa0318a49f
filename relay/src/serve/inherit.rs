// SPDX-License-Identifier: GPL-2.0
//! Sockets that this process was started with: from systemd, or from the process that it
//! replaces.

use std::env;
use std::os::fd::{OwnedFd, RawFd};

use crate::net::{Address, Bound, sys};

/// The variable by which a relay passes its sockets on: `FD=ADDRESS`, one a line.
pub const PASSED: &str = "SOCKSPLICE_RELAY_PASSED";

/// Takes the descriptors that the environment names. Called once, before others are opened.
///
/// # Errors
/// One is not open.
pub fn inherited() -> Result<Vec<(OwnedFd, Address)>, String> {
    // an unset or foreign LISTEN_PID says that there are none
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

/// The sockets that were passed, by their names.
#[derive(Default)]
pub struct Passed(Vec<(Vec<Address>, Bound)>);

impl Passed {
    /// # Errors
    /// One is not a socket that listens.
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

    /// The socket for an address of the configuration, by its name or where it is bound.
    pub fn take(&mut self, address: &Address) -> Option<Bound> {
        let at = self
            .0
            .iter()
            .position(|(names, _)| names.contains(address))?;
        Some(self.0.swap_remove(at).1)
    }

    /// Those that no listener wanted.
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
