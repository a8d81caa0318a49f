#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""splice(2) on sockmap sockets: reading by read(2), by splice(2), and by
splice(2) with zero-copy switched off, in turn, round by round.

    psock.py measure ROUNDS SECONDS [ROW-REGEX]    in the VM; JSON on stdout
    psock.py report FILE                           prints the table

A sample whose bytes did not go the way it is named after is an error. No time
is asserted.
"""

import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "psock")
PARAM = "/sys/module/socksplice/parameters/"
WAYS = ("read", "splice", "copying")
CALL = str(128 << 10)  # bytes a call

# The command of a row by reading and by splicing.
ROWS = {
    "into memory": (["bench", "stream", "read", CALL], ["bench", "stream", "splice", CALL]),
    "looked at": (["bench", "stream", "read-check", CALL], ["bench", "stream", "splice-check", CALL]),
    "thrown away": (["bench", "stream", "read", CALL], ["bench", "stream", "null", CALL]),
    "Go relay, redirected": (["relay", "bench", "msg", "copy"], ["relay", "bench", "msg", "splice"]),
    "Go relay, verdict": (["relay", "bench", "verdict", "copy"], ["relay", "bench", "verdict", "splice"]),
}


def sample(host, row, way, seconds):
    lab.write(PARAM + "splice_zerocopy", "0" if way == "copying" else "1")
    program, *options = ROWS[row][way != "read"]
    before, look = lab.stats(), host.look()
    done = subprocess.run([os.path.join(BUILD, program), *options, str(seconds)],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench {row} {way}: {done.stdout.strip()} {done.stderr.strip()}")
    others = host.others(look)
    after = lab.stats()
    ref, copy = (after[f"psock_splice_{x}_bytes"] - before[f"psock_splice_{x}_bytes"] for x in ("ref", "copy"))
    count, took = done.stdout.split()[:2]
    if way == "read" and ref + copy or way == "splice" and ref < 9 * copy or way == "copying" and ref or \
            way != "read" and ref + copy < int(count):
        sys.exit(f"bench {row} {way}: {count} bytes, {ref} by reference, {copy} by copy")
    return {"value": int(count) / float(took), "others": others}


def measure(rounds, seconds, only):
    host = lab.Host()
    rows = {name: {w: [] for w in WAYS} for name in ROWS if re.search(only, name)}
    lab.write(PARAM + "splice", "1")
    for n in range(rounds):
        for row, ways in rows.items():
            for way in WAYS:
                ways[way].append(sample(host, row, way, seconds))
        lab.say_round(n, rounds, rows)
    json.dump({"schema": 1, "machine": lab.machine(), "seconds": seconds, "rows": rows}, sys.stdout, indent=1)


def medians(ways):
    rough = any(lab.contended(s) for w in WAYS for s in lab.quiet(ways[w]))
    return {w: lab.summary([s["value"] for s in lab.quiet(ways[w])])["median"] for w in WAYS}, rough


def ratios(data):
    """For bench/whole.py: the row, what is compared with what, how many times better it
    is, and whether others on the host disturbed it."""
    for row, ways in data["rows"].items():
        m, rough = medians(ways)
        yield row, "splice(2) to read(2)", m["splice"] / m["read"], rough


def line(name, ways):
    m, rough = medians(ways)
    return [name + (" *" if rough else ""), *(f"{m[w] / 1e6:,.0f}" for w in WAYS),
            f"{m['splice'] / m['read']:.2f}x", f"{m['splice'] / m['copying']:.2f}x"]


def report(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    samples = [s for ways in data["rows"].values() for w in ways.values() for s in w]
    rounds = max((len(s) for ways in data["rows"].values() for s in ways.values()), default=0)
    print("", *lab.where(data["machine"]), sep="\n")
    print(f"splice(2) on sockmap sockets. MB/s, medians of {rounds} samples of {data['seconds']} s, all ways in turn "
          "in one boot.\nThe first rows: a verdict program redirects to the reader's socket, over loopback; "
          "the reader splices to a pipe and\nreads that (and looks at every byte), or splices it on to /dev/null. "
          "The relays: read(2) and write(2), or splice(2) and splice(2).")
    busy = sum(map(lab.contended, samples))
    if busy:
        print(f"Others took more than {lab.CONTENDED:.0%} of the host's CPUs during {busy} of {len(samples)} "
              "samples: those are dropped, but in rows marked * too few remained.")
    print()
    print(*lab.grid([["", "read(2)", "splice(2)", "copying", "splice/read", "splice/copying"],
                     *(line(name, ways) for name, ways in data["rows"].items())]), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
    else:
        report(sys.argv[2])
