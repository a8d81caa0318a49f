#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The part of bench/paths/run inside the VM: takes every path through the sockets of TCP,
of AF_UNIX and of a pair, while the emulator counts. JSON on stdout, progress on stderr.

    measure.py [ROW-REGEX]

A sample of a pair none of whose bytes went by ring is an error.
"""

import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import lab  # noqa: E402

PROGRAM = os.path.join(HERE, "..", "..", "build", "paths", "paths")
ENROLL = "/sys/module/socksplice/parameters/enroll_all"
WAYS = ("tcp", "unix", "paired")
COUNT = 1000
STREAM = 64 << 20

ROWS = [(path, size) for path, sizes in (
    ("send", (1, 1024, 16384)), ("recv", (1, 1024, 16384)), ("recv-nothing", (1,)),
    ("poll-nothing", (1,)), ("poll-ready", (1,)),
    ("rr", (1, 1024, 16384)), ("rr-epoll", (1, 1024)), ("stream", (64, 1024, 16384, 65536)),
    ("stream-epoll", (64, 1024, 16384, 65536)),
) for size in sizes]


def count(path, size):
    """Times. Of a stream many, as TCP's buffers take the first megabytes without its reader."""
    return max(COUNT, min(20000, STREAM // size)) if path.startswith("stream") else COUNT


def sample(path, size, way):
    lab.write(ENROLL, "1" if way == "paired" else "0")
    before = lab.stats()
    done = subprocess.run([PROGRAM, "unix" if way == "unix" else "tcp", path, str(size),
                           str(count(path, size))],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench {path} {size} {way}: {done.stderr.strip()}")
    went = lab.paths(before, lab.stats())
    if (went["ring"] > 0) != (way == "paired"):
        sys.exit(f"bench {path} {size} {way}: went by {went}")
    return {"path": path, "size": size, "way": way, "count": int(done.stdout),
            "ring": went["ring"] / max(sum(went.values()), 1)}


def symbols():
    """The kernel's code, and each module's: where what begins."""
    with open("/proc/kallsyms", encoding="ascii") as f:
        for line in f:
            address, kind, name = line.rstrip("\n").split(" ", 2)
            if kind in "tT":
                yield address, name.replace("\t", " ")


def main():
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(__doc__)
        return
    only = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    samples = []
    for path, size in ROWS:
        if only.search(f"{path} {size}"):
            samples += [sample(path, size, way) for way in WAYS]
            lab.say(f"{path} {size}")
    if not samples:
        sys.exit("bench: no such row")
    json.dump({"machine": lab.machine(), "samples": samples, "symbols": list(symbols())}, sys.stdout)


main()
