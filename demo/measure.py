#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The demo's part inside the VM: real servers and their clients in containers,
over plain TCP and then paired, round by round. JSON on stdout, progress on stderr.

    redis                               mesh

    [client]            [redis]         [wrk]                  [web]
    redis-benchmark     redis-server    wrk        REDIRECT :80 -> haproxy, then socksplice-relay
       eth0                eth0          eth0       eth0            | lo
        |                   |             |          |            nginx
        +------- br0 -------+             +-- br0 ---+
"""

import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import lab  # noqa: E402

ROUNDS = 5
RESTARTS = 3
SECONDS = 2.0  # of each kind of request in a round

HAPROXY = """
global
    nbthread 1
    maxconn 200
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend mesh
    bind :15006
    default_backend app
backend app
    http-reuse always
    server app 127.0.0.1:8080
"""

RELAY = """
log_format = "off"
admin = "unix:/tmp/web/relay.sock"
[[listener]]
name = "mesh"
listen = "0.0.0.0:15006"
to = "127.0.0.1:8080"
mode = "sosplice"
"""

NGINX = """
daemon off;
user root;
worker_processes 1;
pid /tmp/web/nginx.pid;
error_log /tmp/web/error.log;
events { worker_connections 256; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 100000000;
    client_body_temp_path /tmp/web/body;
    proxy_temp_path /tmp/web/proxy;
    fastcgi_temp_path /tmp/web/fastcgi;
    uwsgi_temp_path /tmp/web/uwsgi;
    scgi_temp_path /tmp/web/scgi;
    server {
        listen 127.0.0.1:8080;
        root /tmp/web/root;
    }
}
"""


class Redis:
    """SET and GET of 1 KB values, redis-benchmark's own 50 connections, no pipelining."""

    title = "redis: redis-benchmark -> redis-server, two containers"
    rows = {"SET": "redis SET 1 KB", "GET": "redis GET 1 KB"}
    clients, size, port = 50, 1024, 6379

    def __init__(self):
        self.client = lab.Container("client", 1)
        self.server = lab.Container("redis", 2)
        self.containers = [self.client, self.server]
        self.ports = [self.port]
        self.program = None
        self.start()
        self.count = 4000
        slow = min(r["rps"] for r in self.measure().values())
        self.count = max(10000, int(slow * SECONDS * 1.5))

    def start(self):
        self.program = self.server.start(
            "redis-server", "--save", "", "--appendonly", "no", "--daemonize", "no",
            "--bind", "0.0.0.0", "--protected-mode", "no", "--port", str(self.port),
            "--dir", "/tmp", "--logfile", "/tmp/redis.log")
        self.client.await_port(self.server.address, self.port, self.program)

    def restart(self):
        """As systemd and the container engines do it: the new process gets a new cgroup."""
        self.program.terminate()
        self.program.wait()
        self.server.renew_cgroup()
        self.start()

    def renew(self):
        """redis-benchmark makes its connections anew."""

    def forwarded(self):
        """No proxy."""
        return {}

    def measure(self):
        out = self.client.run(
            "redis-benchmark", "-h", self.server.address, "-p", str(self.port),
            "-c", str(self.clients), "-n", str(self.count), "-d", str(self.size),
            "-t", "set,get", "--csv")
        found = {}
        for line in out.splitlines():
            cells = [c.strip('"') for c in line.split(",")]
            if cells[0] in self.rows:
                found[cells[0]] = {"rps": float(cells[1]), "p50": float(cells[4]) * 1000,
                                   "p99": float(cells[6]) * 1000}
        if len(found) != len(self.rows):
            sys.exit(f"redis-benchmark printed no figures: {out}")
        return found


class Mesh:
    """a file of 1 KB, wrk's own 10 connections, which a REDIRECT hands to haproxy beside nginx."""

    title = "mesh: wrk -> iptables REDIRECT -> haproxy -> nginx"
    rows = {"HTTP": "HTTP GET 1 KB, haproxy"}
    clients, size = 10, 1024

    def __init__(self):
        self.client = lab.Container("wrk", 3)
        self.server = lab.Container("web", 4)
        self.containers = [self.client, self.server]
        self.ports = [80, 15006, 8080]
        os.makedirs("/tmp/web/root")
        lab.write("/tmp/web/root/file", "x" * self.size)
        lab.write("/tmp/web/nginx.conf", NGINX)
        lab.write("/tmp/web/haproxy.cfg", HAPROXY)
        self.server.run("iptables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp",
                        "--dport", "80", "-j", "REDIRECT", "--to-ports", "15006")
        self.nginx = self.server.start("nginx", "-e", "/tmp/web/error.log", "-c", "/tmp/web/nginx.conf")
        self.server.await_port("127.0.0.1", 8080, self.nginx)
        self.haproxy = None
        self.renew()
        self.measure()

    def renew(self):
        """A new haproxy: an old one would go on with the connections it has."""
        if self.haproxy:
            self.haproxy.terminate()
            self.haproxy.wait()
        self.haproxy = self.server.start("haproxy", "-db", "-f", "/tmp/web/haproxy.cfg",
                                         stderr=subprocess.DEVNULL)
        self.client.await_port(self.server.address, 80, self.haproxy)

    def forwarded(self):
        """haproxy does not say how its bytes went."""
        return {}

    def measure(self):
        out = self.client.run("wrk", "-t", "1", "-c", str(self.clients), "-d", f"{SECONDS * 1.5:.0f}s",
                              "--latency", f"http://{self.server.address}/file")
        unit = {"us": 1, "ms": 1e3, "s": 1e6}
        found = {}
        for name in ("50", "99"):
            m = re.search(rf"^\s*{name}%\s+([\d.]+)(us|ms|s)\b", out, re.M)
            if m:
                found["p" + name] = float(m[1]) * unit[m[2]]
        m = re.search(r"^Requests/sec:\s+([\d.]+)", out, re.M)
        if len(found) != 2 or not m or "Non-2xx" in out or "Socket errors" in out:
            sys.exit(f"wrk printed no figures, or errors: {out}")
        return {"HTTP": {"rps": float(m[1]), **found}}


class Relayed(Mesh):
    """the same chain, with socksplice-relay by SO_SPLICE in the place of haproxy."""

    title = "mesh: wrk -> iptables REDIRECT -> socksplice-relay -> nginx"
    rows = {"HTTP": "HTTP GET 1 KB, relay"}

    def __init__(self, mesh):
        self.client, self.server = mesh.client, mesh.server
        self.containers, self.ports = mesh.containers, mesh.ports
        mesh.haproxy.terminate()
        mesh.haproxy.wait()
        lab.socksplice("feature", "set", "so-splice", "on")
        lab.write("/tmp/web/relay.toml", RELAY)
        self.relay = self.server.start("socksplice-relay", "--workers", "1", "--config", "/tmp/web/relay.toml",
                                       stderr=subprocess.DEVNULL)
        self.client.await_port(self.server.address, 80, self.relay)
        self.measure()

    def renew(self):
        """The relay connects to nginx anew for each connection of wrk."""

    def forwarded(self):
        """Bytes that the relay has forwarded, both ways, by mode."""
        status = json.loads(self.server.run("socksplice-relay", "status", "--admin", "unix:/tmp/web/relay.sock"))
        listener = status["listeners"]["mesh"]
        return {mode: listener["bytes_up"][mode] + listener["bytes_down"][mode] for mode in listener["bytes_up"]}


def set_policy(scene, paired):
    if not paired:
        lab.socksplice("policy", "clear")
        return
    lab.socksplice("policy", "set", "--cgroup", *(c.cgroup for c in scene.containers),
                   "--port", *map(str, scene.ports))


def connections(scene):
    return sum(c.accepted() for c in scene.containers)


def one(scene, host, paired):
    set_policy(scene, paired)
    scene.renew()
    before, accepted = lab.stats(), connections(scene)
    wire = sum(c.device_bytes() for c in scene.containers)
    forwarded = scene.forwarded()
    look = host.look()
    rows = scene.measure()
    others = host.others(look)
    after = lab.stats()
    return {
        "rows": rows, "others": others,
        "bytes": lab.paths(before, after),
        "pairs": after["pairs_made"] - before["pairs_made"],
        "connections": connections(scene) - accepted,
        "devices": sum(c.device_bytes() for c in scene.containers) - wire,
        "forwarded": {mode: n - forwarded[mode] for mode, n in scene.forwarded().items()},
    }


def told(what, sample):
    figures = ", ".join(f"{k} {v['rps']:,.0f}/s" for k, v in sample["rows"].items())
    return f"{what} {figures}"


def play(scene, host):
    rounds = []
    for n in range(ROUNDS):
        tcp = one(scene, host, False)
        paired = one(scene, host, True)
        shares = [s["others"] for s in (tcp, paired) if s["others"] is not None]
        others = max(shares, default=None)
        rounds.append({"tcp": tcp, "paired": paired, "others": others})
        busy = f"   (others took {others:.0%} of the CPUs)" if lab.contended(rounds[-1]) else ""
        lab.say(f"round {n + 1} of {ROUNDS}: {told('TCP', tcp)}; {told('paired', paired)}{busy}")
    set_policy(scene, False)
    return {"title": scene.title, "about": scene.__doc__.strip(), "rows": scene.rows, "rounds": rounds}


def restarts(redis):
    """The demo's second part: the policy is set once, and then the service restarts."""
    set_policy(redis, True)
    redis.count = 2000
    found = []
    for _ in range(RESTARTS):
        was = os.stat(redis.server.cgroup).st_ino
        redis.restart()
        before, accepted = lab.stats(), connections(redis)
        redis.measure()
        found.append({
            "cgroups": [was, os.stat(redis.server.cgroup).st_ino],
            "connections": connections(redis) - accepted,
            "pairs": lab.stats()["pairs_made"] - before["pairs_made"],
        })
    set_policy(redis, False)
    return found


def main():
    host = lab.Host()
    lab.bridge()
    scenes = {}
    lab.say(f"starting {Redis.title}")
    redis = Redis()
    scenes["redis"] = play(redis, host)
    lab.say(f"restarting redis-server {RESTARTS} times")
    restarted = restarts(redis)
    lab.say(f"starting {Mesh.title}")
    mesh = Mesh()
    scenes["haproxy"] = play(mesh, host)
    lab.say(f"starting {Relayed.title}")
    scenes["relay"] = play(Relayed(mesh), host)
    json.dump({"schema": 1, "machine": lab.machine(), "scenes": scenes, "restarts": restarted},
              sys.stdout, indent=1)


main()
