#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Instructions of each path, and of each function on it.

    report.py merge SAMPLES COUNTS    figures of bench/paths/run as JSON on stdout
    report.py FILE [ROW-REGEX]        the table; of chosen rows the functions, too
"""

import bisect
import json
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lab  # noqa: E402

WAYS = ("tcp", "unix", "paired")
OURS = " [socksplice]"
KERNEL = 1 << 63  # addresses from here on


def counts(path):
    """What the emulator counted, a dictionary of addresses for each sample."""
    one = {}
    with open(path, encoding="ascii") as f:
        for line in f:
            if line == "done\n":
                yield one
                one = {}
                continue
            address, instructions = line.split()
            one[int(address, 16)] = one.get(int(address, 16), 0) + int(instructions)


def by_function(blocks, starts, names):
    total = {}
    for address, instructions in blocks.items():
        name = "user space"
        if address >= KERNEL:
            i = bisect.bisect_right(starts, address)
            name = names[i - 1] if i else "?"
        total[name] = total.get(name, 0) + instructions
    return total


def merge(samples_file, counts_file):
    with open(samples_file, encoding="utf-8") as f:
        data = json.load(f)
    known = sorted((int(address, 16), name) for address, name in data.pop("symbols"))
    starts, names = [a for a, _ in known], [n for _, n in known]
    counted = list(counts(counts_file))
    if len(counted) != len(data["samples"]):
        sys.exit(f"bench: {len(data['samples'])} samples, and the emulator counted {len(counted)}")
    rows = {}
    for sample, blocks in zip(data.pop("samples"), counted):
        functions = by_function(blocks, starts, names)
        each = {name: n / sample["count"] for name, n in sorted(functions.items(), key=lambda f: -f[1])}
        row = rows.setdefault((sample["path"], sample["size"]), {"path": sample["path"], "size": sample["size"], "ways": {}})
        row["ways"][sample["way"]] = {
            "value": sum(each.values()), "ours": sum(n for name, n in each.items() if name.endswith(OURS)),
            "ring": sample["ring"], "functions": {name: round(n, 2) for name, n in each.items() if n >= 0.05}}
    json.dump({"schema": 1, **data, "rows": list(rows.values())}, sys.stdout, indent=1)


def name_of(row):
    return f"{row['path']} {lab.size(row['size'])}"


def ratios(data):
    """For bench/whole.py; fewer instructions are better."""
    for row in data["rows"]:
        ways = row["ways"]
        yield name_of(row), "paired to TCP", ways["tcp"]["value"] / ways["paired"]["value"], False


def table(data):
    rows = [["instructions", "TCP", "AF_UNIX", "paired", "of these ours", "TCP/paired", "by ring"]]
    for row in data["rows"]:
        ways = row["ways"]
        rows.append([name_of(row), *(f"{ways[w]['value']:,.0f}" for w in WAYS), f"{ways['paired']['ours']:,.0f}",
                     f"{ways['tcp']['value'] / ways['paired']['value']:.2f}x", f"{ways['paired']['ring']:.0%}"])
    return lab.grid(rows)


def functions(row):
    tcp, paired = (row["ways"][way]["functions"] for way in ("tcp", "paired"))
    yield ["", "TCP", "paired"]
    for name in sorted({*tcp, *paired}, key=lambda n: -max(tcp.get(n, 0), paired.get(n, 0))):
        yield [name, *(f"{f[name]:,.1f}" if name in f else "" for f in (tcp, paired))]


def report(path, only=None):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    print(*lab.where(data["machine"]), f"socksplice {data['machine']['commit']}", "", *table(data), sep="\n")
    for row in data["rows"]:
        if only and re.search(only, f"{row['path']} {row['size']}"):
            print("", name_of(row), *lab.grid(list(functions(row))), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(__doc__)
    elif sys.argv[1] == "merge":
        merge(*sys.argv[2:])
    else:
        report(*sys.argv[1:])
