#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""loops.py CGROUP [USEC]: in that cgroup, has an epoll set, with a time of its own if USEC is
given, and says its own number. Each line on its standard input makes another set. Ends with its
standard input."""
import fcntl
import os
import select
import struct
import sys

EPIOCSPARAMS = 0x40088A01

with open(sys.argv[1] + "/cgroup.procs", "w") as f:
    f.write("0")
sets = [select.epoll()]
if len(sys.argv) > 2:
    fcntl.ioctl(sets[0], EPIOCSPARAMS, struct.pack("IHBB", int(sys.argv[2]), 0, 0, 0))
print(os.getpid(), flush=True)
for _ in sys.stdin:
    sets.append(select.epoll())
