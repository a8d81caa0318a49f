// SPDX-License-Identifier: GPL-2.0
//! What names containers: by their name, by a label, by their pod.

use std::fmt;
use std::str::FromStr;

/// As POLICY_SELECTOR: bytes of the text, with a NUL.
pub const TEXT: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// Its name, or its id from the twelfth digit on.
    Container(String),
    /// It has this label with this value.
    Label(Label),
    /// It is of a pod in this namespace. Pods of podman are in the namespace "podman".
    Pod { namespace: String, which: Which },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    pub key: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Which {
    Named(String),
    Labelled(Label),
}

/// Which option of the command line, or which key of the file, has the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Container,
    Label,
    Pod,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Container, Kind::Label, Kind::Pod];

    /// Of the file: a list.
    pub fn key(self) -> &'static str {
        match self {
            Kind::Container => "containers",
            Kind::Label => "labels",
            Kind::Pod => "pods",
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Kind::Container => "container",
            Kind::Label => "label",
            Kind::Pod => "pod",
        }
    }
}

type Parsed<T> = Result<T, String>;

impl Selector {
    pub fn new(kind: Kind, text: &str) -> Parsed<Self> {
        if text.contains(char::is_control) {
            return Err(format!("a {} has no control characters", kind.word()));
        }
        if kind.word().len() + 1 + text.len() >= TEXT {
            let most = TEXT - 2 - kind.word().len();
            return Err(format!("a {} has at most {most} bytes", kind.word()));
        }
        match kind {
            Kind::Container if is_name(text) => Ok(Selector::Container(text.into())),
            Kind::Container => Err("a container's name has letters, digits, '.', '_' and '-'; \
                 'podman ps -a' or 'docker ps -a' lists them"
                .into()),
            Kind::Label => Label::new(text).map(Selector::Label),
            Kind::Pod => pod(text),
        }
    }

    pub fn container(text: &str) -> Parsed<Self> {
        Selector::new(Kind::Container, text)
    }

    pub fn label(text: &str) -> Parsed<Self> {
        Selector::new(Kind::Label, text)
    }

    pub fn pod(text: &str) -> Parsed<Self> {
        Selector::new(Kind::Pod, text)
    }

    pub fn kind(&self) -> Kind {
        match self {
            Selector::Container(_) => Kind::Container,
            Selector::Label(_) => Kind::Label,
            Selector::Pod { .. } => Kind::Pod,
        }
    }

    /// The text that [`Selector::new`] takes for it.
    pub fn value(&self) -> String {
        match self {
            Selector::Container(name) => name.clone(),
            Selector::Label(label) => label.to_string(),
            Selector::Pod { namespace, which } => match which {
                Which::Named(name) => format!("{namespace}/{name}"),
                Which::Labelled(label) => format!("{namespace}?{label}"),
            },
        }
    }
}

/// With its kind, as in `container:web`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind().word(), self.value())
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Parsed<Self> {
        let (word, value) = text.split_once(':').unwrap_or((text, ""));
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word);
        let kind = kind.ok_or_else(|| format!("{word} names no containers"))?;
        Selector::new(kind, value)
    }
}

impl Label {
    fn new(text: &str) -> Parsed<Self> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Label {
                key: key.into(),
                value: value.into(),
            }),
            _ => Err("a label is KEY=VALUE".into()),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

fn is_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !text.is_empty() && text.bytes().all(good)
}

fn pod(text: &str) -> Parsed<Selector> {
    let at = text.find(['/', '?']);
    let (namespace, rest) = text.split_at(at.unwrap_or(0));
    let which = match (rest.strip_prefix('/'), rest.strip_prefix('?')) {
        (Some(name), _) if is_name(name) => Some(Which::Named(name.into())),
        (_, Some(label)) => Some(Which::Labelled(Label::new(label)?)),
        _ => None,
    };
    match which {
        Some(which) if is_name(namespace) => Ok(Selector::Pod {
            namespace: namespace.into(),
            which,
        }),
        _ => Err("a pod is NAMESPACE/NAME or NAMESPACE?KEY=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_parses() {
        for text in [
            "container:web",
            "container:k8s_web_web-1_default_0f-1_0",
            "label:app=db",
            "label:a.b/c=",
            "label:a=b=c",
            "pod:default/web-1",
            "pod:podman/mypod",
            "pod:default?app=web",
            "pod:default?a/b=c",
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.to_string(), text);
            assert_eq!(
                Selector::new(selector.kind(), &selector.value()),
                Ok(selector)
            );
        }
    }

    #[test]
    fn refuses_everything_else() {
        let long = format!("container:{}", "a".repeat(TEXT));
        for text in [
            "",
            "web",
            "unit:a",
            "container:",
            "container:a/b",
            "container:a b",
            "label:",
            "label:a",
            "label:=b",
            "label:a=\n",
            "pod:",
            "pod:a",
            "pod:/a",
            "pod:a/",
            "pod:a/b/c",
            "pod:a?b",
            "pod:?a=b",
            &long,
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
        let longest = "a".repeat(TEXT - 1 - "container:".len());
        assert!(Selector::container(&longest).is_ok());
        assert!(Selector::container(&(longest + "a")).is_err());
    }
}
