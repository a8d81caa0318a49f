#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""One report of all benches: what they have left in build/, as text, JSON and a picture.

    whole.py BUILD-FOLDER OUT    writes OUT.txt, OUT.json and OUT.svg; prints the first

Figures that were made differently stand in sections of their own and are never
compared: emulated, on /dev/kvm, on a machine itself, in User Mode Linux. What loses is
marked as clearly as what wins. Judges no figure.
"""

import contextlib
import importlib.util
import io
import json
import math
import os
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lab  # noqa: E402
from picture import BAR, INK, LINE, SOFT, Picture  # noqa: E402

# title, its figures below the build folder, what makes them, what reads them
PARTS = (
    ("pairs", "bench/bench.json", "bench/run", "report.py"),
    ("pairs, instructions of each path", "bench/paths.json", "bench/paths/run", "paths/report.py"),
    ("programs", "bench/programs.json", "bench/programs", "programs.py"),
    ("splice(2) on sockmap sockets", "bench/psock.json", "bench/psock", "psock.py"),
    ("SO_SPLICE", "bench/sosplice.json", "bench/sosplice", "sosplice.py"),
    ("SO_SPLICE, path lengths", "bench/sosplice-steady.json", "bench/sosplice --steady", "sosplice.py"),
    ("SO_SPLICE by the number of the BSDs, one direction", "bench/splicebench.json", "bench/splicebench", "splicebench.py"),
    ("socksplice-relay and other proxies", "bench/proxies.json", "bench/proxies", "proxies.py"),
    ("pairs and relays of kernel threads, splice(2) on sockmap sockets", "uml/native.json", "make bench-native", "uml/report.py"),
)
# By how the figures were made.
SECTIONS = {
    "tcg": "EMULATED: ratios count, absolute figures do not",
    "icount": "EMULATED BY A CLOCK THAT COUNTS INSTRUCTIONS: path lengths",
    "kvm": "IN A VM ON /dev/kvm",
    "native": "ON THE MACHINE ITSELF",
    "uml": "NATIVE SPEED, IN USER MODE LINUX: kernel threads, but for sockmap sockets",
}
# The same in a word, for a part's head.
ACCEL = {"tcg": "emulated", "icount": "emulated, instruction clock", "kvm": "on /dev/kvm", "native": "native",
         "uml": "native, User Mode Linux"}


def load(script):
    spec = importlib.util.spec_from_file_location(script.replace("/", "_")[:-3], os.path.join(HERE, script))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def how_made(path, machine):
    """The section that figures belong to."""
    if path.startswith("uml/"):
        return "uml"
    return machine.get("accel") or ("icount" if machine.get("icount") else "tcg" if machine["emulated"] else "kvm")


def word(ratio):
    """Of a ratio as it is printed."""
    return "wins" if round(ratio, 2) > 1 else "LOSES" if round(ratio, 2) < 1 else "equal"


def read(build, title, path, command, script):
    """A part: its figures, or that there are none."""
    try:
        with open(os.path.join(build, path), encoding="utf-8") as f:
            data = json.load(f)
    except (OSError, ValueError):
        return {"title": title, "command": command, "run": False}
    m = data["machine"]
    rows = [{"row": row, "ways": ways, "ratio": round(ratio, 4), "word": word(ratio), "disturbed": rough}
            for row, ways, ratio, rough in load(script).ratios(data)]
    return {"title": title, "command": command, "run": True, "section": how_made(path, m), "kernel": m["kernel"],
            "cpu": m["cpu"], "commit": data.get("commit") or m.get("commit", "unknown"), "date": m["date"],
            "rows": rows, "figures": data}


def merge(build):
    return {"schema": 1, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "parts": [read(build, *part) for part in PARTS]}


def head(part):
    return (f"{part['title']}: Linux {part['kernel']}, {part['cpu']}, {ACCEL[part['section']]}, "
            f"socksplice {part['commit']}, {part['date']} ({part['command']})")


def sections(whole):
    for name, title in SECTIONS.items():
        parts = [p for p in whole["parts"] if p["run"] and p["section"] == name]
        if parts:
            yield title, parts


def text(whole):
    yield f"socksplice benches, {whole['date']}"
    for title, parts in sections(whole):
        yield from ("", "=" * len(title), title, "=" * len(title))
        for part in parts:
            words = [row["word"] for row in part["rows"]]
            yield from ("", head(part),
                        f"{len(words)} ratios: {words.count('wins')} win, {words.count('equal')} equal, "
                        f"{words.count('LOSES')} LOSE")
            yield from lab.grid([["  " + row["row"] + (" *" if row["disturbed"] else ""), row["ways"],
                                  f"{row['ratio']:.2f}x", row["word"]] for row in part["rows"]], left=2)
    if any(row["disturbed"] for part in whole["parts"] if part["run"] for row in part["rows"]):
        yield from ("", "* too few of its samples were undisturbed by others on the host")
    absent = [p for p in whole["parts"] if not p["run"]]
    if absent:
        yield from ("", "NOT RUN", *(f"  {p['title']}: {p['command']}" for p in absent))


def tables(build, whole):
    """The benches' own tables, with the absolute figures."""
    for part, (_, path, _, script) in zip(whole["parts"], PARTS):
        if not part["run"]:
            continue
        printed = io.StringIO()
        module, file = load(script), os.path.join(build, path)
        with contextlib.redirect_stdout(printed):
            module.report(file)
        yield from ("", "-" * 80, f"{part['title']}: the figures ({part['command']})", printed.getvalue().rstrip())


def draw(whole):
    """A bar a ratio, from 1 to the right what wins and to the left what loses,
    on a scale of doublings, so that a half is as long as a double."""
    colors = {"wins": "#0f766e", "equal": "#9aa5b1", "LOSES": "#b42318"}
    middle, double, y = 800, 48, 40
    p = Picture()
    p.text(28, y, "What socksplice gains, and what it costs", 20, weight="bold")
    p.text(28, y + 22, "each ratio to what is named; the line is 1, bars grow with each doubling and end at 11x and 0.12x", 12, SOFT)
    y += 56
    for title, parts in sections(whole):
        p.box(28, y, 1044, 26, LINE)
        p.text(36, y + 18, title, 13, weight="bold")
        y += 50
        for part in parts:
            p.text(28, y, head(part), 11, SOFT)
            y += 10
            top = y
            for row in part["rows"]:
                length = max(-3.0, min(3.5, math.log2(row["ratio"]))) * double
                color = colors[row["word"]]
                p.text(28, y + 15, row["row"] + (" *" if row["disturbed"] else ""), 11.5)
                p.text(560, y + 15, row["ways"], 11, SOFT, anchor="end")
                p.box(middle + min(length, 0), y + 3, abs(length), BAR - 6, color)
                words = f"{row['ratio']:.2f}x" + (" LOSES" if row["word"] == "LOSES" else "")
                if length < 0:
                    p.text(middle + length - 6, y + 15, words, 11.5, color, "bold", "end")
                else:
                    p.text(middle + length + 6, y + 15, words, 11.5, color, "bold")
                y += BAR
            p.line(middle, top, middle, y, INK)
            y += 28
    for part in whole["parts"]:
        if not part["run"]:
            p.text(28, y, f"not run: {part['title']} ({part['command']})", 12, SOFT)
            y += 18
    return p.svg(1100, y + 10)


def main():
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(__doc__)
        return
    build, out = sys.argv[1:3]
    whole = merge(build)
    words = "\n".join(text(whole))
    print("", words, sep="\n")
    with open(out + ".txt", "w", encoding="utf-8") as f:
        f.write("\n".join([words, *tables(build, whole)]) + "\n")
    with open(out + ".json", "w", encoding="utf-8") as f:
        json.dump(whole, f, indent=1)
    with open(out + ".svg", "w", encoding="utf-8") as f:
        f.write(draw(whole))


if __name__ == "__main__":
    main()
