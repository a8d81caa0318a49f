// SPDX-License-Identifier: MIT OR Apache-2.0
//! relay LISTEN TO: forwards each connection made to LISTEN to TO, by SO_SPLICE where
//! that is offered, else by splice(2), or copies. Prints "listening ADDRESS", then for each
//! connection what went "up" to the server and "down" to the client: bytes spliced, bytes
//! forwarded otherwise. A thread for each connection.

use std::env;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::process::exit;
use std::thread;
use std::time::Duration;

use so_splice::Traffic;

fn words(way: &str, traffic: &Traffic) -> String {
    if let Some(e) = traffic.refused() {
        eprintln!("relay: SO_SPLICE: {e}: by {}", traffic.way);
    }
    let otherwise = traffic.piped + traffic.copied;
    format!("{way} {} spliced {otherwise} otherwise", traffic.spliced)
}

fn serve(client: &TcpStream, to: &str) -> io::Result<()> {
    let server = TcpStream::connect(to)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // After an error both sockets are dropped, which resets both connections.
    let report = so_splice::forward(client, &server)?;
    let (up, down) = (words("up", &report.a_to_b), words("down", &report.b_to_a));
    println!("{up} {down}");
    Ok(())
}

/// Whether an accept failed because something is short, which may pass.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().collect();
    let [_, listen, to] = args.as_slice() else {
        eprintln!("usage: relay LISTEN-ADDRESS TO-ADDRESS");
        exit(2);
    };
    let listener = TcpListener::bind(listen)?;
    println!("listening {}", listener.local_addr()?);
    io::stdout().flush()?;
    for client in listener.incoming() {
        let client = match client {
            Ok(client) => client,
            // It has gone again.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(e) if is_shortage(&e) => {
                eprintln!("relay: accept: {e}: waiting");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            Err(e) => return Err(e),
        };
        let to = to.clone();
        let thread = thread::Builder::new().spawn(move || {
            if let Err(e) = serve(&client, &to) {
                eprintln!("relay: {to}: {e}");
            }
        });
        if let Err(e) = thread {
            eprintln!("relay: a client is turned away: {e}");
        }
    }
    Ok(())
}
