# SPDX-License-Identifier: GPL-2.0
"""Shared by the tests of socksplice-relay: a running relay, servers to forward to, and one
result line for each case."""

import atexit
import contextlib
import json
import os
import queue
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROGRAM = os.environ.get("RELAY") or os.path.join(ROOT, "cli/target/release/socksplice-relay")
TIME = 60   # limit for each wait, in seconds, for slow machines
FOLDER = tempfile.TemporaryDirectory(prefix="relay-test-")
failed = False


def check(good, *why):
    if not good:
        raise AssertionError(" ".join(map(str, why)))


class Late(Exception):
    """The machine was slower than a time limit that the case sets. The case begins anew."""


def check_in_time(began, seconds):
    if time.monotonic() - began >= seconds:
        raise Late


@contextlib.contextmanager
def in_time(began, seconds):
    """For steps on a connection that the relay may end so many seconds after `began`, and no sooner: an
    error by then is a failure."""
    try:
        yield
    except (OSError, AssertionError):
        check_in_time(began, seconds)
        raise


def again_if_late(run, *arguments):
    for _ in range(20):
        try:
            return run(*arguments)
        except Late:
            print("# the machine is too slow: again", flush=True)
    raise AssertionError("the machine was too slow 20 times")


def case(name, run, *arguments):
    global failed
    try:
        again_if_late(run, *arguments)
        print(f"ok {name}", flush=True)
    except Exception as e:  # an error in the test itself is a failure too
        where = traceback.extract_tb(e.__traceback__)[-1]
        for line in traceback.format_exc().splitlines():
            print(f"# {line}")
        why = (str(e).splitlines() or [""])[0]
        print(f"not ok {name}: {type(e).__name__}: {why} (line {where.lineno})", flush=True)
        failed = True


def done():
    sys.exit(1 if failed else 0)


def path(name):
    return os.path.join(FOLDER.name, name)


def write(name, text):
    with open(path(name), "w") as f:
        f.write(text)
    return path(name)


class Lines:
    """The lines of a stream. A thread reads them as they come."""

    def __init__(self, stream):
        self.queue = queue.Queue()
        self.seen = []
        threading.Thread(target=self.read, args=(stream,), daemon=True).start()

    def read(self, stream):
        for line in stream:
            self.queue.put(line.rstrip("\n"))
        self.queue.put(None)

    def next(self):
        try:
            line = self.queue.get(timeout=TIME)
        except queue.Empty:
            raise AssertionError(f"no further line; so far {self.seen[-5:]}") from None
        check(line is not None, "no line comes any more; so far", self.seen[-5:])
        self.seen.append(line)
        return line

    def until(self, pattern):
        while not (found := re.search(pattern, line := self.next())):
            pass
        return found[1] if found.groups() else line

    def rest(self):
        lines = []
        while (line := self.queue.get(timeout=TIME)) is not None:
            lines.append(line)
        return lines


class Relay:
    """A running relay, configured by the text of a file or by options."""

    number = 0

    def __init__(self, config=None, *options, env=None, before=(), wait=True, preexec=None):
        Relay.number += 1
        self.admin = f"unix:{path(f'admin{Relay.number}')}"
        arguments = list(options)
        if config is not None:
            self.file = write("relay.toml", f"log_format = 'json'\nadmin = '{self.admin}'\n" + config)
            arguments += ["--config", self.file]
        else:
            arguments += ["--log-format", "json", "--admin", self.admin]
        self.process = subprocess.Popen(
            [*before, PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, **(env or {})}, preexec_fn=preexec)
        self.log = Lines(self.process.stdout)
        self.said = Lines(self.process.stderr)
        self.pid = self.process.pid
        atexit.register(self.kill)
        self.ports = []
        if wait:
            self.begun()

    def begun(self):
        """Waits until the relay accepts. Collects the ports of its listeners in the order in which
        the relay reports them."""
        while "SO_SPLICE" not in (line := self.said.next()):
            if found := re.search(r"listening at (?:.*):(\d+)$", line):
                self.ports.append(int(found[1]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        atexit.unregister(self.kill)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def connect(self, index=0, host="127.0.0.1", source=None):
        s = socket.create_connection((host, self.ports[index]), TIME, source and (source, 0))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def turns_away(self, source=None):
        """Returns True if a new connection is reset before its first byte. If the reset arrives
        before connect() returns, connect() raises it."""
        try:
            with self.connect(source=source) as s:
                s.recv(1)
        except ConnectionResetError:
            return True
        return False

    def line(self, **wanted):
        """Returns the next line of the log that has the wanted fields."""
        while True:
            line = json.loads(self.log.next())
            if all(line.get(k) == v for k, v in wanted.items()):
                return line

    def get(self, page="/status"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(TIME)
        s.connect(self.admin.removeprefix("unix:"))
        s.sendall(f"GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, body = read_all(s).decode().split("\r\n\r\n", 1)
        check(head.startswith("HTTP/1.1 200 "), head)
        return body if page == "/metrics" else json.loads(body)

    def until(self, what, page="/status"):
        """Waits until `what` is true for a page, and returns the page."""
        end = time.monotonic() + TIME
        while not what(state := self.get(page)):
            check(time.monotonic() < end, "still", state)
            time.sleep(0.02)
        return state

    def rewrite(self, config):
        with open(self.file, "w") as f:
            f.write(f"log_format = 'json'\nadmin = '{self.admin}'\n" + config)

    def signal(self, number):
        self.process.send_signal(number)

    def reload(self, config, good=True):
        self.rewrite(config)
        self.signal(signal.SIGHUP)
        self.said.until("reloaded$" if good else "not reloaded")


def listener(host="127.0.0.1", family=socket.AF_INET):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, 0) if family != socket.AF_UNIX else host)
    s.listen(4096)
    s.settimeout(TIME)
    return s


def accept(server):
    s, _ = server.accept()
    s.settimeout(TIME)
    return s


def port(server):
    return server.getsockname()[1]


def target(server):
    return f"127.0.0.1:{port(server)}"


def read_all(s):
    parts = []
    while part := s.recv(1 << 18):
        parts.append(part)
    return b"".join(parts)


def read_exactly(s, n):
    parts = []
    while n > 0:
        part = s.recv(min(n, 1 << 18))
        check(part, f"the stream ended {n} bytes too early")
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def is_reset(s):
    """Reads to the end of a stream. Returns whether that is a reset, and the bytes before it."""
    got = b""
    try:
        while part := s.recv(1 << 16):
            got += part
    except ConnectionResetError:
        return True, got
    return False, got


class Echo:
    """A server that sends its name, if it has one, and then echoes all bytes."""

    def __init__(self, name=b"", address=("127.0.0.1", 0), family=socket.AF_INET):
        self.name = name
        self.family = family
        self.begin(address)

    def begin(self, address):
        self.server = socket.socket(self.family)
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.server.bind(address)
        self.server.listen(4096)
        self.address = self.server.getsockname()
        threading.Thread(target=self.run, args=(self.server,), daemon=True).start()

    def run(self, server):
        while True:
            try:
                s, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        with s:
            try:
                if self.name:
                    s.sendall(self.name)
                while part := s.recv(1 << 16):
                    s.sendall(part)
            except OSError:
                pass

    def to(self):
        return "{}:{}".format(*self.address)

    def stop(self):
        # A thread in accept(2) keeps the socket open. shutdown(2) ends that call.
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()

    def again(self):
        self.begin(self.address)


def meanwhile(steps, *arguments):
    """Runs `steps` in a thread. join() of the returned handle returns the result of `steps`, or
    raises its exception."""
    result = []

    def run():
        try:
            result.append((steps(*arguments), None))
        except Exception as e:
            result.append((None, e))
    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    class Handle:
        @staticmethod
        def join():
            thread.join(TIME)
            check(result, "it does not end:", steps)
            value, error = result[0]
            if error:
                raise error
            return value
    return Handle


def run(*command, status=0, **options):
    """Runs a program to its end and returns its output. Its exit status must be `status`, unless
    that is None."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * TIME, **options)
    check(status is None or done.returncode == status, command[0], "exited", done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr


def certificate(name):
    if not os.path.exists(path(name + ".pem")):
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={name}", "-keyout", path(name + ".pem"), "-out", path(name + ".crt"), "-days", "2")
        with open(path(name + ".pem"), "a") as f, open(path(name + ".crt")) as g:
            f.write(g.read())
    return path(name + ".pem")
