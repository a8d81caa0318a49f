#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Boots User Mode Linux and has its driver move messages every way in turn, row by row
and round by round, so that whatever the host does meets all ways alike. JSON on stdout,
progress on stderr.

A row whose samples others on the host disturbed is measured again, twice at most. A
paired sample that did not go by ring is an error. No time is asserted.
"""

import argparse
import json
import os
import re
import select
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import relay  # noqa: E402
import sockmap  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
POLL = 50
RR = [1, 64, 1024, 4096, 16384, 65536]
STREAM = [64, 256, 1024, 4096, 16384, 65536]
# A way: connection, polling, TCP_NODELAY.
WAYS = {
    "tcp": ("tcp", 0, 0),
    "nodelay": ("tcp", 0, 1),
    "unix": ("unix", 0, 0),
    "smc": ("smc", 0, 0),
    "ring": ("ring", 0, 0),
    "socket": ("socket", 0, 0),
    "paired": ("paired", 0, 0),
    "ring+poll": ("ring", POLL, 0),
    "socket+poll": ("socket", POLL, 0),
    "paired+poll": ("paired", POLL, 0),
}
# The kernel's backlog worker makes TCP's count of its memory wrong (README.md), by tens of MB in
# a minute: at a limit all that is redirected would stand still.
TCP_MEM = 'sysctl.net.ipv4.tcp_mem="{0} {0} {0}"'.format(1 << 31)
# Of a sample: the host's CPUs stolen, or taken from our threads by others.
CONTENDED = 0.02


def say(text):
    print(f"measure: {text}", file=sys.stderr, flush=True)


class Uml:
    """A booted kernel, its console and its CPUs' threads."""

    def __init__(self, kernel, initrd, poll_idle):
        self.process = subprocess.Popen(
            [kernel, "mem=1G", "ncpus=2", "seccomp=on", f"initrd={initrd}", "con=null", "con0=fd:0,fd:1",
             "rdinit=/init", "rodata=off", "quiet", "loglevel=1", TCP_MEM, *(["nohlt"] if poll_idle else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.pending = b""
        self.log = []
        self.answer(60)
        self.run("open ring ring")
        self.cpus = self._pin()

    def answer(self, seconds=60):
        end = time.monotonic() + seconds
        while True:
            while b"\n" in self.pending:
                line, self.pending = self.pending.split(b"\n", 1)
                line = line.decode(errors="replace").strip()
                if line[:1] == "=":
                    return line[1:].strip()
                self.log.append(line)
                if line[:1] == "!":
                    self.die(line)
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                self.die(f"no answer within {seconds} s")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                self.die("the kernel ended")
            self.pending += data

    def die(self, why):
        self.process.kill()
        sys.exit("\n".join([*self.log[-30:], f"measure: {why}"]))

    def do(self, line):
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return self.answer()

    def run(self, line):
        return self.do(f"param uml_bench run {line}")

    def _tasks(self):
        return [int(t) for t in os.listdir(f"/proc/{self.process.pid}/task")]

    def _pin(self):
        """One thread of the process is a CPU each; they are told by what they use."""
        cpus = []
        for cpu in (0, 1):
            before = {t: self._schedstat(t)[0] for t in self._tasks()}
            self.run(f"rr ring 1024 {cpu} {cpu} 0 100")
            used = {t: self._schedstat(t)[0] - before.get(t, 0) for t in self._tasks() if t not in cpus}
            tid = max(used, key=used.get)
            os.sched_setaffinity(tid, {sorted(os.sched_getaffinity(0))[cpu]})
            cpus.append(tid)
        return cpus

    def _schedstat(self, tid):
        with open(f"/proc/{self.process.pid}/task/{tid}/schedstat", encoding="ascii") as f:
            ran, waited, _ = map(int, f.read().split())
        return ran, waited

    def look(self):
        with open("/proc/stat", encoding="ascii") as f:
            ticks = list(map(int, f.readline().split()[1:9]))
        return time.monotonic_ns(), ticks[7] * 10**9 // os.sysconf("SC_CLK_TCK"), \
            [self._schedstat(t)[1] for t in self.cpus]

    def others(self, before):
        """The larger share of a CPU that others have had since, of the two."""
        now, steal, waited = self.look()
        wall = now - before[0]
        return max(steal - before[1], *(b - a for a, b in zip(before[2], waited))) / wall

    def off(self):
        self.process.stdin.write(b"off\n")
        self.process.stdin.flush()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.die("the kernel does not end")


def set_up(uml, ring_size, ring_max):
    """Connections by loopback and between two containers, plain and paired."""
    uml.do(f"param socksplice ring_size {ring_size}")
    if ring_max:  # older modules have none
        uml.do(f"param socksplice ring_max {ring_max}")
    uml.do("param socksplice splice 1")
    uml.do("host / ip link set lo up")
    for ns in ("a", "b"):
        uml.do(f"host / ip netns add {ns}")
    uml.do("host / ip link add eth0 netns a type veth peer name eth0 netns b")
    for ns, address in (("a", "10.77.0.1/24"), ("b", "10.77.0.2/24")):
        uml.do(f"host / ip -n {ns} addr add {address} dev eth0")
        uml.do(f"host / ip -n {ns} link set eth0 up")
    uml.run("open unix unix")
    uml.do(f"host / /usr/bin/python3 {os.path.dirname(os.path.abspath(__file__))}/smc.py")
    uml.run("open smc smc")
    uml.run("open socket socket")
    for enrol, prefix in ((0, ""), (1, "paired")):
        uml.do(f"param socksplice enroll_all {enrol}")
        uml.do("ns")
        uml.do("listen 127.0.0.1")
        uml.do(f"tcp {prefix or 'tcp'}")
        uml.do("ns a")
        uml.do("listen 10.77.0.1")
        uml.do("ns b")
        uml.do(f"tcp {prefix or 'tcp'}-veth")
        uml.do("ns")
    uml.do("param socksplice enroll_all 0")  # a sockmap takes no enrolled socket
    uml.run("listen 127.0.0.1")
    relay.set_up(uml)


def rows(regex):
    for place, ways in (("loopback", list(WAYS)), ("containers", ["tcp", "nodelay", "paired", "paired+poll"]),
                        ("event loops", ["tcp", "nodelay", "unix", "smc", "paired"])):
        for kind, sizes in (("rr", RR), ("stream", STREAM)):
            for size in sizes:
                if place == "containers" and size not in (1, 1024, 16384, 65536):
                    continue
                if place == "event loops" and kind == "rr" and size not in (1, 1024, 16384):
                    continue
                if re.search(regex, f"{place} {kind} {size}"):
                    yield place, kind, size, [w for w in ways if kind == "stream" or w != "nodelay"]


def sample(uml, row, way, cpus, msec):
    if row["place"] == "sockmap":
        return sockmap.sample(uml, row, way, cpus)
    if row["place"] == "relay":
        return relay.sample(uml, row, way, cpus, msec)
    place, kind, size = row["place"], row["kind"], row["size"]
    conn, poll, nodelay = WAYS[way]
    name = conn + ("-veth" if place == "containers" else "")
    loop = int(place == "event loops")
    before = uml.look()
    if kind == "rr":
        answer = uml.run(f"rr {name} {size} {cpus[0]} {cpus[1]} {poll} {msec} {loop}")
    else:
        answer = uml.run(f"stream {name} {size} {cpus[0]} {cpus[1]} {poll} {nodelay} {msec} {loop}")
    others = uml.others(before)
    count, nsec, ring = map(int, answer.split())
    result = {"value": count / nsec * 1e9, "others": others}
    if conn == "paired":
        result["ring"] = ring / (count * (2 * size if kind == "rr" else 1))
        if not ring:
            uml.die(f"{place} {kind} {size} {way}: nothing went by ring")
    return result


def boot(args, cpus):
    """All rows with the two threads on these CPUs."""
    table = [{"cpus": len(set(cpus)), "place": p, "kind": k, "size": s, "ways": w, "rounds": []}
             for p, k, s, w in rows(args.only)] + relay.rows(args.only, cpus) + sockmap.rows(args.only, cpus)
    if not table:
        return table
    two = cpus[0] != cpus[1]
    say(f"booting for {'two CPUs' if two else 'one CPU'}")
    uml = Uml(args.kernel, args.initrd, two)
    set_up(uml, args.ring_size, args.ring_max)
    for row in table:  # a reader has to have been there before the ring is used
        for way in row["ways"]:
            if way.startswith("paired"):
                name = "paired" + ("-veth" if row["place"] == "containers" else "")
                uml.run(f"rr {name} 1 {cpus[0]} {cpus[1]} 0 1")
    if any(row["place"] == "relay" for row in table):
        relay.settle(uml, cpus)
    for number in range(args.rounds):
        say(f"round {number + 1} of {args.rounds}")
        for row in table:
            for _ in range(3):
                c2c = int(uml.run("c2c"))
                samples = {w: sample(uml, row, w, cpus, args.msec) for w in row["ways"]}
                contended = max(s["others"] for s in samples.values()) > CONTENDED
                row["rounds"].append({"c2c_ns": c2c, "contended": contended, "ways": samples})
                if not contended:
                    break
    # the kernel's backlog worker: see tests/psock/sockmap.test
    faults = int(uml.do("kmsg inet_sock_destruct"))
    if faults:
        uml.die("a fault in the kernel log")
    uml.run("close smc")
    uml.off()
    return table


def machine():
    with open("/proc/cpuinfo", encoding="ascii") as f:
        cpu = next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))

    def git(*args):
        return subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True, check=False).stdout.strip()
    return {"cpu": cpu, "host": os.uname().release, "commit": git("rev-parse", "--short", "HEAD") +
            ("+changes" if git("status", "--porcelain", "-uno") else ""),
            "kernel": os.environ.get("UML_KERNEL", "?"),
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel")
    parser.add_argument("initrd")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--msec", type=int, required=True)
    parser.add_argument("--ring-size", type=int, required=True)
    parser.add_argument("--ring-max", type=int, required=True, help="what rings may grow to; 0: as the module says")
    parser.add_argument("--only", default="", help="a regular expression over the rows")
    args = parser.parse_args()
    table = []
    if not list(rows(args.only)) and not relay.rows(args.only, (0, 1)) and not sockmap.rows(args.only, (0, 1)):
        sys.exit(f"measure: no row matches {args.only!r}")
    for cpus in ((0, 0), (0, 1)):
        table += boot(args, cpus)
    json.dump({"machine": machine(), "msec": args.msec, "poll_usec": POLL, "ring_size": args.ring_size,
               "ring_max": args.ring_max,
               "rows": table}, sys.stdout, indent=1)


main()
