#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""report.py DEMO.json PICTURE.svg: prints the demo's table and draws it.

Fails if less than 99 % of the bytes went by ring when they should have, if a connection was not
paired that should have been, or if the relay forwarded less than 99 % of its bytes by SO_SPLICE.
"""

import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import lab  # noqa: E402
from picture import BAR, LINE, SOFT, Picture  # noqa: E402

WANTED = 0.99
METRICS = (("rps", "requests/s"), ("p50", "p50 latency"), ("p99", "p99 latency"))


def size(n):
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return ""


def figure(metric, value):
    if metric == "rps":
        return f"{value:,.0f}"
    return f"{value / 1000:.2f} ms"


class Row:
    """One kind of request: its figures over the rounds, both ways."""

    def __init__(self, title, name, rounds):
        self.title = title
        self.tcp, self.paired = (
            {m: lab.summary([r[way]["rows"][name][m] for r in rounds]) for m, _ in METRICS}
            for way in ("tcp", "paired"))
        self.ratio = lab.summary([r["paired"]["rows"][name]["rps"] / r["tcp"]["rows"][name]["rps"]
                                  for r in rounds])


class Scene:
    def __init__(self, name, data):
        self.name = name
        self.about = data["about"]
        self.all = data["rounds"]
        self.rounds = lab.quiet(self.all)
        self.rows = [Row(title, row, self.rounds) for row, title in data["rows"].items()]
        self.bytes = {k: sum(r["paired"]["bytes"][k] for r in self.all)
                      for k in ("ring", *lab.TCP_REASONS)}
        self.total = sum(self.bytes.values())
        self.share = self.bytes["ring"] / self.total if self.total else 0.0
        self.pairs, self.connections = (
            sum(r["paired"][k] for r in self.all) for k in ("pairs", "connections"))
        self.forwarded = sum(sum(r[way]["forwarded"].values()) for r in self.all for way in ("tcp", "paired"))
        self.relayed = any(r["tcp"]["forwarded"] for r in self.all)
        self.spliced = sum(r[way]["forwarded"].get("sosplice", 0) for r in self.all for way in ("tcp", "paired"))
        self.devices = {way: sum(r[way]["devices"] for r in self.all) for way in ("tcp", "paired")}

    def complaints(self):
        if any(r["tcp"]["bytes"]["ring"] for r in self.all):
            yield f"{self.name}: bytes went by ring in a round that was to be plain TCP"
        if not self.total:
            yield f"{self.name}: nothing was paired"
        elif self.share < WANTED:
            yield (f"{self.name}: only {self.share:.2%} of the bytes went by ring "
                   f"when paired, where {WANTED:.0%} are wanted")
        if self.relayed and self.spliced < max(self.forwarded * WANTED, 1):
            yield f"{self.name}: only {size(self.spliced)} of {size(self.forwarded)} were forwarded by SO_SPLICE"
        # The bytes of a connection that was never paired are in none of these counters.
        if self.pairs < self.connections:
            yield f"{self.name}: only {paired(self)} were paired"


def paired(scene):
    return f"{scene.pairs} of {scene.connections} connections"


class Restarts:
    """The second part: the restarts of redis-server, and the connections after each."""

    def __init__(self, found):
        self.count = len(found)
        self.pairs, self.connections = (sum(r[k] for r in found) for k in ("pairs", "connections"))
        self.renewed = sum(r["cgroups"][0] != r["cgroups"][1] for r in found)

    def told(self):
        return (f"redis-server was restarted {self.count} times, each time in a new cgroup of the same path, "
                f"with the policy set once before: {paired(self)} were paired.")

    def complaints(self):
        if self.renewed < self.count:
            yield "restarts: a restart did not make a new cgroup"
        if not self.connections or self.pairs < self.connections:
            yield f"restarts: only {paired(self)} were paired"


def table(scenes):
    rows = [["", "requests/s", "", "", "", "p50", "", "p99", ""],
            ["", "TCP", "paired", "ratio", "(rounds)", "TCP", "paired", "TCP", "paired"]]
    for row in (r for s in scenes for r in s.rows):
        rows.append([row.title] +
                    [figure("rps", w["rps"]["median"]) for w in (row.tcp, row.paired)] +
                    [f"{row.ratio['median']:.2f}x", f"{row.ratio['low']:.2f}-{row.ratio['high']:.2f}"] +
                    [figure(m, w[m]["median"]) for m in ("p50", "p99") for w in (row.tcp, row.paired)])
    out = list(lab.grid(rows))
    rows = [["bytes when paired"] + [c for s in scenes for c in (s.name, "")]]
    for key, words in (("ring", "by ring"), *lab.TCP_REASONS.items()):
        name = words if key == "ring" else f"by TCP, {words}"
        rows.append([name] + [c for s in scenes for c in
                              (size(s.bytes[key]), f"{s.bytes[key] / max(s.total, 1):.2%}")])
    rows.append(["connections that were paired"] + [c for s in scenes for c in (f"{s.pairs} of {s.connections}", "")])
    rows.append(["forwarded by SO_SPLICE, in all rounds"] +
                [c for s in scenes for c in
                 ((size(s.spliced), f"{s.spliced / max(s.forwarded, 1):.2%}") if s.relayed else ("-", ""))])
    for way, words in (("tcp", "over TCP"), ("paired", "paired")):
        rows.append([f"seen by the containers' network devices, {words}"] +
                    [c for s in scenes for c in (size(s.devices[way]), "")])
    return out + [""] + list(lab.grid(rows))


def load(scenes):
    """Sentences on how many rounds the medians are of, and who disturbed them."""
    used = " and ".join(f"{len(s.rounds)} ({s.name})" for s in scenes)
    text = [f"Medians of rounds, TCP and paired in turn: {used}."]
    dropped = sum(len(s.all) - len(s.rounds) for s in scenes)
    if dropped:
        text.append(f"{dropped} more were dropped, as others used this machine meanwhile.")
    if any(lab.contended(r) for s in scenes for r in s.rounds):
        text.append("Others used this machine meanwhile: the figures are rough.")
    return text


# --- the picture ---

TCP, PAIRED = "#9aa5b1", "#0f766e"
LEFT, CELL, GAP, TOP, HEIGHT = 196, 250, 34, 118, 96


def draw(scenes, machine):
    rows = [r for s in scenes for r in s.rows]
    width = LEFT + len(METRICS) * (CELL + GAP)
    height = TOP + len(rows) * HEIGHT + 82
    p = Picture()
    p.text(28, 40, "The same programs over TCP and paired", 21, weight="bold")
    p.box(28, 58, 14, 14, TCP)
    p.text(49, 70, "plain TCP", 13)
    p.box(136, 58, 14, 14, PAIRED)
    p.text(157, 70, "paired by socksplice", 13)
    p.text(width - GAP, 70, "bar: median, whisker: lowest and highest round, each cell to its own scale from zero",
           11, SOFT, anchor="end")
    for i, (_, words) in enumerate(METRICS):
        better = "more is better" if i == 0 else "less is better"
        x = LEFT + i * (CELL + GAP)
        p.text(x, TOP - 12, words, 14, weight="bold")
        p.text(x + 9.2 * len(words) + 8, TOP - 12, better, 11, SOFT)
    for n, row in enumerate(rows):
        y = TOP + n * HEIGHT
        p.line(28, y, width - GAP, y, LINE)
        head, _, tail = row.title.partition(", ")
        p.text(28, y + 38, head, 14, weight="bold")
        if tail:
            p.text(28, y + 57, tail, 12, SOFT)
        p.text(28, y + (76 if tail else 60), f"{row.ratio['median']:.2f}× the requests", 12.5, PAIRED, "bold")
        for i, (m, _) in enumerate(METRICS):
            x = LEFT + i * (CELL + GAP)
            most = max(row.tcp[m]["high"], row.paired[m]["high"])
            scale = (CELL - 66) / most
            p.line(x, y + 16, x, y + HEIGHT - 12, SOFT, 1)
            for k, (w, color) in enumerate(((row.tcp, TCP), (row.paired, PAIRED))):
                p.bar(x, y + 22 + k * (BAR + 8), scale, w[m], color, figure(m, w[m]["median"]))
    y = TOP + len(rows) * HEIGHT
    p.line(28, y, width - GAP, y, LINE)
    first, how = lab.where(machine)
    shares = ", ".join(f"{s.share:.2%} ({s.name})" for s in scenes)
    p.text(28, y + 24, f"{how}. {first}.", 11, SOFT)
    p.text(28, y + 43, " ".join(load(scenes)), 11, SOFT)
    p.text(28, y + 62, f"Bytes that went by ring when paired: {shares}.", 11, SOFT)
    return p.svg(width, height)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        data = json.load(f)
    scenes = [Scene(name, s) for name, s in data["scenes"].items()]
    restarts = Restarts(data["restarts"])
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(draw(scenes, data["machine"]))
    print()
    for line in lab.where(data["machine"]):
        print(line)
    print(" ".join(load(scenes)))
    for s in scenes:
        print(f"{s.name}: {s.about}")
    print()
    print("\n".join(table(scenes)))
    print()
    print(restarts.told())
    complaints = [c for s in (*scenes, restarts) for c in s.complaints()]
    for c in complaints:
        print(f"demo: FAILED: {c}", file=sys.stderr)
    sys.exit(1 if complaints else 0)


main()
