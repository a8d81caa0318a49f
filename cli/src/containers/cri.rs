// SPDX-License-Identifier: GPL-2.0
//! The Container Runtime Interface, by which the kubelet asks containerd and CRI-O: gRPC, of whose
//! messages this file has the fields that it reads. Source: `runtime/v1/api.proto` of Kubernetes'
//! cri-api.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use hyper::http::uri::PathAndQuery;
use prost::Message;
use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{Answer, Container, LONGEST, PATIENCE, Pod, late};

/// How often a runtime that tells no events is asked what there is. The kubelet asks as often.
const POLL: Duration = Duration::from_secs(1);

/// What is sent: no filter for a list, no condition for events.
#[derive(Clone, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct Listed {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<ListedContainer>,
}

#[derive(Clone, PartialEq, Message)]
struct ListedContainer {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    sandbox: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<ContainerMetadata>,
    #[prost(enumeration = "State", tag = "6")]
    state: i32,
    #[prost(map = "string, string", tag = "8")]
    labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerMetadata {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum State {
    Created = 0,
    Running = 1,
    Exited = 2,
    Unknown = 3,
}

#[derive(Clone, PartialEq, Message)]
struct ListedSandboxes {
    #[prost(message, repeated, tag = "1")]
    items: Vec<Sandbox>,
}

/// What holds the namespaces of a pod, and has its labels.
#[derive(Clone, PartialEq, Message)]
struct Sandbox {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<SandboxMetadata>,
    #[prost(map = "string, string", tag = "5")]
    labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct SandboxMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {
    #[prost(string, tag = "1")]
    id: String,
    /// Whether the answer has `info`.
    #[prost(bool, tag = "2")]
    verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
struct StatusAnswer {
    #[prost(map = "string, string", tag = "2")]
    info: HashMap<String, String>,
}

/// The part of `info` that both runtimes call "info", a JSON document.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    pid: u32,
}

/// Each method of the service that is asked.
#[derive(Clone, Copy)]
enum Method {
    Containers,
    Sandboxes,
    Status,
    Events,
}

impl Method {
    fn path(self) -> PathAndQuery {
        PathAndQuery::from_static(match self {
            Method::Containers => "/runtime.v1.RuntimeService/ListContainers",
            Method::Sandboxes => "/runtime.v1.RuntimeService/ListPodSandbox",
            Method::Status => "/runtime.v1.RuntimeService/ContainerStatus",
            Method::Events => "/runtime.v1.RuntimeService/GetContainerEvents",
        })
    }
}

/// A connection to a runtime.
#[derive(Clone)]
struct Runtime(Grpc<Channel>);

impl Runtime {
    async fn at(socket: &Path) -> Answer<Self> {
        let unreachable =
            |e: tonic::transport::Error| format!("{}: {}", socket.display(), told(&e));
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
        let endpoint = endpoint.map_err(unreachable)?;
        let connected = timeout(PATIENCE, endpoint.connect()).await;
        let channel = connected.map_err(|_| late())?.map_err(unreachable)?;
        Ok(Runtime(
            Grpc::new(channel).max_decoding_message_size(LONGEST),
        ))
    }

    async fn ask<M, A>(&mut self, method: Method, message: M) -> Result<A, Status>
    where
        M: Message + 'static,
        A: Message + Default + 'static,
    {
        let asked = async {
            self.ready().await?;
            let codec = ProstCodec::default();
            let answer = self.0.unary(Request::new(message), method.path(), codec);
            Ok(answer.await?.into_inner())
        };
        let answer = timeout(PATIENCE, asked).await;
        answer.map_err(|_| Status::deadline_exceeded(late()))?
    }

    async fn events(&mut self) -> Result<Streaming<Nothing>, Status> {
        self.ready().await?;
        let codec: ProstCodec<_, Nothing> = ProstCodec::default();
        let answer =
            self.0
                .server_streaming(Request::new(Nothing {}), Method::Events.path(), codec);
        Ok(answer.await?.into_inner())
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let ready = self.0.ready().await;
        ready.map_err(|e| Status::unavailable(told(&e)))
    }

    /// All containers but those that hold the namespaces of a pod.
    async fn list(&mut self) -> Result<Vec<Container>, Status> {
        let listed: Listed = self.ask(Method::Containers, Nothing {}).await?;
        let sandboxes: ListedSandboxes = self.ask(Method::Sandboxes, Nothing {}).await?;
        let sandboxes: HashMap<_, _> = sandboxes
            .items
            .into_iter()
            .map(|s| (s.id.clone(), s))
            .collect();
        let containers = listed.containers.into_iter();
        Ok(containers
            .map(|c| {
                let sandbox = sandboxes.get(&c.sandbox);
                container(c, sandbox)
            })
            .collect())
    }
}

/// The labels of a pod stand in its sandbox, those of a container say which one of the pod it is.
fn container(listed: ListedContainer, sandbox: Option<&Sandbox>) -> Container {
    let mut labels: BTreeMap<_, _> = sandbox.iter().flat_map(|s| s.labels.clone()).collect();
    let running = listed.state() == State::Running;
    labels.extend(listed.labels);
    let named = sandbox.and_then(|s| s.metadata.clone()).map(|m| Pod {
        namespace: m.namespace,
        name: m.name,
    });
    Container {
        names: listed.metadata.into_iter().map(|m| m.name).collect(),
        pod: named.or_else(|| Pod::by(&labels)),
        labels,
        running,
        id: listed.id,
        pid: None,
        unclear: None,
    }
}

/// All containers of the runtime; none if it serves no CRI, as containerd does that runs for
/// Docker alone.
pub async fn list(socket: &Path) -> Answer<Vec<Container>> {
    match Runtime::at(socket).await?.list().await {
        Ok(containers) => Ok(containers),
        Err(status) if status.code() == Code::Unimplemented => Ok(Vec::new()),
        Err(status) => Err(said(&status)),
    }
}

/// Asks for the main processes of those that run.
pub async fn find_processes(
    socket: &'static Path,
    containers: impl Iterator<Item = &mut Container>,
) {
    let runtime = Runtime::at(socket).await;
    super::find_processes(containers, |id| {
        let runtime = runtime.clone();
        async move { pid(runtime?, id).await }
    })
    .await;
}

/// The main process of a container; None if it has ended meanwhile.
async fn pid(mut runtime: Runtime, id: String) -> Answer<Option<u32>> {
    let request = StatusRequest { id, verbose: true };
    let answer: StatusAnswer = match runtime.ask(Method::Status, request).await {
        Ok(answer) => answer,
        Err(status) if status.code() == Code::NotFound => return Ok(None),
        Err(status) => return Err(said(&status)),
    };
    let info = answer.info.get("info").map_or("{}", String::as_str);
    let info: Info = serde_json::from_str(info).map_err(|e| format!("info of a container: {e}"))?;
    Ok(Some(info.pid).filter(|pid| *pid != 0))
}

/// Calls `changed` when what there is may have changed. Returns when the runtime no longer answers.
/// One that tells no events (containerd before 1.7, CRI-O without `enable_pod_events`) refuses the
/// request for them, and is asked for its list again and again.
pub async fn follow(socket: &Path, changed: impl Fn()) -> String {
    let followed = async {
        let mut runtime = Runtime::at(socket).await?;
        // The answer may begin with the first event only, so there is no time limit.
        let mut told = runtime.clone();
        changed();
        match told.events().await {
            Ok(stream) => events(stream, &changed).await,
            Err(status) if status.code() == Code::Unavailable => Err(said(&status)),
            Err(_) => poll(&mut runtime, &changed).await,
        }
    };
    match followed.await {
        Ok(never) => never,
        Err(why) => why,
    }
}

async fn events(mut stream: Streaming<Nothing>, changed: &impl Fn()) -> Answer<String> {
    changed();
    while stream.message().await.map_err(|s| said(&s))?.is_some() {
        changed();
    }
    Err("its events have ended".into())
}

async fn poll(runtime: &mut Runtime, changed: &impl Fn()) -> Answer<String> {
    let mut was = None;
    let mut tick = interval(POLL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let is = Some(runtime.list().await.map_err(|s| said(&s))?);
        if is != was {
            was = is;
            changed();
        }
    }
}

/// What a runtime says of a failure.
fn said(status: &Status) -> String {
    match status.message() {
        "" => status.code().to_string(),
        message => message.to_string(),
    }
}

/// An error with what has caused it: tonic's own is "transport error".
fn told(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let pairs = pairs.iter();
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    fn listed(state: State) -> ListedContainer {
        ListedContainer {
            id: "aa".into(),
            sandbox: "s".into(),
            metadata: Some(ContainerMetadata { name: "app".into() }),
            state: state as i32,
            labels: map(&[("io.kubernetes.container.name", "app")]),
        }
    }

    #[test]
    fn a_container_has_the_labels_of_its_pod() {
        let sandbox = Sandbox {
            id: "s".into(),
            metadata: Some(SandboxMetadata {
                name: "web-1".into(),
                namespace: "shop".into(),
            }),
            labels: map(&[("app", "web")]),
        };
        let found = container(listed(State::Running), Some(&sandbox));
        assert_eq!(found.names, ["app"]);
        assert_eq!(found.labels["app"], "web");
        assert_eq!(found.labels["io.kubernetes.container.name"], "app");
        let pod = found.pod.unwrap();
        assert_eq!(
            (pod.namespace.as_str(), pod.name.as_str()),
            ("shop", "web-1")
        );
        assert!(found.running);
    }

    #[test]
    fn one_without_a_pod() {
        let found = container(listed(State::Exited), None);
        assert_eq!((found.pod, found.running), (None, false));
    }

    /// Bytes as a runtime sends them: fields that are not read, too.
    #[test]
    fn reads_what_is_sent() {
        let sent =
            b"\x0a\x17\x0a\x02aa\x12\x01s\x1a\x05\x0a\x03app\x22\x03\x0a\x01i\x30\x01\x38\x07";
        let listed = Listed::decode(&sent[..]).unwrap();
        let [one] = &listed.containers[..] else {
            panic!("{listed:?}");
        };
        assert_eq!((one.id.as_str(), one.sandbox.as_str()), ("aa", "s"));
        assert_eq!(
            (one.metadata.as_ref().unwrap().name.as_str(), one.state()),
            ("app", State::Running)
        );
    }

    #[test]
    fn the_process_of_both_runtimes() {
        for text in [
            r#"{"sandboxID":"s","pid":12,"removing":false}"#,
            r#"{"pid":12}"#,
        ] {
            assert_eq!(serde_json::from_str::<Info>(text).unwrap().pid, 12);
        }
    }
}
