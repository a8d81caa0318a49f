#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""bench/save.py [FOLDER]: keeps what the benches have left in build/ as files of the tree, in
FOLDER (bench/results). Writes two files for each bench that has run: NAME.txt with the
tables of the bench, and NAME-ratios.csv with one ratio a line. Both name the command, the
kernel, the host, the commit and the date. docs/pictures/draw draws from the CSV files."""

import contextlib
import csv
import io
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import whole  # noqa: E402


def head(part):
    return [f"# {key}: {part[value]}" for key, value in
            (("bench", "command"), ("kernel", "kernel"), ("host", "cpu"), ("commit", "commit"), ("date", "date"))]


def tables(build, path, script):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        whole.load(script).report(os.path.join(build, path))
    return printed.getvalue().strip()


def save(build, folder):
    """Returns the names of the files that it has written."""
    names = []
    for title, path, command, script in whole.PARTS:
        part = whole.read(build, title, path, command, script)
        if not part["run"]:
            continue
        name = os.path.splitext(os.path.basename(path))[0]
        with open(os.path.join(folder, name + ".txt"), "w", encoding="utf-8") as f:
            f.write("\n".join([*head(part), "", tables(build, path, script), ""]))
        with open(os.path.join(folder, name + "-ratios.csv"), "w", encoding="utf-8", newline="") as f:
            f.write("\n".join([*head(part), "# * as disturbed: others on the host had too much of its CPUs", ""]))
            rows = csv.writer(f, lineterminator="\n")
            rows.writerow(["row", "compared", "ratio", "disturbed"])
            rows.writerows([row["row"], row["ways"], f"{row['ratio']:.2f}", "*" if row["disturbed"] else ""]
                           for row in part["rows"])
        names += [name + ".txt", name + "-ratios.csv"]
    return names


def main():
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    folder = sys.argv[1] if sys.argv[1:] else os.path.join(HERE, "results")
    names = save(os.path.join(HERE, "..", "build"), folder)
    for name in names:
        print(os.path.join(folder, name))
    if not names:
        print("save: no bench has left figures in build/ (make bench, make bench-native)", file=sys.stderr)
    return 0 if names else 1


if __name__ == "__main__":
    sys.exit(main())
