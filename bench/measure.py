#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The benchmark's part inside the VM, or on a machine that has the module loaded:
every way that bytes can take between two processes, in turn, round by round. JSON
on stdout, progress on stderr.

    measure.py ROUNDS SECONDS [CASE-REGEX]

A paired sample that did not use the ring is an error. No time is asserted.
"""

import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "bench")
BENCH = os.path.join(BUILD, "bench")
SOCKMAP = os.path.join(BUILD, "sockmap.bpf.o")
CGROUP = f"{lab.CGROUPS}/paired"
POLL = 50
PAIRS = 1000

CASES = [("rr", 1), ("rr", 1024), ("rr", 16384),
         ("stream", 1024), ("stream", 4096), ("stream", 16384), ("stream", 65536)]

# What is compared: options of bench.c, and whether the loopback case only.
WAYS = {
    "tcp": ([], False),
    "nodelay": (["-n"], False),
    "unix": (["-u"], True),
    "sockmap": (["-m", SOCKMAP], False),
    "paired": (["-g", CGROUP], False),
    "poll": (["-g", CGROUP], False),
}


def set_policy(poll):
    lab.socksplice("policy", "set", "--cgroup", CGROUP, *(["--busy-poll", str(POLL)] if poll else []))


def sample(host, way, place, kind, size, seconds):
    options, _ = WAYS[way]
    paired = way in ("paired", "poll")
    before = lab.stats() if paired else None
    look = host.look()
    done = subprocess.run([BENCH, *options, *place, kind, str(size), str(seconds)],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench {way} {kind} {size}: {done.stderr.strip()}")
    count, took = done.stdout.split()
    result = {"value": int(count) / float(took), "others": host.others(look)}
    if paired:
        went = lab.paths(before, lab.stats())
        result["ring"] = went["ring"] / max(sum(went.values()), 1)
        if not went["ring"]:
            sys.exit(f"bench {way} {kind} {size}: nothing went by ring: {went}")
    return result


def slab():
    """Bytes in all of the kernel's slab caches, without what they keep for later."""
    for cache in os.listdir("/sys/kernel/slab"):
        lab.write(f"/sys/kernel/slab/{cache}/shrink", "1")
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Slab:")) * 1024


def hold(options):
    """What PAIRS connections cost: slab bytes, ring bytes; idle, then busy."""
    p = subprocess.Popen([BENCH, *options, "idle", str(PAIRS)], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    found = {}
    for _ in range(3):
        state = p.stdout.readline().strip()
        stats = lab.stats()
        found[state] = {"slab": slab(), "ring": stats["ring_memory_bytes"], "pairs": stats["pairs_live"]}
        p.stdin.write("\n")
        p.stdin.flush()
    p.stdin.close()
    p.wait()
    return found


def memory():
    set_policy(False)
    lab.say(f"memory of {PAIRS} connections")
    hold([])  # what the first run leaves in the caches is no cost of pairs
    plain, paired = hold([]), hold(["-g", CGROUP])
    if paired["idle"]["pairs"] != PAIRS:
        sys.exit(f"bench: {paired['idle']['pairs']} of {PAIRS} connections were paired")
    with open("/sys/kernel/slab/socksplice_end/slab_size", encoding="ascii") as f:
        chan = int(f.read())
    grown = (paired["idle"]["slab"] - paired["none"]["slab"]) - (plain["idle"]["slab"] - plain["none"]["slab"])
    return {"connections": PAIRS, "socksplice_end": chan, "idle": 2 * chan,
            "idle_slab_difference": grown / PAIRS,
            "idle_ring": paired["idle"]["ring"] / PAIRS,
            "busy_ring": paired["busy"]["ring"] / PAIRS}


def main():
    rounds, seconds = int(sys.argv[1]), float(sys.argv[2])
    only = re.compile(sys.argv[3] if len(sys.argv) > 3 else "")
    if json.loads(lab.socksplice("-j", "policy", "show"))["policies"]:
        sys.exit("bench: there are policies in force, which the benchmark would replace "
                 "(socksplice policy export, then socksplice policy clear)")
    lab.undo("socksplice", "policy", "clear")
    host = lab.Host()
    lab.bridge()
    a, b = lab.Container("a", 1), lab.Container("b", 2)
    lab.make_cgroup(CGROUP)
    places = {"loopback": [], "containers": ["-s", a.name, "-c", b.name, "-a", a.address]}
    rows = [{"place": p, "kind": kind, "size": size, "ways": {}}
            for p in places for kind, size in CASES if only.search(f"{p} {kind} {size}")]
    if not rows:
        sys.exit(f"bench: no row matches '{only.pattern}'")
    for n in range(rounds):
        busy = 0
        for row in rows:
            for way, (_, loopback_only) in WAYS.items():
                if loopback_only and row["place"] != "loopback":
                    continue
                if way in ("paired", "poll"):
                    set_policy(way == "poll")
                s = sample(host, way, places[row["place"]], row["kind"], row["size"], seconds)
                row["ways"].setdefault(way, []).append(s)
                busy += lab.contended(s)
        samples = sum(len(row["ways"]) for row in rows)
        lab.say(f"round {n + 1} of {rounds}: {samples} samples, {busy} of them disturbed by others on the host")
    json.dump({"schema": 1, "machine": lab.machine(), "seconds": seconds, "poll_usec": POLL,
               "rows": rows, "memory": memory()}, sys.stdout, indent=1)


main()
