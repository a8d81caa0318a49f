// SPDX-License-Identifier: GPL-2.0
//! The BPF program of the policies: loading, attaching and reading it back.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, ObjectBuilder, PrintLevel, Program, set_print,
};

use crate::error::{Error, Result};
use crate::system::cgroup::{self, Hierarchy};

use super::cgroups::Paths;
use super::config::{self, Policy};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/policy.bpf.o"));

/// Names of the object's maps, and what is pinned under the same names.
const CONFIG_SECTION: &str = ".rodata.config";
const CONFIG: &str = "config";
const CGROUPS: &str = "cgroups";
const PATHS: &str = "paths";
const PATTERNS: &str = "patterns";
const MISSED: &str = "missed";
const PROGRAM: &str = "program";
const LINK: &str = "link";

/// The program that decides. The others keep the map of cgroups.
const POLICY: &str = "policy";

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
    let hierarchy = Hierarchy::find()?;
    let previous = set_print(Some((PrintLevel::Warn, log)));
    let result = load_and_pin(policies, &hierarchy, dir);
    set_print(previous);
    result.map_err(explain)
}

fn load_and_pin(policies: &[Policy], hierarchy: &Hierarchy, dir: &Path) -> libbpf_rs::Result<()> {
    let paths = Paths::of(policies);
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in object.maps_mut() {
        if map.name() == CONFIG_SECTION {
            map.set_initial_value(&config::to_bytes(policies))?;
        } else if map.name() == PATHS {
            // A map has room for one at least.
            map.set_max_entries(paths.exact.len().max(1) as u32)?;
        }
    }
    let mut object = object.load()?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            CONFIG_SECTION => map.pin(dir.join(CONFIG))?,
            PATHS => {
                for (path, mask) in &paths.exact {
                    map.update(&path_bytes(path), &mask.to_ne_bytes(), MapFlags::ANY)?;
                }
                MapHandle::try_from(&map)?.freeze()?;
            }
            PATTERNS => {
                for (i, (path, mask)) in paths.patterns.iter().enumerate() {
                    let mut value = path_bytes(path);
                    value.extend(mask.to_ne_bytes());
                    value.resize(map.value_size() as usize, 0);
                    map.update(&(i as u32).to_ne_bytes(), &value, MapFlags::ANY)?;
                }
                MapHandle::try_from(&map)?.freeze()?;
            }
            _ => {}
        }
        if [CGROUPS, PATHS, PATTERNS, MISSED].contains(&name.as_str()) {
            map.pin(dir.join(name))?;
        }
    }
    // First those that follow cgroups: one that comes during the scan is found by them or by
    // it. The program that decides is attached when the map is complete.
    for mut program in object
        .progs_mut()
        .filter(|program| program.name() != POLICY)
    {
        let name = program.name().to_string_lossy().into_owned();
        program.pin(dir.join(&name))?;
        program.attach()?.pin(dir.join(format!("{name}_{LINK}")))?;
    }
    for map in object.maps_mut().filter(|map| map.name() == CGROUPS) {
        add_existing(hierarchy, &paths, &map)?;
    }
    for mut program in object
        .progs_mut()
        .filter(|program| program.name() == POLICY)
    {
        program.pin(dir.join(PROGRAM))?;
        program.attach()?.pin(dir.join(LINK))?;
    }
    Ok(())
}

/// Adds the cgroups that there are. One that is removed meanwhile stays in the map, and does
/// no harm: the kernel gives its id to no other.
fn add_existing(hierarchy: &Hierarchy, paths: &Paths, map: &impl MapCore) -> libbpf_rs::Result<()> {
    let mut result = Ok(());
    let scanned = hierarchy.each(|path, id| {
        let mask = paths.mask(path);
        if mask != 0 && result.is_ok() {
            result = map.update(&id.to_ne_bytes(), &mask.to_ne_bytes(), MapFlags::ANY);
        }
    });
    scanned.map_err(|e| io::Error::other(e.message))?;
    result
}

/// `struct policy_path`.
fn path_bytes(path: &str) -> Vec<u8> {
    let mut bytes = path.as_bytes().to_vec();
    bytes.resize(cgroup::PATH, 0);
    bytes
}

fn path_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches('\0').to_string()
}

fn explain(error: libbpf_rs::Error) -> Error {
    let log = LOG.lock().unwrap().concat();
    if log.contains("bpf_sock_splice_") && log.contains("not found") {
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

fn unreadable(e: libbpf_rs::Error) -> Error {
    Error::new(format!("cannot read the policy: {e}"))
}

fn open(dir: &Path, map: &str) -> Result<MapHandle> {
    MapHandle::from_pinned_path(dir.join(map)).map_err(unreadable)
}

/// Calls `look` with each key of a map and its value.
fn each_entry(map: &MapHandle, mut look: impl FnMut(&[u8], &[u8])) -> Result<()> {
    for key in map.keys() {
        if let Some(value) = map.lookup(&key, MapFlags::ANY).map_err(unreadable)? {
            look(&key, &value);
        }
    }
    Ok(())
}

fn mask_of(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_ne_bytes)
}

/// What [`install`] pinned in a directory.
pub fn read(dir: &Path) -> Result<Vec<Policy>> {
    let config = open(dir, CONFIG)?;
    let bytes = config
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(unreadable)?;
    let mut masks = BTreeMap::new();
    // Another version of this program pinned other maps. from_bytes() says so.
    if dir.join(PATTERNS).exists() {
        each_entry(&open(dir, PATHS)?, |path, mask| {
            masks.insert(path_of(path), mask_of(mask));
        })?;
        each_entry(&open(dir, PATTERNS)?, |_, value| {
            let (path, rest) = value.split_at(cgroup::PATH);
            let mask = mask_of(&rest[..4]);
            if mask != 0 {
                masks.insert(path_of(path), mask);
            }
        })?;
    }
    config::from_bytes(&bytes.unwrap_or_default(), &masks)
}

/// The cgroups that the policies in a directory name now, by their ids, with the policies'
/// bits.
pub fn cgroups(dir: &Path) -> Result<HashMap<u64, u32>> {
    let mut found = HashMap::new();
    each_entry(&open(dir, CGROUPS)?, |id, mask| {
        if let Ok(id) = id.try_into() {
            found.insert(u64::from_ne_bytes(id), mask_of(mask));
        }
    })?;
    Ok(found)
}

/// How many cgroups came for which there was no room.
pub fn missed(dir: &Path) -> Result<u64> {
    let mut missed = 0;
    each_entry(&open(dir, MISSED)?, |_, count| {
        missed = count.try_into().map_or(0, u64::from_ne_bytes);
    })?;
    Ok(missed)
}

/// When the program was loaded, since the boot.
pub fn loaded(dir: &Path) -> Option<Duration> {
    let link = Link::open(dir.join(LINK)).ok()?;
    let id = link.info().ok()?.prog_id;
    let program = ProgInfoIter::default().find(|program| program.id == id)?;
    Some(program.load_time)
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
