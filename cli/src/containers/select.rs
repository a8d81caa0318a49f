// SPDX-License-Identifier: GPL-2.0
//! Which containers a selector names.

use std::collections::BTreeSet;

use crate::values::selector::{Label, Selector, Which};

use super::{Container, Pod};

/// From this digit of its id on, a container may be named by it.
const SHORT_ID: usize = 12;

/// For each container the selectors that name it: bit N is selector N.
pub fn bits(containers: &[Container], selectors: &[Selector]) -> Vec<u64> {
    let mut bits = vec![0; containers.len()];
    for (i, selector) in selectors.iter().enumerate() {
        // Of a pod's containers, only that which holds its namespaces may have its labels.
        let pods = pods(containers, selector);
        for (container, bits) in containers.iter().zip(&mut bits) {
            let named = match selector {
                Selector::Container(name) => has_name(container, name),
                Selector::Label(label) => has_label(container, label),
                Selector::Pod { .. } => container.pod.as_ref().is_some_and(|p| pods.contains(p)),
            };
            *bits |= u64::from(named) << i;
        }
    }
    bits
}

fn pods<'a>(containers: &'a [Container], selector: &Selector) -> BTreeSet<&'a Pod> {
    let Selector::Pod { namespace, which } = selector else {
        return BTreeSet::new();
    };
    let named = containers.iter().filter_map(|container| {
        let pod = container.pod.as_ref()?;
        let named = match which {
            Which::Named(name) => pod.name == *name,
            Which::Labelled(label) => has_label(container, label),
        };
        (named && pod.namespace == *namespace).then_some(pod)
    });
    named.collect()
}

fn has_name(container: &Container, name: &str) -> bool {
    let is_id = name.len() >= SHORT_ID && container.id.starts_with(name);
    is_id || container.names.iter().any(|n| n == name)
}

fn has_label(container: &Container, label: &Label) -> bool {
    container.labels.get(&label.key) == Some(&label.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, labels: &[(&str, &str)], pod: Option<(&str, &str)>) -> Container {
        Container {
            id: format!("{name}-0123456789"),
            names: vec![name.into()],
            labels: labels
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            pod: pod.map(|(namespace, name)| Pod {
                namespace: namespace.into(),
                name: name.into(),
            }),
            ..Container::default()
        }
    }

    #[test]
    fn by_name_label_and_pod() {
        let containers = [
            container("web", &[("app", "shop")], None),
            container("db", &[("app", "shop"), ("tier", "")], None),
            // The container that holds a pod's namespaces, and another one of the pod.
            container("pause", &[("run", "x")], Some(("default", "web-1"))),
            container("inner", &[], Some(("default", "web-1"))),
            container("same", &[("run", "x")], Some(("other", "web-1"))),
        ];
        for (selector, expected) in [
            ("container:web", [1, 0, 0, 0, 0]),
            ("container:we", [0, 0, 0, 0, 0]),
            ("container:web-01234567", [1, 0, 0, 0, 0]),
            ("container:web-0123456", [0, 0, 0, 0, 0]),
            ("label:app=shop", [1, 1, 0, 0, 0]),
            ("label:app=sho", [0, 0, 0, 0, 0]),
            ("label:tier=", [0, 1, 0, 0, 0]),
            ("pod:default/web-1", [0, 0, 1, 1, 0]),
            ("pod:default?run=x", [0, 0, 1, 1, 0]),
            ("pod:other?run=x", [0, 0, 0, 0, 1]),
            ("pod:none/web-1", [0, 0, 0, 0, 0]),
        ] {
            let selectors = [selector.parse().unwrap()];
            assert_eq!(bits(&containers, &selectors), expected, "{selector}");
        }
        let both = ["label:app=shop", "container:db"].map(|s| s.parse().unwrap());
        assert_eq!(bits(&containers, &both), [1, 3, 0, 0, 0]);
    }
}
