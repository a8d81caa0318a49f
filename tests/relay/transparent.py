# SPDX-License-Identifier: GPL-2.0
"""Tests `transparent`: a target in another network namespace sees the client's address.

    [client]  10.1.0.2 ---- the relay, here ---- 10.2.0.2  [target]

The answers of the target come here by its default route. A rule delivers them although their
destination is the client's address."""

import ctypes
import os
import socket
import struct
import threading

from lib import Relay, accept, case, check, done, is_reset, read_all, read_exactly, run

CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
HOSTS = (("client", "10.1.0.", "fd01::"), ("target", "10.2.0.", "fd02::"))
DATA = bytes(i * 7 % 251 for i in range(200_000))


def ip(*words):
    run("ip", *words)


def prepare():
    for name, v4, v6 in HOSTS:
        ip("netns", "add", name)
        ip("link", "add", f"v-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", f"v-{name}", "up")
        ip("-n", name, "link", "set", "eth0", "up")
        for prefix, bits in ((v4, "24"), (v6, "64")):
            more = ["nodad"] if prefix is v6 else []
            ip("addr", "add", f"{prefix}1/{bits}", "dev", f"v-{name}", *more)
            ip("-n", name, "addr", "add", f"{prefix}2/{bits}", "dev", "eth0", *more)
            ip("-n", name, "route", "add", "default", "via", f"{prefix}1")
    for family, network in (("-4", "10.1.0.0/24"), ("-6", "fd01::/64")):
        ip(family, "rule", "add", "iif", "v-target", "lookup", "100")
        ip(family, "route", "add", "local", network, "dev", "lo", "table", "100")


def clean():
    for family in ("-4", "-6"):
        ip(family, "rule", "del", "iif", "v-target", "lookup", "100")
        ip(family, "route", "flush", "table", "100")
    for name, _, _ in HOSTS:
        ip("link", "del", f"v-{name}")
        ip("netns", "del", name)


def inside(name, steps):
    """Runs steps in a thread whose sockets are of another network namespace."""
    result = []

    def enter():
        fd = os.open(f"/run/netns/{name}", os.O_RDONLY)
        check(libc.setns(fd, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno()))
        os.close(fd)
        result.append(steps())
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    check(result, "it failed in", name)
    return result[0]


def server(host):
    return inside("target", lambda: socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET))


def client(host, port):
    return inside("client", lambda: socket.create_connection((host, port), 60))


def relayed(mode, to, listen, more=""):
    port = to.getsockname()[1]
    host = to.getsockname()[0]
    at = f"[{host}]" if ":" in host else host
    return Relay(f"[[listener]]\nname = 'one'\nlisten = '{listen}'\nto = '{at}:{port}'\nmode = '{mode}'\ntransparent = true\n{more}")


def both_ways(mode, here, there, listen):
    with server(there) as to, relayed(mode, to, listen) as relay:
        to.settimeout(60)
        s = client(here, relay.ports[0])
        with s, accept(to) as t:
            check(t.getpeername()[0] == s.getsockname()[0] != here, "the target sees", t.getpeername())
            s.sendall(DATA)
            check(read_exactly(t, len(DATA)) == DATA)
            t.sendall(DATA)
            check(read_exactly(s, len(DATA)) == DATA)
            s.shutdown(socket.SHUT_WR)
            check(read_all(t) == b"")
        line = relay.line()
        check((line["mode_up"], line["mode_down"], line["reason"]) == (mode, mode, "closed"), line)
        if mode == "sosplice":
            check(line["sosplice_up"] == line["sosplice_down"] == len(DATA), line)


def sees(mode):
    both_ways(mode, "10.1.0.1", "10.2.0.2", "10.1.0.1:0")


def sees_ipv6(mode):
    both_ways(mode, "fd01::1", "fd02::2", "[fd01::1]:0")


def by_header():
    """The address is that of a PROXY header that is believed."""
    more = "proxy_in = 'v2'\nproxy_from = '10.1.0.0/24'\n"
    with server("10.2.0.2") as to, relayed("auto", to, "10.1.0.1:0", more) as relay:
        to.settimeout(60)
        s = client("10.1.0.1", relay.ports[0])
        with s:
            s.sendall(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([10, 1, 0, 77, 10, 1, 0, 1]) + struct.pack(">HH", 1, 2) + b"data")
            with accept(to) as t:
                check(t.getpeername()[0] == "10.1.0.77", "the target sees", t.getpeername())
                check(read_exactly(t, 4) == b"data")


def no_way_back():
    """A client to whose address no answer comes back takes no target down."""
    more = "proxy_in = 'v2'\nproxy_from = '10.1.0.0/24'\nconnect_timeout = '500ms'\nhealth = { fall = 1 }\n"
    with server("10.2.0.2") as to, relayed("auto", to, "10.1.0.1:0", more) as relay:
        with client("10.1.0.1", relay.ports[0]) as s:
            s.sendall(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([10, 9, 9, 9, 10, 1, 0, 1]) + struct.pack(">HH", 1, 2))
            check(is_reset(s)[0], "it was served")
        check(relay.line()["reason"] == "connect-timeout")
        check(relay.get()["targets"][0]["up"], "the target is down")


def other_family():
    """A client of another family is refused. That is no failure of the target."""
    with server("fd02::2") as to, relayed("auto", to, "10.1.0.1:0", "health = { fall = 1 }\n") as relay:
        def ask():
            try:
                with socket.create_connection(("10.1.0.1", relay.ports[0]), 60) as s:
                    return is_reset(s)[0]
            except ConnectionResetError:    # before connect() has returned
                return True
        check(inside("client", ask), "it was served")
        line = relay.line()
        check(line["reason"] == "connect-failed" and "another family" in line["detail"], line)
        check(relay.get()["targets"][0]["up"], "the target is down")


if __name__ == "__main__":
    prepare()
    try:
        for mode_name in ("sosplice", "pipe", "copy"):
            case(f"transparent/{mode_name}", sees, mode_name)
            case(f"transparent/{mode_name}_ipv6", sees_ipv6, mode_name)
        case("transparent/by_header", by_header)
        case("transparent/no_way_back", no_way_back)
        case("transparent/other_family", other_family)
    finally:
        clean()
    done()
