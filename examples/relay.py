#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""relay.py LISTEN TO: forwards each connection made to LISTEN to TO, by SO_SPLICE where
the kernel offers it, else by copying. Prints "listening ADDRESS", then for each connection
what went "up" to the server and "down" to the client: bytes spliced, bytes copied. An
end of stream is passed on as such (a half-close), a stream cut off as a reset."""

import errno
import socket
import struct
import sys
import threading
import time

# As in socksplice.h(3).
LEVEL = socket.IPPROTO_IP
SO_SPLICE = 0x5350

# Errors after which copying works, or tells what is the matter: see so_splice(4). ENOTCONN:
# the connection has ended, but what the source received before can still be read, such as
# the answer of a server that has closed. EPROTONOSUPPORT: one of the two is MPTCP.
UNAVAILABLE = (errno.ENOPROTOOPT, errno.EPERM, errno.EINVAL, errno.EPROTONOSUPPORT,
               errno.ENOMEM, errno.ENOTCONN)

# Errors of accept(2) that say that something is short, which may pass.
SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def splice(source, sink, max_bytes=0, idle=0.0):
    """Has the kernel forward to SINK what SOURCE receives, until max_bytes have gone or
    nothing has for IDLE seconds (0: no limit). OSError as in so_splice(4)."""
    seconds, rest = divmod(round(idle * 1e6), 1_000_000)
    # struct splice: int, padding, off_t, struct timeval
    argument = struct.pack("@iqll", sink.fileno(), max_bytes, seconds, rest)
    source.setsockopt(LEVEL, SO_SPLICE, argument)


def unsplice(source):
    """Ends the splice whose source this is."""
    source.setsockopt(LEVEL, SO_SPLICE, -1)


def moved(source):
    """Bytes that the splice of SOURCE has moved, or the last one did."""
    return struct.unpack("@q", source.getsockopt(LEVEL, SO_SPLICE, 8))[0]


def close_resets(s, yes):
    """Whether closing the socket resets the connection."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", yes, 0))


def is_connected(s):
    try:
        s.getpeername()
    except OSError:
        return False
    return True


def forward(source, sink):
    """One direction, until nothing more comes: bytes by splice, and by copying."""
    copied, spliced = 0, True
    try:
        splice(source, sink)
    except OSError as e:
        if e.errno not in UNAVAILABLE:
            raise
        print(f"relay: {e.strerror}: copying", file=sys.stderr)
        spliced = False
    # While it is spliced nothing can be read: this waits for the splice to end, and
    # carries what that left.
    while data := source.recv(65536):
        sink.sendall(data)
        copied += len(data)
    return moved(source) if spliced else 0, copied


def relay(client, server):
    """Both directions, to their end. True if nothing was lost."""
    said, failed = {}, []

    def run(way, source, sink):
        try:
            said[way] = "{} {} spliced {} copied".format(way, *forward(source, sink))
            # No end of stream is sent on by a splice. If the source is not even connected
            # any more it may have been reset, an error that the other direction's write
            # has had: the close, which comes at once then, knows.
            if not failed and is_connected(source):
                sink.shutdown(socket.SHUT_WR)
        except OSError as e:
            said[way] = f"{way} failed: {e}"
            failed.append(way)
            # Nothing more will come of the other direction either: this wakes it. For
            # writing, it would send the end of stream that there was not.
            try:
                sink.shutdown(socket.SHUT_RD)
            except OSError:
                pass

    up = threading.Thread(target=run, args=("up", client, server))
    up.start()
    run("down", server, client)
    up.join()
    print(said["up"], said["down"], flush=True)
    return not failed


def serve(client, to):
    try:
        with client:
            # Until all has gone well, and should this process be killed: nobody is to take
            # a stream that was cut off for a whole one.
            close_resets(client, True)
            with socket.create_connection(to) as server:
                close_resets(server, True)
                for s in (client, server):
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if relay(client, server):
                    for s in (client, server):
                        close_resets(s, False)
    except (OSError, RuntimeError) as e:  # the latter: no more threads
        print(f"relay: {e}", file=sys.stderr)


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main():
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(__doc__)
        return
    if len(sys.argv) != 3:
        sys.exit("usage: relay.py LISTEN-ADDRESS TO-ADDRESS")
    to = address(sys.argv[2])
    with socket.create_server(address(sys.argv[1])) as listener:
        print("listening {}:{}".format(*listener.getsockname()), flush=True)
        said = False
        while True:
            try:
                client, _ = listener.accept()
            except OSError as e:
                if e.errno == errno.ECONNABORTED:  # it has gone again
                    continue
                # no reason to end the connections that there are
                if e.errno not in SHORTAGE:
                    raise
                if not said:
                    print(f"relay: accept: {e.strerror}: waiting", file=sys.stderr)
                said = True
                time.sleep(0.1)
                continue
            try:
                threading.Thread(target=serve, args=(client, to), daemon=True).start()
            except RuntimeError as e:
                print(f"relay: a client is turned away: {e}", file=sys.stderr)
                client.close()


if __name__ == "__main__":
    main()
