// SPDX-License-Identifier: MIT OR Apache-2.0
//! relay LISTEN TO: forwards each connection made to LISTEN to TO, by SO_SPLICE where that
//! is offered, else by copying. Prints "listening ADDRESS", then for each connection
//! what went "up" to the server and "down" to the client: bytes spliced, bytes copied.
//! An end of stream is passed on as such (a half-close), a stream cut off as a reset.

use std::env;
use std::io::{self, Write};
use std::mem;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Whether closing the socket resets the connection (`SO_LINGER`).
fn close_resets(socket: &TcpStream, yes: bool) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: yes.into(),
        l_linger: 0,
    };
    // SAFETY: the kernel only reads the value, whose size it is given; the descriptor is
    // borrowed, so open.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            ptr::from_ref(&linger).cast(),
            mem::size_of_val(&linger) as libc::socklen_t,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// One direction, until nothing more comes: bytes by splice, and by copying.
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
    let copied = io::copy(&mut source, &mut sink)?;
    let moved = if spliced {
        so_splice::moved(source)?
    } else {
        0
    };
    Ok((moved, copied))
}

fn report(way: &str, result: io::Result<(u64, u64)>) -> String {
    match result {
        Ok((moved, copied)) => format!("{way} {moved} spliced {copied} copied"),
        Err(e) => format!("{way} failed: {e}"),
    }
}

fn serve(client: TcpStream, to: &str) -> io::Result<()> {
    // Until all has gone well, and should this process be killed: nobody is to take a stream
    // that was cut off for a whole one.
    close_resets(&client, true)?;
    let server = TcpStream::connect(to)?;
    close_resets(&server, true)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let failed = AtomicBool::new(false);
    let pass = |source: &TcpStream, sink: &TcpStream| {
        let result = forward(source, sink).and_then(|sums| {
            // No end of stream is sent on by a splice. If the source is not even connected
            // any more it may have been reset, an error that the other direction's write
            // has had: the close below, which comes at once then, knows.
            if !failed.load(Ordering::SeqCst) && source.peer_addr().is_ok() {
                sink.shutdown(Shutdown::Write)?;
            }
            Ok(sums)
        });
        if result.is_err() {
            // Nothing more will come of the other direction either: this wakes it. For
            // writing, it would send the end of stream that there was not.
            failed.store(true, Ordering::SeqCst);
            let _ = sink.shutdown(Shutdown::Read);
        }
        result
    };
    let (up, down) = thread::scope(|scope| -> io::Result<_> {
        let up = thread::Builder::new().spawn_scoped(scope, || pass(&client, &server))?;
        let down = pass(&server, &client);
        Ok((up.join().expect("forward() does not panic"), down))
    })?;
    if up.is_ok() && down.is_ok() {
        close_resets(&client, false)?;
        close_resets(&server, false)?;
    }
    println!("{} {}", report("up", up), report("down", down));
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
        std::process::exit(2);
    };
    let listener = TcpListener::bind(listen)?;
    println!("listening {}", listener.local_addr()?);
    io::stdout().flush()?;
    let mut said = false;
    for client in listener.incoming() {
        let client = match client {
            Ok(client) => client,
            // it has gone again
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
            // no reason to end the connections that there are
            Err(e) if is_shortage(&e) => {
                if !said {
                    eprintln!("relay: accept: {e}: waiting");
                }
                said = true;
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            Err(e) => return Err(e),
        };
        let to = to.clone();
        let thread = thread::Builder::new().spawn(move || {
            if let Err(e) = serve(client, &to) {
                eprintln!("relay: {to}: {e}");
            }
        });
        if let Err(e) = thread {
            eprintln!("relay: a client is turned away: {e}");
        }
    }
    Ok(())
}
