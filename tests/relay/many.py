# SPDX-License-Identifier: GPL-2.0
"""many.py MODE...: tests thousands of idle connections at a time. Measures the memory of each, and
checks that none holds a pipe and that all still carry bytes. The clients' sockets and the servers'
sockets are in one process each. In a VM, whose kernel serves nobody else, prints the kernel's memory
too: what a connection through the relay takes more than a direct one."""

import contextlib
import itertools
import os
import resource
import socket
import subprocess
import sys

from lib import Lines, Relay, case, check, done, read_exactly

sys.path.append(os.path.join(os.path.dirname(__file__), "../../bench"))
from lab import kernel_memory  # noqa: E402

N = 20_000 if os.environ.get("TEST_FULL") else 2_000
ROUND = b"x" * 100
# Of one address half of the ports are soon taken. From then on each connect(2) looks at all of them
# before it takes one of the other half.
ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]


def descriptors():
    """Raises the limit of open files to what N connections need, or to the hard limit. Returns it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = 2 * N + 1000
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except ValueError:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


allowed = descriptors()
if allowed < 2 * N + 1000:
    # Each side is a process that runs this file too, so it finds the same N.
    N = (allowed - 1000) // 2
    if sys.argv[1] != "--side":
        print(f"# {allowed} open files are allowed: {N} connections", flush=True)


def gather(make):
    """N sockets that @make makes. Says after each thousand that it goes on."""
    held = []
    while len(held) < N:
        held.append(make())
        if len(held) % 1000 == 0:
            print("more", flush=True)
    print("all", flush=True)
    return held


def server():
    s = socket.create_server(("0.0.0.0", 0), backlog=4096)
    print(s.getsockname()[1], flush=True)
    held = gather(lambda: s.accept()[0])
    sys.stdin.readline()
    for s in held:
        s.sendall(read_exactly(s, len(ROUND)))
    print("echoed", flush=True)
    sys.stdin.readline()


def clients():
    port = int(sys.stdin.readline())
    addresses = itertools.cycle(ADDRESSES)
    held = gather(lambda: socket.create_connection((next(addresses), port), 60))
    sys.stdin.readline()
    for s in held:
        s.sendall(ROUND)
    for n, s in enumerate(held):
        check(read_exactly(s, len(ROUND)) == ROUND)
        if n % 1000 == 0:
            print("more", flush=True)
    print("answered", flush=True)
    sys.stdin.readline()


class Side:
    def __init__(self, what):
        self.process = subprocess.Popen([sys.executable, __file__, "--side", what], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.lines = Lines(self.process.stdout)

    def say(self, word=""):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.wait()


def memory(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def hold(sides, port):
    """Connects all clients to the port, and waits until the server has all of them."""
    to, by = sides
    by.say(port)
    by.lines.until("all")
    to.lines.until("all")


@contextlib.contextmanager
def both():
    """The two sides, and the server's port."""
    sides = [Side("server"), Side("clients")]
    try:
        yield sides, sides[0].lines.next()
    finally:
        for side in sides:
            side.end()


def kernel():
    return kernel_memory() if "MODULE_KO" in os.environ else 0


def direct():
    """What the kernel has for N connections without a relay."""
    with both() as (sides, port):
        before = kernel()
        hold(sides, port)
        return kernel() - before


def idle(mode):
    plain = direct()
    with both() as (sides, port):
        targets = [f"{address}:{port}" for address in ADDRESSES]
        config = f"[[listener]]\nlisten = '0.0.0.0:0'\nto = {targets}\nmode = '{mode}'\n"
        with Relay(config) as relay:
            check(relay.get()["max_connections"] > N, "too few descriptors")
            before, before_kernel = memory(relay.pid), kernel()
            hold(sides, relay.ports[0])
            each = (memory(relay.pid) - before) / N
            more = (kernel() - before_kernel - plain) / N
            held = len(os.listdir(f"/proc/{relay.pid}/fd"))
            print(f"# {mode}: {N} idle connections: {each:.0f} bytes of the process each, {held / N:.2f} descriptors each"
                  + (f"; {more:.0f} bytes of the kernel more than a direct one" if plain else ""))
            check(each < 8192, each, "bytes for each")
            check(held < 2 * N + 100, held, "descriptors")
            to, by = sides
            to.say()
            by.say()
            by.lines.until("answered")
            held = len(os.listdir(f"/proc/{relay.pid}/fd"))
            check(held < 2 * N + 200, held, "descriptors afterwards")
            check(relay.get()["connections"] == N)


if __name__ == "__main__":
    if sys.argv[1] == "--side":
        {"server": server, "clients": clients}[sys.argv[2]]()
    else:
        for mode_name in sys.argv[1:]:
            case(f"{mode_name}/idle", idle, mode_name)
        done()
