// SPDX-License-Identifier: GPL-2.0
//! The HTTP server of `exporter`: hyper, with bounds on everything that a client can take.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, Notify};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::exposition::Format;

/// Connections that are open at the same time. One more ends the oldest connection that waits
/// for a request. So idle clients cannot keep an active one from being answered.
const CLIENTS: usize = 256;
/// How long a client may take for the head of a request, and between two requests.
const IDLE: Duration = Duration::from_secs(5);
/// How long a connection may last, whatever it does.
const LIFETIME: Duration = Duration::from_secs(600);
/// How long requests in progress may take when the server ends.
const GRACE: Duration = Duration::from_secs(2);
/// The longest head of a request, in bytes.
const HEAD: usize = 16 << 10;
/// How long to wait where no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Page {
    pub status: StatusCode,
    pub kind: &'static str,
    pub body: String,
}

impl Page {
    pub fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Page {
            status,
            kind: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

/// Makes the page of a path, in the format that the client prefers. May block. An error ends
/// the server.
pub type Pages = dyn Fn(&str, Format) -> io::Result<Page> + Send + Sync;

/// Answers requests, one at a time, until SIGTERM or SIGINT.
pub fn serve(
    listener: TcpListener,
    pages: Arc<Pages>,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let stop = Arc::new(Notify::new());
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let (mut signal, stop) = (signal(kind)?, stop.clone());
            tokio::spawn(async move {
                signal.recv().await;
                stop.notify_one();
            });
        }
        ready()?;
        let graceful = Arc::new(GracefulShutdown::new());
        let failure = Arc::new(OnceLock::new());
        let server = Server {
            pages,
            turn: Arc::new(Mutex::new(())),
            stop: stop.clone(),
            failure: failure.clone(),
        };
        let accepting = tokio::spawn(accept(listener, server, graceful.clone()));
        stop.notified().await;
        accepting.abort();
        let _ = accepting.await;
        if let Some(graceful) = Arc::into_inner(graceful) {
            let _ = timeout(GRACE, graceful.shutdown()).await;
        }
        match failure.get() {
            Some(text) => Err(io::Error::other(text.clone())),
            None => Ok(()),
        }
    })
}

#[derive(Clone)]
struct Server {
    pages: Arc<Pages>,
    /// Whose page is being made: the others wait where they can be cancelled.
    turn: Arc<Mutex<()>>,
    /// Ends the server.
    stop: Arc<Notify>,
    /// The error of `pages` that ended it.
    failure: Arc<OnceLock<String>>,
}

struct Client {
    /// A request of its is being answered.
    busy: Arc<AtomicBool>,
    task: AbortHandle,
}

async fn accept(
    listener: tokio::net::TcpListener,
    server: Server,
    graceful: Arc<GracefulShutdown>,
) {
    let mut clients = Vec::new();
    loop {
        let accepted = listener.accept().await;
        clients.retain(|client: &Client| !client.task.is_finished());
        let room = clients.len() < CLIENTS && accepted.is_ok();
        let room = room || end_oldest(&mut clients);
        match accepted {
            Ok((stream, _)) if room => {
                let busy = Arc::new(AtomicBool::new(false));
                let serving = server
                    .clone()
                    .serve(stream, busy.clone(), graceful.watcher());
                let task = tokio::spawn(serving).abort_handle();
                clients.push(Client { busy, task });
            }
            // All are being answered.
            Ok(_) => {}
            // No descriptors, most likely.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Ends the oldest connection that waits for a request. False if there is none.
fn end_oldest(clients: &mut Vec<Client>) -> bool {
    let idle = |client: &Client| !client.busy.load(Ordering::Relaxed);
    match clients.iter().position(idle) {
        Some(oldest) => {
            clients.remove(oldest).task.abort();
            true
        }
        None => false,
    }
}

impl Server {
    async fn serve(self, stream: TcpStream, busy: Arc<AtomicBool>, watcher: Watcher) {
        let service = service_fn(|request: Request<Incoming>| async {
            busy.store(true, Ordering::Relaxed);
            let answer = self.answer(request).await;
            busy.store(false, Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), service);
        // What goes wrong is the client's own trouble.
        let _ = timeout(LIFETIME, watcher.watch(connection)).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<String> {
        let page = match *request.method() {
            Method::GET | Method::HEAD => {
                let format = Format::accepted(&accept_of(request.headers()));
                self.page(request.uri().path().to_string(), format).await
            }
            _ => Page::text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n"),
        };
        let mut response = Response::new(page.body);
        *response.status_mut() = page.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.kind));
        headers.insert(VARY, HeaderValue::from_static("accept"));
        if page.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }

    /// Makes the page in another thread, while the connections go on.
    async fn page(&self, path: String, format: Format) -> Page {
        let turn = self.turn.clone().lock_owned().await;
        let pages = self.pages.clone();
        let made = spawn_blocking(move || {
            let page = pages(&path, format);
            drop(turn);
            page
        });
        match made.await {
            Ok(Ok(page)) => return page,
            Ok(Err(e)) => {
                let _ = self.failure.set(e.to_string());
                self.stop.notify_one();
            }
            Err(_) => {}
        }
        Page::text(StatusCode::INTERNAL_SERVER_ERROR, "no page\n")
    }
}

fn accept_of(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(ACCEPT).iter();
    values.filter_map(|value| value.to_str().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{self, SocketAddr};
    use std::thread;

    /// Runs until the process ends.
    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pages = |path: &str, format: Format| {
            Ok(Page {
                status: StatusCode::OK,
                kind: format.content_type(),
                body: path.into(),
            })
        };
        thread::spawn(move || serve(listener, Arc::new(pages), || Ok(())).unwrap());
        address
    }

    fn ask(address: SocketAddr, text: &str) -> String {
        let mut client = net::TcpStream::connect(address).unwrap();
        client.write_all(text.as_bytes()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn answers_over_a_socket() {
        let address = server();
        let text = ask(address, "GET /a?b HTTP/1.0\r\n\r\n");
        assert!(text.starts_with("HTTP/1.0 200 OK\r\n") && text.ends_with("\r\n\r\n/a"));
        assert!(text.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        let text = ask(
            address,
            "HEAD /a HTTP/1.1\r\nConnection: close\r\nAccept: application/openmetrics-text\r\n\r\n",
        );
        assert!(text.contains("content-length: 2\r\n") && text.ends_with("\r\n\r\n"));
        assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0;"));
        let text = ask(address, "POST / HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 405 ") && text.contains("allow: GET, HEAD\r\n"));
        assert!(ask(address, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD));
        assert!(ask(address, &long).starts_with("HTTP/1.1 4"));
    }

    #[test]
    fn ends_with_the_error_of_a_page() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pages = |_: &str, _| Err(io::Error::other("it broke"));
        let server = thread::spawn(move || serve(listener, Arc::new(pages), || Ok(())));
        assert!(ask(address, "GET /a HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 500 "));
        let error = server.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "it broke");
    }

    #[test]
    fn idle_clients_keep_nobody_out() {
        let address = server();
        let mut idle = Vec::new();
        for _ in 0..CLIENTS + 50 {
            idle.push(net::TcpStream::connect(address).unwrap());
        }
        let text = ask(address, "GET /b HTTP/1.0\r\n\r\n");
        assert!(text.ends_with("/b"));
        // It was one of the oldest that had to go.
        assert!(matches!(idle[0].read(&mut [0]), Ok(0) | Err(_)));
        let mut last = idle.pop().unwrap();
        last.write_all(b"GET /c HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        last.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("/c"));
    }
}
