#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Splices whose sink names CPU 1, which anybody may use, and CPU 2, which is isolated: by
the trace of the work queues, on which of them the movers were queued. One line a case."""

import os
import socket
import subprocess
import sys

if sys.argv[1:2] in (["--help"], ["-h"]):
    print(__doc__)
    sys.exit()

SO_SPLICE, SO_INCOMING_CPU = 0x1023, 49
TRACING = "/sys/kernel/tracing"
EVENT = f"{TRACING}/events/workqueue/workqueue_queue_work/enable"
BYTES = 200_000
failed = False


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def pair(listener):
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]


def queued_on(cpu):
    """How often a mover was, while a splice moved BYTES whose sink names @cpu."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client, source = pair(listener)
        sink, server = pair(listener)
    source.setsockopt(socket.SOL_SOCKET, SO_SPLICE, sink.fileno())
    write(f"{TRACING}/trace", "")
    write(EVENT, "1")
    moved = 0
    while moved < BYTES:
        sink.setsockopt(socket.SOL_SOCKET, SO_INCOMING_CPU, cpu)
        client.sendall(bytes(1000))
        got = 0
        while got < 1000:
            got += len(server.recv(1000))
        moved += got
    write(EVENT, "0")
    with open(f"{TRACING}/trace", encoding="ascii") as f:
        works = [line for line in f if "workqueue=socksplice" in line]
    for s in client, source, sink, server:
        s.close()
    return sum(line.rstrip().endswith(f" cpu={cpu}") for line in works), len(works)


def verdict(name, good, why):
    global failed
    print(f"{'ok' if good else 'not ok'} {name}: {why}", flush=True)
    failed |= not good


if not os.path.exists(EVENT):
    subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
os.sched_setaffinity(0, [0])
subprocess.run(["socksplice", "feature", "set", "so-splice", "on"], check=True, stdout=subprocess.DEVNULL)
with open("/sys/devices/system/cpu/isolated", encoding="ascii") as f:
    isolated = f.read().strip()
verdict("a CPU is isolated", isolated == "2", isolated)
there, works = queued_on(1)
verdict("works on the CPU that is named", there > 0, f"{there} of {works}")
there, works = queued_on(2)
verdict("not on an isolated one", works > 0 and there == 0, f"{there} of {works}")
sys.exit(failed)
