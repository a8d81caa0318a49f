// SPDX-License-Identifier: GPL-2.0
//! The two text formats of metrics: OpenMetrics 1.0, and that of Prometheus, 0.0.4. Which
//! one a client gets is decided by its Accept (RFC 9110, 12.5.1).

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    OpenMetrics,
    Text,
}

/// In the order of preference among formats of equal quality.
const FORMATS: [Format; 2] = [Format::Text, Format::OpenMetrics];

impl Format {
    /// What the client accepts best. One that accepts neither gets Prometheus' own format,
    /// as one that accepts anything: every client knows that.
    pub fn accepted(accept: &[&str]) -> Self {
        let ranges: Vec<Range> = accept
            .iter()
            .flat_map(|value| value.split(','))
            .filter_map(Range::parse)
            .collect();
        let mut best = (Format::Text, 0);
        for format in FORMATS {
            let quality = format.quality(&ranges);
            if quality > best.1 {
                best = (format, quality);
            }
        }
        best.0
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Type, subtype and version.
    fn names(self) -> [&'static str; 3] {
        match self {
            Format::OpenMetrics => ["application", "openmetrics-text", "1.0.0"],
            Format::Text => ["text", "plain", "0.0.4"],
        }
    }

    /// The quality of the most specific range that matches, in thousandths.
    fn quality(self, ranges: &[Range]) -> u16 {
        let fitting = ranges
            .iter()
            .filter_map(|r| Some((r.fits(self)?, r.quality)));
        fitting.max().map_or(0, |(_, quality)| quality)
    }

    /// The same metrics, which `open_metrics` has, in this format.
    pub fn render(self, open_metrics: String) -> String {
        match self {
            Format::OpenMetrics => open_metrics,
            Format::Text => to_text(&open_metrics),
        }
    }
}

/// One of the media ranges of an Accept.
struct Range {
    kind: String,
    subtype: String,
    version: Option<String>,
    /// In thousandths.
    quality: u16,
}

impl Range {
    /// None if it is none.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let mut range = Range {
            kind: kind.to_ascii_lowercase(),
            subtype: subtype.to_ascii_lowercase(),
            version: None,
            quality: 1000,
        };
        for part in parts {
            let Some((name, value)) = part.split_once('=') else {
                continue;
            };
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => range.version = Some(value.into()),
                "q" => range.quality = thousandths(value)?,
                // charset, escaping: there is one of each
                _ => {}
            }
        }
        Some(range)
    }

    /// How specific it is about the format; None if that is not in it.
    fn fits(&self, format: Format) -> Option<u8> {
        let [kind, subtype, version] = format.names();
        let specific = match (self.kind.as_str(), self.subtype.as_str()) {
            ("*", "*") => 0,
            (k, "*") if k == kind => 1,
            (k, s) if k == kind && s == subtype => 2,
            _ => return None,
        };
        match &self.version {
            None => Some(specific),
            Some(v) if v == version => Some(specific + 1),
            Some(_) => None,
        }
    }
}

/// 0 to 1, with at most three digits behind the point.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if rest.len() > 3 || !rest.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let rest: u16 = format!("{rest:0<3}").parse().ok()?;
    match whole {
        "0" => Some(rest),
        "1" if rest == 0 => Some(1000),
        _ => None,
    }
}

/// OpenMetrics as Prometheus' own format: there, a counter's name has its "_total" also
/// where its type is told, and what OpenMetrics calls an info is a gauge.
fn to_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "HELP", _, rest] => help = Some(*rest),
            ["#", "TYPE", name, kind] => {
                let (suffix, kind) = match *kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some(help) = help.take() {
                    text += &format!("# HELP {name}{suffix} {help}\n");
                }
                text += &format!("# TYPE {name}{suffix} {kind}\n");
            }
            ["#", ..] => {}
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_accept() {
        use Format::{OpenMetrics, Text};
        for (accept, format) in [
            ("", Text),
            ("*/*", Text),
            ("text/html", Text),
            ("application/openmetrics-text", OpenMetrics),
            (
                "Application/OpenMetrics-Text; Version=\"1.0.0\"",
                OpenMetrics,
            ),
            ("application/openmetrics-text;version=0.0.1", Text),
            ("application/openmetrics-text;q=0", Text),
            ("application/*", OpenMetrics),
            (
                "text/plain;q=0.5, application/openmetrics-text;q=0.501",
                OpenMetrics,
            ),
            ("text/plain;q=0.5, application/openmetrics-text;q=0.5", Text),
            ("*/*;q=0.1, text/plain;q=0", OpenMetrics),
            ("*/*, text/*;q=0.2", OpenMetrics),
            ("application/openmetrics-text;q=2", Text),
            (
                "nonsense, /, ;q=1, application/openmetrics-text",
                OpenMetrics,
            ),
            // Prometheus 2 and 3
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                 version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                 encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;\
                 escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;\
                 version=0.0.4;q=0.2,*/*;q=0.1",
                OpenMetrics,
            ),
        ] {
            assert_eq!(Format::accepted(&[accept]), format, "{accept}");
        }
        assert_eq!(Format::accepted(&[]), Text);
        assert_eq!(
            Format::accepted(&["text/plain;q=0.1", "application/openmetrics-text"]),
            OpenMetrics
        );
    }

    #[test]
    fn qualities() {
        for (text, quality) in [
            ("1", Some(1000)),
            ("0", Some(0)),
            ("0.5", Some(500)),
            ("0.", Some(0)),
            ("1.000", Some(1000)),
            ("0.123", Some(123)),
            ("1.001", None),
            ("0.1234", None),
            ("2", None),
            ("-1", None),
            ("0.+1", None),
            ("", None),
        ] {
            assert_eq!(thousandths(text), quality, "{text}");
        }
    }

    #[test]
    fn as_prometheus_has_it() {
        let open_metrics = "# HELP a_bytes All of them.\n# TYPE a_bytes counter\n\
            # UNIT a_bytes bytes\na_bytes_total{path=\"x\"} 3\n\
            # HELP b What it is.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
            # HELP c Now.\n# TYPE c gauge\nc 7\n# TYPE d unknown\nd 1\n# EOF\n";
        let text = "# HELP a_bytes_total All of them.\n# TYPE a_bytes_total counter\n\
            a_bytes_total{path=\"x\"} 3\n# HELP b_info What it is.\n# TYPE b_info gauge\n\
            b_info{v=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 7\n# TYPE d untyped\nd 1\n";
        assert_eq!(Format::Text.render(open_metrics.into()), text);
        assert_eq!(
            Format::OpenMetrics.render(open_metrics.into()),
            open_metrics
        );
    }
}
