// SPDX-License-Identifier: GPL-2.0
//! `policy`: which connections are accelerated.

mod config;
pub mod pin;
mod program;

use std::path::Path;

use serde_json::{Value, json};

use crate::cgroup::Hierarchy;
use crate::cli::PolicySet;
use crate::error::{Error, Result};
use crate::module::{self, Module};
use crate::output::{Answer, SCHEMA, yes_no};
use crate::size;

use config::Config;

pub fn set(arguments: PolicySet) -> Result<Answer> {
    module::require_root()?;
    let hierarchy = Hierarchy::find()?;
    let ids: Result<Vec<u64>> = arguments.cgroups.iter().map(|p| hierarchy.id(p)).collect();
    let mut ids = ids?;
    ids.sort_unstable();
    ids.dedup();
    let config = Config {
        ports: arguments.ports,
        cidrs: arguments.cidrs,
        loopback_only: arguments.loopback_only,
        busy_poll: arguments.busy_poll.filter(|usec| *usec != 0),
        ring: arguments.ring,
    };

    let (_, status) = Module::open()?;
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Error::new("this kernel has no BTF")
            .remedy("boot one with CONFIG_DEBUG_INFO_BTF=y, as Debian's are"));
    }
    if !status.btf || !Path::new(module::BTF).exists() {
        return Err(
            Error::new("the module has no usable BTF, BPF cannot call it").remedy(
                "install the kernel's headers and pahole (package dwarves), then build it again",
            ),
        );
    }

    pin::Lock::take()?.replace(|dir| program::install(&config, &ids, dir))?;
    let Answer { json, .. } = answer(&config, &ids, &hierarchy);
    Ok(Answer::new("", json))
}

pub fn show() -> Result<Answer> {
    module::require_root()?;
    let Some(dir) = pin::live() else {
        return Ok(Answer::new(
            "no policy is set\n",
            json!({ "schema": SCHEMA, "policy": null }),
        ));
    };
    let (config, ids) = program::read(dir)?;
    Ok(answer(&config, &ids, &Hierarchy::find()?))
}

pub fn clear() -> Result<Answer> {
    module::require_root()?;
    // Without a BPF file system nothing can have been pinned.
    let was = pin::bpffs_is_mounted() && pin::Lock::take()?.clear()?;
    let text = if was { "" } else { "no policy was set\n" };
    Ok(Answer::new(
        text,
        json!({ "schema": SCHEMA, "policy": null }),
    ))
}

fn answer(config: &Config, ids: &[u64], hierarchy: &Hierarchy) -> Answer {
    let paths = hierarchy.paths(ids);
    let list = |items: Vec<String>, none: &str| match items.is_empty() {
        true => none.to_string(),
        false => items.join(" "),
    };
    let shown = ids.iter().map(|id| match paths.get(id) {
        Some(path) => path.clone(),
        None => format!("(removed, was id {id})"),
    });
    let ports: Vec<String> = config.ports.iter().map(|p| p.to_string()).collect();
    let cidrs: Vec<String> = config.cidrs.iter().map(|c| c.to_string()).collect();
    let text = format!(
        "cgroups:       {}\n\
         ports:         {}\n\
         cidrs:         {}\n\
         loopback-only: {}\n\
         busy-poll:     {}\n\
         ring:          {}\n",
        list(shown.collect(), ""),
        list(ports, "all"),
        list(cidrs.clone(), "all"),
        yes_no(config.loopback_only),
        match config.busy_poll {
            Some(usec) => format!("{usec} us"),
            None => "as the socket says".into(),
        },
        match config.ring {
            Some(bytes) => size::format(bytes.into()),
            None => "the module's default".into(),
        },
    );
    let cgroups: Vec<Value> = ids
        .iter()
        .map(|id| json!({ "id": id, "path": paths.get(id) }))
        .collect();
    let ports: Vec<Value> = config
        .ports
        .iter()
        .map(|p| json!({ "first": p.first, "last": p.last }))
        .collect();
    let json = json!({
        "schema": SCHEMA,
        "policy": {
            "cgroups": cgroups,
            "ports": ports,
            "cidrs": cidrs,
            "loopback_only": config.loopback_only,
            "busy_poll_usec": config.busy_poll,
            "ring_size": config.ring,
        },
    });
    Answer::new(text, json)
}
