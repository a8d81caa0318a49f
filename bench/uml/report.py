#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""report.py NATIVE.json: prints the tables of the native-speed bench, and how they
stand to what is to be reached. Judges by words only: its status is 0."""

import json
import os
import re
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402
import relay  # noqa: E402
import sockmap  # noqa: E402

NAMES = {"tcp": "TCP", "nodelay": "TCP_NODELAY", "unix": "AF_UNIX", "smc": "AF_SMC", "ring": "ring",
         "socket": "its socket", "paired": "paired", "ring+poll": "ring+poll", "socket+poll": "its socket+poll",
         "paired+poll": "paired+poll"}
OTHERS = {"relay": relay, "sockmap": sockmap}  # rows of another kind
# What another implementation of the idea says of itself: RR at 1 KB, and the last at 1 B.
PUBLISHED = [("loopback", 1024, "paired", 2.2), ("loopback", 1024, "paired+poll", 6.7),
             ("containers", 1024, "paired", 2.3), ("containers", 1024, "paired+poll", 7.0),
             ("loopback", 1, "paired+poll", 10.0)]


def name(row):
    return ("request/response, " if row["kind"] == "rr" else "stream, sends of ") + lab.size(row["size"])


def paired_ways(row):
    return [w for w in ("paired", "paired+poll") if w in row["ways"]]


class Row:
    """The rounds of a row that nobody disturbed; a ratio is of one round's samples."""

    def __init__(self, row):
        self.row = row
        quiet = [r for r in row["rounds"] if not r["contended"]]
        self.rough = len(quiet) < 3
        self.rounds = row["rounds"] if self.rough else quiet

    def median(self, way):
        return statistics.median(r["ways"][way]["value"] for r in self.rounds)

    def ratio(self, way, *others, key="value"):
        return statistics.median(r["ways"][way][key] / max(r["ways"][o][key] for o in others)
                                 for r in self.rounds)

    def to_tcp(self, way):
        return self.ratio(way, *[w for w in ("tcp", "nodelay") if w in self.row["ways"]])

    def to_ring(self, way):
        return self.ratio(way, re.sub("paired|socket", "ring", way))

    def by_ring(self):
        return min(r["ways"][w]["ring"] for r in self.rounds for w in r["ways"] if w.startswith("paired"))


def table(rows):
    ways = [w for w in NAMES if any(w in r.row["ways"] for r in rows)]
    rated = [w for w in ("paired", "paired+poll", "socket", "socket+poll") if "ring" in ways and w in ways]
    polls = "paired+poll" in ways
    modes = "nodelay" in ways
    yield ["", *(NAMES[w] for w in ways), "paired/TCP", *(["paired/NODELAY"] if modes else []),
           *(["+poll/TCP"] if polls else []),
           *(("+poll" if "+" in w else w) + "/ring" for w in rated), "by ring"]
    for r in rows:
        scale = 1e3 if r.row["kind"] == "rr" else 1e6
        yield [name(r.row) + (" *" if r.rough else ""),
               *(f"{r.median(w) / scale:,.1f}" if w in r.row["ways"] else "-" for w in ways),
               f"{r.to_tcp('paired'):.2f}x",
               *([f"{r.ratio('paired', 'nodelay'):.2f}x" if "nodelay" in r.row["ways"] else "-"] if modes else []),
               *([f"{r.to_tcp('paired+poll'):.2f}x"] if polls else []),
               *(f"{r.to_ring(w):.2f}" for w in rated),
               f"{r.by_ring():.1%}"]


def targets(rows):
    """What is to be reached, and where it is not."""
    loop = [r for r in rows if r.row["place"] == "loopback"]

    def verdict(text, want, found):
        if not found:
            return
        low = min(found)
        missed = sorted(f for f in found if f[0] < want)
        yield f"{text}: at least {want:.2f}; lowest {low[0]:.2f} ({low[1]}): " + ("reached" if not missed else
              "MISSED at " + ", ".join(f"{where} {value:.2f}" for value, where in missed))

    def where(r, way=""):
        return f"{r.row['cpus']} CPU, {lab.size(r.row['size'])}{way}"

    for way, label in (("paired", "without polling"), ("paired+poll", "with polling")):
        yield from verdict(f"request/response to the bare ring, {label}", 0.85,
                           [(r.to_ring(way), where(r)) for r in loop if r.row["kind"] == "rr"])
    yield from verdict("request/response of 1 KB to TCP, one CPU", 3.0,
                       [(r.to_tcp("paired"), where(r)) for r in loop
                        if r.row["kind"] == "rr" and r.row["cpus"] == 1 and r.row["size"] == 1024])
    yield from verdict("streams to TCP, its better mode", 1.0,
                       [(r.to_tcp(way), where(r, {"paired": "", "paired+poll": " +poll"}[way]) +
                         ("" if r.row["place"] == "loopback" else ", " + r.row["place"]))
                        for r in rows if r.row["kind"] == "stream" for way in paired_ways(r.row)])


def ratios(data):
    """For bench/whole.py: the row, what is compared with what, how many times better it
    is, and whether others on the host disturbed it."""
    for row in map(Row, data["rows"]):
        if row.row["place"] in OTHERS:
            yield from OTHERS[row.row["place"]].ratios(row)
            continue
        cpus = "one CPU" if row.row["cpus"] == 1 else "two CPUs"
        for way in paired_ways(row.row):
            yield f"{row.row['place']}, {cpus}, {name(row.row)}", f"{NAMES[way]} to TCP", row.to_tcp(way), row.rough


def report(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    m = data["machine"]
    rows = [Row(r) for r in data["rows"] if r["place"] not in OTHERS]
    rounds = [r for row in data["rows"] for r in row["rounds"]]
    dropped = sum(r["contended"] for r in rounds)
    c2c = [r["c2c_ns"] for r in rounds]
    others = [s["others"] for r in rounds for s in r["ways"].values()]
    out = ["", f"USER MODE LINUX {m['kernel']} on {m['cpu']}, host {m['host']}, {m['date']}",
           f"socksplice {m['commit']}; kernel threads with ordinary sockets, at native speed: compare with no emulated figure, "
           "nor with one of bare metal.",
           f"Medians of {data['msec']} ms samples, all ways of a row in turn; thousands of requests/s, and MB/s for streams. "
           f"Polling is {data['poll_usec']} us, a pair's rings have {lab.size(data['ring_size'])}"
           + (f" and grow to {lab.size(data['ring_max'])}." if data.get("ring_max") else "."),
           "TCP ratios are medians of the rounds' ratios, to the better of TCP and TCP_NODELAY, and to the latter alone. "
           "'by ring' is the least share in any sample.",
           f"A cache line took {statistics.median(c2c):.0f} ns between the CPUs ({min(c2c)} to {max(c2c)}). Others had "
           f"{statistics.mean(others):.1%} of a CPU of ours; {dropped} of {len(rounds)} rounds of a row were disturbed"
           + (", and those are dropped, but in rows marked * too few remained." if dropped else ".")]
    for cpus in (1, 2):
        for place in dict.fromkeys(r.row["place"] for r in rows):
            some = [r for r in rows if r.row["cpus"] == cpus and r.row["place"] == place]
            if some:
                out += ["", f"{place}, {'one CPU' if cpus == 1 else 'two CPUs'}:", *lab.grid(list(table(some)))]
    for place, other in OTHERS.items():
        some = [Row(r) for r in data["rows"] if r["place"] == place]
        if some:
            out += ["", *other.report(some)]
    if not rows:
        print("\n".join(out))
        return
    out += ["", "To reach:", *("  " + line for line in targets(rows))]
    lines = [["published for such a pair, to TCP", "published", "here, one CPU", "two CPUs"]]
    for place, size, way, value in PUBLISHED:
        here = {r.row["cpus"]: f"{r.to_tcp(way):.1f}" for r in rows if r.row["kind"] == "rr" and
                (r.row["place"], r.row["size"]) == (place, size)}
        lines.append([f"  {place}, {lab.size(size)}{', polling' if way != 'paired' else ''}", f"{value:.1f}",
                      here.get(1, "-"), here.get(2, "-")])
    out += ["", *lab.grid(lines)]
    losses = [f"{r.row['place']}, {r.row['cpus']} CPU, {name(r.row)}, {NAMES[w]}: {r.to_tcp(w):.2f}" for r in rows
              for w in paired_ways(r.row) if r.to_tcp(w) < 1]
    out += ["", "Slower than TCP:" if losses else "Nowhere slower than TCP.", *("  " + x for x in losses)]
    print("\n".join(out))


if __name__ == "__main__":
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(__doc__)
    else:
        report(sys.argv[1])
