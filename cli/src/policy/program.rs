// SPDX-License-Identifier: GPL-2.0
//! The BPF program of a policy: loading, attaching and reading it back.

use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder, PrintLevel, set_print};

use crate::error::{Error, Result};

use super::config::Config;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/policy.bpf.o"));

/// Names of the object's maps, and what is pinned under the same names.
const CONFIG_SECTION: &str = ".rodata.config";
const CGROUPS: &str = "cgroups";
const CONFIG: &str = "config";
const PROGRAM: &str = "program";
const LINK: &str = "link";

/// What libbpf had to say; printed only if something failed.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn log(_: PrintLevel, message: String) {
    LOG.lock().unwrap().push(message);
}

/// Load the program, attach it, and pin it and its maps in a directory. On an
/// error it is not attached; what the directory holds then is the caller's to
/// remove.
pub fn install(config: &Config, cgroups: &[u64], dir: &Path) -> Result<()> {
    let bytes = config.to_bytes()?;
    let previous = set_print(Some((PrintLevel::Warn, log)));
    let result = load_and_pin(&bytes, cgroups, dir);
    set_print(previous);
    result.map_err(explain)
}

fn load_and_pin(config: &[u8], cgroups: &[u64], dir: &Path) -> libbpf_rs::Result<()> {
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in object.maps_mut() {
        if map.name() == CONFIG_SECTION {
            map.set_initial_value(config)?;
        } else if map.name() == CGROUPS {
            map.set_max_entries(cgroups.len() as u32)?;
        }
    }
    let mut object = object.load()?;
    for mut map in object.maps_mut() {
        if map.name() == CONFIG_SECTION {
            map.pin(dir.join(CONFIG))?;
        } else if map.name() == CGROUPS {
            for id in cgroups {
                map.update(&id.to_ne_bytes(), &[1], MapFlags::ANY)?;
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
pub fn read(dir: &Path) -> Result<(Config, Vec<u64>)> {
    let unreadable = |e: libbpf_rs::Error| Error::new(format!("cannot read the policy: {e}"));
    let config = MapHandle::from_pinned_path(dir.join(CONFIG)).map_err(unreadable)?;
    let bytes = config
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(unreadable)?;
    let config = Config::from_bytes(&bytes.unwrap_or_default())?;

    let map = MapHandle::from_pinned_path(dir.join(CGROUPS)).map_err(unreadable)?;
    let mut ids: Vec<u64> = map
        .keys()
        .filter_map(|key| Some(u64::from_ne_bytes(key.try_into().ok()?)))
        .collect();
    ids.sort_unstable();
    Ok((config, ids))
}
