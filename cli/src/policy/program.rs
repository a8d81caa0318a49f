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
use crate::values::selector::{self, Selector};

use super::cgroups::Paths;
use super::config::{self, Policy};
use super::found::{Entries, Entry};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/policy.bpf.o"));

/// Names of the object's maps, and what is pinned under the same names.
const CONFIG_SECTION: &str = ".rodata.config";
const CONFIG: &str = "config";
const CGROUPS: &str = "cgroups";
const PATHS: &str = "paths";
const PATTERNS: &str = "patterns";
const SELECTORS: &str = "selectors";
const FOUND: &str = "found";
const MISSED: &str = "missed";
/// The maps that nobody changes any more.
const FROZEN: [&str; 3] = [PATHS, PATTERNS, SELECTORS];
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
/// is not attached, and the caller removes what the directory holds. `found`: the cgroups of the
/// containers that the policies name.
pub fn install(policies: &[Policy], found: &Entries, dir: &Path) -> Result<()> {
    let hierarchy = Hierarchy::find()?;
    let previous = set_print(Some((PrintLevel::Warn, log)));
    let result = load_and_pin(policies, found, &hierarchy, dir);
    set_print(previous);
    result.map_err(explain)
}

fn load_and_pin(
    policies: &[Policy],
    found: &Entries,
    hierarchy: &Hierarchy,
    dir: &Path,
) -> libbpf_rs::Result<()> {
    let paths = Paths::of(policies, found);
    let selectors = config::selectors(policies);
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in object.maps_mut() {
        if map.name() == CONFIG_SECTION {
            map.set_initial_value(&config::to_bytes(policies))?;
        } else if map.name() == PATHS {
            // A map has room for one at least.
            map.set_max_entries(paths.exact.len().max(1) as u32)?;
        } else if map.name() == SELECTORS {
            map.set_max_entries(selectors.len().max(1) as u32)?;
        }
    }
    let mut object = object.load()?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == CONFIG_SECTION {
            map.pin(dir.join(CONFIG))?;
            continue;
        }
        fill(&map, &name, &paths, &selectors, found)?;
        if FROZEN.contains(&name.as_str()) {
            MapHandle::try_from(&map)?.freeze()?;
        }
        if FROZEN.contains(&name.as_str()) || [CGROUPS, FOUND, MISSED].contains(&name.as_str()) {
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

/// The contents that a map has before the programs are attached.
fn fill(
    map: &impl MapCore,
    name: &str,
    paths: &Paths,
    selectors: &BTreeMap<Selector, u32>,
    found: &Entries,
) -> libbpf_rs::Result<()> {
    let set = |key: &[u8], value: &[u8]| map.update(key, value, MapFlags::ANY);
    // A text in so many bytes, and the policies that have it.
    let masked = |text: &str, bytes: usize, mask: &u32| {
        let mut value = text.as_bytes().to_vec();
        value.resize(bytes, 0);
        value.extend(mask.to_ne_bytes());
        value.resize(map.value_size() as usize, 0);
        value
    };
    let number = |i: usize| (i as u32).to_ne_bytes();
    match name {
        PATHS => {
            for (path, mask) in &paths.exact {
                set(&path_bytes(path), &mask.to_ne_bytes())?;
            }
        }
        PATTERNS => {
            for (i, (path, mask)) in paths.patterns.iter().enumerate() {
                set(&number(i), &masked(path, cgroup::PATH, mask))?;
            }
        }
        SELECTORS => {
            for (i, (selector, mask)) in selectors.iter().enumerate() {
                let text = selector.to_string();
                set(&number(i), &masked(&text, selector::TEXT, mask))?;
            }
        }
        FOUND => {
            for (path, entry) in found {
                let mask = paths.found.get(path).copied().unwrap_or(0);
                set(&path_bytes(path), &found_bytes(entry, mask))?;
            }
        }
        _ => {}
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

/// `struct policy_found`.
fn found_bytes(entry: &Entry, policies: u32) -> Vec<u8> {
    let mut bytes = entry.selectors.to_ne_bytes().to_vec();
    bytes.extend(policies.to_ne_bytes());
    bytes.extend(entry.source.to_ne_bytes());
    bytes
}

/// The text of a path or a selector, up to its NUL.
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
    let selectors = selector_masks(dir)?.into_iter().collect();
    config::from_bytes(&bytes.unwrap_or_default(), &masks, &selectors)
}

/// The selectors, in the order of their bits, with the policies that have them.
fn selector_masks(dir: &Path) -> Result<Vec<(Selector, u32)>> {
    let mut masks = Vec::new();
    if !dir.join(SELECTORS).exists() {
        return Ok(masks);
    }
    each_entry(&open(dir, SELECTORS)?, |_, value| {
        let (text, rest) = value.split_at(selector::TEXT);
        let mask = mask_of(&rest[..4]);
        if let Some(selector) = path_of(text).parse().ok().filter(|_| mask != 0) {
            masks.push((selector, mask));
        }
    })?;
    Ok(masks)
}

/// The selectors of the policies in a directory, in the order of their bits.
pub fn selectors(dir: &Path) -> Result<Vec<Selector>> {
    let masks = selector_masks(dir)?.into_iter();
    Ok(masks.map(|(selector, _)| selector).collect())
}

/// The containers that these have found, by their cgroups.
pub fn found(dir: &Path) -> Result<Entries> {
    let mut found = Entries::new();
    if !dir.join(FOUND).exists() {
        return Ok(found);
    }
    each_entry(&open(dir, FOUND)?, |path, value| {
        let (selectors, rest) = value.split_at(8);
        let entry = Entry {
            selectors: selectors.try_into().map_or(0, u64::from_ne_bytes),
            source: mask_of(&rest[4..]),
        };
        found.insert(path_of(path), entry);
    })?;
    Ok(found)
}

/// Brings the maps `found` and `cgroups` of a directory from `old` to `new`. The caller has the
/// exclusive lock.
pub fn set_found(dir: &Path, policies: &[Policy], old: &Entries, new: &Entries) -> Result<()> {
    let hierarchy = Hierarchy::find()?;
    let paths = Paths::of(policies, new);
    let unwritable = |e| Error::new(format!("cannot write the policy: {e}"));
    let found = open(dir, FOUND)?;
    for path in old.keys().filter(|path| !new.contains_key(*path)) {
        found.delete(&path_bytes(path)).map_err(unwritable)?;
    }
    for (path, entry) in new
        .iter()
        .filter(|(path, entry)| old.get(*path) != Some(entry))
    {
        let mask = paths.found.get(path).copied().unwrap_or(0);
        let value = found_bytes(entry, mask);
        let set = found.update(&path_bytes(path), &value, MapFlags::ANY);
        set.map_err(unwritable)?;
    }
    let cgroups = open(dir, CGROUPS)?;
    reconcile(&hierarchy, &paths, &cgroups).map_err(unwritable)
}

/// Brings the map `cgroups` in line with the paths, for the cgroups that there are. A cgroup that
/// comes later is added by the program, which reads the same paths. One that came before the last
/// change of them, and whose directory comes after the scan, is found by the next.
fn reconcile(hierarchy: &Hierarchy, paths: &Paths, map: &MapHandle) -> libbpf_rs::Result<()> {
    let mut result = Ok(());
    let scanned = hierarchy.each(|path, id| {
        if result.is_ok() {
            result = put_right(hierarchy, path, id, paths.mask(path), map);
        }
    });
    scanned.map_err(|e| io::Error::other(e.message))?;
    result
}

fn put_right(
    hierarchy: &Hierarchy,
    path: &str,
    id: u64,
    mask: u32,
    map: &MapHandle,
) -> libbpf_rs::Result<()> {
    let key = id.to_ne_bytes();
    let has = map.lookup(&key, MapFlags::ANY)?;
    match (has.as_deref().map(mask_of), mask) {
        (None, 0) => Ok(()),
        (Some(has), wanted) if has == wanted => Ok(()),
        (Some(_), 0) => map.delete(&key).or_else(gone),
        (Some(_), _) => map
            .update(&key, &mask.to_ne_bytes(), MapFlags::EXIST)
            .or_else(gone),
        (None, _) => {
            map.update(&key, &mask.to_ne_bytes(), MapFlags::ANY)?;
            // Released meanwhile: nobody else takes it out.
            match hierarchy.id(Path::new(path)) {
                Ok(now) if now == id => Ok(()),
                _ => map.delete(&key).or_else(gone),
            }
        }
    }
}

/// The cgroup was released, and the program has taken it out of the map.
fn gone(e: libbpf_rs::Error) -> libbpf_rs::Result<()> {
    match e.kind() {
        libbpf_rs::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    }
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
