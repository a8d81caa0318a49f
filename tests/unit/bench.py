#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""How bench/whole.py merges the figures of all benches: what was made differently stays
apart, what loses is named, what is not there is said to be not run. One line a test."""

import json
import os
import re
import sys
import tempfile
import xml.etree.ElementTree

if sys.argv[1:2] in (["--help"], ["-h"]):
    print(__doc__)
    sys.exit()

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import whole  # noqa: E402

MACHINE = {"cpu": "A CPU", "cpus": 2, "kernel": "6.12.0-test", "emulated": True, "icount": False, "date": "2026-01-02 03:04 UTC"}


def samples(value, **more):
    return [{"value": value, "others": 0.0, **more}] * 3


def pairs(paired, poll, **machine):
    ways = {"tcp": samples(100.0), "nodelay": samples(90.0), "paired": samples(paired, ring=1.0), "poll": samples(poll, ring=1.0)}
    return {"machine": {**MACHINE, **machine}, "seconds": 1, "poll_usec": 50,
            "rows": [{"place": "loopback", "kind": "rr", "size": 1024, "ways": ways}],
            "memory": {"idle": 1, "socksplice_end": 1, "idle_slab_difference": 1, "busy_ring": 1}}


def native(ratio):
    values = {"tcp": 1.0, "ring": ratio, "ring+poll": ratio, "paired": ratio, "paired+poll": ratio}
    ways = {way: {"value": value, "ring": 1.0, "others": 0} for way, value in values.items()}
    return {"machine": {"cpu": "A CPU", "kernel": "7.3-um", "host": "6.1", "commit": "abc", "date": "2026-01-02 03:04 UTC"},
            "msec": 1, "poll_usec": 50, "ring_size": 65536,
            "rows": [{"place": "loopback", "kind": "rr", "size": 64, "cpus": 1, "ways": list(ways),
                      "rounds": [{"contended": False, "c2c_ns": 90, "ways": ways}] * 3}]}


def build(folder, **files):
    for path in ("bench", "uml"):
        os.makedirs(os.path.join(folder, path), exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(folder, "uml" if name == "native" else "bench", name + ".json"), "w", encoding="utf-8") as f:
            f.write(data if isinstance(data, str) else json.dumps(data))
    return whole.merge(folder)


def says(text, *lines):
    """Whether each pattern is found, after the one before it."""
    at = 0
    for line in lines:
        found = re.compile(line).search(text, at)
        assert found, f"no '{line}' in\n{text[at:]}"
        at = found.end()


def sections_stay_apart(folder):
    merged = build(folder, bench=pairs(200.0, 300.0, accel="tcg", commit="c0ffee"), native=native(4.0))
    text = "\n".join(whole.text(merged))
    says(text, "EMULATED", r"pairs: Linux 6\.12\.0-test, A CPU, emulated, socksplice c0ffee, 2026-01-02 03:04 UTC \(bench/run\)",
         r"1 KB +paired to TCP +2\.00x +wins", "NATIVE SPEED", r"7\.3-um, A CPU, native, User Mode Linux, socksplice abc",
         r"64 B +paired to TCP +4\.00x +wins")
    assert "4.00x" not in text[:text.index("NATIVE SPEED")]


def losses_are_marked(folder):
    merged = build(folder, bench=pairs(70.0, 100.1, accel="kvm"))
    says("\n".join(whole.text(merged)), "/dev/kvm", "0 win, 1 equal, 1 LOSE", r"paired to TCP +0\.70x +LOSES",
         r"paired\+poll to TCP +1\.00x +equal")
    says(whole.draw(merged), "0.70x LOSES")


def proxies(own):
    """Where the relay by SO_SPLICE has `own` times the throughput of the others, for the same CPU time."""
    ways = {way: samples(100.0 * own if way == "auto" else 100.0, cpu=2.0) for way in whole.load("proxies.py").WAYS}
    return {"machine": {**MACHINE, "accel": "tcg"}, "commit": "abc", "seconds": 1, "pings": 1, "cap_bits": 8e6, "held": 500,
            "haproxy_spliced": 0, "plain_kernel": 0, "versions": {"HAProxy": "3"}, "rows": {"1 stream": ways}}


def other_proxies_are_named(folder):
    merged = build(folder, proxies=proxies(0.5))
    text = "\n".join(whole.text(merged))
    says(text, "EMULATED", r"socksplice-relay and other proxies: .*\(bench/proxies\)", "0 win, 6 equal, 6 LOSE",
         r"1 stream: throughput, MB/s +relay SO_SPLICE to HAProxy +0\.50x +LOSES", r"to socat +0\.50x +LOSES",
         r"CPU seconds .* to HAProxy +1\.00x +equal")
    says("\n".join(whole.tables(folder, merged)), r"throughput, MB/s", r"1 stream .* 0\.50x ")


def not_run_is_said(folder):
    merged = build(folder, bench="{", native=native(2.0))
    says("\n".join(whole.text(merged)), "NOT RUN", r"pairs: bench/run\n", "bench/psock", "bench/sosplice", "bench/proxies")
    assert [p["run"] for p in merged["parts"]].count(True) == 1


def machines_itself(folder):
    merged = build(folder, bench=pairs(200.0, 300.0, accel="native", emulated=False))
    says("\n".join(whole.text(merged)), "ON THE MACHINE ITSELF", "A CPU, native,")


def older_figures(folder):
    """Those that do not name what emulated them."""
    merged = build(folder, bench=pairs(200.0, 300.0, icount=True))
    assert merged["parts"][0]["section"] == "icount"


def everything_is_written(folder):
    out = os.path.join(folder, "report")
    build(folder, bench=pairs(200.0, 70.0), native=native(0.5))
    sys.argv = ["whole.py", folder, out]
    with open(os.devnull, "w", encoding="utf-8") as sys.stdout:
        whole.main()
    sys.stdout = sys.__stdout__
    with open(out + ".json", encoding="utf-8") as f:
        assert [r["word"] for r in json.load(f)["parts"][0]["rows"]] == ["wins", "LOSES"]
    with open(out + ".txt", encoding="utf-8") as f:
        says(f.read(), "EMULATED", "NATIVE SPEED", "NOT RUN", r"pairs: the figures \(bench/run\)", "memory of a pair")
    xml.etree.ElementTree.parse(out + ".svg")


def figures_are_kept(folder):
    """As files that name the command, the kernel, the host, the commit and the date."""
    build(folder, bench=pairs(200.0, 70.0, accel="kvm", commit="c0ffee"))
    names = whole.load("save.py").save(folder, folder)
    assert names == ["bench.txt", "bench-ratios.csv"], names
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            says(f.read(), r"\A# bench: bench/run\n# kernel: 6\.12\.0-test\n# host: A CPU\n# commit: c0ffee\n"
                 r"# date: 2026-01-02 03:04 UTC\n", r"paired to TCP,2\.00,\n" if "ratios" in name else r"2\.00x")


def instructions_find_their_functions(folder):
    """What the emulator counted, by address, becomes instructions of a function, each time."""
    ways = (("tcp", 0.0), ("unix", 0.0), ("paired", 1.0))
    samples = {"machine": {**MACHINE, "commit": "c0ffee"},
               "samples": [{"path": "rr", "size": 1, "way": way, "count": 10, "ring": ring} for way, ring in ways],
               "symbols": [["ffffffff81000000", "first"], ["ffffffff81000100", "second"],
                           ["ffffffffc0000000", "ours [socksplice]"]]}
    counts = ("ffffffff81000000 30\nffffffff810000f0 10\nffffffff81000100 50\n401000 10\ndone\n"
              "ffffffff81000000 100\ndone\n" "ffffffffc0000004 20\nffffffff81000000 30\ndone\n")
    report = whole.load("paths/report.py")
    for name, text in (("samples", json.dumps(samples)), ("counts", counts)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    with open(os.path.join(folder, "paths.json"), "w", encoding="utf-8") as sys.stdout:
        report.merge(os.path.join(folder, "samples"), os.path.join(folder, "counts"))
    sys.stdout = sys.__stdout__
    with open(os.path.join(folder, "paths.json"), encoding="utf-8") as f:
        data = json.load(f)
    made = data["rows"][0]["ways"]
    assert made["tcp"]["functions"] == {"second": 5.0, "first": 4.0, "user space": 1.0}, made["tcp"]
    assert (made["paired"]["value"], made["paired"]["ours"]) == (5.0, 2.0), made["paired"]
    assert list(report.ratios(data)) == [("rr 1 B", "paired to TCP", 2.0, False)]
    says("\n".join(report.table(data)), r"rr 1 B +10 +10 +5 +2 +2\.00x +100%")


failed = 0
for test in (sections_stay_apart, losses_are_marked, other_proxies_are_named, not_run_is_said, machines_itself, older_figures, everything_is_written,
             figures_are_kept, instructions_find_their_functions):
    with tempfile.TemporaryDirectory() as place:
        try:
            test(place)
            print(f"ok unit/bench_{test.__name__}")
        except AssertionError as error:
            print("".join(f"# {line}\n" for line in str(error).split("\n")), end="")
            print(f"not ok unit/bench_{test.__name__}: see above")
            failed = 1
sys.exit(failed)
