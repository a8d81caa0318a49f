// SPDX-License-Identifier: GPL-2.0
//! Programs that keep sockets in sockmaps. The module does not pair such a socket
//! (`declined_psock`). Observers of connections and some proxies use sockmaps.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::query::{
    LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter, ProgInfoQueryOptions,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ProgramAttachType, ProgramType};
use libbpf_sys::{
    BPF_CGROUP_SOCK_OPS, BPF_SK_MSG_VERDICT, BPF_SK_SKB_STREAM_PARSER, BPF_SK_SKB_STREAM_VERDICT,
    BPF_SK_SKB_VERDICT, bpf_attach_type,
};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::system::cgroup::Hierarchy;
use crate::system::process::Process;

/// The counter of sockets that were not paired because they are in a sockmap.
pub const PSOCK: &str = "declined_psock";

/// How many maps, and programs of each map, a text names.
const TOLD: usize = 3;
/// How many programs one query asks for. Nobody attaches more to one place.
const QUERIED: usize = 64;

const OF_MAPS: [bpf_attach_type; 4] = [
    BPF_SK_SKB_STREAM_PARSER,
    BPF_SK_SKB_STREAM_VERDICT,
    BPF_SK_SKB_VERDICT,
    BPF_SK_MSG_VERDICT,
];

/// A sockmap or sockhash.
struct Map {
    id: u32,
    name: String,
    kind: &'static str,
    holders: Vec<Process>,
}

/// A program that puts sockets into such a map, or handles what those in it receive or send.
struct Program {
    id: u32,
    name: String,
    kind: &'static str,
    /// The ids of the maps that it uses, or that it is attached to.
    maps: Vec<u32>,
    /// Cgroups by their paths, maps by their names.
    attached: Vec<String>,
    holders: Vec<Process>,
}

pub struct Sockmaps {
    maps: Vec<Map>,
    programs: Vec<Program>,
}

impl Sockmaps {
    /// Those of the machine. An error where this process may not look.
    pub fn read() -> io::Result<Self> {
        let mut next = 0;
        // SAFETY: the call writes one number.
        let status = unsafe { libbpf_sys::bpf_map_get_next_id(0, &mut next) };
        if status == -Errno::PERM.raw_os_error() {
            return Err(Errno::PERM.into());
        }
        let mut found = Sockmaps {
            maps: maps(),
            programs: Vec::new(),
        };
        if found.maps.is_empty() {
            return Ok(found);
        }
        found.programs = programs();
        found.see_links();
        found.ask_maps();
        found.ask_cgroups();
        found.find_holders();
        Ok(found)
    }

    /// One line: each map with its processes and programs, and where those are attached. None if
    /// there are no maps.
    pub fn text(&self) -> Option<String> {
        if self.maps.is_empty() {
            return None;
        }
        let maps = self.maps.iter().map(|map| self.describe(map));
        Some(some_of(maps.collect(), "; "))
    }

    fn describe(&self, map: &Map) -> String {
        let mut text = format!("{} {} (id {})", map.kind, map.name, map.id);
        if !map.holders.is_empty() {
            text += &format!(" of {}", names(&map.holders));
        }
        let users = self.programs.iter().filter(|p| p.maps.contains(&map.id));
        let users: Vec<String> = users.map(Program::describe).collect();
        if !users.is_empty() {
            text += &format!(", used by {}", some_of(users, " and "));
        }
        text
    }

    pub fn to_json(&self) -> Value {
        let maps = self.maps.iter().map(|map| {
            let users = self.programs.iter().filter(|p| p.maps.contains(&map.id));
            let users = users.map(|program| {
                json!({
                    "id": program.id,
                    "name": program.name,
                    "type": program.kind,
                    "attached": program.attached,
                    "processes": program.holders,
                })
            });
            json!({
                "id": map.id,
                "name": map.name,
                "type": map.kind,
                "processes": map.holders,
                "programs": users.collect::<Vec<Value>>(),
            })
        });
        maps.collect()
    }

    /// Which sockets are in them.
    pub fn members(&self) -> Members {
        let mut members = Members::default();
        let mut hidden = Vec::new();
        for map in &self.maps {
            match map.cookies() {
                Some(cookies) => {
                    let described = self.describe(map);
                    let of = cookies
                        .into_iter()
                        .map(|cookie| (cookie, described.clone()));
                    members.of.extend(of);
                }
                None => hidden.push(self.describe(map)),
            }
        }
        if !hidden.is_empty() {
            members.hidden = Some(some_of(hidden, "; "));
        }
        members
    }

    fn attach(&mut self, program: u32, to: String, map: Option<u32>) {
        let Some(program) = self.programs.iter_mut().find(|p| p.id == program) else {
            return;
        };
        if !program.attached.contains(&to) {
            program.attached.push(to);
        }
        if let Some(map) = map.filter(|map| !program.maps.contains(map)) {
            program.maps.push(map);
        }
    }

    fn see_links(&mut self) {
        for link in LinkInfoIter::default() {
            match &link.info {
                LinkTypeInfo::SockMap(of) => self.attach_to_map(link.prog_id, of.map_id),
                LinkTypeInfo::Cgroup(of)
                    if matches!(of.attach_type, ProgramAttachType::CgroupSockOps) =>
                {
                    let paths = Hierarchy::find().map(|h| h.paths(&[of.cgroup_id]));
                    let path = paths.unwrap_or_default().remove(&of.cgroup_id);
                    let cgroup = path.unwrap_or_else(|| format!("id {}", of.cgroup_id));
                    self.attach(link.prog_id, format!("cgroup {cgroup}"), None);
                }
                _ => {}
            }
        }
    }

    fn attach_to_map(&mut self, program: u32, map: u32) {
        if let Some(of) = self.maps.iter().find(|m| m.id == map) {
            let place = format!("{} {}", of.kind, of.name);
            self.attach(program, place, Some(map));
        }
    }

    /// Asks each map for the programs that are attached to it without a link.
    fn ask_maps(&mut self) {
        let ids: Vec<u32> = self.maps.iter().map(|map| map.id).collect();
        for map in ids {
            // SAFETY: the call takes a number.
            let fd = unsafe { libbpf_sys::bpf_map_get_fd_by_id(map) };
            if fd < 0 {
                continue;
            }
            // SAFETY: a descriptor that it returns is new, and nobody else's.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            for program in OF_MAPS.iter().flat_map(|kind| queried(&fd, *kind)) {
                self.attach_to_map(program, map);
            }
        }
    }

    /// Asks the cgroups, if it is not known yet where some sock_ops program is attached.
    fn ask_cgroups(&mut self) {
        let known = |p: &Program| p.kind != "sock_ops" || !p.attached.is_empty();
        let Ok(hierarchy) = Hierarchy::find() else {
            return;
        };
        if self.programs.iter().all(known) {
            return;
        }
        for dir in hierarchy.all() {
            let Ok(fd) = fs::File::open(&dir) else {
                continue;
            };
            for program in queried(&fd.into(), BPF_CGROUP_SOCK_OPS) {
                let below = dir.strip_prefix(hierarchy.mount()).unwrap_or(&dir);
                self.attach(program, format!("cgroup /{}", below.display()), None);
            }
        }
    }

    fn find_holders(&mut self) {
        let mut holders = Holders::read();
        for map in &mut self.maps {
            map.holders = holders.maps.remove(&map.id).unwrap_or_default();
        }
        for program in &mut self.programs {
            program.holders = holders.programs.remove(&program.id).unwrap_or_default();
        }
    }
}

/// Which sockets are in which map.
#[derive(Default)]
pub struct Members {
    /// A text about the map, by the cookie of the socket.
    pub of: HashMap<u64, String>,
    /// A text about the maps whose sockets the kernel does not tell.
    pub hidden: Option<String>,
}

impl Map {
    /// The cookies of the sockets in it. The kernel tells them only if values have eight bytes.
    fn cookies(&self) -> Option<Vec<u64>> {
        let Ok(map) = MapHandle::from_map_id(self.id) else {
            return Some(Vec::new()); // it is gone
        };
        if map.value_size() != 8 {
            return map.keys().next().is_none().then(Vec::new);
        }
        let cookie = |key: Vec<u8>| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            Some(u64::from_ne_bytes(value.try_into().ok()?))
        };
        Some(map.keys().filter_map(cookie).collect())
    }
}

impl Program {
    fn describe(&self) -> String {
        let mut text = format!("{} program {} (id {})", self.kind, self.name, self.id);
        if !self.holders.is_empty() {
            text += &format!(" of {}", names(&self.holders));
        }
        match self.attached.is_empty() {
            true => text += ", not attached",
            false => text += &format!(", attached to {}", some_of(self.attached.clone(), ", ")),
        }
        text
    }
}

/// The first few of them, and how many more.
fn some_of(mut items: Vec<String>, between: &str) -> String {
    let more = items.len().saturating_sub(TOLD);
    items.truncate(TOLD);
    if more > 0 {
        items.push(format!("{more} more"));
    }
    items.join(between)
}

fn names(processes: &[Process]) -> String {
    some_of(processes.iter().map(|p| p.to_string()).collect(), ", ")
}

fn maps() -> Vec<Map> {
    let kind = |ty| match ty {
        MapType::Sockmap => Some("sockmap"),
        MapType::Sockhash => Some("sockhash"),
        _ => None,
    };
    let maps = MapInfoIter::default().filter_map(|map| {
        Some(Map {
            id: map.id,
            name: map.name.to_string_lossy().into_owned(),
            kind: kind(map.ty)?,
            holders: Vec::new(),
        })
    });
    maps.collect()
}

fn programs() -> Vec<Program> {
    let kind = |ty| match ty {
        ProgramType::SkSkb => Some("sk_skb"),
        ProgramType::SkMsg => Some("sk_msg"),
        ProgramType::SockOps => Some("sock_ops"),
        _ => None,
    };
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs = ProgInfoIter::with_query_opts(options).filter_map(|program| {
        Some(Program {
            id: program.id,
            name: program.name.to_string_lossy().into_owned(),
            kind: kind(program.ty)?,
            maps: program.map_ids,
            attached: Vec::new(),
            holders: Vec::new(),
        })
    });
    programs.collect()
}

/// The programs that are attached to a map or a cgroup in one way.
fn queried(target: &OwnedFd, kind: bpf_attach_type) -> Vec<u32> {
    let mut ids = [0; QUERIED];
    let (mut count, mut flags) = (QUERIED as u32, 0);
    // SAFETY: the array has as many numbers as the call is told; all live until it returns.
    let status = unsafe {
        libbpf_sys::bpf_prog_query(
            target.as_raw_fd(),
            kind,
            0,
            &mut flags,
            ids.as_mut_ptr(),
            &mut count,
        )
    };
    match status {
        0 => ids.into_iter().take(count as usize).collect(),
        _ => Vec::new(),
    }
}

/// The processes that have a map or a program open, by its id.
#[derive(Default)]
struct Holders {
    maps: HashMap<u32, Vec<Process>>,
    programs: HashMap<u32, Vec<Process>>,
}

impl Holders {
    fn read() -> Self {
        let mut holders = Holders::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            // This process only inspects them.
            if pid != std::process::id() {
                holders.add(pid, &entry.path());
            }
        }
        holders
    }

    fn add(&mut self, pid: u32, dir: &Path) {
        for descriptor in fs::read_dir(dir.join("fd")).into_iter().flatten().flatten() {
            let link = fs::read_link(descriptor.path()).unwrap_or_default();
            if !link.to_string_lossy().starts_with("anon_inode:bpf") {
                continue;
            }
            let info = dir.join("fdinfo").join(descriptor.file_name());
            let info = fs::read_to_string(info).unwrap_or_default();
            for (key, to) in [("map_id", &mut self.maps), ("prog_id", &mut self.programs)] {
                let Some(id) = field(&info, key) else {
                    continue;
                };
                let process = Process {
                    pid,
                    name: comm(dir),
                };
                let of = to.entry(id).or_default();
                if !of.contains(&process) {
                    of.push(process);
                }
            }
        }
    }
}

fn comm(dir: &Path) -> String {
    let name = fs::read_to_string(dir.join("comm")).unwrap_or_default();
    name.trim_end().to_string()
}

/// A number of a file of /proc/PID/fdinfo.
fn field(info: &str, key: &str) -> Option<u32> {
    let value = |line: &str| {
        line.strip_prefix(key)?
            .strip_prefix(':')?
            .trim()
            .parse()
            .ok()
    };
    info.lines().find_map(value)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn agent() -> Sockmaps {
        let process = |pid, name: &str| Process {
            pid,
            name: name.into(),
        };
        Sockmaps {
            maps: vec![Map {
                id: 12,
                name: "kept".into(),
                kind: "sockhash",
                holders: vec![process(77, "agent")],
            }],
            programs: vec![
                Program {
                    id: 5,
                    name: "keep".into(),
                    kind: "sock_ops",
                    maps: vec![12],
                    attached: vec!["cgroup /".into()],
                    holders: vec![],
                },
                Program {
                    id: 6,
                    name: "other".into(),
                    kind: "sk_msg",
                    maps: vec![13],
                    attached: vec![],
                    holders: vec![],
                },
            ],
        }
    }

    #[test]
    fn names_the_map_and_the_program() {
        assert_eq!(
            agent().text().unwrap(),
            "sockhash kept (id 12) of agent(77), used by sock_ops program keep (id 5), \
             attached to cgroup /"
        );
        let json = agent().to_json();
        assert_eq!(json[0]["programs"][0]["name"], "keep");
        assert_eq!(json[0]["processes"][0]["pid"], 77);
        let none = Sockmaps {
            maps: vec![],
            programs: vec![],
        };
        assert!(none.text().is_none() && none.to_json() == json!([]));
    }

    #[test]
    fn attached_where_it_is_found() {
        let mut found = agent();
        found.attach_to_map(6, 12);
        found.attach_to_map(6, 12);
        found.attach_to_map(6, 99);
        found.attach(99, "cgroup /".into(), None);
        let text = found.text().unwrap();
        let program = " and sk_msg program other (id 6), attached to sockhash kept";
        assert!(text.ends_with(program), "{text}");
    }

    #[test]
    fn the_first_few() {
        let five = (1..=5).map(|n| n.to_string()).collect();
        assert_eq!(some_of(five, ", "), "1, 2, 3, 2 more");
    }

    #[test]
    fn fields_of_a_descriptor() {
        let info = "pos:\t0\nmap_type:\t18\nmap_id:\t12\nprog_id:\tx\n";
        assert_eq!(field(info, "map_id"), Some(12));
        assert_eq!(field(info, "prog_id"), None);
        assert_eq!(field(info, "id"), None);
    }
}
