# SPDX-License-Identifier: GPL-2.0
"""splice(2) on sockmap sockets, for measure.py and report.py: bench/psock.c as a process
inside User Mode Linux, whose splice(2) the driver sends where the module's hook would."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lab  # noqa: E402

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
RUN = "/sys/module/uml_bench/parameters/run"
SECONDS = 0.1  # and as long again before it, uncounted
WAYS = ("read", "splice", "copying", "kernel")
# Whether by system calls, kind, what the reader does with the bytes, bytes a call; and
# bench/psock.c's names for reading and for splicing.
BY_CALLS = {
    ("stream", "into memory", 128 << 10): ("read", "splice"),
    ("stream", "looked at", 128 << 10): ("read-check", "splice-check"),
    ("stream", "thrown away", 128 << 10): ("read", "null"),
    ("stream", "into memory", 512 << 10): ("read", "splice"),
    ("stream", "thrown away", 512 << 10): ("read", "null"),
    ("drain", "into memory", 128 << 10): ("read", "splice"),
    ("drain", "thrown away", 128 << 10): ("read", "null"),
    ("drain", "into memory", 512 << 10): ("read", "splice"),
    ("drain", "thrown away", 512 << 10): ("read", "null"),
}
ROWS = {(calls, *key): names for calls in (True, False) for key, names in BY_CALLS.items()
        if calls or key[1] != "looked at"}
# What is to be reached: splice(2) to what, and how much at least.
TARGETS = [("read", "read(2)", 0.99), ("copying", "copying", 1.5)]
# Patches that teach the kernel the same say of themselves, by bench_sockmap on 8 CPUs.
PUBLISHED = {"read": 4292, "splice": 4270, "copying": 2770}


def name(calls, kind, what, size):
    return f"sockmap {'calls' if calls else 'inside'} {kind} {what} {size >> 10}"


def key_of(row):
    return row["calls"], row["kind"], row["what"], row["size"]


def rows(regex, cpus):
    """Draining has one task, so once is enough."""
    return [{"cpus": len(set(cpus)), "place": "sockmap", "calls": calls, "kind": kind, "what": what, "size": size,
             "ways": list(WAYS), "rounds": []}
            for calls, kind, what, size in ROWS if re.search(regex, name(calls, kind, what, size)) and
            (kind == "stream" or len(set(cpus)) == 2)]


def sample(uml, row, way, cpus):
    program = ROWS[key_of(row)][way != "read"]
    uml.do(f"param socksplice splice_zerocopy {int(way == 'splice')}")
    uml.run(f"splice {'kernel' if way == 'kernel' else 'module'}")
    before = uml.look()
    # on the reader's CPU from its birth: see bench/psock.c
    answer = uml.do(f"host {ROOT} taskset -c {cpus[1]} build/psock/bench {row['kind']} {program} {row['size']} "
                    f"{SECONDS} {cpus[0]} {cpus[1]} {RUN}{'' if row['calls'] else ' inside'}")
    others = uml.others(before)
    count, took, cpu, ref, copy = map(float, answer.split())
    went = {"read": ref + copy == 0, "splice": ref >= count and copy < ref / 10,
            "copying": copy >= count and not ref, "kernel": ref + copy == 0}
    if not went[way]:
        uml.die(f"{name(*key_of(row))} {way}: {count:.0f} bytes, "
                f"{ref:.0f} by reference, {copy:.0f} by copy")
    return {"value": count / took, "cpu": count / cpu, "others": others}


def table(some):
    """The grid of report.Rows."""
    yield ["", "read(2)", "splice(2)", "copying", "kernel's", "splice/read", "splice/copying", "splice/kernel's",
           "by CPU time:", "splice/read", "splice/copying"]
    for r in some:
        yield [label(r) + (" *" if r.rough else ""), *(f"{r.median(w) / 1e6:,.0f}" for w in WAYS),
               *(f"{r.ratio('splice', w):.2f}x" for w in ("read", "copying", "kernel")), "",
               *(f"{r.ratio('splice', w, key='cpu'):.2f}x" for w in ("read", "copying"))]


def label(r):
    row = r.row
    where = "" if row["kind"] == "drain" else f"{row['cpus']} CPU{'s' if row['cpus'] > 1 else ''}, "
    how = "" if row["calls"] else ", no system calls"
    return f"{row['kind']}, {where}{row['what']}, {row['size'] >> 10} KB a {'call' if row['calls'] else 'turn'}{how}"


def ratios(r):
    """As those of report.py."""
    for way, text, _ in TARGETS:
        yield f"sockmap {label(r)}", f"splice(2) to {text}", r.ratio("splice", way), r.rough


def report(some):
    yield (f"splice(2) on sockmap sockets, by processes; a verdict program, interpreted, redirects over loopback. "
           f"MB/s, medians of {SECONDS} s samples.")
    yield ("Copying is the module with zero-copy off; kernel's is the kernel's copy_splice_read(), a page at a time. "
           "'drain' is the reader alone.")
    yield ""
    yield from lab.grid(list(table(some)))
    yield ""
    for way, text, want in TARGETS:
        found = [(r.ratio("splice", way), label(r)) for r in some]
        missed = [f"{where} ({value:.2f})" for value, where in found if value < want]
        yield (f"splice(2) to {text}: at least {want:.2f}; published {PUBLISHED['splice'] / PUBLISHED[way]:.2f}; "
               + (f"MISSED in {len(missed)} of {len(found)} rows" if missed else "reached"))
        yield from (f"  {line}" for line in missed)
