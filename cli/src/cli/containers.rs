// SPDX-License-Identifier: GPL-2.0
//! The grammar of what is about containers.

use std::net::SocketAddr;

use clap::Args;

use crate::values::selector::Selector;

/// What names the processes of a policy besides --cgroup.
pub const OTHERS: [&str; 4] = ["units", "containers", "labels", "pods"];

/// What names containers: of podman and Docker, and those of Kubernetes.
#[derive(Args)]
pub struct Selectors {
    /// The containers of this name, or whose id begins with these 12 digits or more, now and
    /// whenever the agent sees them come
    #[arg(long = "container", value_name = "NAME", num_args = 1.., value_delimiter = ',', value_parser = Selector::container)]
    containers: Vec<Selector>,

    /// The containers that have this label
    #[arg(long = "label", value_name = "KEY=VALUE", num_args = 1.., value_delimiter = ',', value_parser = Selector::label)]
    labels: Vec<Selector>,

    /// The containers of a pod, or of the pods with a label: NAMESPACE/NAME or
    /// NAMESPACE?KEY=VALUE. Pods of podman are in the namespace podman
    #[arg(long = "pod", value_name = "POD", num_args = 1.., value_delimiter = ',', value_parser = Selector::pod)]
    pods: Vec<Selector>,
}

impl Selectors {
    pub fn all(self) -> Vec<Selector> {
        let lists = [self.containers, self.labels, self.pods];
        lists.into_iter().flatten().collect()
    }
}

#[derive(Args)]
pub struct Agent {
    /// Serve the metrics of 'exporter' at this address, for example 127.0.0.1:9432
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}
