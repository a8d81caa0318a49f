# SPDX-License-Identifier: GPL-2.0
"""Tests the mode `auto` while the module comes and goes, and the mode `sosplice` without it."""

import json
import os
import socket
import subprocess

from lib import PROGRAM, Relay, accept, case, check, done, listener, meanwhile, read_all, read_exactly, run, target

PART = bytes(i * 5 % 239 for i in range(100_000))


def feature(state):
    run("socksplice", "feature", "set", "so-splice", state)


class Steps:
    """A connection through a relay, which carries one part after the other."""

    def __init__(self, mode="auto", *options):
        self.server = listener()
        self.relay = Relay(None, "--listen", "127.0.0.1:0", "--to", target(self.server), "--mode", mode, *options)
        self.client = self.relay.connect()
        self.target = accept(self.server)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.relay.kill()

    def exchange(self, data):
        """Sends the bytes both ways."""
        self.client.sendall(data)
        check(read_exactly(self.target, len(data)) == data, "other bytes came up")
        self.target.sendall(data)
        check(read_exactly(self.client, len(data)) == data, "other bytes came down")

    def part(self):
        """Sends a part both ways. Returns the modes afterwards, and why the downward one was chosen."""
        self.exchange(PART)
        entry = self.relay.get("/connections")["connections"][0]
        return entry["mode_up"], entry["mode_down"], entry["why"]

    def end(self):
        self.client.shutdown(socket.SHUT_WR)
        check(read_all(self.target) == b"")
        self.target.close()
        check(read_all(self.client) == b"")
        return self.relay.line()


def splices():
    return json.loads(run("socksplice", "-j", "stats", "show"))["stats"]["so_splices_made"]


def first_bytes():
    """A direction copies its first bytes. It splices when more come."""
    feature("on")
    with Steps() as s:
        before = splices()
        s.exchange(b"x")
        entry = s.relay.get("/connections")["connections"][0]
        check((entry["mode_up"], entry["mode_down"], entry["why"]) == ("copy", "copy", "its first bytes"), entry)
        check(splices() == before, "a request and its answer were spliced")
        line = s.end()
        check(line["sosplice_up"] == line["sosplice_down"] == 0 and line["bytes_up"] == line["bytes_down"] == 1, line)
    with Steps() as s:
        s.exchange(b"x")
        check(s.part() == ("sosplice", "sosplice", "the module is there"))
        line = s.end()
        check(line["sosplice_up"] == line["sosplice_down"] == len(PART), line)
        check(line["bytes_up"] == line["bytes_down"] == 1 + len(PART), line)
    with Steps() as s:
        s.part()
        line = s.end()
        check(min(line["sosplice_up"], line["sosplice_down"]) >= len(PART) - (64 << 10), line)


def comes():
    feature("off")
    with Steps() as s:
        first = s.part()
        check(first[:2] == ("pipe", "pipe") and "not loaded" in first[2], first)
        feature("on")
        s.relay.said.until("SO_SPLICE is there now")
        s.part()    # each direction changes during this part, which goes partly by pipe
        second = s.part()
        check(second == ("sosplice", "sosplice", "the module came"), second)
        line = s.end()
        check(line["bytes_up"] == line["bytes_down"] == 3 * len(PART), line)
        for way in ("sosplice_up", "sosplice_down"):
            check(len(PART) <= line[way] < 3 * len(PART), line)


def goes():
    feature("on")
    with Steps() as s:
        check(s.part()[:2] == ("sosplice", "sosplice"))
        run("socksplice", "drain")
        second = s.part()
        check(second[:2] == ("pipe", "pipe"), second)
        feature("on")
        s.relay.said.until("SO_SPLICE is there now")
        s.part()
        check(s.part()[:2] == ("sosplice", "sosplice"))
        line = s.end()
        check(line["reason"] == "closed" and line["bytes_up"] == 4 * len(PART), line)


def unloaded():
    """The module is unloaded and loaded again under a live connection."""
    feature("on")
    with Steps() as s:
        check(s.part()[:2] == ("sosplice", "sosplice"))
        run("socksplice", "drain")
        run("rmmod", "socksplice")
        check(s.part()[:2] == ("pipe", "pipe"))
        run("insmod", os.environ["MODULE_KO"], "so_splice=1")
        s.relay.said.until("SO_SPLICE is there now")
        s.part()
        check(s.part()[:2] == ("sosplice", "sosplice"))
        line = s.end()
        check(line["reason"] == "closed" and line["bytes_up"] == 4 * len(PART), line)


def one_way():
    """One direction goes by SO_SPLICE in slices, the other one by pipe. Each slice ends with an error
    of its source, which is the socket that the other direction writes to."""
    feature("off")
    with Steps("auto", "--bandwidth", "2M") as s:
        s.part()
        feature("on")
        s.relay.said.until("SO_SPLICE is there now")
        # Only the target sends, so only its direction changes to SO_SPLICE.
        for _ in range(3):
            s.target.sendall(PART)
            check(read_exactly(s.client, len(PART)) == PART, "other bytes came down")
        entry = s.relay.get("/connections")["connections"][0]
        check((entry["mode_up"], entry["mode_down"]) == ("pipe", "sosplice"), entry)
        talk = meanwhile(lambda: [s.target.sendall(PART) for _ in range(10)])
        listen = meanwhile(read_exactly, s.client, 10 * len(PART))
        for _ in range(3):
            s.client.sendall(PART)
            check(read_exactly(s.target, len(PART)) == PART, "other bytes came up")
        talk.join()
        check(listen.join() == 10 * PART, "other bytes came down")
        line = s.end()
        check(line["reason"] == "closed" and line["bytes_down"] == 14 * len(PART), line)
    feature("on")


def or_nothing():
    feature("off")
    done = subprocess.run([PROGRAM, "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--mode", "sosplice"],
                          capture_output=True, text=True, timeout=60)
    check(done.returncode == 1 and done.stderr.count("\n") == 1, done)
    check("mode sosplice: the module socksplice is not loaded" in done.stderr, done.stderr)
    feature("on")
    with Steps("sosplice") as s:
        check(s.part()[:2] == ("sosplice", "sosplice"))
        feature("off")
        s.part()    # the live splices go on
        check(s.relay.turns_away(), "served without SO_SPLICE")
        check(s.relay.line()["reason"] == "no-sosplice")
        s.end()
    feature("on")


if __name__ == "__main__":
    case("auto/first_bytes", first_bytes)
    case("auto/comes", comes)
    case("auto/goes", goes)
    case("auto/unloaded", unloaded)
    case("auto/one_way", one_way)
    case("sosplice/or_nothing", or_nothing)
    done()
