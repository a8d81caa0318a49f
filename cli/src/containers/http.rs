// SPDX-License-Identifier: GPL-2.0
//! Requests to an engine's API: HTTP over a Unix socket, with a bound on what an answer can take.

use std::path::Path;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Answer, LONGEST, PATIENCE, late};

/// Sends a request. The connection ends with the answer.
async fn get(socket: &Path, path: &str) -> Answer<Response<Incoming>> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|e| format!("{}: {e}", socket.display()))?;
    let failed = |e: hyper::Error| e.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    tokio::spawn(connection);
    let request = Request::get(path)
        .header(HOST, "localhost")
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(failed)?;
    match response.status() {
        StatusCode::OK => Ok(response),
        status => Err(format!("{path}: {status}")),
    }
}

/// The JSON document at a path.
pub async fn fetch<T: DeserializeOwned>(socket: &Path, path: &str) -> Answer<T> {
    let fetched = timeout(PATIENCE, async {
        let body = Limited::new(get(socket, path).await?.into_body(), LONGEST);
        body.collect().await.map_err(|e| e.to_string())
    });
    let body = fetched.await.map_err(|_| late())??;
    serde_json::from_slice(&body.to_bytes()).map_err(|e| format!("{path}: {e}"))
}

/// Calls `changed` when the stream at a path begins, and for each part of it. Returns when it
/// ends. An engine may answer the request only with the first event: there is no time limit.
pub async fn follow(socket: &Path, path: &str, changed: impl Fn()) -> String {
    let mut body = match get(socket, path).await {
        Ok(response) => response.into_body(),
        Err(why) => return why,
    };
    changed();
    loop {
        match body.frame().await {
            Some(Ok(_)) => changed(),
            Some(Err(e)) => return e.to_string(),
            None => return "its events have ended".into(),
        }
    }
}

/// `text` as a part of a query.
pub fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes()
        .map(|b| match plain(b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query() {
        assert_eq!(encoded("{\"a\":[1]}"), "%7B%22a%22%3A%5B1%5D%7D");
        assert_eq!(encoded("a-b_c.~é"), "a-b_c.~%C3%A9");
    }
}
