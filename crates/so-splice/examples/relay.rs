// SPDX-License-Identifier: GPL-2.0
//! relay LISTEN TO: forwards each connection made to LISTEN to TO, by SO_SPLICE where that
//! is to be had, else by copying. Prints "listening ADDRESS", then for each connection
//! what went "up" to the server and "down" to the client: bytes spliced, bytes copied.

use std::env;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

/// One direction, to its end: bytes by splice, and by copying.
fn forward(mut source: &TcpStream, mut sink: &TcpStream) -> io::Result<(u64, u64)> {
    let spliced = match so_splice::splice(source, sink, so_splice::Options::default()) {
        Ok(()) => true,
        Err(e) if so_splice::is_unavailable(&e) => {
            eprintln!("relay: {e}: copying");
            false
        }
        Err(e) => return Err(e),
    };
    // waits for the splice to end, and carries what it left
    let copied = io::copy(&mut source, &mut sink);
    let moved = if spliced {
        so_splice::moved(source)?
    } else {
        0
    };
    sink.shutdown(Shutdown::Write)?;
    Ok((moved, copied?))
}

fn report(way: &str, result: io::Result<(u64, u64)>) -> String {
    match result {
        Ok((moved, copied)) => format!("{way} {moved} spliced {copied} copied"),
        Err(e) => format!("{way} failed: {e}"),
    }
}

fn serve(client: TcpStream, to: &str) -> io::Result<()> {
    let server = TcpStream::connect(to)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let pass = |source: &TcpStream, sink: &TcpStream| {
        let result = forward(source, sink);
        if result.is_err() {
            // nothing more will come of the other direction either
            let _ = source.shutdown(Shutdown::Both);
            let _ = sink.shutdown(Shutdown::Both);
        }
        result
    };
    let (up, down) = thread::scope(|scope| {
        let up = scope.spawn(|| pass(&client, &server));
        let down = pass(&server, &client);
        (up.join().expect("forward() does not panic"), down)
    });
    println!("{} {}", report("up", up), report("down", down));
    Ok(())
}

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().collect();
    let [_, listen, to] = args.as_slice() else {
        eprintln!("usage: relay LISTEN-ADDRESS TO-ADDRESS");
        std::process::exit(2);
    };
    let listener = TcpListener::bind(listen)?;
    println!("listening {}", listener.local_addr()?);
    io::stdout().flush()?;
    for client in listener.incoming() {
        let (client, to) = (client?, to.clone());
        thread::spawn(move || {
            if let Err(e) = serve(client, &to) {
                eprintln!("relay: {to}: {e}");
            }
        });
    }
    Ok(())
}
