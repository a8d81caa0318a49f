// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every `forward()` of the crate does, with each of its drivers, by each way that needs no
//! kernel module. `SO_SPLICE` itself runs in the project's virtual machines, that of UDP sockets
//! too.

use std::env;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
#[cfg(feature = "mio")]
use std::time::Instant;

use so_splice::{Error, Options, Report, Side, Way};

type Driver = fn(Way, TcpStream, TcpStream) -> Result<Report, Error>;

fn blocking(first: Way, a: TcpStream, b: TcpStream) -> Result<Report, Error> {
    let result = so_splice::forward_by(first, &a, &b);
    assert!(!is_nonblocking(&a) && !is_nonblocking(&b));
    result
}

fn is_nonblocking(socket: &TcpStream) -> bool {
    let path = format!("/proc/self/fdinfo/{}", socket.as_raw_fd());
    let info = std::fs::read_to_string(path).unwrap();
    let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap();
    i32::from_str_radix(flags.trim(), 8).unwrap() & libc::O_NONBLOCK != 0
}

#[cfg(feature = "tokio")]
fn tokio(first: Way, a: TcpStream, b: TcpStream) -> Result<Report, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        let a = tokio::net::TcpStream::from_std(a).unwrap();
        let b = tokio::net::TcpStream::from_std(b).unwrap();
        // A future that a task of any thread can run.
        tokio::spawn(async move { so_splice::tokio::forward_by(first, &a, &b).await })
            .await
            .unwrap()
    })
}

#[cfg(feature = "mio")]
fn mio(first: Way, a: TcpStream, b: TcpStream) -> Result<Report, Error> {
    mio_with(first, a, b, wait_for_last_bytes)
}

/// Calls `failed` after an error, before the forwarder is dropped.
#[cfg(feature = "mio")]
fn mio_with(
    first: Way,
    a: TcpStream,
    b: TcpStream,
    failed: impl FnOnce(&so_splice::mio::Forwarder),
) -> Result<Report, Error> {
    use mio::{Events, Interest, Poll, Token};
    use so_splice::mio::{Forwarder, Progress};

    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    let (a, b) = (
        mio::net::TcpStream::from_std(a),
        mio::net::TcpStream::from_std(b),
    );
    let mut poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(16);
    let mut forwarder = Forwarder::by(first, a, b);
    let both = Interest::READABLE | Interest::WRITABLE;
    poll.registry()
        .register(&mut forwarder, Token(0), both)
        .unwrap();
    loop {
        match forwarder.advance() {
            Ok(Progress::Waiting) => poll.poll(&mut events, None).unwrap(),
            Ok(Progress::More) => {}
            Ok(Progress::Done(report)) => return Ok(report),
            Err(e) => {
                failed(&forwarder);
                return Err(e);
            }
        }
    }
}

/// What a program does before it drops the forwarder after an error.
#[cfg(feature = "mio")]
fn wait_for_last_bytes(forwarder: &so_splice::mio::Forwarder) {
    let start = Instant::now();
    while forwarder.has_unsent() && start.elapsed() < Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn each(run: impl Fn(Driver, Way)) {
    let drivers: &[Driver] = &[
        blocking,
        #[cfg(feature = "tokio")]
        tokio,
        #[cfg(feature = "mio")]
        mio,
    ];
    for driver in drivers {
        for way in [Way::Splice, Way::Pipe, Way::Copy] {
            run(*driver, way);
        }
    }
}

/// A client, its socket at the relay, the relay's socket to the server, the server.
fn ends() -> [TcpStream; 4] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        for end in [&one, &other] {
            end.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        }
        (one, other)
    };
    let ((client, a), (b, server)) = (connect(), connect());
    a.set_read_timeout(None).unwrap();
    b.set_read_timeout(None).unwrap();
    [client, a, b, server]
}

fn bytes(number: usize, factor: usize) -> Vec<u8> {
    (0..number).map(|i| (i * factor % 251) as u8).collect()
}

/// `SO_LINGER` of zero, then drop.
fn reset(socket: TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the kernel reads the struct, whose size it is given.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            std::ptr::from_ref(&linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(status, 0);
}

/// `SOSPLICE_EXPECT=SO_SPLICE` says that this machine has the module, so all bytes that may be
/// spliced are; any other value says that it has not.
fn check(report: &Report, first: Way, up: usize, down: usize) {
    for (traffic, bytes) in [(report.a_to_b, up), (report.b_to_a, down)] {
        let bytes = bytes as u64;
        assert!(traffic.is_exact());
        assert_eq!(traffic.total(), bytes, "{report:?}");
        match traffic.way {
            Way::Splice => assert_eq!((first, traffic.spliced), (Way::Splice, bytes)),
            Way::Pipe => assert_eq!(traffic.piped, bytes, "{report:?}"),
            _ => assert_eq!((first, traffic.copied), (Way::Copy, bytes)),
        }
        if let (Way::Splice, Ok(expected)) = (first, env::var("SOSPLICE_EXPECT")) {
            assert_eq!(
                traffic.way == Way::Splice,
                expected == "SO_SPLICE",
                "{report:?}"
            );
        }
        let refused = first == Way::Splice && traffic.way != Way::Splice;
        assert_eq!(traffic.refused().is_some(), refused, "{report:?}");
    }
}

#[test]
fn both_ways_with_a_half_close() {
    each(|driver, way| {
        let (up, down) = (bytes(1_000_000, 7), bytes(700_000, 11));
        let [client, a, b, server] = ends();
        let relay = thread::spawn(move || driver(way, a, b));
        thread::scope(|scope| {
            scope.spawn(|| {
                (&client).write_all(&up).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
            });
            let talk = scope.spawn(|| (&server).write_all(&down).unwrap());
            let answer = scope.spawn(|| {
                let mut got = Vec::new();
                (&client).read_to_end(&mut got).unwrap();
                got
            });
            let mut got = Vec::new();
            (&server).read_to_end(&mut got).unwrap();
            assert!(got == up);
            talk.join().unwrap();
            (&server).write_all(b"late").unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            let got = answer.join().unwrap();
            assert!(got.starts_with(&down) && got.ends_with(b"late"));
        });
        let report = relay.join().unwrap().unwrap();
        check(&report, way, up.len(), down.len() + 4);
    });
}

#[test]
fn what_came_before_is_forwarded_too() {
    each(|driver, way| {
        let [mut client, a, b, mut server] = ends();
        client.write_all(b"early").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        server.write_all(b"answer").unwrap();
        drop(server.try_clone().unwrap());
        server.shutdown(Shutdown::Write).unwrap();
        check(&driver(way, a, b).unwrap(), way, 5, 6);
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        server.read_to_string(&mut got).unwrap();
        assert_eq!(got, "answerearly");
    });
}

#[test]
fn a_slow_reader_loses_nothing() {
    each(|driver, way| {
        let up = bytes(250_000, 13).repeat(32);
        let [mut client, a, b, mut server] = ends();
        let relay = thread::spawn(move || driver(way, a, b));
        let expected = up.clone();
        let sender = thread::spawn(move || {
            client.write_all(&up).unwrap();
            client
        });
        // All buffers fill up meanwhile. A receiver that is faster would do no harm.
        thread::sleep(Duration::from_millis(50));
        let mut got = vec![0; expected.len()];
        server.read_exact(&mut got).unwrap();
        assert!(got == expected);
        drop(sender.join().unwrap());
        drop(server);
        check(&relay.join().unwrap().unwrap(), way, got.len(), 0);
    });
}

fn is_reset(socket: &mut TcpStream, before: &[u8]) {
    let mut got = Vec::new();
    let error = socket.read_to_end(&mut got).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(got, before);
}

/// A byte each way.
fn exchange(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"x").unwrap();
    server.write_all(b"y").unwrap();
    let mut got = [0];
    server.read_exact(&mut got).unwrap();
    client.read_exact(&mut got).unwrap();
}

#[test]
fn a_reset_is_passed_on() {
    each(|driver, way| {
        for side in [Side::A, Side::B] {
            let [mut client, a, b, mut server] = ends();
            let relay = thread::spawn(move || driver(way, a, b));
            exchange(&mut client, &mut server);
            let mut other = if side == Side::A {
                reset(client);
                server
            } else {
                reset(server);
                client
            };
            is_reset(&mut other, b"");
            let error = relay.join().unwrap().unwrap_err();
            assert_eq!(error.side(), side);
            let report = error.report();
            assert_eq!((report.a_to_b.total(), report.b_to_a.total()), (1, 1));
            let error = io::Error::from(error);
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn a_reset_after_an_end_is_noticed() {
    each(|driver, way| {
        for side in [Side::A, Side::B] {
            let [mut client, a, b, mut server] = ends();
            let (tell, ended) = mpsc::channel();
            thread::spawn(move || tell.send(driver(way, a, b)));
            exchange(&mut client, &mut server);
            let (first, mut silent) = if side == Side::A {
                (client, server)
            } else {
                (server, client)
            };
            first.shutdown(Shutdown::Write).unwrap();
            assert_eq!(silent.read(&mut [0]).unwrap(), 0);
            reset(first);
            let result = ended.recv_timeout(Duration::from_secs(60));
            let error = result.expect("the reset is not noticed").unwrap_err();
            assert_eq!(error.side(), side);
            let report = error.report();
            assert_eq!((report.a_to_b.total(), report.b_to_a.total()), (1, 1));
        }
    });
}

#[test]
fn the_answer_of_a_server_that_reads_no_more_arrives() {
    each(|driver, way| {
        let [mut client, a, b, mut server] = ends();
        let relay = thread::spawn(move || driver(way, a, b));
        client.write_all(b"x").unwrap();
        let mut got = [0];
        server.read_exact(&mut got).unwrap();
        let answer = bytes(30_000, 3);
        server.write_all(&answer).unwrap();
        client.write_all(b"unread").unwrap();
        while {
            let mut got = [0; 6];
            server.peek(&mut got).unwrap() < 6
        } {}
        // A close with unread bytes is a reset.
        drop(server);
        is_reset(&mut client, &answer);
        let error = relay.join().unwrap().unwrap_err();
        assert_eq!(error.side(), Side::B);
        assert_eq!(error.report().b_to_a.total(), answer.len() as u64);
    });
}

/// Bytes that the peer's TCP has not acknowledged.
#[cfg(feature = "mio")]
fn unsent(socket: &TcpStream) -> i32 {
    let mut bytes: i32 = 0;
    // SAFETY: TIOCOUTQ writes one int.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(status, 0);
    bytes
}

#[cfg(feature = "mio")]
#[test]
fn a_client_that_reads_late_gets_all_that_mio_has_forwarded() {
    for way in [Way::Splice, Way::Pipe, Way::Copy] {
        // More than the client's receive buffer takes, less than the relay's send buffer does.
        let answer = bytes(300_000, 3);
        let [mut client, a, b, mut server] = ends();
        client.write_all(b"unread").unwrap();
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                server.write_all(&answer).unwrap();
                while unsent(&server) > 0 || server.peek(&mut [0; 6]).unwrap() < 6 {
                    thread::yield_now();
                }
                // A close with unread bytes is a reset.
                drop(server);
            });
            mio_with(way, a, b, |forwarder| {
                assert!(forwarder.has_unsent());
                let answer = &answer;
                let reader = scope.spawn(move || {
                    let mut got = vec![0; answer.len()];
                    client.read_exact(&mut got).unwrap();
                    assert!(got == *answer);
                    is_reset(&mut client, b"");
                });
                while forwarder.has_unsent() && !reader.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
            })
            .unwrap_err()
        });
        assert_eq!(error.side(), Side::B);
        assert_eq!(error.report().b_to_a.total(), answer.len() as u64);
    }
}

#[cfg(feature = "tokio")]
#[test]
fn a_dropped_future_resets_both() {
    let [mut client, a, b, mut server] = ends();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        let a = tokio::net::TcpStream::from_std(a).unwrap();
        let b = tokio::net::TcpStream::from_std(b).unwrap();
        let forward = so_splice::tokio::forward(&a, &b);
        let limit = Duration::from_millis(20);
        assert!(tokio::time::timeout(limit, forward).await.is_err());
    });
    is_reset(&mut client, b"");
    is_reset(&mut server, b"");
}

/// One datagram through `source` and `sink`, sockets of any runtime, and the count of the splice.
/// False if there is no module.
fn splices_datagrams(
    source: impl AsFd + Copy,
    at: SocketAddr,
    sink: impl AsFd,
    server: &UdpSocket,
) -> bool {
    let spliced = so_splice::splice(source, sink, Options::new());
    if let Ok(expected) = env::var("SOSPLICE_EXPECT") {
        assert_eq!(spliced.is_ok(), expected == "SO_SPLICE", "{spliced:?}");
    }
    if let Err(e) = spliced {
        assert!(so_splice::is_unavailable(&e), "{e}");
        return false;
    }
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut buffer = [0; 100];
    for datagram in [&b"question"[..], b"", b"?"] {
        client.send_to(datagram, at).unwrap();
        let n = server.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], datagram);
    }
    so_splice::unsplice(source).unwrap();
    assert_eq!(so_splice::moved(source).unwrap(), 9);
    true
}

/// A server, and two sockets of a relay.
fn datagram_sockets() -> [UdpSocket; 3] {
    let [server, source, sink] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let timeout = Some(Duration::from_secs(60));
    server.set_read_timeout(timeout).unwrap();
    sink.connect(server.local_addr().unwrap()).unwrap();
    [server, source, sink]
}

#[test]
fn datagrams_are_spliced() {
    let [server, source, sink] = datagram_sockets();
    let at = source.local_addr().unwrap();
    splices_datagrams(&source, at, &sink, &server);
}

#[cfg(feature = "tokio")]
#[test]
fn datagrams_of_tokio_are_spliced() {
    let [server, source, sink] = datagram_sockets();
    let at = source.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let [source, sink] = [source, sink].map(|socket| {
            socket.set_nonblocking(true).unwrap();
            tokio::net::UdpSocket::from_std(socket).unwrap()
        });
        if splices_datagrams(&source, at, &sink, &server) {
            // What the splice leaves is for the runtime.
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(b"after", at).unwrap();
            let mut buffer = [0; 100];
            assert_eq!(source.recv(&mut buffer).await.unwrap(), 5);
        }
    });
}
