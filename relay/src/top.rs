// SPDX-License-Identifier: GPL-2.0
//! `socksplice-relay status` and `top`: clients of a running relay's admin socket.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::net::Address;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Requests a page and returns its body.
///
/// # Errors
/// Returns a message if no relay answers, or its answer is no page.
pub fn get(admin: &Address, page: &str) -> Result<String, String> {
    let failed = |e: io::Error| format!("{admin}: {e}");
    let request = format!("GET {page} HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    match admin {
        Address::Unix(path) => {
            let mut s = UnixStream::connect(path).map_err(failed)?;
            s.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
            s.write_all(request.as_bytes()).map_err(failed)?;
            s.read_to_string(&mut answer).map_err(failed)?;
        }
        Address::Ip(address) => {
            let mut s = TcpStream::connect_timeout(address, TIMEOUT).map_err(failed)?;
            s.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
            s.write_all(request.as_bytes()).map_err(failed)?;
            s.read_to_string(&mut answer).map_err(failed)?;
        }
        other => return Err(format!("{other}: an address or unix:PATH is wanted")),
    }
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    if head.starts_with("HTTP/1.1 200 ") {
        Ok(body.to_string())
    } else {
        Err(format!("{admin}: the answer is not a relay's"))
    }
}

/// Prints the busiest connections of the relay `times` times. Without `times` it prints them until
/// interrupted at a terminal, and once elsewhere.
///
/// # Errors
/// Returns a message if the relay does not answer.
pub fn top(admin: &Address, delay: Duration, times: Option<u64>) -> Result<(), String> {
    let screen = io::stdout().is_terminal();
    let times = times.unwrap_or(if screen { u64::MAX } else { 1 });
    let mut before = sample(admin)?;
    for _ in 0..times {
        thread::sleep(delay);
        let after = sample(admin)?;
        let text = table(&before, &after);
        let clear = if screen { "\x1b[H\x1b[2J" } else { "" };
        if write!(io::stdout(), "{clear}{text}")
            .and_then(|()| io::stdout().flush())
            .is_err()
        {
            // The reader of standard output has gone.
            return Ok(());
        }
        before = after;
    }
    Ok(())
}

struct Sample {
    at: Instant,
    status: Value,
    connections: Vec<Value>,
}

fn sample(admin: &Address) -> Result<Sample, String> {
    let parse =
        |text: String| serde_json::from_str::<Value>(&text).map_err(|e| format!("{admin}: {e}"));
    let status = parse(get(admin, "/status")?)?;
    let mut connections = parse(get(admin, "/connections")?)?;
    let connections = connections["connections"]
        .as_array_mut()
        .map(std::mem::take);
    Ok(Sample {
        at: Instant::now(),
        status,
        connections: connections.unwrap_or_default(),
    })
}

/// Number of connections shown.
const SHOWN: usize = 20;

fn table(before: &Sample, after: &Sample) -> String {
    let seconds = after.at.duration_since(before.at).as_secs_f64().max(0.001);
    let mut out = String::new();
    let status = &after.status;
    let _ = writeln!(
        out,
        "socksplice-relay {}, process {}, {} connections of {} at most, SO_SPLICE {}",
        status["program"].as_str().unwrap_or("?"),
        status["pid"],
        status["connections"],
        status["max_connections"],
        if status["sosplice"] == true {
            "there"
        } else {
            "not there"
        }
    );
    let old = |id: &Value| before.connections.iter().find(|c| c["id"] == *id);
    let mut rows: Vec<_> = after
        .connections
        .iter()
        .map(|c| {
            let rate = |key: &str| {
                let was = old(&c["id"]).and_then(|o| o[key].as_u64()).unwrap_or(0);
                (c[key].as_u64().unwrap_or(0).saturating_sub(was)) as f64 / seconds
            };
            (rate("bytes_up"), rate("bytes_down"), c)
        })
        .collect();
    rows.sort_by(|a, b| (b.0 + b.1).total_cmp(&(a.0 + a.1)));
    let _ = writeln!(
        out,
        "{:<16} {:<22} {:<22} {:<9} {:>9} {:>9} {:>8}",
        "LISTENER", "CLIENT", "TARGET", "MODE", "UP/s", "DOWN/s", "AGE"
    );
    for (up, down, c) in rows.iter().take(SHOWN) {
        let text = |key: &str| printable(c[key].as_str().unwrap_or("-"));
        let _ = writeln!(
            out,
            "{:<16} {:<22} {:<22} {:<9} {:>9} {:>9} {:>7}s",
            text("listener"),
            text("client"),
            text("target"),
            text("mode_down"),
            human(*up),
            human(*down),
            c["seconds"].as_f64().unwrap_or(0.0) as u64
        );
    }
    if rows.len() > SHOWN {
        let _ = writeln!(out, "and {} more", rows.len() - SHOWN);
    }
    out
}

/// Escapes control characters. A client chooses the path of its Unix socket, and a terminal would
/// obey the sequences in it.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

fn human(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "K", "M", "G"] {
        if value < 1000.0 {
            return format!("{value:.1}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1}T")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_control_characters_of_a_client() {
        let sample = || Sample {
            at: Instant::now(),
            status: serde_json::json!({}),
            connections: vec![serde_json::json!({"id": 1, "client": "unix:/\u{1b}[2J\u{9b}2J\n"})],
        };
        let text = table(&sample(), &sample());
        let row = text.lines().nth(2).unwrap();
        assert!(row.contains(r"unix:/\u{1b}[2J\u{9b}2J\n"), "{row}");
        assert!(
            !text.chars().any(|c| c.is_control() && c != '\n'),
            "{text:?}"
        );
    }
}
