#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""relay.py [--asyncio] LISTEN TO: forwards each connection made to LISTEN to TO, by SO_SPLICE
where the kernel offers it, else by copying. Prints "listening ADDRESS", then for each connection
what went "up" to the server and "down" to the client: bytes spliced, bytes copied. An end of
stream is passed on as such (a half-close), a stream cut off as a reset. A thread for each
connection, or with --asyncio a task."""

import asyncio
import errno
import os
import socket
import sys
import threading
import time

# The package beside this folder; one that is installed needs no such line.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "python"))
import so_splice  # noqa: E402

# Errors of accept(2) that say that something is short, which may pass.
SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def say(report):
    words = []
    for way, traffic in (("up", report.a_to_b), ("down", report.b_to_a)):
        if traffic.refused:
            print(f"relay: {traffic.refused.strerror}: copying", file=sys.stderr)
        words.append(f"{way} {traffic.spliced} spliced {traffic.copied} copied")
    print(*words, flush=True)


def no_delay(*sockets):
    for s in sockets:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def serve(client, to):
    try:
        # After an error the closes reset both connections.
        with client, socket.create_connection(to) as server:
            no_delay(client, server)
            say(so_splice.forward(client, server))
    except OSError as e:
        print(f"relay: {e}", file=sys.stderr)


def pause_after(error):
    """Seconds to wait after an error of accept(2): something is short for a moment, or a client has
    gone again. Raises any other error."""
    if error.errno == errno.ECONNABORTED:
        return 0
    if error.errno not in SHORTAGE:
        raise error
    print(f"relay: accept: {error.strerror}: waiting", file=sys.stderr)
    return 0.1


def by_threads(listener, to):
    while True:
        try:
            client, _ = listener.accept()
        except OSError as e:
            time.sleep(pause_after(e))
            continue
        try:
            threading.Thread(target=serve, args=(client, to), daemon=True).start()
        except RuntimeError as e:
            print(f"relay: a client is turned away: {e}", file=sys.stderr)
            client.close()


async def serve_async(client, to):
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in to[0] else socket.AF_INET
    try:
        with client, socket.socket(family) as server:
            server.setblocking(False)
            await loop.sock_connect(server, to)
            no_delay(client, server)
            say(await so_splice.aio.forward(client, server))
    except OSError as e:
        print(f"relay: {e}", file=sys.stderr)


async def by_tasks(listener, to):
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    tasks = set()
    while True:
        try:
            client, _ = await loop.sock_accept(listener)
        except OSError as e:
            await asyncio.sleep(pause_after(e))
            continue
        task = loop.create_task(serve_async(client, to))
        tasks.add(task)     # the loop holds no reference to a task
        task.add_done_callback(tasks.discard)


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] in (["--help"], ["-h"]):
        print(__doc__)
        return
    tasks = arguments[:1] == ["--asyncio"]
    if tasks:
        del arguments[0]
    if len(arguments) != 2:
        sys.exit("usage: relay.py [--asyncio] LISTEN-ADDRESS TO-ADDRESS")
    to = address(arguments[1])
    with socket.create_server(address(arguments[0])) as listener:
        print("listening {}:{}".format(*listener.getsockname()), flush=True)
        if tasks:
            asyncio.run(by_tasks(listener, to))
        else:
            by_threads(listener, to)


if __name__ == "__main__":
    main()
