# SPDX-License-Identifier: GPL-2.0
"""Two connections with a relay between them, for measure.py and report.py: kernel threads
that copy, or SO_SPLICE."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lab  # noqa: E402

RR = [64, 1024, 16384]
STREAM = [1024, 16384, 65536]
# A way, and how the driver is told of it: threads on the client's CPU, on the server's.
WAYS = {"copying": "copying 0", "copying, other": "copying 1", "spliced": "spliced"}
# SO_SPLICE to the better way of copying.
TARGETS = {"stream": ("bulk throughput", 1.25), "rr": ("round trips in the same time", 1 / 0.9)}
# FreeBSD says of its own, one stream between machines; and of ping-pong.
PUBLISHED = {"stream": 9.6 / 7.6, "rr": 1 / 0.89}


def conn(way):
    return "relay-" + way.replace(", ", "-")


def set_up(uml):
    uml.do("param socksplice so_splice 1")
    for way, kind in WAYS.items():
        uml.run(f"open {conn(way)} {kind}")


def rows(regex, cpus):
    two = len(set(cpus)) == 2
    return [{"cpus": 1 + two, "place": "relay", "kind": kind, "size": size,
             "ways": [w for w in WAYS if two or "other" not in w], "rounds": []}
            for kind, sizes in (("rr", RR), ("stream", STREAM)) for size in sizes
            if re.search(regex, f"relay {kind} {size}")]


def sample(uml, row, way, cpus, msec):
    before = uml.look()
    nodelay = "0 " if row["kind"] == "stream" else ""
    count, nsec, moved = map(int, uml.run(
        f"{row['kind']} {conn(way)} {row['size']} {cpus[0]} {cpus[1]} 0 {nodelay}{msec}").split())
    others = uml.others(before)
    wanted = count * (2 * row["size"] if row["kind"] == "rr" else 1) if way == "spliced" else 0
    if moved != wanted:
        uml.die(f"relay {row['kind']} {row['size']} {way}: {moved} bytes were spliced, not {wanted}")
    return {"value": count / nsec * 1e9, "others": others}


def ratio(r):
    return r.ratio("spliced", *[w for w in r.row["ways"] if w != "spliced"])


def label(r):
    return (f"{r.row['cpus']} CPU{'s' if r.row['cpus'] > 1 else ''}, " +
            ("request/response" if r.row["kind"] == "rr" else "stream, sends") + f" of {lab.size(r.row['size'])}")


def ratios(r):
    """As those of report.py."""
    yield f"relay, {label(r)}", "SO_SPLICE to copying", ratio(r), r.rough


def report(some):
    yield ("A relay between two connections over loopback: kernel threads that copy by 64 KB, with no system calls to "
           "pay for, on the client's CPU or on the server's; or SO_SPLICE.")
    yield "Thousands of requests/s, and MB/s for streams; the ratio is to the better way of copying."
    yield ""
    grid = [["", *WAYS, "spliced/copying"]]
    for r in some:
        scale = 1e3 if r.row["kind"] == "rr" else 1e6
        grid.append([label(r) + (" *" if r.rough else ""),
                     *(f"{r.median(w) / scale:,.1f}" if w in r.row["ways"] else "-" for w in WAYS), f"{ratio(r):.2f}x"])
    yield from lab.grid(grid)
    yield ""
    for kind, (text, want) in TARGETS.items():
        found = [(ratio(r), label(r)) for r in some if r.row["kind"] == kind]
        missed = [f"{where} ({value:.2f})" for value, where in found if value < want]
        if found:
            yield (f"{text} to copying: at least {want:.2f}; published {PUBLISHED[kind]:.2f}; "
                   + (f"MISSED in {len(missed)} of {len(found)} rows" if missed else "reached"))
            yield from (f"  {line}" for line in missed)
