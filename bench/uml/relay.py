# SPDX-License-Identifier: GPL-2.0
"""Two connections with a relay between them, for measure.py and report.py: kernel threads
that copy or do what splice(2) does, or SO_SPLICE."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lab  # noqa: E402

RR = [64, 1024, 16384]
STREAM = [1024, 16384, 65536]
PIPE = 1 << 20
# A way, and how the driver is told of it: threads on the client's CPU, on the server's.
WAYS = {"copying": "copying 0", "copying, other": "copying 1",
        "splice(2)": "piping 0", "splice(2), other": "piping 1", "SO_SPLICE": "spliced"}
# SO_SPLICE to the better of a kind.
TARGETS = {("stream", "copying"): 1.25, ("stream", "splice(2)"): 1, ("rr", "copying"): 1 / 0.9, ("rr", "splice(2)"): 1}
WORDS = {"stream": "bulk", "rr": "round trips in the same time"}
# FreeBSD says of its own, one stream between machines; and of ping-pong.
PUBLISHED = {("stream", "copying"): 9.6 / 7.6, ("rr", "copying"): 1 / 0.89}


def conn(way):
    return "relay-" + re.sub(r"\W+", "-", way)


def set_up(uml):
    uml.do("param socksplice so_splice 1")
    for way, kind in WAYS.items():
        pipes = [uml.do(f"pipe {PIPE}") for _ in range(2)] if kind.startswith("piping") else []
        uml.run(" ".join(["open", conn(way), kind, *pipes]))


def rows(regex, cpus):
    two = len(set(cpus)) == 2
    return [{"cpus": 1 + two, "place": "relay", "kind": kind, "size": size,
             "ways": [w for w in WAYS if two or "other" not in w], "rounds": []}
            for kind, sizes in (("rr", RR), ("stream", STREAM)) for size in sizes
            if re.search(regex, f"relay {kind} {size}")]


def settle(uml, cpus):
    """The module forwards on the CPU where acknowledgments come: from now on one of these."""
    for way in WAYS:
        uml.run(f"rr {conn(way)} 1 {cpus[0]} {cpus[1]} 0 1")


def sample(uml, row, way, cpus, msec):
    before = uml.look()
    nodelay = "0 " if row["kind"] == "stream" else ""
    count, nsec, moved = map(int, uml.run(
        f"{row['kind']} {conn(way)} {row['size']} {cpus[0]} {cpus[1]} 0 {nodelay}{msec}").split())
    others = uml.others(before)
    wanted = count * (2 * row["size"] if row["kind"] == "rr" else 1) if way == "SO_SPLICE" else 0
    if moved != wanted:
        uml.die(f"relay {row['kind']} {row['size']} {way}: {moved} bytes were spliced, not {wanted}")
    return {"value": count / nsec * 1e9, "others": others}


def ratio(r, kind):
    return r.ratio("SO_SPLICE", *[w for w in r.row["ways"] if w.startswith(kind)])


def label(r):
    return (f"{r.row['cpus']} CPU{'s' if r.row['cpus'] > 1 else ''}, " +
            ("request/response" if r.row["kind"] == "rr" else "stream, sends") + f" of {lab.size(r.row['size'])}")


def ratios(r):
    """As those of report.py."""
    for kind in ("copying", "splice(2)"):
        yield f"relay, {label(r)}", f"SO_SPLICE to {kind}", ratio(r, kind), r.rough


def report(some):
    yield ("A relay between two connections over loopback, with no system calls to pay for: kernel threads that copy by "
           "64 KB, or do what splice(2) does with pipes of 1 MB, on the client's CPU or the other; or SO_SPLICE.")
    yield "Thousands of requests/s, and MB/s for streams; the ratios are to the better of the two CPUs."
    yield ""
    grid = [["", *WAYS, "/copying", "/splice(2)"]]
    for r in some:
        scale = 1e3 if r.row["kind"] == "rr" else 1e6
        grid.append([label(r) + (" *" if r.rough else ""),
                     *(f"{r.median(w) / scale:,.1f}" if w in r.row["ways"] else "-" for w in WAYS),
                     *(f"{ratio(r, kind):.2f}x" for kind in ("copying", "splice(2)"))])
    yield from lab.grid(grid)
    yield ""
    for (what, kind), want in TARGETS.items():
        found = [(ratio(r, kind), label(r)) for r in some if r.row["kind"] == what]
        missed = [f"{where} ({value:.2f})" for value, where in found if value < want]
        published = f"published {PUBLISHED[what, kind]:.2f}; " if (what, kind) in PUBLISHED else ""
        if found:
            yield (f"{WORDS[what]} to {kind}: at least {want:.2f}; {published}"
                   + (f"MISSED in {len(missed)} of {len(found)} rows" if missed else "reached"))
            yield from (f"  {line}" for line in missed)
