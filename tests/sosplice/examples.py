# SPDX-License-Identifier: GPL-2.0
"""The relays in examples/, those of the packages for Rust and Go, and one written for OpenBSD forward a connection by
SO_SPLICE, as getsockopt and the module's counter say, both ways with a half-close, and
copy where there is none. examples/tcp-proxy.c in each of its modes, with what a proxy
meets. examples/udp-relay.c with several clients. One line a case."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROXY = [f"{ROOT}/build/sosplice/tcp-proxy", "--listen", "127.0.0.1:0", "--to"]
RELAYS = {
    "c": PROXY,
    "rust": [f"{ROOT}/cli/target/release/examples/relay", "127.0.0.1:0"],
    "rust-tokio": [f"{ROOT}/cli/target/release/examples/relay-tokio", "127.0.0.1:0"],
    "rust-mio": [f"{ROOT}/cli/target/release/examples/relay-mio", "127.0.0.1:0"],
    "go": [f"{ROOT}/build/sosplice/relay-go", "127.0.0.1:0"],
    "python": ["/usr/bin/python3", f"{ROOT}/examples/relay.py", "127.0.0.1:0"],
    "python-asyncio": ["/usr/bin/python3", f"{ROOT}/examples/relay.py", "--asyncio", "127.0.0.1:0"],
    "openbsd": [f"{ROOT}/build/sosplice/openbsd", "127.0.0.1:0"],
}
UP = bytes(i * 7 % 251 for i in range(300_000))
DOWN = bytes(i * 11 % 241 for i in range(200_000))
LATE = b"after the half-close"
TOTAL = len(UP) + len(DOWN) + len(LATE)
failed = False


def check(good, *why):
    if not good:
        raise AssertionError(" ".join(map(str, why)))


def case(name, run, *arguments):
    global failed
    try:
        run(*arguments)
        print(f"ok {name}", flush=True)
    except (AssertionError, OSError) as e:
        print(f"not ok {name}: {e}", flush=True)
        failed = True


def spliced_bytes():
    done = subprocess.run(["socksplice", "-j", "stats", "show"], check=True, capture_output=True)
    return json.loads(done.stdout)["stats"]["so_splice_bytes"]


def feature(state):
    subprocess.run(["socksplice", "feature", "set", "so-splice", state], check=True, stdout=subprocess.DEVNULL)


class Relay:
    """A relay that runs, and the listener that it forwards to."""

    def __init__(self, command):
        self.target = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.target.settimeout(60)
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*command, "{}:{}".format(*self.target.getsockname())],
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.before = spliced_bytes()
        words = self.process.stdout.readline().split()
        check(words[:1] == ["listening"], self.process.args, "says", words, self.said())
        host, port = words[1].rsplit(":", 1)
        self.address = host, int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.target.close()
        self.errors.close()

    def said(self):
        self.errors.seek(0)
        return self.errors.read().strip()

    def connect(self):
        """Both ends of a connection through it."""
        client = socket.create_connection(self.address, 60)
        server, _ = self.target.accept()
        server.settimeout(60)
        return client, server

    def moved(self):
        return spliced_bytes() - self.before

    def sums(self):
        """What it counted: bytes spliced, bytes copied. tcp-proxy says so at its end."""
        if self.process.args[0] == PROXY[0]:
            self.process.send_signal(signal.SIGTERM)
        line = self.process.stdout.readline()
        found = re.findall(r"(\d+) (?:bytes )?spliced,? (\d+) (?:copied|otherwise)", line)
        check(found, "it says", repr(line), self.said())
        return tuple(sum(map(int, column)) for column in zip(*found))


def read_all(s):
    parts = []
    while part := s.recv(65536):
        parts.append(part)
    return b"".join(parts)


def exchange(client, server):
    """Both ways at once; the client ends first, and the server writes on."""
    errors, down = [], []

    def meanwhile(steps):
        def run():
            try:
                steps()
            except OSError as e:
                errors.append(e)
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with client, server:
        talk = meanwhile(lambda: (client.sendall(UP), client.shutdown(socket.SHUT_WR)))
        answer = meanwhile(lambda: server.sendall(DOWN))
        listen = meanwhile(lambda: down.append(read_all(client)))
        up = read_all(server)
        for thread in (talk, answer):
            thread.join()
        server.sendall(LATE)
        server.shutdown(socket.SHUT_WR)
        listen.join()
    if errors:
        raise errors[0]
    check(up == UP, f"{len(up)} bytes came up, or others")
    check(down[0] == DOWN + LATE, f"{len(down[0])} bytes came down, or others")


def splices(name):
    with Relay(RELAYS[name]) as relay:
        try:
            exchange(*relay.connect())
        except OSError as e:
            raise AssertionError(f"{e}; {relay.said()}") from None
        sums = relay.sums()
        check(sums == (TOTAL, 0), f"{sums[0]} of {TOTAL} bytes spliced, {sums[1]} copied;", relay.said())
        check(relay.moved() == TOTAL, f"the module has moved {relay.moved()}")


def copies(name):
    with Relay(RELAYS[name]) as relay:
        exchange(*relay.connect())
        sums = relay.sums()
        check(sums == (0, TOTAL), f"{sums[0]} bytes spliced, {sums[1]} of {TOTAL} copied")
        check("protocol not available" in relay.said().lower(), "it does not say why:", relay.said())
        check(not relay.moved(), f"the module has moved {relay.moved()}")


def proxy(mode):
    return Relay([*PROXY[:1], "--mode", mode, *PROXY[1:]])


def by_mode(mode):
    with proxy(mode) as relay:
        exchange(*relay.connect())
        check(relay.sums() == (0, TOTAL) and not relay.moved(), "not by", mode)


def many(mode):
    """Connections at a time, with bytes of their own; some are only half closed."""
    n = 40
    with proxy(mode) as relay:
        pairs = [relay.connect() for _ in range(n)]
        for i, (client, server) in enumerate(pairs):
            client.sendall(b"%d up" % i * 100)
            server.sendall(b"%d down" % i * 100)
            if i % 2:
                client.shutdown(socket.SHUT_WR)
        for i, (client, server) in enumerate(pairs):
            if i % 2:
                check(read_all(server) == b"%d up" % i * 100, i, "up")
                server.close()
                check(read_all(client) == b"%d down" % i * 100, i, "down")
            else:
                up, down = b"%d up" % i * 100, b"%d down" % i * 100
                check(server.recv(len(up), socket.MSG_WAITALL) == up, i, "up")
                check(client.recv(len(down), socket.MSG_WAITALL) == down, i, "down")
                server.close()
                check(read_all(client) == b"", i, "more than an end")
            client.close()


def is_reset(s):
    try:
        s.recv(1)
    except ConnectionResetError:
        return True
    return False


def is_turned_away(address):
    try:
        with socket.create_connection(address, 60) as s:
            return is_reset(s)
    except ConnectionResetError:
        return True


def resets(mode):
    linger = struct.pack("@ii", 1, 0)
    with proxy(mode) as relay:
        for i in range(2):
            ends = relay.connect()
            ends[i].sendall(b"x")
            check(ends[1 - i].recv(1) == b"x", "nothing came")
            ends[i].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            ends[i].close()
            check(is_reset(ends[1 - i]), "the", ("client", "server")[i], "was reset and the other end not")
            ends[1 - i].close()
        relay.target.close()
        check(is_turned_away(relay.address), "nobody serves, and the client was not reset")


def waits(mode):
    """A reader that comes late finds every byte, and meanwhile the writer is held back."""
    with proxy(mode) as relay:
        client, server = relay.connect()
        with client, server:
            client.sendall(b"x")
            check(server.recv(1) == b"x", "nothing came")
            sent = 0
            client.settimeout(0.5)
            try:
                while sent < 1 << 26:
                    sent += client.send(UP)
            except TimeoutError:
                pass
            check(sent < 1 << 26, "the writer was not held back")
            client.shutdown(socket.SHUT_WR)
            got = 0
            while part := server.recv(1 << 20):
                got += len(part)
            check(got == sent, f"{got} of {sent} bytes came")


class UdpRelay:
    """udp-relay, and the socket that it forwards to."""

    def __init__(self, *options):
        self.server = self.socket(("127.0.0.1", 0))
        target = "{}:{}".format(*self.server.getsockname())
        self.errors = tempfile.TemporaryFile("w+")
        command = [f"{ROOT}/build/sosplice/udp-relay", *options, "--listen", "127.0.0.1:0", "--to", target]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        words = self.process.stdout.readline().split()
        check(words[:1] == ["listening"], command, "says", words, self.said())
        host, port = words[1].rsplit(":", 1)
        self.address = host, int(port)
        self.total = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.server.close()
        self.errors.close()

    said = Relay.said

    @staticmethod
    def socket(address):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(60)
        s.bind(address)
        return s

    def client(self):
        s = self.socket(("127.0.0.1", 0))
        s.connect(self.address)
        return s

    def ask(self, client, question):
        """A datagram up, and one down. Returns what the server sees of the client."""
        client.send(question)
        got, source = self.server.recvfrom(65536)
        check(got == question, "other bytes came up")
        self.server.sendto(question * 2, source)
        check(client.recv(65536) == question * 2, "other bytes came down")
        self.total += 3 * len(question)
        return source

    def sums(self):
        """Sessions, bytes spliced, bytes copied: what it says at its end."""
        self.process.send_signal(signal.SIGTERM)
        line = self.process.stdout.readline()
        found = re.findall(r"\d+", line)
        check(len(found) == 3, "it says", repr(line), self.said())
        return tuple(map(int, found))


def udp_clients(relay):
    """Three clients, in turns. Each has a socket of its own towards the server. The first datagram of
    each way may be copied, before the splice."""
    clients = [relay.client() for _ in range(3)]
    sources = [relay.ask(c, b"first %d" % i) for i, c in enumerate(clients)]
    check(len(set(sources)) == 3, "clients share a session")
    first = relay.total
    for turn in range(20):
        for i, client in enumerate(clients):
            check(relay.ask(client, b"%d, %d" % (turn, i) * 50) == sources[i], "another session")
    for client in clients:
        client.close()
    return first


def udp_splices():
    with UdpRelay() as relay:
        before = spliced_bytes()
        first = udp_clients(relay)
        sessions, spliced, copied = relay.sums()
        check(sessions == 3, sessions, "sessions")
        check(spliced + copied == relay.total and copied <= first,
              f"{spliced} of {relay.total} bytes spliced, {copied} copied;", relay.said())
        check(spliced_bytes() - before == spliced, f"the module has moved {spliced_bytes() - before}, not {spliced}")


def udp_copies(*options):
    with UdpRelay(*options) as relay:
        udp_clients(relay)
        check(relay.sums() == (3, 0, relay.total), "not by copying")
        check(options or "protocol not available" in relay.said().lower(), "it does not say why:", relay.said())


def udp_server_returns():
    """An answer of ICMP ends both splices. The session lives on."""
    with UdpRelay() as relay:
        client = relay.client()
        source = relay.ask(client, b"before")
        address = relay.server.getsockname()
        relay.server.close()
        for _ in range(3):
            client.send(b"lost")
        relay.server = relay.socket(address)
        relay.server.settimeout(2)
        for turn in range(30):
            client.send(b"%d" % turn)
            try:
                got, again = relay.server.recvfrom(100)
            except TimeoutError:
                continue
            check(again == source, "another session")
            relay.server.sendto(got, again)
            check(client.recv(100) == got, "other bytes came down")
            break
        else:
            raise AssertionError("nothing comes any more")
        client.close()


def udp_idle():
    with UdpRelay("--idle", "1") as relay:
        client = relay.client()
        source = relay.ask(client, b"a")
        while relay.ask(client, b"b") == source:
            time.sleep(3)
        client.close()
        check(relay.sums()[0] == 2, "not a second session")


feature("on")
case("udp-splices", udp_splices)
case("udp-by-copy", udp_copies, "--copy")
case("udp-server-returns", udp_server_returns)
case("udp-idle", udp_idle)
for relay_name in RELAYS:
    case(f"{relay_name}-splices", splices, relay_name)
for mode_name in ("copy", "pipe"):
    case(f"proxy-by-{mode_name}", by_mode, mode_name)
for mode_name in ("copy", "pipe", "sosplice"):
    case(f"proxy-{mode_name}-many", many, mode_name)
    case(f"proxy-{mode_name}-resets", resets, mode_name)
    case(f"proxy-{mode_name}-waits", waits, mode_name)
feature("off")
case("udp-copies", udp_copies)
for relay_name in RELAYS:
    if relay_name != "openbsd":
        case(f"{relay_name}-copies", copies, relay_name)
sys.exit(failed)
