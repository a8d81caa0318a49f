// SPDX-License-Identifier: GPL-2.0
//! The containers of this machine, as their engines list them: podman and Docker, and containerd
//! and CRI-O for Kubernetes, by the sockets of their APIs. An engine with another API is one more
//! value of [`Engine`], with a file beside `cri`, `docker` and `podman`. This room may call
//! `system`, `values` and what is below them. `policy` and commands call it.

mod cri;
mod docker;
mod http;
mod podman;
mod select;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::system::process::Process;
use crate::values::selector::Selector;

/// How long [`names`] waits for an engine.
const SOON: Duration = Duration::from_secs(1);
/// How long an engine may take to answer, and how long its answer may be. A thousand containers
/// with many labels are a few MiB.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: usize = 64 << 20;

/// What an engine has answered, or what went wrong, for a person.
type Answer<T> = std::result::Result<T, String>;

fn late() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Podman,
    Docker,
    Containerd,
    CriO,
}

impl Engine {
    pub const ALL: [Engine; 4] = [
        Engine::Podman,
        Engine::Docker,
        Engine::Containerd,
        Engine::CriO,
    ];

    /// What `struct policy_found` has for it; 0 is none.
    pub fn number(self) -> u32 {
        match self {
            Engine::Podman => 1,
            Engine::Docker => 2,
            Engine::Containerd => 3,
            Engine::CriO => 4,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Engine::Podman => "podman",
            Engine::Docker => "Docker",
            Engine::Containerd => "containerd",
            Engine::CriO => "CRI-O",
        }
    }

    fn sockets(self) -> &'static [&'static str] {
        match self {
            Engine::Podman => &["/run/podman/podman.sock"],
            Engine::Docker => &["/run/docker.sock", "/var/run/docker.sock"],
            Engine::Containerd => &[
                "/run/containerd/containerd.sock",
                "/run/k3s/containerd/containerd.sock",
            ],
            Engine::CriO => &["/run/crio/crio.sock"],
        }
    }

    /// The socket of its API, if there is one. Where Docker's is a link to podman's, only
    /// podman has it.
    pub fn socket(self) -> Option<&'static str> {
        let socket = self.sockets().iter().find(|s| identity(s).is_some())?;
        let podman = Engine::Podman.sockets()[0];
        let twice = self != Engine::Podman && identity(socket) == identity(podman);
        (!twice).then_some(*socket)
    }

    /// The containers that one of the selectors names.
    pub async fn find(self, selectors: &[Selector]) -> Result<Vec<Named>> {
        let path = self.required_socket()?;
        let mut found = self.list().await?;
        let bits = select::bits(&found, selectors);
        let wanted = found.iter_mut().zip(&bits).filter(|(_, bits)| **bits != 0);
        let wanted = wanted.map(|(container, _)| container);
        match self {
            Engine::Podman => {} // has said so in its list
            Engine::Docker => docker::find_processes(path, wanted).await,
            Engine::Containerd | Engine::CriO => cri::find_processes(path, wanted).await,
        }
        let mut named = Vec::new();
        for (container, selectors) in found.iter().zip(bits) {
            if selectors == 0 {
                continue;
            }
            let path = container.path();
            named.push(Named {
                id: container.id.clone(),
                name: printable(container.names.first().unwrap_or(&container.id)),
                selectors,
                running: !path.is_empty(),
                cgroup: climb(&path, &container.id),
                unclear: container.unclear.as_deref().map(printable),
            });
        }
        Ok(named)
    }

    /// All its containers.
    async fn list(self) -> Result<Vec<Container>> {
        let path = self.required_socket()?;
        let found = match self {
            Engine::Podman => podman::list(path).await,
            Engine::Docker => docker::list(path).await,
            Engine::Containerd | Engine::CriO => cri::list(path).await,
        };
        found.map_err(|e| self.unanswered(e))
    }

    fn required_socket(self) -> Result<&'static Path> {
        let missing = || Error::new(format!("there is no socket of {}", self.name()));
        self.socket().map(Path::new).ok_or_else(missing)
    }

    /// Calls `changed` when the engine has begun to tell what becomes of its containers, and for
    /// each thing that it tells. Returns when it no longer does.
    pub async fn follow(self, changed: impl Fn()) -> Error {
        let socket = match self.required_socket() {
            Ok(socket) => socket,
            Err(e) => return e,
        };
        let ended = match self {
            Engine::Podman => http::follow(socket, &podman::events(), changed).await,
            Engine::Docker => http::follow(socket, &docker::events(), changed).await,
            Engine::Containerd | Engine::CriO => cri::follow(socket, changed).await,
        };
        self.unanswered(ended)
    }

    fn unanswered(self, why: String) -> Error {
        let why = printable(&why);
        Error::new(format!("{} does not answer: {why}", self.name()))
    }
}

/// Asks for the main process of each container that runs, by its id. All at once: the engine may never
/// answer for one that hangs.
async fn find_processes<A>(
    containers: impl Iterator<Item = &mut Container>,
    ask: impl Fn(String) -> A,
) where
    A: Future<Output = Answer<Option<u32>>> + Send + 'static,
{
    let mut containers: Vec<_> = containers.filter(|c| c.running).collect();
    let mut asked = JoinSet::new();
    for (i, container) in containers.iter().enumerate() {
        let answer = ask(container.id.clone());
        asked.spawn(async move { (i, answer.await) });
    }
    while let Some(answer) = asked.join_next().await {
        let Ok((i, pid)) = answer else {
            continue;
        };
        match pid {
            Ok(pid) => containers[i].pid = pid,
            Err(why) => containers[i].unclear = Some(why),
        }
    }
}

/// The names of all containers. Those of an engine that does not answer soon are left out: a
/// shell that completes a word waits for this.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
        return names;
    };
    for engine in Engine::ALL {
        let listed = runtime.block_on(async { timeout(SOON, engine.list()).await });
        let containers = listed.ok().and_then(Result::ok).unwrap_or_default();
        names.extend(containers.into_iter().flat_map(|c| c.names));
    }
    names
}

/// An engine's text, for a terminal or a log.
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Device and inode number of a socket that no user but root can have put there.
fn identity(socket: &str) -> Option<(u64, u64)> {
    let m = fs::metadata(socket).ok()?;
    (m.uid() == 0).then(|| (m.dev(), m.ino()))
}

/// A container that selectors name.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub id: String,
    pub name: String,
    /// Bit N: selector N of those asked for.
    pub selectors: u64,
    pub running: bool,
    /// Its path from the root of the hierarchy. None if the container does not run, or has no
    /// cgroup of its own.
    pub cgroup: Option<String>,
    /// Why the engine does not say whether it runs.
    pub unclear: Option<String>,
}

/// A container as an engine lists it.
#[derive(Debug, Default, PartialEq)]
struct Container {
    id: String,
    names: Vec<String>,
    labels: BTreeMap<String, String>,
    pod: Option<Pod>,
    running: bool,
    /// Its main process, while it runs.
    pid: Option<u32>,
    unclear: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    namespace: String,
    name: String,
}

impl Pod {
    /// By the labels that every runtime of Kubernetes gives its containers.
    fn by(labels: &BTreeMap<String, String>) -> Option<Self> {
        Some(Pod {
            namespace: labels.get("io.kubernetes.pod.namespace")?.clone(),
            name: labels.get("io.kubernetes.pod.name")?.clone(),
        })
    }
}

impl Container {
    /// The path of its main process; empty if that has ended since. Its number may be another
    /// process's now: that one's path does not have the id of the container.
    fn path(&self) -> String {
        let Some(pid) = self.pid else {
            return String::new();
        };
        let name = String::new();
        let path = Process { pid, name }.cgroup();
        match path.ends_with(" (deleted)") {
            true => String::new(),
            false => path,
        }
    }
}

/// The highest cgroup on a path whose name has a container's id: an engine may put the processes
/// into one below it. None for a path from outside of a cgroup namespace: it begins above the root.
fn climb(path: &str, id: &str) -> Option<String> {
    if id.len() < 12 || path.split('/').any(|component| component == "..") {
        return None;
    }
    let mut end = 0;
    for component in path.split('/').skip(1) {
        end += 1 + component.len();
        if component.contains(id) {
            return Some(path[..end].to_string());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn the_highest_cgroup_with_the_id() {
        for (path, expected) in [
            // podman, by systemd and without
            (
                "/machine.slice/libpod-ID.scope/container",
                "/machine.slice/libpod-ID.scope",
            ),
            ("/libpod_parent/libpod-ID", "/libpod_parent/libpod-ID"),
            // podman --cgroups=split, in a service
            (
                "/system.slice/web.service/libpod-payload-ID",
                "/system.slice/web.service/libpod-payload-ID",
            ),
            // Docker's two drivers, and systemd in a container
            (
                "/system.slice/docker-ID.scope",
                "/system.slice/docker-ID.scope",
            ),
            ("/docker/ID/init.scope", "/docker/ID"),
            (
                "/kubepods.slice/kubepods-pod1.slice/docker-ID.scope",
                "/kubepods.slice/kubepods-pod1.slice/docker-ID.scope",
            ),
            // containerd and CRI-O for Kubernetes
            (
                "/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
                "/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
            ),
            (
                "/kubepods.slice/kubepods-pod1.slice/crio-ID.scope/container",
                "/kubepods.slice/kubepods-pod1.slice/crio-ID.scope",
            ),
            ("/kubepods/burstable/pod1/ID", "/kubepods/burstable/pod1/ID"),
        ] {
            let [path, expected] = [path, expected].map(|p| p.replace("ID", ID));
            assert_eq!(climb(&path, ID), Some(expected), "{path}");
        }
        for path in [
            "",
            "/",
            "/system.slice/web.service",
            "/docker/0123456789ab",
            "/../../docker/ID",
        ] {
            let path = path.replace("ID", ID);
            assert_eq!(climb(&path, ID), None, "{path}");
        }
        assert_eq!(climb("/a", ""), None);
    }

    #[test]
    fn a_process_of_somebody_else_gives_no_cgroup() {
        let container = Container {
            id: ID.into(),
            pid: Some(std::process::id()),
            ..Container::default()
        };
        assert_eq!(climb(&container.path(), ID), None);
    }

    #[test]
    fn numbers_of_engines_differ() {
        let numbers = BTreeSet::from(Engine::ALL.map(Engine::number));
        assert!(numbers.len() == Engine::ALL.len() && !numbers.contains(&0));
    }
}
