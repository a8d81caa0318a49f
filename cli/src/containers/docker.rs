// SPDX-License-Identifier: GPL-2.0
//! Docker's API. A path without a version is that of the daemon's own version.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::http::{self, encoded};
use super::{Answer, Container, Pod};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    names: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    state: State,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    #[serde(default)]
    pid: u32,
}

impl From<Listed> for Container {
    fn from(listed: Listed) -> Self {
        let labels = listed.labels.unwrap_or_default();
        let names = listed.names.unwrap_or_default().into_iter();
        Container {
            id: listed.id,
            // A link of another container has a name with a second slash.
            names: names
                .filter_map(|name| name.strip_prefix('/').map(String::from))
                .collect(),
            pod: Pod::by(&labels),
            labels,
            running: matches!(listed.state.as_str(), "running" | "paused"),
            pid: None,
            unclear: None,
        }
    }
}

pub async fn list(socket: &Path) -> Answer<Vec<Container>> {
    let listed: Vec<Listed> = http::fetch(socket, "/containers/json?all=1").await?;
    Ok(listed.into_iter().map(Container::from).collect())
}

/// Asks for the main processes of those that run.
pub async fn find_processes(
    socket: &'static Path,
    containers: impl Iterator<Item = &mut Container>,
) {
    super::find_processes(containers, |id| async move { pid(socket, &id).await }).await;
}

/// The main process of a container; None if it has ended meanwhile.
async fn pid(socket: &Path, id: &str) -> Answer<Option<u32>> {
    let path = format!("/containers/{}/json", encoded(id));
    match http::fetch::<Inspected>(socket, &path).await {
        Ok(inspected) => Ok(Some(inspected.state.pid).filter(|pid| *pid != 0)),
        Err(why) if why.ends_with("404 Not Found") => Ok(None),
        Err(why) => Err(why),
    }
}

/// A query for the events that change what a selector names. podman calls some of them otherwise.
pub fn filters() -> String {
    const EVENTS: &str = r#"{"type":["container"],"event":["create","init","start","die","died","destroy","remove","rename"]}"#;
    format!("filters={}", encoded(EVENTS))
}

pub fn events() -> String {
    format!("/events?{}", filters())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_the_list() {
        let text = r#"[
            {"Id": "aa", "Names": ["/web", "/other/link"], "State": "running",
             "Labels": {"io.kubernetes.pod.name": "web-1", "io.kubernetes.pod.namespace": "shop"}},
            {"Id": "bb", "Names": ["/old"], "Labels": {}, "State": "exited"}]"#;
        let listed: Vec<Listed> = serde_json::from_str(text).unwrap();
        let containers: Vec<Container> = listed.into_iter().map(Container::from).collect();
        assert_eq!(containers[0].names, ["web", "other/link"]);
        assert_eq!(containers[0].pod.as_ref().unwrap().name, "web-1");
        assert!(containers[0].running && !containers[1].running);
        let inspected: Inspected =
            serde_json::from_str(r#"{"Id": "aa", "State": {"Pid": 12}}"#).unwrap();
        assert_eq!(inspected.state.pid, 12);
    }
}
