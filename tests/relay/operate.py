# SPDX-License-Identifier: GPL-2.0
"""operate.py [CASE...]: tests what an administrator does: bad input, check, reload, upgrade, drain,
systemd, descriptors."""

import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import lib
from lib import (PROGRAM, Echo, Relay, accept, case, check, done, is_reset, listener, meanwhile, path,
                 read_all, read_exactly, reset, run, target, write)

LOAD = 100_000 if os.environ.get("TEST_FULL") else 1000    # connections while the relay changes


def config(to, more="", name="one", listen="127.0.0.1:0"):
    return f"[[listener]]\nname = '{name}'\nlisten = '{listen}'\nto = '{to}'\n{more}"


def refused(arguments, expected, status=1):
    """Checks that the program does not start, and tells why in one line."""
    out = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)
    check(out.returncode == status, arguments, "exited", out.returncode, out.stderr)
    check(expected in out.stderr and out.stderr.count("\n") == 1, "it says", out.stderr)
    check(not out.stdout, "and prints", out.stdout)


def bad_input():
    busy = listener()
    to = ["--to", "127.0.0.1:1"]
    refused(["--listen", target(busy), *to], f"cannot listen at {target(busy)}: Address already in use")
    refused(["--listen", "127.0.0.1:0", "--to", "no-such-host.invalid:1"], "cannot resolve the target no-such-host.invalid:1")
    refused(["--listen", "10.99.99.99:0", *to], "cannot listen at 10.99.99.99:0: Cannot assign requested address")
    refused(["--listen", "127.0.0.1:0", *to, "--mode", "fast"], "'fast' is no mode", 2)
    refused(["--listen", "127.0.0.1:0", *to, "--idle", "soon"], "idle: 'soon' is no time", 2)
    refused(["--listen", "127.0.0.1:0"], "a listener without 'to'", 2)
    refused(["--config", path("none")], f"{path('none')}: No such file or directory")
    refused(["--config", write("bad.toml", "[[listener]]\nlisten = '127.0.0.1:0'\nto = '127.0.0.1:1'\nidel = 5\n")],
            "line 4: unknown key 'idel' (is it 'idle'?)")
    refused(["status", "--admin", f"unix:{path('none')}"], "No such file or directory")
    if not os.path.exists("/sys/module/socksplice"):
        refused(["--listen", "127.0.0.1:0", *to, "--mode", "sosplice"], "mode sosplice: the module socksplice is not loaded")
    check("Usage" in run(PROGRAM, status=2))


def without_rights():
    """A relay that is to be transparent starts only with the right to, and a reload keeps the old
    configuration without it."""
    setpriv = shutil.which("setpriv")
    if os.getuid() != 0 or not setpriv:
        print("skip without_rights: it needs root and setpriv")
        return
    drop = [setpriv, "--bounding-set=-net_admin,-net_raw", "--inh-caps=-net_admin,-net_raw"]
    echo = Echo(b"e")
    text = config(echo.to(), "transparent = true\n")
    out = subprocess.run([*drop, PROGRAM, "--config", write("bare.toml", text)], capture_output=True, text=True, timeout=60)
    check(out.returncode == 1 and out.stderr.count("\n") == 1, out)
    check("one: transparent: it needs the capability CAP_NET_ADMIN: Operation not permitted" in out.stderr, out.stderr)
    with Relay(config(echo.to()), before=drop) as relay:
        relay.reload(text, good=False)
        with relay.connect() as s:
            check(s.recv(1) == b"e", "the old configuration does not serve")


def checks_files():
    bad = write("bad.toml", "drain = 'x'\n[[listener]]\nlisten = 'host:1'\nto = '1.2.3.4'\nmode = 5\nrate = -1\n")
    out = subprocess.run([PROGRAM, "check", bad], capture_output=True, text=True, timeout=60)
    check(out.returncode == 1, out)
    lines = [int(n) for n in re.findall(r"line (\d+):", out.stderr)]
    check(lines == [1, 3, 4, 5, 6], out.stderr)
    good = write("good.toml", config("localhost:80"))
    check(run(PROGRAM, "check", good) == f"{good}: ok\n")
    example = os.path.join(lib.ROOT, "service/socksplice-relay.toml")
    check(run(PROGRAM, "check", example) == f"{example}: ok\n")


def reloads():
    a, b = Echo(b"a"), Echo(b"b")
    with Relay(config(a.to())) as relay:
        listen = f"127.0.0.1:{relay.ports[0]}"
        with relay.connect() as old:
            check(old.recv(1) == b"a")
            # A listener at port 0 keeps its socket while the file has this address.
            relay.reload(config(b.to()))
            with relay.connect() as s:
                check(s.recv(1) == b"b")
            for bad in ("nonsense", config("127.0.0.1:x"), config("no-such-host.invalid:1"),
                        config(b.to(), listen="10.99.99.99:80")):
                relay.reload(bad, good=False)
                with relay.connect() as s:
                    check(s.recv(1) == b"b", "the old configuration does not serve")
            old.sendall(b"still")
            check(read_exactly(old, 5) == b"still", "the old connection does not live")
        state = relay.get()
        check((state["reloads"], state["failed_reloads"]) == (1, 4), state)
        # A reload adds another listener and removes the first.
        extra = listener()
        there = target(extra)
        extra.close()
        relay.reload(config(a.to(), name="two", listen=there))
        relay.ports = [int(there.split(":")[1])]
        with relay.connect() as s:
            check(s.recv(1) == b"a")
        try:
            socket.create_connection(("127.0.0.1", int(listen.split(":")[1])), 60).close()
            check(False, "the old listener is still there")
        except ConnectionRefusedError:
            pass


def reloads_keep_limits():
    """Connections from before a reload and from after it share the bandwidth of their listener."""
    server = listener()
    text = config(target(server), "total_bandwidth = '400K'\nmode = 'copy'\n")
    with Relay(text) as relay:
        pairs = []
        for _ in range(3):
            pairs.append((relay.connect(), accept(server)))
            relay.reload(text)
        began = time.monotonic()
        for client, _ in pairs:
            meanwhile(client.sendall, bytes(200_000))
        for _, s in pairs:
            read_exactly(s, 200_000)
        took = time.monotonic() - began
        check(took > 1.2, f"3 x 200,000 bytes took {took:.2f} s")


def wait_for_one(relay, number):
    """Clients of a listener with the limit 1: each has sent a byte, and only the first one is served."""
    held = [relay.connect() for _ in range(number)]
    for s in held:
        s.sendall(b"x")
    check(held[0].recv(1) == b"x")
    return held


def reload_raises_the_limit():
    """A reload with a higher max_connections serves the clients that wait, though none has ended."""
    echo = Echo()
    with Relay(config(echo.to(), "max_connections = 1\n")) as relay:
        held = wait_for_one(relay, 3)
        for i, more in ((1, "max_connections = 2\n"), (2, "")):
            relay.reload(config(echo.to(), more))
            check(held[i].recv(1) == b"x", i, "is not served")


def reload_keeps_the_whole_limit():
    """A reload says that it does not change the limit for all listeners together."""
    echo = Echo()
    with Relay("max_connections = 5\n" + config(echo.to())) as relay:
        relay.rewrite("max_connections = 6\n" + config(echo.to()))
        relay.signal(signal.SIGHUP)
        relay.said.until("max_connections stays 5: 6 needs a restart or an upgrade$")
        relay.said.until("reloaded$")
        relay.reload("max_connections = 5\n" + config(echo.to()))
        check("max_connections" not in relay.said.seen[-1], relay.said.seen)
        check(relay.get()["max_connections"] == 5)


def leaves_no_files():
    """A start or a reload that fails removes the files of the Unix sockets that it has made."""
    echo = Echo(b"e")
    busy = listener()
    new = config(echo.to(), listen=f"unix:{path('new.sock')}") + config(echo.to(), name="two", listen=target(busy))
    refused(["--config", write("new.toml", new)], f"cannot listen at {target(busy)}: Address already in use")
    check(not os.path.exists(path("new.sock")), "after the start")
    with Relay(config(echo.to(), listen=f"unix:{path('old.sock')}")) as relay:
        relay.reload(new, good=False)
        check(not os.path.exists(path("new.sock")), "after the reload")
        check(list(relay.get()["listeners"]) == ["one"], relay.get()["listeners"])
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path("old.sock"))
            check(s.recv(1) == b"e", "the old configuration does not serve")
        # A process that fails to take over leaves the files of this one.
        relay.rewrite(new.replace("new.sock", "old.sock"))
        relay.signal(signal.SIGUSR2)
        relay.said.until("no upgrade")
        check(os.path.exists(path("old.sock")), "after the upgrade")


def busy_unix_listener():
    """A reload to the path of a Unix socket whose accept queue is full fails, and does not wait."""
    echo = Echo(b"e")
    full = listener(path("full.sock"), socket.AF_UNIX)
    full.listen(0)
    held = []
    while True:
        s = socket.socket(socket.AF_UNIX)
        s.setblocking(False)
        held.append(s)
        if s.connect_ex(path("full.sock")):
            break
    with Relay(config(echo.to())) as relay:
        relay.reload(config(echo.to(), listen=f"unix:{path('full.sock')}"), good=False)
        with relay.connect() as s:
            check(s.recv(1) == b"e", "the old configuration does not serve")


class Load:
    """Several threads, each of which makes one connection after the other and waits for its answer."""

    def __init__(self, address, threads=4):
        self.address = address
        self.stop = False
        self.served = [0] * threads
        self.failed = []
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(threads)]
        for t in self.threads:
            t.start()

    def run(self, i):
        while not self.stop:
            try:
                with socket.create_connection(self.address, 60) as s:
                    s.sendall(b"ask")
                    s.shutdown(socket.SHUT_WR)
                    answer = read_all(s)
                if answer != b"ask":
                    self.failed.append(answer)
                self.served[i] += 1
            except OSError as e:
                self.failed.append(e)

    def until(self, more):
        """Waits until `more` further connections were served."""
        wanted = sum(self.served) + more
        end = time.monotonic() + 120
        while sum(self.served) < wanted:
            check(time.monotonic() < end and len(self.failed) < 100, "the load stands still:", self.failed[:3])
            time.sleep(0.01)

    def end(self):
        self.stop = True
        for t in self.threads:
            t.join(60)
        check(not self.failed, len(self.failed), "of", sum(self.served), "failed:", self.failed[:3])
        return sum(self.served)


def reloads_under_load():
    servers = [Echo(), Echo()]
    with Relay(config(servers[0].to())) as relay:
        load = Load(("127.0.0.1", relay.ports[0]))
        each = max(50, LOAD // 200)
        for i in range(LOAD // each):
            load.until(each)
            relay.reload(config(servers[i % 2].to()) if i % 5 else "nonsense", good=i % 5 != 0)
        number = load.end()
        check(number >= LOAD)
        print(f"# {number} connections, 0 failed, {LOAD // each} reloads")


def upgrades_under_load():
    """Upgrades again and again. The oldest connection lives on in the first process."""
    echo = Echo()
    program = path("program")
    shutil.copy(PROGRAM, program)
    relay = Relay(config(echo.to(), f"[[listener]]\nname = 'u'\nlisten = 'unix:{path('up.sock')}'\nto = '{echo.to()}'\n"))
    pids = [relay.pid]
    upgrades = 4 if LOAD <= 1000 else 20
    try:
        with relay.connect() as old:
            load = Load(("127.0.0.1", relay.ports[0]))
            for _ in range(upgrades):
                load.until(LOAD // upgrades // 2)
                os.kill(pids[-1], signal.SIGUSR2)
                pids.append(int(relay.said.until(r"process (\d+) has taken over")))
                load.until(LOAD // upgrades // 2)
                check(relay.until(lambda s: s["pid"] == pids[-1])["listeners"]["one"]["accepted"] > 0)
            old.sendall(b"still")
            check(read_exactly(old, 5) == b"still", "the oldest connection does not live")
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(path("up.sock"))
                s.sendall(b"x")
                check(s.recv(1) == b"x", "the Unix socket is not served")
            number = load.end()
            check(number >= LOAD)
            print(f"# {number} connections, 0 failed, {upgrades} upgrades")
        relay.process.wait(60)
    finally:
        for pid in pids[1:]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        relay.kill()


def upgrade_at_the_limit():
    """A client that waits for the limit of the old process is served by the new one."""
    echo = Echo()
    with Relay(config(echo.to(), "max_connections = 1\n")) as relay:
        held = wait_for_one(relay, 2)
        relay.signal(signal.SIGUSR2)
        pid = int(relay.said.until(r"process (\d+) has taken over"))
        try:
            check(held[1].recv(1) == b"x", "not served")
        finally:
            os.kill(pid, signal.SIGKILL)


def failed_upgrade():
    """If the new process does not start, the present one goes on."""
    echo = Echo()
    with Relay(config(echo.to())) as relay:
        relay.rewrite("nonsense")
        relay.signal(signal.SIGUSR2)
        relay.said.until("no upgrade: the new process ended before it accepted")
        with relay.connect() as s:
            s.sendall(b"x")
            check(s.recv(1) == b"x")


def upgrade_without_a_listener():
    """If the new process has no listener for a Unix socket, the file of that socket goes."""
    echo = Echo()
    a, b = (config(echo.to(), name=name, listen=f"unix:{path(name)}") for name in ("a.sock", "b.sock"))
    with Relay(a + b) as relay:
        relay.rewrite(a)
        relay.signal(signal.SIGUSR2)
        pid = int(relay.said.until(r"process (\d+) has taken over"))
        check(relay.process.wait(60) == 0)
        check(os.path.exists(path("a.sock")) and not os.path.exists(path("b.sock")), os.listdir(lib.FOLDER.name))
        os.kill(pid, signal.SIGTERM)
        relay.log.rest()    # ends when no process has its standard output any more
        check(not os.path.exists(path("a.sock")), "after SIGTERM")


def drains():
    server = listener()
    with Relay(config(target(server), "", "one")) as relay:
        client = relay.connect()
        s = accept(server)
        relay.signal(signal.SIGTERM)
        relay.said.until("1 connections may go on")
        try:
            relay.connect().close()
            check(False, "it still accepts")
        except ConnectionRefusedError:
            pass
        client.sendall(b"late")
        check(read_exactly(s, 4) == b"late")
        client.close()
        s.close()
        check(relay.process.wait(60) == 0)
        line = json.loads(relay.log.rest()[0])
        check(line["reason"] == "closed" and line["bytes_up"] == 4, line)
    with Relay("drain = '300ms'\n" + config(target(server))) as relay:
        client = relay.connect()
        s = accept(server)
        relay.signal(signal.SIGTERM)
        check(is_reset(client)[0] and is_reset(s)[0], "not cut")
        check(relay.process.wait(60) == 0)
        check(json.loads(relay.log.rest()[0])["reason"] == "shutdown")


def stops_within_the_last_bytes():
    """A relay that stops does not wait for the last bytes of a connection whose other end has failed."""
    server = listener()
    # In the time `drain` the relay finds that the target has failed, and begins to wait.
    with Relay("drain = '500ms'\n" + config(target(server), "mode = 'copy'\n")) as relay:
        client = relay.connect()
        s = accept(server)
        client.sendall(b"request")
        read_exactly(s, 7)
        # The client reads nothing, so the answer fills all queues, until the relay takes no more.
        s.setblocking(False)
        while select.select([], [s], [], 0.5)[1]:
            try:
                s.send(bytes(1 << 16))
            except BlockingIOError:
                pass
        reset(s)
        client.sendall(b"x")
        relay.signal(signal.SIGTERM)
        check(relay.process.wait(60) == 0)
        check(len(relay.log.rest()) == 1, "the connection has no line")
        check(is_reset(client)[0], "not cut")


def drains_in_turn():
    """At SIGTERM, a client that waits for the limit of its listener is served too."""
    echo = Echo()
    with Relay(config(echo.to(), "max_connections = 1\n")) as relay:
        first, second = relay.connect(), relay.connect()
        first.sendall(b"x")
        check(read_exactly(first, 1) == b"x")
        relay.signal(signal.SIGTERM)
        relay.said.until("1 connections may go on")
        first.close()
        second.sendall(b"x")
        check(read_exactly(second, 1) == b"x", "not served")
        # Time in which the relay must not end.
        try:
            relay.process.wait(1)
            check(False, "the relay ended before its last connection")
        except subprocess.TimeoutExpired:
            pass
        second.close()
        check(relay.process.wait(60) == 0)
        check([json.loads(line)["reason"] for line in relay.log.rest()] == ["closed"] * 2)


def ends_at_once():
    """A relay without connections ends as soon as its lines are written."""
    echo = Echo()
    times = []
    for _ in range(5):
        with Relay(config(echo.to())) as relay:
            relay.connect().close()
            relay.until(lambda s: s["listeners"]["one"]["ended"].get("closed"))
            began = time.monotonic()
            relay.signal(signal.SIGTERM)
            check(relay.process.wait(60) == 0)
            times.append(time.monotonic() - began)
            check(json.loads(relay.log.rest()[0])["reason"] == "closed")
    check(min(times) < 0.4, f"it takes {min(times):.2f} s")


def descriptors():
    """If the limit of open files is low, clients wait until they are served."""
    echo = Echo()

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    for mode in ("pipe", "copy"):
        with Relay(config(echo.to(), f"mode = '{mode}'\n"), preexec=few) as relay:
            check(relay.get()["max_connections"] == 24)
            held = [relay.connect() for _ in range(100)]
            for i, s in enumerate(held):
                s.sendall(b"x%d" % i)
            for i, s in enumerate(held):
                check(read_exactly(s, 1 + len(str(i))) == b"x%d" % i, i, "is not served")
                s.close()


def short_of_descriptors():
    """If accept(2) fails with EMFILE below the limit of connections, clients wait too. Checks that
    fail with EMFILE take no target down."""
    echo = Echo()
    with Relay(config(echo.to(), "health = { interval = '50ms', fall = 1 }\n")) as relay:
        limits = resource.prlimit(relay.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{relay.pid}/fd"))
        resource.prlimit(relay.pid, resource.RLIMIT_NOFILE, (used, limits[1]))
        held = [relay.connect() for _ in range(5)]
        relay.said.until(r"accept: Too many open files .*: waiting")
        time.sleep(0.5)     # time for some checks
        resource.prlimit(relay.pid, resource.RLIMIT_NOFILE, limits)
        for s in held:
            s.sendall(b"x")
            check(s.recv(1) == b"x")
        [target_] = relay.get()["targets"]
        check(target_["up"] and target_["failures_total"] == 0, target_)


def activation():
    echo = Echo(b"e")
    server = listener()
    where = target(server)
    server.close()
    starter = shutil.which("systemd-socket-activate") or shutil.which("systemd-socket-activate", path="/usr/lib/systemd:/usr/bin")
    before = [starter, "-l", where, "--fdname=web"]
    relay = Relay(config(echo.to(), listen="systemd:web"), before=before, wait=False)
    with relay:
        relay.said.until("Listening on")
        with socket.create_connection(("127.0.0.1", int(where.split(":")[1])), 60) as s:
            check(s.recv(1) == b"e")
    # A listener that is configured by its address gets the passed socket too.
    relay = Relay(config(echo.to(), listen=where), before=before, wait=False)
    with relay:
        relay.said.until("Listening on")
        with socket.create_connection(("127.0.0.1", int(where.split(":")[1])), 60) as s:
            check(s.recv(1) == b"e")


def activation_unix():
    """The file of a Unix socket that systemd passed stays, over an upgrade too. The relay removes the
    files of its own ones."""
    echo = Echo(b"e")
    starter = shutil.which("systemd-socket-activate") or shutil.which("systemd-socket-activate", path="/usr/lib/systemd:/usr/bin")
    before = [starter, "-l", path("passed.sock"), "--fdname=web"]

    def ask(name):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(path(name))
            check(s.recv(1) == b"e")

    def files():
        return [name for name in ("passed.sock", "own.sock") if os.path.exists(path(name))]
    both = config(echo.to(), listen="systemd:web") + config(echo.to(), name="two", listen=f"unix:{path('own.sock')}")
    for upgrade in (False, True):
        with Relay(both, before=before, wait=False) as relay:
            relay.said.until("Listening on")
            ask("passed.sock")
            ask("own.sock")
            relay.begun()   # it takes signals
            pid = relay.pid
            if upgrade:
                relay.signal(signal.SIGUSR2)
                pid = int(relay.said.until(r"process (\d+) has taken over"))
                check(relay.process.wait(60) == 0 and files() == ["passed.sock", "own.sock"], files())
            os.kill(pid, signal.SIGTERM)
            relay.log.rest()    # ends when no process has its standard output any more
            check(files() == ["passed.sock"], "upgrade:", upgrade, "files:", files())
            os.remove(path("passed.sock"))
    with Relay(both, before=before, wait=False) as relay:
        relay.said.until("Listening on")
        ask("passed.sock")
        relay.begun()
        relay.reload(config(echo.to()))
        check(files() == ["passed.sock"], "after a reload:", files())


def notifies():
    echo = Echo()
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(path("notify"))
    told.settimeout(60)
    relay = Relay(config(echo.to()), env={"NOTIFY_SOCKET": path("notify"), "WATCHDOG_USEC": "300000"})
    with relay:
        def until(word):
            while word not in (said := told.recv(4096).decode()):
                pass
            return said
        until("READY=1")
        until("WATCHDOG=1")
        relay.reload(config(echo.to()))
        check("MONOTONIC_USEC=" in until("RELOADING=1"))
        until("READY=1")
        relay.signal(signal.SIGTERM)
        until("STOPPING=1")
    told.close()


def shows():
    echo = Echo()
    with Relay(config(echo.to())) as relay, relay.connect() as s:
        s.sendall(b"x")
        s.recv(1)
        out = run(PROGRAM, "top", "--admin", relay.admin, "--delay", "0.1", "--times", "2")
        check(out.count("LISTENER") == 2 and f"one              127.0.0.1:{s.getsockname()[1]}" in out, out)
        status = json.loads(run(PROGRAM, "status", "--admin", relay.admin))
        check(status["version"] == 1 and status["listeners"]["one"]["open"] == 1, status)
        for line in relay.get("/metrics").splitlines():
            check(re.fullmatch(r'# .*|socksplice_relay_\w+(\{(\w+="[^"]*",?)+\})? \d+', line), line)


def many_admins():
    """A limit holds for the connections to the admin sockets too."""
    echo = Echo()
    with Relay(config(echo.to())) as relay:
        held = []
        for _ in range(65):
            s = socket.socket(socket.AF_UNIX)
            s.connect(relay.admin.removeprefix("unix:"))
            held.append(s)
        last = held[-1]
        last.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        last.settimeout(0.5)
        try:
            check(not last.recv(1), "it is served")
        except TimeoutError:
            pass
        held[0].close()
        last.settimeout(60)
        check(last.recv(4096).startswith(b"HTTP/1.1 200 "), "it was not served later")


def log_formats():
    echo = Echo()
    with Relay(None, "--listen", "127.0.0.1:0", "--to", echo.to(), "--log-format", "logfmt", wait=False) as relay:
        pass
    arguments = ["--listen", "127.0.0.1:0", "--to", echo.to(), "--log-format", "logfmt"]
    process = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        at = int(re.search(r":(\d+)$", process.stderr.readline())[1])
        socket.create_connection(("127.0.0.1", at), 60).close()
        line = process.stdout.readline()
        check(re.match(r'time=\S+ id=0 listener=127.0.0.1:0 client=127.0.0.1:\d+ target=\S+ mode_up=\w+ mode_down=\w+ '
                       r'why=.* bytes_up=0 bytes_down=0 .* reason=closed$', line), line)
    finally:
        process.kill()
        process.wait()


def installs():
    """`make install-relay` installs all files, systemd accepts the unit, and uninstall leaves nothing."""
    there = path("installed")
    make = ("make", "-s", "-C", lib.ROOT, f"DESTDIR={there}", "PREFIX=/usr", f"RELAY={os.path.abspath(PROGRAM)}")
    run(*make, "install-relay")
    program = f"{there}/usr/sbin/socksplice-relay"
    check("socksplice-relay" in run(program, "--version"))
    run(program, "check", f"{there}/etc/socksplice/relay.toml")
    if shutil.which("groff"):
        for page in ("8/socksplice-relay.8", "5/socksplice-relay.toml.5"):
            out = run("groff", "-man", "-ww", "-z", f"{there}/usr/share/man/man{page}")
            check(not out, out)
    unit = f"{there}/usr/lib/systemd/system/socksplice-relay.service"
    with open(unit) as f:
        text = f.read().replace("/usr/sbin/", f"{there}/usr/sbin/")
    own = write("socksplice-relay.service", text)
    if shutil.which("systemd-analyze"):
        shutil.copy(unit.replace(".service", ".socket"), lib.FOLDER.name)
        out = run("systemd-analyze", "verify", "--man=no", own, path("socksplice-relay.socket"))
        check("socksplice-relay" not in out, out)
    run(*make, "uninstall-relay")
    left = [f for _, _, files in os.walk(there) for f in files]
    check(not left, "left:", left)


def documented():
    """The manual pages contain each key of the file, and each option."""
    with open(os.path.join(lib.ROOT, "man/socksplice-relay.toml.5")) as f:
        page = f.read()
    with open(os.path.join(lib.ROOT, "relay/src/config/read.rs")) as f:
        keys = set(re.findall(r'\b(?:s|self)\.(?:value|parsed|number|list|flag|table|tables)\(\s*"(\w+)"', f.read()))
    missing = [k for k in keys if not re.search(rf"\b{k}\b", page)]
    check(len(keys) > 30 and not missing, "not documented:", missing, keys)
    with open(os.path.join(lib.ROOT, "man/socksplice-relay.8")) as f:
        page = f.read().replace("\\-", "-")
    options = set(re.findall(r"--([a-z-]+)", run(PROGRAM, "--help"))) - {"help", "version"}
    missing = [o for o in options if f"--{o}" not in page]
    check(len(options) > 20 and not missing, "not documented:", missing)
    # The synopsis names options, but does not describe them.
    commands = page[page.index(".SH COMMANDS"):]
    for command in ("check", "status", "top"):
        options = set(re.findall(r"--([a-z-]+)", run(PROGRAM, command, "--help"))) - {"help", "version"}
        missing = [o for o in options if f"--{o}" not in commands]
        check(not missing, command, "not documented:", missing)


CASES = [installs, documented, bad_input, without_rights, checks_files, reloads, reloads_keep_limits, reload_raises_the_limit,
         reload_keeps_the_whole_limit, leaves_no_files, busy_unix_listener, reloads_under_load,
         upgrades_under_load, upgrade_at_the_limit, failed_upgrade, upgrade_without_a_listener, drains,
         stops_within_the_last_bytes, drains_in_turn, ends_at_once, descriptors, short_of_descriptors, activation,
         activation_unix, notifies, shows, many_admins, log_formats]

if __name__ == "__main__":
    for one in CASES:
        if not sys.argv[1:] or one.__name__ in sys.argv[1:]:
            case(one.__name__, one)
    done()
