# SPDX-License-Identifier: GPL-2.0
"""forward.py MODE...: tests what a relay forwards in a mode (sosplice, pipe, copy): bytes,
half-closes, resets and limits. The relay's counts show that the bytes went by that mode."""

import hashlib
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time

from lib import (TIME, Relay, Echo, accept, case, check, done, in_time, is_reset, listener, meanwhile, read_all,
                 read_exactly, reset, target)

IN_VM = bool(os.environ.get("VM_OUT"))
UP = bytes(i * 7 % 251 for i in range(300_000))
DOWN = bytes(i * 11 % 241 for i in range(200_000))
LATE = b"after the half-close"


class Pair:
    """A relay, and both ends of a connection through it."""

    def __init__(self, mode, more=""):
        self.server = listener()
        self.relay = Relay(f"[[listener]]\nlisten = '127.0.0.1:0'\nto = '{target(self.server)}'\n"
                           f"mode = '{mode}'\n{more}")
        self.mode = mode
        self.began = time.monotonic()
        self.client, self.target = self.connect()

    def connect(self):
        client = self.relay.connect()
        return client, accept(self.server)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.relay.kill()
        for s in (self.server, self.client, self.target):
            s.close()

    def ended(self, reason, up=None, down=None):
        line = self.relay.line()
        check(line["reason"] == reason, "ended by", line)
        check((line["mode_up"], line["mode_down"]) == (self.mode, self.mode), line)
        for key, bytes_ in (("up", up), ("down", down)):
            if bytes_ is None:
                continue
            check(line[f"bytes_{key}"] == bytes_, key, bytes_, "expected:", line)
            spliced = bytes_ if self.mode == "sosplice" else 0
            check(line[f"sosplice_{key}"] == spliced, "by another way:", line)
        return line


CLOSE_WAIT = "08"


def half_closes(mode):
    with Pair(mode) as p:
        talk = meanwhile(lambda: (p.client.sendall(UP), p.client.shutdown(socket.SHUT_WR)))
        answer = meanwhile(p.target.sendall, DOWN)
        listen = meanwhile(read_all, p.client)
        check(read_all(p.target) == UP, "other bytes came up")
        talk.join()
        answer.join()
        p.target.sendall(LATE)
        p.target.shutdown(socket.SHUT_WR)
        check(listen.join() == DOWN + LATE, "other bytes came down")
        p.ended("closed", len(UP), len(DOWN) + len(LATE))
    # Now the target closes first.
    with Pair(mode) as p:
        p.target.sendall(DOWN)
        p.target.shutdown(socket.SHUT_WR)
        check(read_all(p.client) == DOWN, "other bytes came down")
        p.client.sendall(LATE)
        p.client.shutdown(socket.SHUT_WR)
        check(read_all(p.target) == LATE, "other bytes came up")
        p.ended("closed", len(LATE), len(DOWN))


def much(mode):
    block = os.urandom(1 << 20)
    size = 16 if IN_VM else 64
    with Pair(mode) as p:
        def send():
            for _ in range(size):
                p.client.sendall(block)
            p.client.shutdown(socket.SHUT_WR)
        talk = meanwhile(send)
        got = hashlib.sha256()
        while part := p.target.recv(1 << 18):
            got.update(part)
        talk.join()
        p.target.close()
        check(got.digest() == hashlib.sha256(block * size).digest(), "other bytes came")
        p.ended("closed", size << 20, 0)


def slow_reader(mode):
    with Pair(mode) as p:
        talk = meanwhile(lambda: (p.client.sendall(UP * 20), p.client.shutdown(socket.SHUT_WR)))
        time.sleep(0.3)     # time for all buffers to fill
        check(read_all(p.target) == UP * 20, "other bytes came")
        talk.join()
        p.target.close()
        p.ended("closed", len(UP) * 20, 0)


def each_end(mode):
    """Yields for each end, as `first`, a new connection on which both directions have begun. A
    direction that meets a reset before it begins goes on by copy."""
    for side in ("client", "target"):
        with Pair(mode) as p:
            first, second = (p.client, p.target) if side == "client" else (p.target, p.client)
            second.sendall(b"begin")
            check(read_exactly(first, 5) == b"begin")
            first.sendall(b"some")
            check(read_exactly(second, 4) == b"some")
            yield side, p, first, second


def resets(mode):
    for side, p, first, second in each_end(mode):
        reset(first)
        check(is_reset(second) == (True, b""), "not passed on")
        p.ended(f"{side}-error")


def is_closed_for_reading(relay, client, seconds):
    """True if within that time the relay's end of the client's connection receives the end of its stream."""
    end = time.monotonic() + seconds
    while True:
        with open(f"/proc/{relay.pid}/net/tcp", encoding="ascii") as f:
            lines = [line.split() for line in f]
        if any(words[2].endswith(":%04X" % client.getsockname()[1]) and words[3] == CLOSE_WAIT for words in lines):
            return True
        if time.monotonic() > end:
            return False


def reset_after_end(mode):
    """What a client had sent before it ended its stream, and then reset the connection, arrives."""
    with Pair(mode) as p:
        p.client.sendall(b"begin")
        check(read_exactly(p.target, 5) == b"begin")
        p.client.setblocking(False)
        sent = 0
        while True:     # until all buffers are full
            try:
                sent += p.client.send(b"x" * 4096)
            except BlockingIOError:
                if not select.select([], [p.client], [], 1)[1]:
                    break
        p.client.shutdown(socket.SHUT_WR)
        got = 0
        while not is_closed_for_reading(p.relay, p.client, 0.05):
            got += len(read_exactly(p.target, 1 << 16))
        reset(p.client)
        # The relay may have passed on the whole stream and its end before the reset.
        _, rest = is_reset(p.target)
        check(got + len(rest) == sent, f"{got} and {len(rest)} bytes of {sent}")
        check((line := p.relay.line())["bytes_up"] == sent + 5, line)
        if mode == "sosplice":
            check(line["sosplice_up"] > 5, line)


def resets_after_end(mode):
    """An end that has ended its stream resets the connection. The other end, silent, learns of it."""
    for side, p, first, second in each_end(mode):
        first.shutdown(socket.SHUT_WR)
        check(read_all(second) == b"", "other bytes came")
        reset(first)
        ended = select.poll()
        ended.register(second, 0)   # poll(2) reports POLLHUP unasked
        check(ended.poll(TIME * 1000), "not passed on")
        p.ended(f"{side}-error")


def early_answer(mode):
    for _ in range(12):     # either the answer or the reset may reach the relay first
        one_early_answer(mode)


def one_early_answer(mode):
    with Pair(mode) as p:
        p.client.sendall(b"x" * 100_000)
        read_exactly(p.target, 10)
        p.target.sendall(b"413 too large")
        p.target.close()    # sends a reset, because bytes are unread
        check(is_reset(p.client)[1] == b"413 too large", "no answer")
        line = p.relay.line()
        check(line["reason"] in ("target-error", "client-error"), line)
        check(line["bytes_down"] == 13, line)


def limit(mode):
    with Pair(mode, "max_bytes = 100001\n") as p:
        meanwhile(lambda: p.client.sendall(UP))
        cut, got = is_reset(p.target)
        check(cut and got == UP[:100_001], f"{len(got)} bytes, reset: {cut}")
        p.ended("max-bytes", 100_001, 0)


def idle(mode):
    with Pair(mode, "idle = '700ms'\n") as p:
        # Bytes in one direction keep the whole connection.
        last = p.began
        for _ in range(10):
            before, last = last, time.monotonic()
            with in_time(before, 0.7):
                p.client.sendall(b"x")
                read_exactly(p.target, 1)
            time.sleep(0.2)
        began = time.monotonic()
        cut, _ = is_reset(p.client)
        now = time.monotonic()
        check(cut and now - last > 0.69 and now - began < 2 + 3 * IN_VM,
              f"reset: {cut}, {now - last:.2f} s after the last byte")
        check(is_reset(p.target)[0], "the target was not reset")
        p.ended("idle", 10, 0)


def idle_stuck(mode):
    """A connection is idle too if the target reads nothing, with a limit of the bandwidth or not."""
    for more in ("", "bandwidth = '100M'\n"):
        with Pair(mode, f"idle = '700ms'\n{more}") as p:
            # Both directions have moved bytes before.
            with in_time(p.began, 0.7):
                p.client.sendall(LATE)
                check(read_exactly(p.target, len(LATE)) == LATE)
                p.target.sendall(LATE)
                check(read_exactly(p.client, len(LATE)) == LATE)

            def send():
                try:
                    while True:
                        p.client.sendall(UP)
                except OSError:
                    pass
            talk = meanwhile(send)
            p.ended("idle")
            talk.join()


def bandwidth(mode):
    with Pair(mode, "bandwidth = '400K'\n") as p:
        p.client.sendall(b"begin")
        read_exactly(p.target, 5)
        began = time.monotonic()
        meanwhile(lambda: p.client.sendall(UP * 2))
        check(read_exactly(p.target, len(UP) * 2) == UP * 2, "other bytes came")
        took = time.monotonic() - began
        check(1.2 < took < 6, f"600,000 bytes took {took:.2f} s")
        # The other direction does not wait.
        p.target.sendall(DOWN[:1000])
        check(read_exactly(p.client, 1000) == DOWN[:1000])
        p.client.close()
        p.target.close()
        p.ended("closed", len(UP) * 2 + 5, 1000)


def all_at_once(pairs, size):
    """Seconds that `size` bytes take from the client of each pair to its target, in parallel."""
    began = time.monotonic()
    for client, _ in pairs:
        meanwhile(client.sendall, UP[:size])
    for _, server in pairs:
        check(read_exactly(server, size) == UP[:size], "other bytes came")
    took = time.monotonic() - began
    for s in [s for pair in pairs for s in pair]:
        s.close()
    return took


def shared_bandwidth(mode):
    with Pair(mode, "total_bandwidth = '400K'\n") as p:
        took = all_at_once([p.connect() for _ in range(3)], 200_000)
        check(1.2 < took < 6, f"3 x 200,000 bytes took {took:.2f} s")


def both_bandwidths(mode):
    """A connection's own bandwidth does not lower that of the listener."""
    with Pair(mode, "bandwidth = '100K'\ntotal_bandwidth = '800K'\n") as p:
        pairs = [(p.client, p.target)] + [p.connect() for _ in range(7)]
        took = all_at_once(pairs, 100_000)
        # At 100 K each this takes 1 s. At 100 K for all it would take 8 s.
        check(0.8 < took < 4, f"8 x 100,000 bytes took {took:.2f} s")


def killed(mode):
    """If the process is killed in the middle of a stream, both ends get a reset, and no end of stream. A
    direction that has ended before does not change that."""
    for half_closed in (False, True):
        with Pair(mode) as p:
            p.client.sendall(b"request")
            read_exactly(p.target, 7)
            p.target.sendall(b"half an answer")
            read_exactly(p.client, 14)
            if half_closed:
                p.client.shutdown(socket.SHUT_WR)
                check(p.target.recv(1) == b"")
            p.relay.kill()
            for end in (p.client,) if half_closed else (p.client, p.target):
                check(is_reset(end) == (True, b""), "an end of stream, half closed:", half_closed)


def bulk_among_small(mode):
    """Many senders of few bytes leave the bandwidth that they do not use to the one that needs it."""
    with Pair(mode, "total_bandwidth = '200K'\n") as p:
        small = [p.connect() for _ in range(30)]
        stop = threading.Event()

        def drip():
            while not stop.is_set():
                for client, _ in small:
                    client.sendall(b"x")
                stop.wait(1)
        dripping = meanwhile(drip)
        bulk = meanwhile(p.client.sendall, bytes(500_000))
        read_exactly(p.target, 100_000)
        began = time.monotonic()
        read_exactly(p.target, 400_000)
        took = time.monotonic() - began
        stop.set()
        dripping.join()
        bulk.join()
        share = 400_000 / (took * 204_800)
        print(f"# {mode}: the bulk sender gets {share:.0%}")
        check(share > 0.8, f"the bulk sender gets {share:.0%}")
        for pair in small:
            for s in pair:
                s.close()


def live_counts(mode):
    with Pair(mode) as p:
        p.client.sendall(UP)
        read_exactly(p.target, len(UP))
        p.target.sendall(LATE)
        read_exactly(p.client, len(LATE))
        def counted(state):
            entry = state["connections"][0]
            return (entry["bytes_up"], entry["bytes_down"]) == (len(UP), len(LATE))
        entry = p.relay.until(counted, "/connections")["connections"][0]
        check(entry["mode_up"] == mode, entry)
        if mode == "sosplice":
            shown = subprocess.run(["socksplice", "splice", "show"], capture_output=True, text=True, check=True)
            check(str(len(UP)) in shown.stdout, "the module counts otherwise:", shown.stdout)
        metrics = p.relay.get("/metrics")
        wanted = f'way="up",path="{mode}"}} {len(UP)}'
        check(wanted in metrics, wanted, "is not in", metrics)
        p.client.close()
        p.target.close()
        p.ended("closed", len(UP), len(LATE))


def round_trips(mode):
    echo = Echo()
    with Relay(f"[[listener]]\nlisten = '127.0.0.1:0'\nto = '{echo.to()}'\nmode = '{mode}'\n") as relay:
        with relay.connect() as s:
            times = []
            for i in range(300):
                message = struct.pack("I", i) * (1 + i % 50)
                began = time.monotonic()
                s.sendall(message)
                check(read_exactly(s, len(message)) == message)
                times.append(time.monotonic() - began)
        times.sort()
        check(times[150] < 0.02, f"a round trip takes {times[150] * 1000:.1f} ms")
        print(f"# {mode}: median round trip {times[150] * 1e6:.0f} us")
    echo.stop()


def silence(mode):
    """A silent connection takes no CPU time."""
    with Pair(mode) as p:
        p.client.sendall(b"x")
        read_exactly(p.target, 1)

        def used():
            with open(f"/proc/{p.relay.pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        before = used()
        time.sleep(3)
        check(used() - before < 0.3, f"{used() - before:.2f} s of CPU in 3 s of silence")
        p.target.sendall(LATE)
        check(read_exactly(p.client, len(LATE)) == LATE)


CASES = [half_closes, much, slow_reader, resets, reset_after_end, resets_after_end, killed, early_answer, limit, idle, idle_stuck, bandwidth,
         shared_bandwidth, both_bandwidths, bulk_among_small, live_counts, round_trips, silence]

if __name__ == "__main__":
    for mode in sys.argv[1:]:
        for one in CASES:
            if one is bulk_among_small and mode == "sosplice":
                print(f"skip {mode}/bulk_among_small: an emulated VM is too slow for so many splices")
                continue
            case(f"{mode}/{one.__name__}", one, mode)
    done()
