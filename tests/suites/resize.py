#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""resize.py COMMAND...: runs COMMAND, which runs another at a distance, on a terminal of its
own, changes the terminal's size again and again, and prints what is seen of it there."""

import fcntl
import os
import pty
import re
import select
import shlex
import struct
import sys
import termios

if sys.argv[1:2] in (["--help"], ["-h"]):
    print(__doc__)
    sys.exit()

REMOTE = """
import os, signal, sys
signal.signal(signal.SIGWINCH, lambda *_: print(*reversed(os.get_terminal_size(0)), flush=True))
print("ready", flush=True)
for line in sys.stdin:
    if line == "end\\n":
        break
    print("got", line, end="", flush=True)
"""


class Terminal:
    def __init__(self, command):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.execvp(command[0], command)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def await_line(self, line):
        """Reads up to a line of exactly that."""
        while True:
            found = re.search(rf"^{line}\r?\n", self.seen, re.MULTILINE)
            if found:
                self.seen = self.seen[found.end():]
                print(line)
                return
            if not select.select([self.fd], [], [], 60)[0]:
                sys.exit(f"no line '{line}' came, but {self.seen!r}")
            self.seen += os.read(self.fd, 4096).decode(errors="replace")

    def write(self, text):
        os.write(self.fd, text.encode())


terminal = Terminal([*sys.argv[1:], f"/usr/bin/python3 -uc {shlex.quote(REMOTE)}"])
terminal.await_line("ready")
for i in range(30):
    terminal.resize(20 + i, 80 + 2 * i)
    terminal.await_line(f"{20 + i} {80 + 2 * i}")
    terminal.write(f"line {i}\n")
    terminal.await_line(f"got line {i}")
terminal.write("end\n")
print("status", os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]))
