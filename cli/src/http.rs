// SPDX-License-Identifier: GPL-2.0
//! As much of an HTTP/1.1 server as one page needs: it answers one request a
//! connection, and is not for the open internet.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// What a request may take, in time and in bytes.
const PATIENCE: Duration = Duration::from_secs(5);
const REQUEST_MAX: usize = 8192;
/// Clients that are served at the same time; more of them wait.
const WORKERS: usize = 4;

pub struct Page {
    pub status: &'static str,
    pub kind: &'static str,
    pub body: String,
}

impl Page {
    pub fn text(status: &'static str, body: impl Into<String>) -> Self {
        Page {
            status,
            kind: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

/// Answers each request with what `page` makes of its path. Does not return.
pub fn serve(listener: &TcpListener, page: impl Fn(&str) -> Page + Sync) {
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    match listener.accept() {
                        // The client's own trouble.
                        Ok((stream, _)) => drop(answer(stream, &page)),
                        // No descriptors, most likely: let some be closed.
                        Err(_) => thread::sleep(Duration::from_millis(100)),
                    }
                }
            });
        }
    });
}

fn answer(mut stream: TcpStream, page: impl Fn(&str) -> Page) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(&mut stream)?;
    let (page, body) = match request(&head) {
        Ok(("GET", path)) => (page(path), true),
        Ok(("HEAD", path)) => (page(path), false),
        Ok(_) => (Page::text("405 Method Not Allowed", "GET only\n"), true),
        Err(()) => (Page::text("400 Bad Request", "that is no HTTP\n"), true),
    };
    let mut text = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.status,
        page.kind,
        page.body.len()
    );
    if body {
        text += &page.body;
    }
    stream.write_all(text.as_bytes())
}

/// All up to the empty line, or as much of it as is allowed.
fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() < REQUEST_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            n => head.extend(&part[..n]),
        }
    }
    Ok(head)
}

/// Method and path, without the query.
fn request(head: &[u8]) -> Result<(&str, &str), ()> {
    if !head.windows(4).any(|end| end == b"\r\n\r\n") {
        return Err(());
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or(&[]);
    let line = std::str::from_utf8(line).map_err(|_| ())?;
    let words: Vec<_> = line.split(' ').collect();
    match words.as_slice() {
        [method, path, version] if version.starts_with("HTTP/1.") && path.starts_with('/') => {
            Ok((method, path.split('?').next().unwrap_or(path)))
        }
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_request_lines() {
        assert_eq!(
            request(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"),
            Ok(("GET", "/metrics"))
        );
        for bad in [
            &b""[..],
            b"GET / HTTP/1.1\r\n",
            b"GET /\r\n\r\n",
            b"GET metrics HTTP/1.1\r\n\r\n",
            b"GET / HTTP/2\r\n\r\n",
            b"\xff / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(request(bad), Err(()));
        }
    }

    #[test]
    fn answers_over_a_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ask = |text: &str| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(text.as_bytes()).unwrap();
            let (server, _) = listener.accept().unwrap();
            answer(server, |path| Page::text("200 OK", path)).unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            text
        };
        let text = ask("GET /a HTTP/1.0\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n/a"));
        let text = ask("HEAD /a HTTP/1.1\r\n\r\n");
        assert!(text.contains("Content-Length: 2\r\n") && text.ends_with("\r\n\r\n"));
        assert!(ask("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(ask(&"x".repeat(REQUEST_MAX)).starts_with("HTTP/1.1 400 "));
    }
}
