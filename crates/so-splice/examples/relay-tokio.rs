// SPDX-License-Identifier: MIT OR Apache-2.0
//! relay-tokio LISTEN TO: what the example relay does, with a task of tokio for each connection.

use std::env;
use std::io;
use std::process::exit;
use std::time::Duration;

use so_splice::Traffic;
use tokio::net::{TcpListener, TcpStream};

fn words(way: &str, traffic: &Traffic) -> String {
    if let Some(e) = traffic.refused() {
        eprintln!("relay: SO_SPLICE: {e}: by {}", traffic.way);
    }
    let otherwise = traffic.piped + traffic.copied;
    format!("{way} {} spliced {otherwise} otherwise", traffic.spliced)
}

async fn serve(client: &TcpStream, to: &str) -> io::Result<()> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // After an error both sockets are dropped, which resets both connections.
    let report = so_splice::tokio::forward(client, &server).await?;
    let (up, down) = (words("up", &report.a_to_b), words("down", &report.b_to_a));
    println!("{up} {down}");
    Ok(())
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().collect();
    let [_, listen, to] = args.as_slice() else {
        eprintln!("usage: relay-tokio LISTEN-ADDRESS TO-ADDRESS");
        exit(2);
    };
    let listener = TcpListener::bind(listen).await?;
    println!("listening {}", listener.local_addr()?);
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(e) => {
                // Descriptors may be short for a moment.
                eprintln!("relay: accept: {e}: waiting");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let to = to.clone();
        tokio::spawn(async move {
            if let Err(e) = serve(&client, &to).await {
                eprintln!("relay: {to}: {e}");
            }
        });
    }
}
