#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""relay.py LISTEN TO: forwards each connection made to LISTEN to TO, by SO_SPLICE where
that is to be had, else by copying. Prints "listening ADDRESS", then for each connection
what went "up" to the server and "down" to the client: bytes spliced, bytes copied."""

import errno
import socket
import struct
import sys
import threading

# As in socksplice.h(3).
LEVEL = socket.IPPROTO_IP
SO_SPLICE = 0x5350

# Errors after which copying works: see so_splice(4).
UNAVAILABLE = (errno.ENOPROTOOPT, errno.EPERM, errno.EINVAL)


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


def forward(source, sink):
    """One direction, to its end: bytes by splice, and by copying."""
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
    # no end of stream is sent on by a splice
    sink.shutdown(socket.SHUT_WR)
    return moved(source) if spliced else 0, copied


def serve(client, to):
    with client, socket.create_connection(to) as server:
        for s in (client, server):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = {}

        def run(way, source, sink):
            try:
                said[way] = "{} {} spliced {} copied".format(way, *forward(source, sink))
            except OSError as e:
                said[way] = f"{way} failed: {e}"
                # nothing more will come of the other direction either
                for s in (source, sink):
                    try:
                        s.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass

        up = threading.Thread(target=run, args=("up", client, server))
        up.start()
        run("down", server, client)
        up.join()
        print(said["up"], said["down"], flush=True)


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: relay.py LISTEN-ADDRESS TO-ADDRESS")
    to = address(sys.argv[2])
    with socket.create_server(address(sys.argv[1])) as listener:
        print("listening {}:{}".format(*listener.getsockname()), flush=True)
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve, args=(client, to), daemon=True).start()


if __name__ == "__main__":
    main()
