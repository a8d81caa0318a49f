# SPDX-License-Identifier: GPL-2.0
"""Tests where connections go, and which are allowed: balancing, health, PROXY headers, SNI, CONNECT,
SOCKS5, Unix sockets, IPv6, limits."""

import contextlib
import os
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

from lib import (Echo, Relay, accept, case, certificate, check, check_in_time, done, in_time, is_reset, listener,
                 meanwhile, path, port, read_all, read_exactly, run, target, write)


def one(listen, more):
    return f"[[listener]]\nname = 'one'\nlisten = {listen!r}\n{more}"


def simple(more):
    return one("127.0.0.1:0", more)


def name_of(relay, index=0):
    """Returns the name of the server that answers, which is one byte."""
    with relay.connect(index) as s:
        return s.recv(1)


def nobody():
    """Returns an address at which no process listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


class Hanging:
    """A server whose accept queue is full, so that a connect to it gets no answer."""

    def __init__(self):
        self.server = socket.socket()
        self.server.bind(("127.0.0.1", 0))
        self.server.listen(0)
        self.fill = []
        for _ in range(4):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(self.server.getsockname())
            self.fill.append(s)

    def to(self):
        return target(self.server)


def in_turn():
    servers = [Echo(b"a"), Echo(b"b"), Echo(b"c")]
    to = [s.to() for s in servers]
    with Relay(simple(f"to = {to}\n")) as relay:
        names = [name_of(relay) for _ in range(6)]
        check(sorted(names[:3]) == [b"a", b"b", b"c"] and names[:3] == names[3:], names)


def least_connections():
    servers = [Echo(b"a"), Echo(b"b")]
    to = [s.to() for s in servers]
    with Relay(simple(f"to = {to}\nbalance = 'least-connections'\n")) as relay:
        def enter():
            # The relay may choose for two waiting clients in either order, so one comes at a time.
            s = relay.connect()
            return s, s.recv(1)

        first, second = enter(), enter()
        check({first[1], second[1]} == {b"a", b"b"}, first, second)
        first[0].close()
        relay.line(reason="closed")
        third = enter()
        check(third[1] == first[1], "it went to the busy one")
        third[0].close()
        second[0].close()


def by_source():
    servers = [Echo(b"a"), Echo(b"b"), Echo(b"c")]
    to = [s.to() for s in servers]
    with Relay(simple(f"to = {to}\nbalance = 'source-hash'\n")) as relay:
        def name(source):
            with relay.connect(source=source) as s:
                return s.recv(1)
        sources = [f"127.0.{i}.{i + 1}" for i in range(12)]
        first = [name(s) for s in sources]
        check(first == [name(s) for s in sources], "a source has changed")
        check(len(set(first)) > 1, "all go to one")


def retry():
    good = Echo(b"g")
    bad = nobody()
    more = f"to = ['{bad}', '{good.to()}']\nhealth = {{ fall = 2, back_off = '300ms' }}\n"
    with Relay(simple(more)) as relay:
        check({name_of(relay) for _ in range(6)} == {b"g"}, "a connection failed")
        relay.said.until(f"target {bad} is down: Connection refused")
        state = relay.get()
        up = {t["target"]: t["up"] for t in state["targets"]}
        check(up == {bad: False, good.to(): True}, up)
        late = Echo(b"l", ("127.0.0.1", int(bad.split(":")[1])))
        end = time.monotonic() + 60
        while name_of(relay) != b"l":
            check(time.monotonic() < end, "it is not tried again")
        relay.said.until(f"target {bad} is up")
        late.stop()


def hangs():
    hanging, good = Hanging(), Echo(b"g")
    more = f"to = ['{hanging.to()}', '{good.to()}']\nconnect_timeout = '300ms'\n"
    with Relay(simple(more)) as relay:
        check([name_of(relay) for _ in range(2)] == [b"g"] * 2)
    with Relay(simple(f"to = '{hanging.to()}'\nconnect_timeout = '300ms'\n")) as relay:
        check(relay.turns_away(), "not reset")
        check(relay.line()["reason"] == "connect-timeout")


def no_target():
    with Relay(simple(f"to = '{nobody()}'\nhealth = {{ fall = 1, back_off = '1h', back_off_max = '1h' }}\n")) as relay:
        for reason in ("connect-failed", "no-target"):
            check(relay.turns_away(), "not reset")
            check(relay.line()["reason"] == reason)


def checks():
    servers = [Echo(b"a"), Echo(b"b")]
    to = [s.to() for s in servers]
    health = "health = { interval = '100ms', timeout = '2s', fall = 2, rise = 2, back_off = '100ms', back_off_max = '200ms', expect = 'a' }\n"
    with Relay(simple(f"to = {to}\n{health}")) as relay:
        relay.said.until(f"target {to[1]} is down: check: another answer")
        check({name_of(relay) for _ in range(4)} == {b"a"})
        servers[0].stop()
        relay.said.until(f"target {to[0]} is down: check: Connection refused")
        servers[0].again()
        relay.said.until(f"target {to[0]} is up")
        check(name_of(relay) == b"a")


def names():
    good = Echo(b"g")
    with Relay(simple(f"to = 'localhost:{good.address[1]}'\n")) as relay:
        check(name_of(relay) == b"g")
        check(relay.line()["target"] == good.to())


def names_anew():
    """A name that resolves to another address after a while."""
    if os.getuid() != 0:
        print("skip names_anew: it needs root, for /etc/hosts of its own")
        return
    servers = [Echo(b"1")]
    at = servers[0].address[1]
    servers.append(Echo(b"2", ("127.0.0.2", at)))
    hosts = write("hosts", "127.0.0.1 moving.test\n")
    before = ["unshare", "--mount", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]
    with Relay("resolve = '1s'\n" + simple(f"to = 'moving.test:{at}'\n"), before=before) as relay:
        check(name_of(relay) == b"1")
        write("hosts", "127.0.0.2 moving.test\n")
        end = time.monotonic() + 60
        while (name := name_of(relay)) != b"2":
            check(time.monotonic() < end, "it is still", name)
        write("hosts", "\n")
        relay.said.until("cannot be resolved, its addresses stay")
        check(name_of(relay) == b"2")
        [target_] = relay.get()["targets"]
        check(target_["address"] == f"127.0.0.2:{at}", target_)


def unix_sockets():
    echo = Echo(b"u", path("target.sock"), socket.AF_UNIX)
    with Relay(f"[[listener]]\nlisten = 'unix:{path('in.sock')}'\nto = 'unix:{path('target.sock')}'\n", wait=False) as relay:
        relay.begun()
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(path("in.sock"))
            check(s.recv(1) == b"u")
            s.sendall(b"hello" * 50_000)
            s.shutdown(socket.SHUT_WR)
            check(read_all(s) == b"hello" * 50_000)
        line = relay.line()
        check((line["mode_up"], line["why"], line["reason"]) == ("copy", "an end is a Unix socket", "closed"), line)
        relay.signal(signal.SIGTERM)
        relay.process.wait(60)
        check(not os.path.exists(path("in.sock")), "its file stays")
    echo.stop()


def full_unix_queue():
    """Clients wait while the accept queue of a Unix target is full. That is no failure of the target."""
    server = listener(path("full.sock"), socket.AF_UNIX)
    server.listen(1)
    more = f"to = 'unix:{path('full.sock')}'\nconnect_timeout = '60s'\nhealth = {{ fall = 1 }}\n"
    with Relay(simple(more)) as relay:
        clients = [relay.connect() for _ in range(10)]
        relay.until(lambda s: s["targets"][0]["connections"] == 10)
        served = []
        for _ in clients:
            s = accept(server)
            s.sendall(b"u")
            served.append(s)
        for s in clients:
            check(s.recv(1) == b"u", "not served")
        [state] = relay.get()["targets"]
        check(state["up"] and state["failures_total"] == 0, state)


def ipv6():
    good = Echo(b"6", ("::1", 0), socket.AF_INET6)
    to = f"[::1]:{good.address[1]}"
    with Relay(one("[::1]:0", f"to = '{to}'\n")) as relay:
        with relay.connect(host="::1") as s:
            check(s.recv(1) == b"6")
    with Relay(one("*:0", f"to = '{to}'\n")) as relay:
        for host in ("::1", "127.0.0.1"):
            with relay.connect(host=host) as s:
                check(s.recv(1) == b"6")
            line = relay.line()
            check(line["client"].startswith("127.0.0.1:" if host == "127.0.0.1" else "[::1]:"), line)


def proxy_out():
    for version, listen in (("v1", "127.0.0.1:0"), ("v2", "127.0.0.1:0"), ("v1", "*:0")):
        server = listener()
        with Relay(one(listen, f"to = '{target(server)}'\nproxy_out = '{version}'\n")) as relay:
            client = relay.connect()
            mine, its = client.getsockname(), client.getpeername()
            s = accept(server)
            if version == "v1":
                expected = f"PROXY TCP4 127.0.0.1 127.0.0.1 {mine[1]} {its[1]}\r\n".encode()
            else:
                expected = (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([127, 0, 0, 1] * 2)
                            + struct.pack(">HH", mine[1], its[1]))
            client.sendall(b"data")
            check(read_exactly(s, len(expected) + 4) == expected + b"data")


def proxy_in():
    server = listener()
    more = f"to = '{target(server)}'\nproxy_in = 'any'\nproxy_out = 'v1'\ndeny = '10.9.0.0/16'\n"
    with Relay(simple(more)) as relay:
        with relay.connect() as client:
            client.sendall(b"PROXY TCP4 10.1.2.3 10.4.5.6 1000 80\r\ndata")
            expected = b"PROXY TCP4 10.1.2.3 10.4.5.6 1000 80\r\ndata"
            s = accept(server)
            check(read_exactly(s, len(expected)) == expected)
            s.close()
        line = relay.line()
        check(line["client"] == "10.1.2.3:1000" and line["via"].startswith("127.0.0.1:"), line)
        with relay.connect() as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            check(is_reset(client)[0], "not reset")
        check(relay.line()["reason"] == "bad-header")
        with relay.connect() as client:
            client.sendall(b"PROXY TCP4 10.9.2.3 10.4.5.6 1000 80\r\ndata")
            check(is_reset(client)[0], "not denied")
        relay.until(lambda s: s["listeners"]["one"]["ended"].get("denied") == 1)
    with Relay(simple(more + "header_timeout = '500ms'\n")) as relay, relay.connect() as client:
        with contextlib.suppress(ConnectionResetError):     # its time may be over
            client.sendall(b"PROXY TCP4 1.2")
        check(is_reset(client)[0], "not reset")
        check(relay.line()["reason"] == "header-timeout")
    with Relay(simple(f"to = '{target(server)}'\nproxy_in = 'any'\nproxy_from = '10.0.0.0/8'\n")) as relay:
        check(relay.turns_away(), "believed")


class Tls:
    """A TLS server that sends its name."""

    def __init__(self, name, alpn=()):
        self.server = listener()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate(name))
        if alpn:
            self.context.set_alpn_protocols(list(alpn))
        self.name = name.encode()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            s, _ = self.server.accept()
            try:
                with self.context.wrap_socket(s, server_side=True) as tls:
                    tls.sendall(self.name)
            except OSError:
                pass

    def to(self):
        return target(self.server)


def tls():
    servers = [Tls("a"), Tls("b", ["h2"]), Tls("other")]
    a, b, other = (s.to() for s in servers)
    more = (f"to = '{other}'\n"
            f"[[listener.route]]\nsni = ['a.example', '*.a.example']\nto = '{a}'\n"
            f"[[listener.route]]\nsni = 'b.example'\nalpn = 'h2'\nto = '{b}'\n")
    with Relay(simple(more)) as relay:
        def ask(name, alpn=()):
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            if alpn:
                context.set_alpn_protocols(list(alpn))
            with context.wrap_socket(relay.connect(), server_hostname=name) as s:
                return read_all(s)
        for name, alpn, answer in (("a.example", (), b"a"), ("x.a.example", (), b"a"), ("b.example", ("h2",), b"b"),
                                   ("b.example", ("http/1.1",), b"other"), ("c.example", (), b"other"), (None, (), b"other")):
            check(ask(name, alpn) == answer, name, alpn, "went elsewhere")
            line = relay.line()
            check(line["sni"] == (name or "") and line["alpn"] == ",".join(alpn), line)
        out = run("openssl", "s_client", "-connect", f"127.0.0.1:{relay.ports[0]}", "-servername", "a.example",
                  status=None, stdin=subprocess.DEVNULL)
        check("CN = a" in out or "CN=a" in out, out)
        with relay.connect() as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            check(is_reset(s)[0], "what is no TLS was served")
        relay.line(reason="bad-header")
    with Relay(simple(f"[[listener.route]]\nsni = 'a.example'\nto = '{a}'\n")) as relay:
        with relay.connect() as s:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            try:
                context.wrap_socket(s, server_hostname="z.example")
                check(False, "served without a route")
            except (ConnectionResetError, ssl.SSLError):
                pass
        relay.line(reason="no-route")


def long_hello():
    """The relay keeps little of a ClientHello that names thousands of protocols."""
    def counted(body):
        return struct.pack(">H", len(body)) + body
    names = counted(b"\x01\x00" * 16_000)
    groups, signatures = struct.pack(">HHHH", 10, 4, 2, 0x1d), struct.pack(">HHHH", 13, 4, 2, 0x403)
    extensions = groups + signatures + struct.pack(">HH", 16, len(names)) + names
    body = b"\x03\x03" + bytes(33) + counted(b"\xc0\x2f") + b"\x01\x00" + counted(extensions)
    message = b"\x01" + struct.pack(">I", len(body))[1:] + body
    hello = b"".join(b"\x16\x03\x01" + counted(message[i:i + 16_000]) for i in range(0, len(message), 16_000))
    echo = Echo()
    with Relay(simple(f"front = 'tls'\nto = '{echo.to()}'\nheader_timeout = '60s'\n")) as relay:
        def enter(number):
            clients = [relay.connect() for _ in range(number)]
            for s in clients:
                s.sendall(hello)
                check(read_exactly(s, len(hello)) == hello)
            with open(f"/proc/{relay.pid}/statm") as f:
                return clients, int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        first, before = enter(5)
        more, after = enter(25)
        check(after - before < 8 << 20, f"25 connections take {(after - before) >> 10} KiB")
        for s in first + more:
            s.close()
        for _ in range(30):
            line = relay.log.next()
            check(len(line) < 2048 and '"reason":"closed"' in line, len(line), line[:200])


def slow_headers():
    """A client that sends its header byte by byte has the same time limit as others."""
    with Relay(simple("front = 'tls'\nto = '127.0.0.1:1'\nheader_timeout = '1s'\n")) as relay:
        began = time.monotonic()
        with relay.connect() as s:
            def drip():
                try:
                    for byte in b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500):
                        s.sendall(bytes([byte]))
                        time.sleep(0.1)
                except OSError:
                    pass
            meanwhile(drip)
            check(is_reset(s)[0], "not reset")
            took = time.monotonic() - began
            check(1 <= took < 4, f"ended after {took:.1f} s")
        check(relay.line()["reason"] == "header-timeout")


class Web:
    """A web server with one page."""

    def __init__(self):
        self.server = listener()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            s, _ = self.server.accept()
            with s:
                s.recv(4096)
                s.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\npage\n")


def connect_front():
    web = Web()
    page = f"http://localhost:{port(web.server)}/"
    more = f"front = 'connect'\nconnect_to = '127.0.0.0/8'\nconnect_ports = {port(web.server)}\n"
    with Relay(simple(more)) as relay:
        proxy = f"http://127.0.0.1:{relay.ports[0]}"
        curl = ("curl", "-sS", "--noproxy", "", "--proxytunnel", "--proxy", proxy)
        check(run(*curl, page) == "page\n")
        check("403" in run(*curl, "http://127.0.0.1:1/", status=56))
        check("403" in run(*curl, "http://10.0.0.1:80/", status=56))
        check(run("curl", "-sS", "--noproxy", "", "-o", "/dev/null", "-w", "%{http_code}", "--proxy", proxy, page) == "405")
        # Bytes that come together with the request are not lost.
        with relay.connect() as s:
            s.sendall(f"CONNECT 127.0.0.1:{port(web.server)} HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n".encode())
            answer = read_all(s)
            check(answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"page\n"), answer)


def late_requests():
    """A client of CONNECT or SOCKS5 whose request takes too long gets an answer."""
    for front, begin, answer in (("connect", b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n", b"HTTP/1.1 408 "),
                                 ("socks5", b"\5\1\0\5\1", b"\5\0\5\1"), ("socks5", b"\5", b"")):
        more = f"front = '{front}'\nconnect_to = '127.0.0.0/8'\nheader_timeout = '300ms'\n"
        with Relay(simple(more)) as relay:
            began = time.monotonic()
            with relay.connect() as s:
                with in_time(began, 0.3):
                    s.sendall(begin)
                check_in_time(began, 0.3)
                got = is_reset(s)[1]
            check(got.startswith(answer) and bool(got) == bool(answer), front, begin, got)
            check(relay.line()["reason"] == "header-timeout")


def most_bytes():
    """max_bytes holds for bytes that come together with the request too."""
    server = listener()
    with Relay(simple("front = 'connect'\nconnect_to = '127.0.0.0/8'\nmax_bytes = 10\n")) as relay:
        with relay.connect() as s:
            s.sendall(f"CONNECT {target(server)} HTTP/1.1\r\n\r\n".encode() + b"0123456789more")
            there = accept(server)
            check(is_reset(there) == (True, b"0123456789"), "another number of bytes")
        line = relay.line()
        check((line["reason"], line["bytes_up"]) == ("max-bytes", 10), line)


def unspecified():
    """0.0.0.0 reaches this host: no client may ask for it, though a network of the list contains it."""
    web = Web()
    with Relay(simple("front = 'connect'\nconnect_to = '0.0.0.0/5'\n")) as relay:
        # The resolver makes 0.0.0.0 of the name 0x0.
        for host, status in (("[::ffff:0.0.0.0]", b"400"), ("0.0.0.0", b"400"), ("0x0", b"403")):
            with relay.connect() as s:
                s.sendall(f"CONNECT {host}:{port(web.server)} HTTP/1.1\r\n\r\n".encode())
                answer = s.recv(4096)
                check(answer.startswith(b"HTTP/1.1 " + status), host, answer)


def socks_front():
    web = Web()
    page = f"http://localhost:{port(web.server)}/"
    with Relay(simple("front = 'socks5'\nconnect_to = ['127.0.0.0/8']\n")) as relay:
        proxy = f"127.0.0.1:{relay.ports[0]}"
        for option in ("--socks5", "--socks5-hostname"):
            check(run("curl", "-sS", "--noproxy", "", option, proxy, page) == "page\n")
        run("curl", "-sS", "--noproxy", "", "--socks5", proxy, "http://10.0.0.1/", status=97)
        check(relay.line(reason="forbidden")["detail"].startswith("10.0.0.1:80"))
        with relay.connect() as s:      # SOCKS 4
            s.sendall(b"\x04\x01\0\x50\x7f\0\0\1\0")
            s.settimeout(60)
            check(is_reset(s)[1] == b"")
        check(relay.line()["reason"] == "bad-header")


def most_connections():
    echo = Echo()
    with Relay(simple(f"to = '{echo.to()}'\nmax_connections = 2\n")) as relay:
        held = [relay.connect() for _ in range(3)]
        for s in held:
            s.sendall(b"x")
        for s in held[:2]:
            check(s.recv(1) == b"x")
        held[2].settimeout(0.5)
        try:
            check(not held[2].recv(1), "a third is served")
        except TimeoutError:
            pass
        held[0].close()
        held[2].settimeout(60)
        check(held[2].recv(1) == b"x", "it was not served later")


def per_source():
    echo = Echo()
    with Relay(simple(f"to = '{echo.to()}'\nmax_per_source = 2\n")) as relay:
        held = [relay.connect() for _ in range(2)]
        for s in held:
            s.sendall(b"x")
            check(s.recv(1) == b"x")
        check(relay.turns_away(), "a third is served")
        with relay.connect(source="127.0.0.2") as s:
            s.sendall(b"x")
            check(s.recv(1) == b"x", "another source is turned away")
        ended = relay.until(lambda s: s["listeners"]["one"]["ended"].get("closed"))["listeners"]["one"]["ended"]
        check(ended.get("source-connections") == 1, ended)


def rates():
    echo = Echo(b"e")
    with Relay(simple(f"to = '{echo.to()}'\nrate = 10\n")) as relay:
        began = time.monotonic()
        for _ in range(20):
            check(name_of(relay) == b"e")
        took = time.monotonic() - began
        check(0.8 < took < 5, f"20 connections at 10 a second took {took:.1f} s")
    with Relay(simple(f"to = '{echo.to()}'\nrate_per_source = 3\n")) as relay:
        began = time.monotonic()
        cut = sum(relay.turns_away() for _ in range(8))
        served = 3 + 3 * (time.monotonic() - began)     # at most
        check(8 - served <= cut <= 5, cut, "of 8 were turned away")


def networks():
    echo = Echo(b"e")
    with Relay(simple(f"to = '{echo.to()}'\nallow = ['127.0.0.0/24']\ndeny = ['127.0.0.7']\n")) as relay:
        for source, good in (("127.0.0.1", True), ("127.0.0.7", False), ("127.0.1.1", False)):
            check(relay.turns_away(source) != good, source)
        relay.until(lambda s: s["listeners"]["one"]["ended"].get("denied") == 2)


CASES = [in_turn, least_connections, by_source, retry, hangs, no_target, checks, names, names_anew, unix_sockets,
         full_unix_queue, ipv6, proxy_out, proxy_in, tls, long_hello, slow_headers, connect_front, late_requests,
         most_bytes, unspecified, socks_front, most_connections, per_source, rates, networks]

if __name__ == "__main__":
    for one_case in CASES:
        case(one_case.__name__, one_case)
    done()
