#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tests/debug/nth.py: repeats an operation. Each time another allocation beneath a function
of the module fails, from the first to the last. Connections notice nothing. A caller gets
its result, or an error after which it can try again.

Operations of a task run in this process, with fail-nth. For softirqs and workers fail-nth
counts no allocations, so there the first one, two, four … 32 allocations fail.
"""

import ctypes
import errno
import json
import os
import socket
import struct
import subprocess
import sys
import time

if sys.argv[1:2] in (["--help"], ["-h"]):
    print(__doc__)
    sys.exit()

PARAMETERS = "/sys/module/socksplice/parameters"
FAULTS = ["/sys/kernel/debug/failslab", "/sys/kernel/debug/fail_page_alloc"]
MANY = 1 << 30
SOL_IP, SO_SPLICE = 0, 0x5350
NO_MEMORY = (errno.ENOMEM, errno.ENOBUFS)
FINIT_MODULE = 313
PAYLOAD = bytes(range(251)) * 100
libc = ctypes.CDLL(None, use_errno=True)
failed = False


class Wrong(Exception):
    pass


def write(path, value):
    with open(path, "w", encoding="ascii") as f:
        f.write(str(value))


def arm(times):
    """Lets the next TIMES slab allocations and the next TIMES page allocations fail."""
    for folder in FAULTS:
        write(f"{folder}/times", times)
        write(f"{folder}/probability", 100)


def disarm():
    """From now on only fail-nth makes allocations fail."""
    for folder in FAULTS:
        write(f"{folder}/probability", 0)
        write(f"{folder}/times", MANY)


def set_up():
    """Only allocations beneath a module's text fail. The VM loads no other module that would
    be affected."""
    for folder in FAULTS:
        for name, value in (("interval", 1), ("space", 0), ("verbose", 0), ("task-filter", "N"),
                            ("ignore-gfp-wait", "N"), ("stacktrace-depth", 32),
                            ("require-start", "0xffffffffa0000000"), ("require-end", "0xffffffffff000000")):
            write(f"{folder}/{name}", value)
    write(f"{FAULTS[1]}/ignore-gfp-highmem", "N")
    write(f"{FAULTS[1]}/min-order", 0)
    disarm()


def left():
    """Returns how many armed failures are left, of slabs and of pages."""
    def one(folder):
        with open(f"{folder}/times", encoding="ascii") as f:
            return int(f.read())
    return [one(folder) for folder in FAULTS]


def fail_nth(n):
    write("/proc/thread-self/fail-nth", n)


def references():
    with open("/sys/module/socksplice/refcnt", encoding="ascii") as f:
        return int(f.read())


def await_references(most):
    """Waits until the module has at most MOST references. A closing socket holds one until TCP
    has sent and received the FINs."""
    until = time.monotonic() + 70
    while references() > most:
        if time.monotonic() > until:
            for line in subprocess.run(["ss", "-tane"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
                print(f"# {line}")
            raise Wrong(f"the module has {references()} users, and had {most}")
        time.sleep(0.1)


def report(name, operation):
    """Runs OPERATION, which returns how many allocations failed, and prints the result. If the
    command line has arguments, runs only the operations that they name."""
    global failed
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    try:
        before = references()
        count = operation()
        if not count:
            raise Wrong("not one allocation failed: nothing was tested")
        await_references(before)
        print(f"ok nth/{name}")
        print(f"# {name}: {count} allocations failed, each in its turn", flush=True)
    except (Wrong, OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
        failed = True
        print(f"not ok nth/{name}: {e}", flush=True)
    finally:
        fail_nth(0)
        disarm()


def close(sockets):
    """Closes SOCKETS while no allocation fails. Without memory for a FIN TCP sends none, and
    the socket stays for ever."""
    for sock in sockets or ():
        sock.close()


def by_task(attempt):
    """Runs ATTEMPT again and again. Its first allocation fails, then its second, and so on. Not
    every attempt makes the same allocations, so the end is three attempts in a row without a
    failure. ATTEMPT gets a function that runs its argument with the failure, the first time
    only. ATTEMPT returns the sockets that it leaves open."""
    count = clean = 0
    for n in range(1, 2000):
        to_fail = n

        def guarded(function):
            nonlocal to_fail
            fail_nth(to_fail)
            to_fail = 0  # once
            try:
                return function()
            finally:
                fail_nth(0)
        before = left()
        close(attempt(guarded))
        clean = clean + 1 if left() == before else 0
        count += not clean
        if clean == 3:
            return count
    raise Wrong("it allocates without end")


def by_all(attempt):
    """The first allocations of any task or softirq fail, and so do its retries."""
    total = 0
    for n in (1, 2, 4, 8, 16, 32):
        arm(n)
        sockets = ()
        try:
            sockets = attempt(lambda function: function())
        finally:
            remaining = left()
            disarm()
        close(sockets)
        total += sum(n - r for r in remaining)
    return total


def by_child(command, least):
    """As by_task, for a command. Its status is 0, with as many lines as without a failure and
    at least LEAST, or 1, with one line on stderr."""
    def run(n):
        return subprocess.run(command, preexec_fn=lambda: fail_nth(n), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    whole = run(0).stdout.count("\n")
    if whole < least:
        raise Wrong(f"{' '.join(command)}: {whole} lines where nothing fails, and {least} at least are due")
    for n in range(1, 2000):
        before = left()
        done = run(n)
        if done.returncode not in (0, 1) or bool(done.returncode) != (done.stderr.count("\n") == 1):
            raise Wrong(f"{' '.join(command)}: status {done.returncode}, and on stderr: {done.stderr!r}")
        if not done.returncode and done.stdout.count("\n") != whole:
            raise Wrong(f"{' '.join(command)}: {done.stdout.count(chr(10))} lines of {whole}, and status 0")
        if left() == before:
            return n - 1
    raise Wrong("it allocates without end")


# --- the operations ---

def carry(a, b):
    a.sendall(PAYLOAD)
    got = b""
    while len(got) < len(PAYLOAD):
        part = b.recv(65536)
        if not part:
            raise Wrong(f"the end of file after {len(got)} bytes of {len(PAYLOAD)}")
        got += part
    if got != PAYLOAD:
        raise Wrong("other bytes than were sent")


def exchange(a, b):
    carry(a, b)
    carry(b, a)


def connection(listener):
    client = socket.create_connection(listener.getsockname(), timeout=30)
    server = listener.accept()[0]
    server.settimeout(30)
    return client, server


def pair(guarded):
    """Connects and sends both ways. No call may fail."""
    def live():
        ends = connection(listener)
        for _ in range(4):  # the rings are used once both ends have read
            exchange(*ends)
        return ends
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return guarded(live)


def by_ring(count, attempt):
    """Calls COUNT for an attempt that sends bytes through a ring if nothing fails."""
    def bytes_by_ring():
        out = subprocess.run(["socksplice", "-j", "stats", "show"], stdout=subprocess.PIPE, check=True).stdout
        return json.loads(out)["stats"]["ring_bytes"]
    before = bytes_by_ring()
    close(attempt(lambda function: function()))
    if bytes_by_ring() == before:
        raise Wrong("nothing went by ring")
    return count(attempt)


def set_splice(source, sink):
    source.setsockopt(SOL_IP, SO_SPLICE, struct.pack("i", sink.fileno()))


def moved(source):
    return struct.unpack("q", source.getsockopt(SOL_IP, SO_SPLICE, 8))[0]


def splice(guarded):
    """Sets SO_SPLICE. The call succeeds, or fails and leaves both connections as before."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (c, p), (q, s) = connection(listener), connection(listener)
        done = False
        while not done:
            try:
                guarded(lambda: set_splice(p, q))
                done = True
            except OSError as e:
                if e.errno not in NO_MEMORY:
                    raise
                exchange(c, p)
                exchange(q, s)
        carry(c, s)
        until = time.monotonic() + 30  # the sink has the bytes before the count rises
        while moved(p) != len(PAYLOAD):
            if time.monotonic() > until:
                raise Wrong(f"{moved(p)} bytes were spliced, not {len(PAYLOAD)}")
        return c, p, q, s


def loaded():
    return os.path.isdir("/sys/module/socksplice")


def load(guarded):
    def insert():
        if libc.syscall(FINIT_MODULE, fd, b"", 0):
            raise OSError(ctypes.get_errno(), "finit_module")
    if loaded():
        # The module stays in use for about a second after the last socket.
        while open("/sys/module/socksplice/refcnt").read().strip() != "0":
            time.sleep(0.05)
        subprocess.run(["rmmod", "socksplice"], check=True)
    fd = os.open(os.environ["MODULE_KO"], os.O_RDONLY)
    try:
        guarded(insert)
    except OSError as e:
        if e.errno not in (*NO_MEMORY, errno.ENFILE):  # sock_create() returns ENFILE
            raise
        if loaded():
            raise Wrong("it could not be loaded, and is there") from e
    finally:
        os.close(fd)


set_up()
write(f"{PARAMETERS}/so_splice", 1)
for enrolled in (0, 1):
    write(f"{PARAMETERS}/enroll_all", enrolled)
    suffix = "-paired" if enrolled else ""
    if enrolled:
        report("pair", lambda: by_ring(by_task, pair))
        report("pair-anywhere", lambda: by_ring(by_all, pair))
    report(f"splice{suffix}", lambda: by_task(splice))
    report(f"splice-anywhere{suffix}", lambda: by_all(splice))
with socket.create_server(("127.0.0.1", 0)) as server:
    kept = [connection(server) for _ in range(20)]
    for ends in kept:
        exchange(*ends)
    relays = [connection(server) for _ in range(10)]
    for (_, source), (sink, _) in zip(relays[::2], relays[1::2]):
        set_splice(source, sink)
    for words, least in (("pair show", len(kept)), ("splice show", len(relays) // 2), ("stats show", 1)):
        report(words.replace(" ", "-"), lambda: by_child(["socksplice", *words.split()], least))
    for ends in kept:
        exchange(*ends)
        close(ends)
    for ends in relays:
        close(ends)
write(f"{PARAMETERS}/enroll_all", 0)
await_references(0)
report("load", lambda: by_task(load))
sys.exit(failed)
