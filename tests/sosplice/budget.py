#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Many splices of one user that all have bytes to move, on a CPU that a spinning process wants
too: first they may take all of it, then a hundredth. Compares how often movers were refused with
what was moved, and prints what the kernel's workers ran. One line a case."""

import glob
import json
import os
import resource
import socket
import subprocess
import sys
import time

if sys.argv[1:2] in (["--help"], ["-h"]):
    print(__doc__)
    sys.exit()

SO_SPLICE = 0x1023
SPLICES, CHUNK = 2000, 100
SECONDS = 2
PERCENT = "/sys/module/socksplice/parameters/splice_cpu_percent"
failed = False


def counter(name):
    said = subprocess.run(["socksplice", "-j", "stats", "show"], check=True, capture_output=True)
    return json.loads(said.stdout)["stats"][name]


def workers_ran():
    """What all kworkers have run, in ns."""
    ns = 0
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{folder}/comm", encoding="ascii") as f:
                if not f.read().startswith("kworker/"):
                    continue
            with open(f"{folder}/schedstat", encoding="ascii") as f:
                ns += int(f.read().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass
    return ns


def set_percent(percent):
    with open(PERCENT, "w", encoding="ascii") as f:
        f.write(str(percent))


class Phase:
    """All clients write once; then the movers have SECONDS."""

    def __init__(self, percent, clients):
        set_percent(percent)
        ran, self.bytes = workers_ran(), counter("so_splice_bytes")
        refused = counter("so_splice_throttled")
        for c in clients:
            c.send(bytes(CHUNK))
        time.sleep(SECONDS)
        self.ran = workers_ran() - ran
        self.moved = self.so_far()
        self.refused = counter("so_splice_throttled") - refused
        print(f"# {percent} %: {self.moved} of {len(clients)} moved, the workers ran "
              f"{self.ran // 1000} us, {self.refused} refused", flush=True)
        set_percent(100)
        while self.so_far() < len(clients):
            time.sleep(0.1)

    def so_far(self):
        """Splices that have moved their chunk."""
        return (counter("so_splice_bytes") - self.bytes) // CHUNK


def verdict(name, good, why):
    global failed
    print(f"{'ok' if good else 'not ok'} {name}: {why}", flush=True)
    failed |= not good


resource.setrlimit(resource.RLIMIT_NOFILE, (4 * SPLICES + 64,) * 2)
subprocess.run(["socksplice", "feature", "set", "so-splice", "on"], check=True, stdout=subprocess.DEVNULL)
ends, clients = [], []
with socket.create_server(("127.0.0.1", 0)) as listener:
    for _ in range(SPLICES):
        client, sink = (socket.create_connection(listener.getsockname()) for _ in range(2))
        source, server = listener.accept()[0], listener.accept()[0]
        source.setsockopt(socket.SOL_SOCKET, SO_SPLICE, sink.fileno())
        ends += [source, sink, server]
        clients.append(client)
with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinner:
    whole, part = Phase(100, clients), Phase(1, clients)
    spinner.kill()
verdict("all moves without a limit", whole.moved == SPLICES, whole.moved)
verdict("a part moves within a share", 0 < part.moved < SPLICES, part.moved)
# each when its bytes came, and again at most once for each that worked
verdict("few are refused", part.refused <= SPLICES + part.moved, f"{part.refused} for {part.moved} moved")
sys.exit(failed)
