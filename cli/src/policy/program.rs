// SPDX-License-Identifier: GPL-2.0
//! The BPF program of the policies: loading, attaching and reading it back.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, ObjectBuilder, PrintLevel, Program, set_print,
};

use crate::error::{Error, Result};

use super::config::{self, Policy};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/policy.bpf.o"));

/// Names of the object's maps, and what is pinned under the same names.
const CONFIG_SECTION: &str = ".rodata.config";
const CGROUPS: &str = "cgroups";
const CONFIG: &str = "config";
const PROGRAM: &str = "program";
const LINK: &str = "link";

/// More than the worker needs. A process that inspects programs may hold this one.
const DETACHED: Duration = Duration::from_secs(5);

/// What libbpf had to say; printed only if something failed.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn log(_: PrintLevel, message: String) {
    LOG.lock().unwrap().push(message);
}

/// Loads the program, attaches it, and pins it and its maps in a directory. On an error it
/// is not attached, and the caller removes what the directory holds.
pub fn install(policies: &[Policy], dir: &Path) -> Result<()> {
    let previous = set_print(Some((PrintLevel::Warn, log)));
    let result = load_and_pin(policies, dir);
    set_print(previous);
    result.map_err(explain)
}

fn load_and_pin(policies: &[Policy], dir: &Path) -> libbpf_rs::Result<()> {
    let cgroups = config::masks(policies);
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in object.maps_mut() {
        if map.name() == CONFIG_SECTION {
            map.set_initial_value(&config::to_bytes(policies))?;
        } else if map.name() == CGROUPS {
            // A map has room for one at least.
            map.set_max_entries(cgroups.len().max(1) as u32)?;
        }
    }
    let mut object = object.load()?;
    for mut map in object.maps_mut() {
        if map.name() == CONFIG_SECTION {
            map.pin(dir.join(CONFIG))?;
        } else if map.name() == CGROUPS {
            for (id, mask) in &cgroups {
                map.update(&id.to_ne_bytes(), &mask.to_ne_bytes(), MapFlags::ANY)?;
            }
            map.pin(dir.join(CGROUPS))?;
        }
    }
    for mut program in object.progs_mut() {
        program.pin(dir.join(PROGRAM))?;
        program.attach()?.pin(dir.join(LINK))?;
    }
    Ok(())
}

fn explain(error: libbpf_rs::Error) -> Error {
    let log = LOG.lock().unwrap().concat();
    if log.contains("bpf_sock_splice_pair_sk") && log.contains("not found") {
        return Error::new("the kernel does not let BPF call the module socksplice")
            .remedy("run 'socksplice doctor'");
    }
    // libbpf's last complaint is the one about the cause.
    let cause = log.lines().rfind(|line| line.starts_with("libbpf: "));
    let cause = match cause.and_then(|line| line.strip_prefix("libbpf: ")) {
        Some(line) => format!(" ({line})"),
        None => String::new(),
    };
    Error::new(format!("the kernel refused the policy: {error}{cause}"))
        .remedy("run 'socksplice doctor'")
}

/// What [`install`] pinned in a directory.
pub fn read(dir: &Path) -> Result<Vec<Policy>> {
    let unreadable = |e: libbpf_rs::Error| Error::new(format!("cannot read the policy: {e}"));
    let config = MapHandle::from_pinned_path(dir.join(CONFIG)).map_err(unreadable)?;
    let bytes = config
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(unreadable)?;

    let map = MapHandle::from_pinned_path(dir.join(CGROUPS)).map_err(unreadable)?;
    let mut masks = BTreeMap::new();
    for key in map.keys() {
        let value = map.lookup(&key, MapFlags::ANY).map_err(unreadable)?;
        if let (Ok(id), Some(Ok(mask))) = (key.try_into(), value.map(|v| v.try_into())) {
            masks.insert(u64::from_ne_bytes(id), u32::from_ne_bytes(mask));
        }
    }
    config::from_bytes(&bytes.unwrap_or_default(), &masks)
}

/// Detaches what [`install`] attached. On an error it is attached and pinned as before.
pub fn detach(dir: &Path) -> Result<Detached> {
    let path = dir.join(LINK);
    if !path.exists() {
        return Ok(Detached { program: None });
    }
    let info = Link::open(&path)
        .and_then(|link| link.info())
        .map_err(|e| Error::new(format!("cannot open {}: {e}", path.display())))?;
    fs::remove_file(&path)
        .map_err(|e| Error::new(format!("cannot remove {}: {e}", path.display())))?;
    let until = Instant::now() + DETACHED;
    while let Some(link) = link_by_id(info.id) {
        if Instant::now() >= until {
            return Err(held(info.id, link, &path));
        }
        drop(link);
        sleep(Duration::from_millis(1));
    }
    let program = Some(info.prog_id);
    Ok(Detached { program })
}

/// Somebody else has the link open or pinned, so that it stays attached.
fn held(id: u32, link: OwnedFd, path: &Path) -> Error {
    let error = Error::new(format!(
        "the policies that are in force cannot be detached: another process holds their BPF link {id}"
    ))
    .remedy("'bpftool link show' lists the processes");
    let pinned = CString::new(path.as_os_str().as_bytes()).expect("a path of ours");
    // SAFETY: the descriptor and the string live until the call returns.
    match unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), pinned.as_ptr()) } {
        0 => error,
        e => Error::new(format!(
            "{}, and it cannot be pinned again: {}",
            error.message,
            io::Error::from_raw_os_error(-e)
        )),
    }
}

fn link_by_id(id: u32) -> Option<OwnedFd> {
    // SAFETY: the call takes a number.
    let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
    // SAFETY: a descriptor that it returns is new, and nobody else's.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A program whose link is gone. The kernel detaches it in a worker; until then it may
/// still enrol connections.
pub struct Detached {
    program: Option<u32>,
}

impl Detached {
    /// Waits for that, once the program's own pin is gone as well. A process that looks at
    /// programs may hold this one; detached it is all the same.
    pub fn wait(self) {
        let Some(id) = self.program else {
            return;
        };
        let until = Instant::now() + DETACHED;
        while Program::fd_from_id(id).is_ok() && Instant::now() < until {
            sleep(Duration::from_millis(1));
        }
    }
}
