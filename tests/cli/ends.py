#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""ends.py WHAT ADDRESS PORT: keeps TCP sockets open until its standard input ends.
listen	a listener, and what it accepts; says "listening"
connect	a connection to that; says the client's address and port
tls	both ends of a connection, the client with the ULP of kTLS; says the same
paced	the same, the client with SO_MAX_PACING_RATE instead
crowd	with NUMBER CGROUP instead: so many connections from the cgroup to a listener outside
alone	an end without another one, made by TCP_REPAIR; says the same
"""
import os
import select
import socket
import sys

TCP_REPAIR, TCP_ULP, SO_MAX_PACING_RATE = 19, 31, 47

what, address, port = sys.argv[1], sys.argv[2], sys.argv[3]
held = []

if what == "crowd":
    number, cgroup = int(address), port
    # Accepted sockets belong to the listener's cgroup.
    listener = socket.create_server(("127.0.0.1", 0), backlog=number)
    with open(f"{cgroup}/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))
    held = [socket.create_connection(listener.getsockname()) for _ in range(number)]
    print("connected", flush=True)
    sys.stdin.read()
    sys.exit()
port = int(port)


def listen():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen()
    return listener


if what == "listen":
    listener = listen()
    print("listening", flush=True)
    while True:
        if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
            sys.exit()
        held.append(listener.accept())
client = socket.socket()
if what in ("tls", "paced"):
    held.append(listen())
if what == "paced":
    client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 1000000)
if what == "alone":
    client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    client.bind(("127.0.0.1", 0))
client.connect((address, port))
if what in ("tls", "paced"):
    held.append(held[0].accept())
if what == "tls":
    client.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
print("%s:%d" % client.getsockname(), flush=True)
sys.stdin.read()
