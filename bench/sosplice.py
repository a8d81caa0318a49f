#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Proxies, in turn, round by round: copying, splice(2), a sockmap's verdict, SO_SPLICE.

    sosplice.py measure ROUNDS SECONDS [ROW-REGEX]    in the VM; JSON on stdout
    sosplice.py report FILE [PICTURE.svg]             prints the tables, and draws them

A sample whose bytes did not go the way it is named after is an error. No time is
asserted.
"""

import json
import os
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402
import rank  # noqa: E402
from picture import BAR, LINE, SOFT, Picture  # noqa: E402

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "bench")
WAYS = {"copy": "copying", "pipe": "splice(2)", "sockmap": "sockmap", "sosplice": "SO_SPLICE"}
HOST = "127.0.0.1"
IPERF, ONE, TWO = 5201, 5202, 5203  # the servers: iperf3's, pingpong's on CPU 0 and on CPU 1
CAP = 0.4  # of what copying does, for the rows at equal rate
PINGS = 2000

# kind, streams; or kind, where the server is
ROWS = {
    "bulk, 1 stream": ("bulk", 1),
    "bulk, 4 streams": ("bulk", 4),
    "capped, 1 stream": ("capped", 1),
    "capped, 4 streams": ("capped", 4),
    "ping-pong, one CPU": ("ping", ONE),
    "ping-pong, spread": ("ping", TWO),
}


class Proxy:
    """One way to one server, on a port of its own; on one CPU if the server is."""

    def __init__(self, way, target):
        self.port = 5300 + 10 * (target - IPERF) + list(WAYS).index(way)
        if way == "sockmap":
            command = [f"{BUILD}/redirect", f"{BUILD}/redirect.bpf.o", str(self.port), str(target)]
        else:
            command = [f"{BUILD}/tcp-proxy", "--mode", way, "--listen", f"{HOST}:{self.port}", "--to", f"{HOST}:{target}"]
        pin = ["taskset", "-c", "0"] if target == ONE else []
        self.process = subprocess.Popen(pin + command, stdout=subprocess.PIPE, text=True)
        await_line(self.process)

    def sum(self):
        """Ends it: the bytes it says that it forwarded by another way than copying."""
        self.process.terminate()
        text = self.process.communicate()[0]
        found = re.search(r"(\d+) bytes spliced, (\d+) otherwise|^(\d+)$", text)
        if self.process.returncode or not found:
            sys.exit(f"bench: a proxy ended with {self.process.returncode}: {text}")
        return [int(n) for n in found.groups() if n is not None]


def await_line(process):
    if not process.stdout.readline().startswith("listening"):
        sys.exit(f"bench: {process.args[0]} does not listen")


def idle():
    """Seconds that CPUs have had nothing to do since the boot; of all of them."""
    with open("/proc/stat", encoding="ascii") as f:
        values = f.readline().split()[1:]
    return (int(values[3]) + int(values[4])) / os.sysconf("SC_CLK_TCK")


def iperf(port, streams, seconds, rate):
    """Bytes, and how long they took."""
    command = ["iperf3", "-J", "-c", HOST, "-p", str(port), "-t", f"{max(1, round(seconds))}", "-P", str(streams),
               *(["-b", str(int(rate / streams))] if rate else [])]
    for _ in range(20):
        done = subprocess.run(command, capture_output=True, text=True)
        data = json.loads(done.stdout or "{}")
        if not done.returncode and "error" not in data:
            end = data["end"]["sum_received"]
            return end["bytes"], end["seconds"]
        time.sleep(0.2)  # the server has not finished with the last one
    return sys.exit(f"bench: {' '.join(command)}: {data.get('error', done.stderr)}")


def bulk(port, streams, seconds, rate):
    before, start = idle(), time.monotonic()
    count, took = iperf(port, streams, seconds, rate)
    used = (time.monotonic() - start) * os.cpu_count() - (idle() - before)
    return {"count": count, "value": count / took, "cpu": used / count * 1e9}


def ping(port, where):
    out = f"/run/pings-{port}"
    lab.run(f"{BUILD}/pingpong", "client", f"{HOST}:{port}", "--rounds", str(PINGS), "--out", out, "--cpu", "0")
    with open(out, encoding="ascii") as f:
        times = sorted(int(line) / 1000 for line in f)
    return {"count": 2 * 64 * PINGS, "value": times[len(times) // 2], "p99": times[len(times) * 99 // 100]}


def sample(host, row, way, proxies, seconds, rate):
    kind, what = ROWS[row]
    before, look = lab.stats()["so_splice_bytes"], host.look()
    if kind == "ping":
        result = ping(proxies[way, what].port, what)
    else:
        result = bulk(proxies[way, IPERF].port, what, seconds, rate if kind == "capped" else 0)
    result["others"] = host.others(look)
    moved = lab.stats()["so_splice_bytes"] - before
    if way == "sosplice" and moved < result["count"] or way != "sosplice" and moved:
        sys.exit(f"bench {row} {way}: {result['count']} bytes, {moved} of them spliced")
    return result


def serve():
    servers = [subprocess.Popen(["iperf3", "-s", "-p", str(IPERF)], stdout=subprocess.DEVNULL)]
    for port, cpu in ((ONE, 0), (TWO, 1)):
        servers.append(subprocess.Popen([f"{BUILD}/pingpong", "server", f"{HOST}:{port}", "--cpu", str(min(cpu, os.cpu_count() - 1))],
                                        stdout=subprocess.PIPE, text=True))
        await_line(servers[-1])
    return servers


def measure(rounds, seconds, only):
    lab.socksplice("feature", "set", "so-splice", "on")
    host = lab.Host()
    rows = {row: {way: [] for way in WAYS} for row in ROWS if re.search(only, row)}
    if os.cpu_count() == 1:
        rows.pop("ping-pong, spread", None)
    if not rows:
        sys.exit(f"bench: no row matches '{only}'")
    servers = serve()
    proxies = {(way, target): Proxy(way, target) for way in WAYS for target in (IPERF, ONE, TWO)}
    rate = CAP * 8 * bulk(proxies["copy", IPERF].port, 1, seconds, 0)["value"]
    for n in range(rounds):
        for row, ways in rows.items():
            for way in WAYS:
                ways[way].append(sample(host, row, way, proxies, seconds, rate))
        lab.say_round(n, rounds, rows)
    for (way, target), proxy in proxies.items():
        sums = proxy.sum()
        wanted = sum(s["count"] for row, ways in rows.items() for s in ways[way]
                     if target == (ROWS[row][1] if ROWS[row][0] == "ping" else IPERF))
        if sums[0 if way == "sockmap" else way != "sosplice"] < wanted * 0.99 or way == "sosplice" and sums[1]:
            sys.exit(f"bench: {way}: {wanted} bytes were forwarded, and it says {sums}")
    for server in servers:
        server.kill()
    json.dump({"schema": 1, "machine": lab.machine(), "commit": os.environ.get("COMMIT", "unknown"),
               "seconds": seconds, "pings": PINGS, "cap_bits": rate, "rows": rows}, sys.stdout, indent=1)


class Row:
    """Figures of one row: for each way a summary of VALUE of its quiet samples."""

    def __init__(self, name, ways, key, better):
        self.name = name
        self.samples = {w: [s[key] for s in lab.quiet(ways[w])] for w in WAYS}
        self.by = {w: lab.summary(v) for w, v in self.samples.items()}
        self.rough = any(lab.contended(s) for w in WAYS for s in lab.quiet(ways[w]))
        self.better = better  # 1: more is better, -1: less is

    def ratio(self, other):
        return self.by["sosplice"]["median"] / self.by[other]["median"]

    def p(self, other):
        return rank.mann_whitney(self.samples["sosplice"], self.samples[other])[1]

    def line(self, form):
        return [self.name + (" *" if self.rough else ""), *(form(self.by[w]["median"]) for w in WAYS),
                f"{self.ratio('copy'):.2f}x", f"{self.p('copy'):.2g}", f"{self.ratio('pipe'):.2f}x", f"{self.p('pipe'):.2g}"]


# title, key, kinds of rows, unit, how a figure is written, is more better
TABLES = (
    ("throughput, MB/s", "value", ("bulk", "capped"), lambda v: f"{v / 1e6:,.0f}", 1),
    ("CPU seconds of the whole system for each GB", "cpu", ("bulk", "capped"), lambda v: f"{v:.2f}", -1),
    ("ping-pong, median round trip, us", "value", ("ping",), lambda v: f"{v:,.0f}", -1),
    ("ping-pong, 99th percentile, us", "p99", ("ping",), lambda v: f"{v:,.0f}", -1),
)


def tables(data):
    for title, key, kinds, form, better in TABLES:
        rows = [Row(name, ways, key, better) for name, ways in data["rows"].items() if ROWS[name][0] in kinds]
        if rows:
            yield title, rows, form


def ratios(data):
    """For bench/whole.py: the row, what is compared with what, how many times better it
    is, and whether others on the host disturbed it."""
    for title, rows, _ in tables(data):
        for row in rows:
            for way in ("copy", "pipe"):
                yield (f"{row.name}: {title}", f"SO_SPLICE to {WAYS[way]}", row.ratio(way) ** row.better, row.rough)


def about(data):
    samples = [s for ways in data["rows"].values() for w in ways.values() for s in w]
    rounds = max(len(s) for ways in data["rows"].values() for s in ways.values())
    yield from lab.where(data["machine"])
    yield (f"socksplice {data['commit']}. Medians of {rounds} rounds, all ways in turn in one boot: iperf3 for "
           f"{data['seconds']:g} s, capped at {data['cap_bits'] / 8e6:,.0f} MB/s in all; {data['pings']} round trips.")
    busy = sum(map(lab.contended, samples))
    if busy:
        yield (f"Others took more than {lab.CONTENDED:.0%} of the host's CPUs during {busy} of {len(samples)} samples: "
               "those are dropped, but in rows marked * too few remained.")


def draw(data):
    colors = dict(zip(WAYS, ("#9aa5b1", "#64748b", "#c2884e", "#0f766e")))
    left, width, cell, y = 190, 900, 4 * (BAR + 4) + 22, 112
    p = Picture()
    p.text(28, 40, "A proxy that copies, and what the kernel does instead", 20, weight="bold")
    for i, (way, words) in enumerate(WAYS.items()):
        p.box(28 + 130 * i, 58, 14, 14, colors[way])
        p.text(49 + 130 * i, 70, words, 13)
    for title, rows, form in tables(data):
        p.text(28, y, title + (" (more is better)" if rows[0].better > 0 else " (less is better)"), 14, weight="bold")
        y += 12
        for row in rows:
            p.line(28, y, width - 28, y, LINE)
            p.text(28, y + 40, row.name, 13)
            p.text(28, y + 60, f"{row.ratio('copy'):.2f}× copying", 12, colors["sosplice"], "bold")
            scale = (width - left - 110) / max(s["high"] for s in row.by.values())
            for i, way in enumerate(WAYS):
                p.bar(left, y + 12 + i * (BAR + 4), scale, row.by[way], colors[way], form(row.by[way]["median"]))
            y += cell
        y += 26
    for text in about(data):
        p.text(28, y, text, 10, SOFT)
        y += 16
    return p.svg(width, y + 8)


def report(path, picture=None):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    print("", *about(data), sep="\n")
    print("The last columns: SO_SPLICE to copying and to splice(2), and how likely such a difference of the rounds "
          "is by chance\n(Mann and Whitney). CPU is all that was not idle, kernel threads and interrupts, client and "
          "server included.\nsockmap's verdict program takes what arrives without regard to the sink: nothing holds "
          "its writer back.")
    for title, rows, form in tables(data):
        print("", *lab.grid([[title, *WAYS.values(), "/copying", "p", "/splice(2)", "p"], *(r.line(form) for r in rows)]), sep="\n")
    if picture:
        with open(picture, "w", encoding="utf-8") as f:
            f.write(draw(data))


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
    else:
        report(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
