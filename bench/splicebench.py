#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A relay in one direction, of a TCP connection or of UDP, as OpenBSD's splicebench has it: copying,
and by setsockopt(SOL_SOCKET, SO_SPLICE), in turn, round by round.

    splicebench.py measure ROUNDS SECONDS [ROW-REGEX]    in the VM; JSON on stdout
    splicebench.py report FILE                           prints the table

A sample whose bytes did not go the way it is named after is an error. No time is asserted. Of UDP,
which has no flow control, the sender sends as fast as it can, and what arrives is counted.
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

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "bench", "splicebench")
WAYS = {"copy": ["-c"], "splice": []}

# The address of the relay and its peers, options of all three, options of the sender.
ROWS = {
    "TCP, IPv4": ("127.0.0.1", [], []),
    "TCP, IPv6": ("::1", [], []),
    "kTLS on both legs": ("127.0.0.1", ["-k"], []),
    "UDP, IPv4": ("127.0.0.1", ["-u"], []),
    "UDP, IPv6": ("::1", ["-u"], []),
    "UDP, IPv4, sent in trains of 40": ("127.0.0.1", ["-u"], ["-t", "40"]),
}


def idle():
    """Seconds that CPUs have had nothing to do since the boot; of all of them."""
    with open("/proc/stat", encoding="ascii") as f:
        values = f.readline().split()[1:]
    return (int(values[3]) + int(values[4])) / os.sysconf("SC_CLK_TCK")


def start(*arguments):
    """A part that listens, and its port."""
    process = subprocess.Popen([BENCH, *arguments], stdout=subprocess.PIPE, text=True)
    words = process.stdout.readline().split()
    if words[:1] != ["listening"]:
        sys.exit(f"bench: {' '.join(arguments)} does not listen")
    return process, words[1]


def finish(process):
    out = process.communicate()[0]
    if process.returncode:
        sys.exit(f"bench: {' '.join(process.args)} ended with {process.returncode}")
    return out.split()


def transfer(row, way, seconds):
    """Bytes and seconds at the receiver, and the bytes that the relay counted."""
    address, options, senders = ROWS[row]
    receiver, to = start(*options, "receive", address, "0")
    relay, port = start(*options, *WAYS[way], "relay", address, "0", to)
    lab.run(BENCH, *options, *senders, "send", address, port, str(seconds))
    count, took = finish(receiver)
    return int(count), float(took), int(finish(relay)[0])


def sample(host, row, way, seconds):
    before, look = lab.stats()["so_splice_bytes"], host.look()
    begun, begun_idle = time.monotonic(), idle()
    count, took, relayed = transfer(row, way, seconds)
    used = (time.monotonic() - begun) * os.cpu_count() - (idle() - begun_idle)
    others = host.others(look)
    spliced = lab.stats()["so_splice_bytes"] - before
    lost = relayed - count
    if lost < 0 or (lost and "UDP" not in row) or spliced != (relayed if way == "splice" else 0):
        sys.exit(f"bench {row} {way}: {count} bytes came, the relay says {relayed}, {spliced} were spliced")
    return {"value": count / took, "cpu": used / count * 1e9, "count": count, "others": others}


def measure(rounds, seconds, only):
    lab.socksplice("feature", "set", "so-splice", "on")
    if not re.search(r"sol_socket: +installed", lab.socksplice("feature", "show")):
        sys.exit("bench: this kernel does not redirect SOL_SOCKET (socksplice feature show)")
    host = lab.Host()
    rows = {row: {way: [] for way in WAYS} for row in ROWS if re.search(only, row)}
    if not rows:
        sys.exit(f"bench: no row matches '{only}'")
    for n in range(rounds):
        for row, ways in rows.items():
            for way in WAYS:
                ways[way].append(sample(host, row, way, seconds))
        lab.say_round(n, rounds, rows)
    json.dump({"schema": 1, "machine": lab.machine(), "commit": os.environ.get("COMMIT", "unknown"),
               "seconds": seconds, "rows": rows}, sys.stdout, indent=1)


# What is compared, and whether more of it is better.
KEYS = {"value": ("throughput", 1), "cpu": ("CPU per byte", -1)}


def median(ways, way, key):
    return lab.summary([s[key] for s in lab.quiet(ways[way])])["median"]


def ratio(ways, key):
    return (median(ways, "splice", key) / median(ways, "copy", key)) ** KEYS[key][1]


def is_rough(ways):
    return any(lab.contended(s) for samples in ways.values() for s in lab.quiet(samples))


def ratios(data):
    """For bench/whole.py: the row, what is compared with what, how many times better it
    is, and whether others on the host disturbed it."""
    for row, ways in data["rows"].items():
        for key, (title, _) in KEYS.items():
            yield f"{row}: {title}", "SOL_SOCKET SO_SPLICE to copying", ratio(ways, key), is_rough(ways)


def report(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    rounds = max(len(s) for ways in data["rows"].values() for s in ways.values())
    print("", *lab.where(data["machine"]), sep="\n")
    print(f"socksplice {data['commit']}. Medians of {rounds} rounds of {data['seconds']:g} s, both ways in turn in one boot, "
          "by setsockopt(SOL_SOCKET, SO_SPLICE).")
    table = [["one stream, one direction", "copy MB/s", "splice MB/s", "ratio", "copy CPU s/GB", "splice CPU s/GB", "ratio"]]
    for row, ways in data["rows"].items():
        line = [row + (" *" if is_rough(ways) else "")]
        for key, scale, form in (("value", 1e6, ",.0f"), ("cpu", 1, ".2f")):
            line += [format(median(ways, way, key) / scale, form) for way in WAYS]
            line.append(f"{ratio(ways, key):.2f}x")
        table.append(line)
    print("", *lab.grid(table), sep="\n")
    if any(map(is_rough, data["rows"].values())):
        print("\n* too few of its samples were undisturbed by others on the host")


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
    else:
        report(sys.argv[2])
