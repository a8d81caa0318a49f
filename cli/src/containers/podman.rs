// SPDX-License-Identifier: GPL-2.0
//! podman's own API. That of Docker, which podman serves as well, knows no pods.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::{Answer, Container, Pod, docker, http};

/// The oldest version of the API that podman 4 and 5 serve.
const API: &str = "/v4.0.0/libpod";
/// The namespace of podman's own pods.
const NAMESPACE: &str = "podman";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    names: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    pod_name: String,
}

impl From<Listed> for Container {
    fn from(listed: Listed) -> Self {
        let labels = listed.labels.unwrap_or_default();
        let own = (!listed.pod_name.is_empty()).then(|| Pod {
            namespace: NAMESPACE.into(),
            name: listed.pod_name,
        });
        Container {
            id: listed.id,
            names: listed.names.unwrap_or_default(),
            pod: Pod::by(&labels).or(own),
            labels,
            running: listed.pid != 0,
            pid: (listed.pid != 0).then_some(listed.pid),
            unclear: None,
        }
    }
}

pub async fn list(socket: &Path) -> Answer<Vec<Container>> {
    let path = format!("{API}/containers/json?all=true");
    let listed: Option<Vec<Listed>> = http::fetch(socket, &path).await?;
    let containers = listed.unwrap_or_default().into_iter();
    Ok(containers.map(Container::from).collect())
}

pub fn events() -> String {
    format!("{API}/events?stream=true&{}", docker::filters())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_the_list() {
        let text = r#"[
            {"Id": "aa", "Names": ["web"], "Labels": {"app": "db"}, "Pid": 7, "PodName": "p", "State": "running"},
            {"Id": "bb", "Names": null, "Labels": null, "Pid": 0, "State": "exited"}]"#;
        let listed: Vec<Listed> = serde_json::from_str(text).unwrap();
        let containers: Vec<Container> = listed.into_iter().map(Container::from).collect();
        assert_eq!(containers[0].names, ["web"]);
        assert_eq!(containers[0].labels["app"], "db");
        assert_eq!(containers[0].pid, Some(7));
        let pod = containers[0].pod.as_ref().unwrap();
        assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("podman", "p"));
        assert_eq!((containers[1].running, &containers[1].pod), (false, &None));
    }
}
