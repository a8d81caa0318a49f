// SPDX-License-Identifier: GPL-2.0
//! The loaded kernel module: is it there, is it ours, what can it do?

use std::fs;
use std::io;
use std::path::Path;

use netlink_packet_core::DefaultNla;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{Error, Result};
use crate::kernel::netlink::{Attributes, Family, Listener};
use crate::uapi::*;

/// The module of the same source has the same version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub const SYSFS: &str = "/sys/module/socksplice";
pub const BTF: &str = "/sys/kernel/btf/socksplice";

pub fn require_root() -> Result<()> {
    if geteuid().is_root() {
        return Ok(());
    }
    Err(Error::new("this needs root").remedy("run it with sudo"))
}

pub fn is_loaded() -> bool {
    Path::new(SYSFS).exists()
}

/// How many things refer to the module: sockets, programs, calls that sleep.
pub fn references() -> Option<u64> {
    let text = fs::read_to_string(Path::new(SYSFS).join("refcnt")).ok()?;
    text.trim().parse().ok()
}

pub struct Status {
    pub version: String,
    pub btf: bool,
    pub sock_ops: bool,
    /// Why splice(2) is not hooked, if it is not.
    pub hook_error: Option<io::Error>,
    pub pairing: bool,
    pub shadow: bool,
    pub enroll_all: bool,
    pub splice: bool,
    /// The kernel serves splice(2) on sockmap sockets itself.
    pub splice_native: bool,
    pub so_splice: bool,
    /// As SOCKSPLICE_A_STATUS_LITERAL has it.
    pub literal: i32,
    pub ring_size: u32,
    /// Most bytes that all rings may hold; 0: no limit.
    pub memory_cap: u64,
    /// Events reach this network namespace.
    pub events: bool,
}

impl Status {
    fn from_attributes(a: &Attributes) -> Self {
        let hook = a.number(A_STATUS_HOOK) as u32 as i32;
        Status {
            version: a.string(A_STATUS_VERSION).unwrap_or_default(),
            btf: a.flag(A_STATUS_BTF),
            sock_ops: a.flag(A_STATUS_SOCKOPS),
            hook_error: (hook != 0).then(|| io::Error::from_raw_os_error(-hook)),
            pairing: a.flag(A_STATUS_PAIRING),
            shadow: a.flag(A_STATUS_SHADOW),
            enroll_all: a.flag(A_STATUS_ENROLL_ALL),
            splice: a.flag(A_STATUS_SPLICE),
            splice_native: a.flag(A_STATUS_SPLICE_NATIVE),
            so_splice: a.flag(A_STATUS_SO_SPLICE),
            literal: a.number(A_STATUS_LITERAL) as u32 as i32,
            ring_size: a.number(A_STATUS_RING_SIZE) as u32,
            memory_cap: a.number(A_STATUS_MEMORY_CAP),
            events: a.flag(A_STATUS_EVENTS),
        }
    }
}

/// The value of a switch or a limit of the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    Switch(bool),
    /// 0: no limit.
    Limit(u64),
}

impl Setting {
    fn bytes(self) -> Vec<u8> {
        match self {
            Setting::Switch(on) => vec![on.into()],
            Setting::Limit(bytes) => bytes.to_ne_bytes().to_vec(),
        }
    }
}

/// A conversation with a module, of whatever version.
pub struct Module {
    family: Family,
}

impl Module {
    /// Does not check the version: for callers that report it.
    pub fn connect() -> Result<Self> {
        match Family::open(FAMILY, FAMILY_VERSION) {
            Ok(family) => Ok(Module { family }),
            Err(e) if e.kind() == io::ErrorKind::NotFound && is_loaded() => Err(Error::new(
                "the module socksplice is loaded but does not answer",
            )
            .remedy("look for its messages in 'dmesg'")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::new(
                "the module socksplice is not loaded",
            )
            .remedy("run 'modprobe socksplice', or 'make install' first if it is not installed")),
            Err(e) => Err(Error::new(format!("cannot use generic netlink: {e}"))),
        }
    }

    /// For commands that take connections back to TCP. They work with the module of another
    /// version, too, because uapi/socksplice.h renumbers nothing.
    pub fn open_any() -> Result<Self> {
        require_root()?;
        Module::connect()
    }

    /// For every other command: a module of another version may mean something else.
    pub fn open() -> Result<(Self, Status)> {
        let module = Module::open_any()?;
        let status = module.status()?;
        check_version(&status.version)?;
        Ok((module, status))
    }

    pub fn status(&self) -> Result<Status> {
        let answers = explain(self.family.request(CMD_STATUS_GET, &[]))?;
        match answers.first() {
            Some(attributes) => Ok(Status::from_attributes(attributes)),
            None => Err(Error::new("the module sent no status")),
        }
    }

    pub fn dump(&self, command: u8) -> Result<Vec<Attributes>> {
        explain(self.family.dump(command))
    }

    /// The counters, in the module's order.
    pub fn stats(&self) -> Result<Vec<(String, u64)>> {
        let counters = self.dump(CMD_STATS_GET)?;
        let counters = counters.iter();
        Ok(counters
            .filter_map(|a| Some((a.string(A_STAT_NAME)?, a.number(A_STAT_VALUE))))
            .collect())
    }

    /// Looks for the module again, because it may have been unloaded and loaded. The socket
    /// is the same, and so are the rights of the process that opened it.
    pub fn reconnect(&mut self) -> io::Result<()> {
        self.family.resolve(FAMILY)
    }

    /// True as long as the module that this was opened with is the one that is loaded.
    pub fn is_same(&self) -> bool {
        self.family.is_current(FAMILY)
    }

    /// The events from now on. `buffer`: bytes of events that the kernel keeps until they
    /// are received.
    pub fn events(&self, buffer: usize) -> Result<Listener> {
        self.family
            .listen(GROUP_EVENTS, buffer)
            .map_err(|e| Error::new(format!("cannot listen to the module: {e}")))
    }

    /// Begins to un-pair one pair; it may have ended by itself.
    pub fn drop_pair(&self, id: u32) -> Result<()> {
        let id = DefaultNla::new(A_PAIR_ID, id.to_ne_bytes().to_vec());
        match self.family.request(CMD_PAIR_DROP, &[id]) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            answer => explain(answer).map(|_| ()),
        }
    }

    /// Begins to un-pair all pairs.
    pub fn drop_all(&self) -> Result<()> {
        explain(self.family.request(CMD_PAIR_DROP, &[])).map(|_| ())
    }

    /// Begins to end all splices, and to forget those that have ended.
    pub fn end_splices(&self) -> Result<()> {
        explain(self.family.request(CMD_SPLICE_DROP, &[])).map(|_| ())
    }

    /// Sets all of these, by their attributes, or none.
    pub fn set(&self, settings: &[(u16, Setting)]) -> Result<()> {
        let attributes: Vec<DefaultNla> = settings
            .iter()
            .map(|(attribute, setting)| DefaultNla::new(*attribute, setting.bytes()))
            .collect();
        match self.family.request(CMD_STATUS_SET, &attributes) {
            Err(e) if is(&e, Errno::OPNOTSUPP) => Err(Error::new(
                "splice(2) is not hooked, so its calls on sockmap sockets cannot be served",
            )
            .remedy("'socksplice doctor' says why")),
            answer => explain(answer).map(|_| ()),
        }
    }
}

fn is(e: &io::Error, errno: Errno) -> bool {
    e.raw_os_error() == Some(errno.raw_os_error())
}

fn explain<T>(result: io::Result<T>) -> Result<T> {
    result.map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied if is(&e, Errno::ACCESS) => {
            Error::new("the module answers this in the initial network namespace only")
                .remedy("run it there: 'nsenter --target 1 --net socksplice ...'")
        }
        io::ErrorKind::PermissionDenied => {
            Error::new("CAP_NET_ADMIN in the initial user namespace is needed")
                .remedy("run this on the host, not in a container")
        }
        _ => Error::new(format!("the module answered: {e}")),
    })
}

pub fn check_version(version: &str) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    Err(Error::new(format!(
        "the loaded module is version {version}, this program is {VERSION}"
    ))
    .remedy(
        "install both from one source, then run 'socksplice policy clear && socksplice drain' \
         and 'modprobe -r socksplice && modprobe socksplice'",
    ))
}

/// A module with which nothing is wrong.
#[cfg(test)]
pub fn status_for_tests() -> Status {
    Status {
        version: VERSION.into(),
        btf: true,
        sock_ops: true,
        hook_error: None,
        pairing: true,
        shadow: false,
        enroll_all: false,
        splice: true,
        splice_native: false,
        literal: 1,
        so_splice: true,
        ring_size: 65536,
        memory_cap: 0,
        events: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_must_be_equal() {
        assert!(check_version(VERSION).is_ok());
        let error = check_version("9.9.9").unwrap_err().to_string();
        assert!(error.contains("9.9.9") && error.contains(VERSION) && error.contains("modprobe"));
    }
}
