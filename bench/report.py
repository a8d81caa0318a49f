#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""report.py BENCH.json: prints the benchmark's tables. Judges no figure."""

import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402

WAYS = {"tcp": "TCP", "nodelay": "TCP_NODELAY", "unix": "AF_UNIX", "sockmap": "sockmap",
        "paired": "paired", "poll": "paired+poll"}


def name(row):
    size = lab.size(row["size"])
    return f"{'request/response' if row['kind'] == 'rr' else 'stream, sends of'} {size}"


def value(row, median):
    return f"{median:,.0f}" if row["kind"] == "rr" else f"{median / 1e6:,.0f}"


def lines(rows):
    """Of one place: the medians, and what they are to TCP as it does best."""
    yield ["", *WAYS.values(), "paired/TCP", "poll/TCP", "by ring"]
    for row in rows:
        medians = {w: lab.summary([s["value"] for s in lab.quiet(samples)])["median"]
                   for w, samples in row["ways"].items()}
        tcp = max(medians["tcp"], medians["nodelay"])
        rough = any(lab.contended(s) for samples in row["ways"].values() for s in lab.quiet(samples))
        ring = min(s["ring"] for w in ("paired", "poll") for s in row["ways"][w])
        yield [name(row) + (" *" if rough else ""),
               *(value(row, medians[w]) if w in medians else "-" for w in WAYS),
               f"{medians['paired'] / tcp:.2f}x", f"{medians['poll'] / tcp:.2f}x", f"{ring:.1%}"]


def ratios(data):
    """For bench/whole.py: the row, what is compared with what, how many times better it
    is, and whether others on the host disturbed it."""
    for row in data["rows"]:
        medians = {w: lab.summary([s["value"] for s in lab.quiet(samples)])["median"]
                   for w, samples in row["ways"].items()}
        rough = any(lab.contended(s) for samples in row["ways"].values() for s in lab.quiet(samples))
        for way in ("paired", "poll"):
            yield f"{row['place']}, {name(row)}", f"{WAYS[way]} to TCP", medians[way] / max(medians["tcp"], medians["nodelay"]), rough


def report(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    out = ["", *lab.where(data["machine"])]
    rounds = max(len(s) for row in data["rows"] for s in row["ways"].values())
    samples = [s for row in data["rows"] for w in row["ways"].values() for s in w]
    out.append(f"Medians of {rounds} samples of {data['seconds']} s, all ways in turn in one boot; requests/s, "
               f"and MB/s for streams. poll is {data['poll_usec']} us.")
    out.append("Ratios are to the better of TCP and TCP_NODELAY. 'by ring' is the least share of the bytes in any sample.")
    busy = sum(lab.contended(s) for s in samples)
    if busy:
        out.append(f"Others took more than {lab.CONTENDED:.0%} of the host's CPUs during {busy} of {len(samples)} "
                   "samples: those are dropped, but in rows marked * too few remained.")
    for place in dict.fromkeys(row["place"] for row in data["rows"]):
        out += ["", f"{place}:"]
        out += lab.grid([*lines([r for r in data["rows"] if r["place"] == place])])
    m = data["memory"]
    out += ["", f"memory of a pair: idle {m['idle']} bytes (2 objects of {m['socksplice_end']}; all slab caches grew by "
            f"{m['idle_slab_difference']:.0f} bytes for each pair more than for a plain connection)",
            f"                  busy both ways {m['idle'] + m['busy_ring']:,.0f} bytes, {m['busy_ring']:,.0f} of them rings"]
    print("\n".join(out))


if __name__ == "__main__":
    report(sys.argv[1])
