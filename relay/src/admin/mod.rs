// SPDX-License-Identifier: GPL-2.0
//! The HTTP server of the admin sockets: metrics for Prometheus, and status as JSON.

mod metrics;
mod status;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::net::Stream;
use crate::serve::Shared;

/// Time that a client has to send the header of a request.
const HEAD: Duration = Duration::from_secs(10);

/// Time after which the relay closes a client's connection, even if the client still uses it.
const WHOLE: Duration = Duration::from_secs(300);

/// Serves HTTP on one connection to an admin socket.
pub fn serve(stream: Stream, shared: Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(serve_one(stream, shared))
}

async fn serve_one(stream: Stream, shared: Arc<Shared>) {
    let answers = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(&request, &shared)) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // An error concerns only this client, whose connection is closed.
    let _ = match stream {
        Stream::Tcp(s) => {
            tokio::time::timeout(WHOLE, http.serve_connection(TokioIo::new(s), answers)).await
        }
        Stream::Unix(s) => {
            tokio::time::timeout(WHOLE, http.serve_connection(TokioIo::new(s), answers)).await
        }
    };
}

fn answer(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    const JSON: &str = "application/json";
    const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, METRICS, metrics::text(shared)),
        (&Method::GET, "/status") => (StatusCode::OK, JSON, status::summary(shared)),
        (&Method::GET, "/connections") => (StatusCode::OK, JSON, status::connections(shared)),
        (&Method::GET, "/health") => (StatusCode::OK, JSON, "{\"status\":\"ok\"}\n".into()),
        (&Method::GET, _) => (StatusCode::NOT_FOUND, JSON, error("no such page")),
        _ => (
            StatusCode::METHOD_NOT_ALLOWED,
            JSON,
            error("GET is the only method"),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn error(what: &str) -> String {
    format!("{{\"error\":\"{what}\"}}\n")
}
