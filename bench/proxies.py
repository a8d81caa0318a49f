#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""socksplice-relay beside other proxies, in turn, round by round, each with its defaults.

    proxies.py measure ROUNDS SECONDS [ROW-REGEX]    in the VM; JSON on stdout
    proxies.py report FILE [PICTURE.svg]             prints the tables, and draws them

A sample of the relay whose bytes did not go the way it is named after is an error, but for short
connections, which the relay copies. No time is asserted.
"""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402
import rank  # noqa: E402
import sosplice  # noqa: E402
from picture import BAR, LINE, SOFT, Picture  # noqa: E402

HOST = "127.0.0.1"
WAYS = {"auto": "relay SO_SPLICE", "copy": "relay copying", "haproxy": "HAProxy",
        "haproxy-auto": "HAProxy splice-auto",
        "haproxy-splice": "HAProxy splicing", "nginx": "nginx stream", "socat": "socat"}
# The servers. A proxy has a port for each of them.
IPERF, PING, REDIS, IDLE = 5201, 5203, 5204, 5205
TARGETS = (IPERF, PING, REDIS, IDLE)
# The relay's ways, and where its status counts their bytes. By default it copies the first bytes of
# a connection, and splices when more come.
COUNTED = {"auto": "sosplice", "copy": "copy"}
FIRST = 0.1     # share that the first bytes may have
CAP = 0.4           # of what the relay's copy mode does, for the row at equal rate
HELD = 500          # idle connections
CONNECTIONS = 1000  # of a sample of connections a second
LOAD = 5000         # requests of a sample under load
FOLDER = "/run/bench-proxies"

# kind, streams or connections at a time
ROWS = {
    "1 stream": ("bulk", 1),
    "64 streams": ("bulk", 64),
    "1 stream, capped": ("capped", 1),
    "round trips of 64 B": ("ping", 1),
    "new connections, 10 at a time": ("connect", 10),
    "1 KB requests on 50 connections": ("load", 50),
    "idle connection": ("memory", HELD),
}

HAPROXY = """
global
    stats socket {folder}/{way}.sock level admin
    maxconn 4000
defaults
    mode tcp
    {option}
    timeout connect 10s
    timeout client 1h
    timeout server 1h
"""

# HAProxy decides with the first whether it splices, and does whenever it can with the others.
SPLICES = {"haproxy-auto": "option splice-auto",
           "haproxy-splice": "option splice-request\n    option splice-response"}

NGINX = """
{module}
daemon off;
user root;
worker_processes auto;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
stream {{
    proxy_timeout 1h;
{servers}
}}
"""


def relay_file(way, ports):
    text = f'log_format = "off"\nadmin = "unix:{FOLDER}/{way}.sock"\n'
    for target, port in ports.items():
        text += f'[[listener]]\nlisten = "{HOST}:{port}"\nto = "{HOST}:{target}"\nmode = "{way}"\n'
    return text


def haproxy_file(way, ports):
    text = HAPROXY.format(folder=FOLDER, way=way, option=SPLICES.get(way, ""))
    for target, port in ports.items():
        text += f"listen to{target}\n    bind {HOST}:{port}\n    server s {HOST}:{target}\n"
    return text


def nginx_file(ports):
    module = "/usr/lib/nginx/modules/ngx_stream_module.so"
    servers = "".join(f"    server {{ listen {HOST}:{port}; proxy_pass {HOST}:{target}; }}\n" for target, port in ports.items())
    return NGINX.format(folder=FOLDER, servers=servers, module=f"load_module {module};" if os.path.exists(module) else "")


def lines(path, separator=None):
    """Pairs of the first two words of each line, or of what is around the separator."""
    with open(path, encoding="ascii", errors="replace") as f:
        for line in f:
            cells = line.split(separator)
            if len(cells) > 1:
                yield cells[0], cells[1]


def family(pids):
    """The processes, and all their descendants."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(pid)] = int(dict(lines(f"/proc/{pid}/status", ":"))["PPid"])
        except OSError:
            pass    # it has ended
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


class Proxy:
    """One way to all servers."""

    def __init__(self, way):
        self.way = way
        self.ports = {t: 5300 + 10 * list(WAYS).index(way) + i for i, t in enumerate(TARGETS)}
        file = f"{FOLDER}/{way}.conf"
        if way in COUNTED:
            lab.write(file, relay_file(way, self.ports))
            self.commands = [["socksplice-relay", "--config", file]]
        elif way.startswith("haproxy"):
            lab.write(file, haproxy_file(way, self.ports))
            self.commands = [["haproxy", "-db", "-f", file]]
        elif way == "nginx":
            lab.write(file, nginx_file(self.ports))
            self.commands = [["nginx", "-e", f"{FOLDER}/nginx.log", "-c", file]]
        else:
            self.commands = [["socat", f"TCP-LISTEN:{port},bind={HOST},fork,reuseaddr,backlog=4096,nodelay",
                              f"TCP:{HOST}:{target},nodelay"] for target, port in self.ports.items()]
        self.start()

    def start(self):
        self.processes = [subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for c in self.commands]
        for port in self.ports.values():
            await_port(port, self.processes[0])

    def memory(self):
        """Bytes of user memory; a page that n processes share counts as an n-th."""
        total = 0
        for pid in family(p.pid for p in self.processes):
            try:
                total += int(dict(lines(f"/proc/{pid}/smaps_rollup", ":"))["Pss"].split()[0]) * 1024
            except (OSError, KeyError):
                pass    # it has ended
        return total

    def ask(self, question):
        """What is said at the admin socket of HAProxy."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{FOLDER}/{self.way}.sock")
            s.sendall(question)
            parts = []
            while part := s.recv(1 << 16):
                parts.append(part)
        return b"".join(parts).decode()

    def moved(self):
        """Bytes that went by the way's name, and bytes that went otherwise, where the proxy says so."""
        if self.way in COUNTED:
            status = json.loads(lab.run("socksplice-relay", "status", "--admin", f"unix:{FOLDER}/{self.way}.sock"))
            by = {m: sum(entry[w][m] for entry in status["listeners"].values() for w in ("bytes_up", "bytes_down"))
                  for m in ("sosplice", "pipe", "copy")}
            return by.pop(COUNTED[self.way]), sum(by.values())
        if self.way.startswith("haproxy"):
            found = re.search(r"^TotalSpli\w*BytesOut: (\d+)", self.ask(b"show info\n"), re.M)
            return (int(found[1]), 0) if found else (0, 0)
        return None

    def end(self):
        for p in self.processes:
            p.terminate()
            p.wait()


def await_port(port, process):
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((HOST, port), 2).close()
            return
        except OSError as e:
            if time.monotonic() > end or process.poll() is not None:
                sys.exit(f"bench: {' '.join(process.args)}: {e}")
            time.sleep(0.05)


def serve():
    iperf = subprocess.Popen(["iperf3", "-s", "-p", str(IPERF)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ping = subprocess.Popen([f"{sosplice.BUILD}/pingpong", "server", f"{HOST}:{PING}", "--cpu", str(os.cpu_count() - 1)],
                            stdout=subprocess.PIPE, text=True)
    sosplice.await_line(ping)
    redis = subprocess.Popen(["redis-server", "--port", str(REDIS), "--bind", HOST, "--save", "", "--appendonly", "no",
                              "--maxclients", "4000", "--tcp-backlog", "1024", "--dir", FOLDER,
                              "--logfile", f"{FOLDER}/redis.log"])
    await_port(REDIS, redis)
    return [iperf, ping, redis]


def requests(port, *options):
    out = lab.run("redis-benchmark", "-h", HOST, "-p", str(port), *options, "--csv")
    found = [line.replace('"', "").split(",") for line in out.splitlines()[1:] if line.startswith('"')]
    if len(found) != 1:
        sys.exit(f"bench: redis-benchmark printed no figures: {out}")
    return {"value": float(found[0][1]), "p50": float(found[0][4]) * 1000, "p99": float(found[0][6]) * 1000}


def hold(listener, port):
    """HELD connections to PORT that reach the listener, each of which has carried a byte both ways."""
    held = []
    for _ in range(HELD):
        client = socket.create_connection((HOST, port), 60)
        client.sendall(b"x")
        # Some come from the looks whether the proxies' ports are open, and carry nothing.
        while not (byte := (server := listener.accept()[0]).recv(1)):
            server.close()
        server.sendall(byte)
        client.recv(1)
        held += [client, server]
    return held


def memory(listener, proxy):
    """Bytes of the proxy's user memory and of the kernel's for an idle connection. The proxy starts anew: what
    earlier connections have left would be used again."""
    if proxy:
        proxy.end()
        proxy.start()
    before = lab.kernel_memory(), proxy.memory() if proxy else 0
    held = hold(listener, proxy.ports[IDLE] if proxy else IDLE)
    after = lab.kernel_memory(), proxy.memory() if proxy else 0
    for s in held:
        s.close()
    return {"kernel": (after[0] - before[0]) / HELD, "user": (after[1] - before[1]) / HELD}


def sample(host, row, proxy, seconds, rate, idle):
    kind, what = ROWS[row]
    look, before = host.look(), proxy.moved()
    if kind in ("bulk", "capped"):
        result = sosplice.bulk(proxy.ports[IPERF], what, seconds, rate if kind == "capped" else 0)
    elif kind == "ping":
        result = sosplice.ping(proxy.ports[PING], what)
    elif kind == "connect":
        result = requests(proxy.ports[REDIS], "-k", "0", "-c", str(what), "-n", str(CONNECTIONS), "-t", "ping_mbulk")
    elif kind == "load":
        result = requests(proxy.ports[REDIS], "-c", str(what), "-n", str(LOAD), "-t", "get", "-d", "1024")
    else:
        listener, plain = idle
        result = memory(listener, proxy)
        result["kernel"] -= plain["kernel"]
    result["others"] = host.others(look)
    if before is not None and kind != "memory":    # which the proxy began anew for
        went, otherwise = (b - a for a, b in zip(before, proxy.moved()))
        result["moved"] = went
        if proxy.way in COUNTED and kind != "connect" and went < result.get("count", 1) * (1 - FIRST):
            sys.exit(f"bench {row} {proxy.way}: {went} bytes went so, {otherwise} otherwise")
        # The end of a stream may go otherwise.
        if proxy.way == "haproxy" and went or proxy.way == "haproxy-splice" and went < result.get("count", 0) * 0.9:
            sys.exit(f"bench {row} {proxy.way}: HAProxy has spliced {went} bytes")
    return result


def measure(rounds, seconds, only):
    rows = {row: {way: [] for way in WAYS} for row in ROWS if re.search(only, row)}
    if not rows:
        sys.exit(f"bench: no row matches '{only}'")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    lab.socksplice("feature", "set", "so-splice", "on")
    os.makedirs(FOLDER)
    host = lab.Host()
    servers = serve()
    listener = socket.create_server((HOST, IDLE), backlog=4096)
    proxies = {way: Proxy(way) for way in WAYS}
    lab.run("redis-cli", "-p", str(REDIS), "set", "key:__rand_int__", "x" * 1024)
    rate = CAP * 8 * sosplice.bulk(proxies["copy"].ports[IPERF], 1, seconds, 0)["value"]
    # What the first run leaves in the caches is the cost of no proxy.
    plain = [memory(listener, None) for _ in range(2)][-1] if any(ROWS[r][0] == "memory" for r in rows) else None
    for n in range(rounds):
        for row, ways in rows.items():
            for way, proxy in proxies.items():
                ways[way].append(sample(host, row, proxy, seconds, rate, (listener, plain)))
        lab.say_round(n, rounds, rows)
    spliced = proxies["haproxy-auto"].moved()[0]
    for proxy in proxies.values():
        proxy.end()
    for server in servers:
        server.kill()
    json.dump({"schema": 1, "machine": lab.machine(), "commit": os.environ.get("COMMIT", "unknown"),
               "seconds": seconds, "pings": sosplice.PINGS, "cap_bits": rate, "held": HELD, "haproxy_spliced": spliced,
               "plain_kernel": plain and plain["kernel"], "versions": versions(), "rows": rows}, sys.stdout, indent=1)


def versions():
    def first(*command):
        done = subprocess.run(command, capture_output=True, text=True)
        return (done.stdout or done.stderr).splitlines()
    return {"HAProxy": first("haproxy", "-v")[0].split()[2], "nginx": first("nginx", "-v")[0].rpartition("/")[2],
            "socat": re.search(r"version (\S+)", "\n".join(first("socat", "-V")))[1]}


class Row:
    """Figures of one row: for each way a summary of one of its values, of the quiet samples."""

    def __init__(self, name, ways, key, better):
        self.name = name
        self.samples = {w: [s[key] for s in lab.quiet(ways[w])] for w in WAYS}
        self.by = {w: lab.summary(v) for w, v in self.samples.items()}
        self.rough = any(lab.contended(s) for w in WAYS for s in lab.quiet(ways[w]))
        self.better = better    # 1: more is better, -1: less is

    def gain(self, other):
        """How many times better the relay by SO_SPLICE is; None where that has no meaning."""
        own, its = self.by["auto"]["median"], self.by[other]["median"]
        return (own / its) ** self.better if own > 0 and its > 0 else None

    def line(self, form):
        def ratio(other):
            gain = self.gain(other)
            return f"{gain:.2f}x" if gain else "-"
        p = [rank.mann_whitney(self.samples["auto"], self.samples[w])[1] for w in ("haproxy", "haproxy-splice")]
        return [self.name + (" *" if self.rough else ""), *(form(self.by[w]["median"]) for w in WAYS),
                ratio("haproxy"), f"{p[0]:.2g}", ratio("haproxy-splice"), f"{p[1]:.2g}"]


# title, key, kinds of rows, how a figure is written, is more better
TABLES = (
    ("throughput, MB/s", "value", ("bulk", "capped"), lambda v: f"{v / 1e6:,.0f}", 1),
    ("CPU seconds of the whole system for each GB", "cpu", ("bulk", "capped"), lambda v: f"{v:.2f}", -1),
    ("median round trip, us", "value", ("ping",), lambda v: f"{v:,.0f}", -1),
    ("99th percentile of round trips, us", "p99", ("ping",), lambda v: f"{v:,.0f}", -1),
    ("new connections a second", "value", ("connect",), lambda v: f"{v:,.0f}", 1),
    ("requests a second", "value", ("load",), lambda v: f"{v:,.0f}", 1),
    ("99th percentile under load, us", "p99", ("load",), lambda v: f"{v:,.0f}", -1),
    ("user memory, bytes", "user", ("memory",), lambda v: f"{v:,.0f}", -1),
    ("kernel memory, bytes", "kernel", ("memory",), lambda v: f"{v:,.0f}", -1),
)


def tables(data):
    for title, key, kinds, form, better in TABLES:
        rows = [Row(name, ways, key, better) for name, ways in data["rows"].items() if ROWS[name][0] in kinds]
        if rows:
            yield title, rows, form


def ratios(data):
    """For bench/whole.py: the row, what is compared with what, how many times better it
    is, and whether others on the host disturbed it."""
    for title, rows, _ in tables(data):
        for row in rows:
            for way in list(WAYS)[1:]:
                if gain := row.gain(way):
                    yield f"{row.name}: {title}", f"relay SO_SPLICE to {WAYS[way]}", gain, row.rough


def about(data):
    samples = [s for ways in data["rows"].values() for w in ways.values() for s in w]
    rounds = max(len(s) for ways in data["rows"].values() for s in ways.values())
    yield from lab.where(data["machine"])
    yield (f"socksplice {data['commit']}; " + ", ".join(f"{k} {v}" for k, v in data["versions"].items()) + ".")
    yield (f"Medians of {rounds} rounds, all ways in turn in one boot: iperf3 for {data['seconds']:g} s, capped at "
           f"{data['cap_bits'] / 8e6:,.0f} MB/s; {data['pings']} round trips; redis-benchmark.")
    yield (f"HAProxy with splice-auto has spliced {data['haproxy_spliced'] / 1e6:,.0f} MB in all. Memory is of each of "
           f"{data['held']} connections that have carried a byte both ways.")
    busy = sum(map(lab.contended, samples))
    if busy:
        yield (f"Others took more than {lab.CONTENDED:.0%} of the host's CPUs during {busy} of {len(samples)} samples: "
               "those are dropped, but in rows marked * too few remained.")


def draw(data):
    colors = dict(zip(WAYS, ("#0f766e", "#5eaaa3", "#cbd2d9", "#9aa5b1", "#64748b", "#c2884e", "#b9a3c9")))
    left, width, cell, y = 230, 1000, len(WAYS) * (BAR + 2) + 26, 112
    p = Picture()
    p.text(28, 40, "socksplice-relay beside other proxies", 20, weight="bold")
    for i, (way, words) in enumerate(WAYS.items()):
        p.box(28 + 138 * i, 58, 14, 14, colors[way])
        p.text(47 + 138 * i, 70, words, 12)
    for title, rows, form in tables(data):
        p.text(28, y, title + (" (more is better)" if rows[0].better > 0 else " (less is better)"), 14, weight="bold")
        y += 12
        for row in rows:
            p.line(28, y, width - 28, y, LINE)
            p.text(28, y + 40, row.name, 13)
            for at, other in ((60, "haproxy"), (78, "haproxy-splice")):
                if gain := row.gain(other):
                    p.text(28, y + at, f"{gain:.2f}× {WAYS[other]}", 12, colors["auto"] if gain >= 1 else "#b42318", "bold")
            scale = (width - left - 110) / max(max(s["high"] for s in row.by.values()), 1e-9)
            for i, way in enumerate(WAYS):
                s = {k: max(v, 0) for k, v in row.by[way].items()}
                p.bar(left, y + 12 + i * (BAR + 2), scale, s, colors[way], form(row.by[way]["median"]))
            y += cell
        y += 26
    for text in about(data):
        p.text(28, y, text, 10, SOFT)
        y += 16
    return p.svg(width, y + 8)


def report(path, picture=None):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    print("", *about(data), sep="\n")
    print("The last columns: how many times better the relay by SO_SPLICE is than HAProxy without and with splicing,\n"
          "less than 1 where it loses, and how likely such a difference of the rounds is by chance (Mann and Whitney).\n"
          "CPU is all that was not idle, kernel threads and interrupts, client and server included. Kernel memory is\n"
          "what a proxied connection takes more than a direct one.")
    for title, rows, form in tables(data):
        print("", *lab.grid([[title, *WAYS.values(), "to HAProxy", "p", "to HAProxy splicing", "p"], *(r.line(form) for r in rows)]), sep="\n")
    if picture:
        with open(picture, "w", encoding="utf-8") as f:
            f.write(draw(data))


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
    else:
        report(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
