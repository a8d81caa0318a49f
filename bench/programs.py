#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Real servers and their load generators: over TCP, paired with each spin that comes unasked, and
paired with event loops that spin as they are told to. In turn, round by round.

    programs.py measure ROUNDS SECONDS [ROW-REGEX]    in the VM; JSON on stdout
    programs.py report FILE                           prints the table

A sample whose bytes did not go the way it is named after is an error. No time is asserted.
"""

import json
import os
import pwd
import re
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lab  # noqa: E402

BUILD = os.path.join(HERE, "..", "build", "bench")
WAYS = {"tcp": "TCP", "asleep": "paired, short_wait 0", "paired": "paired", "longer": "paired, short_wait 200",
        "poll": "paired, spinning"}
PAIRED = [way for way in WAYS if way != "tcp"]
BUSY_POLL = "/proc/sys/net/core/busy_poll"
POLL_USEC = 50
SHORT_WAIT = "/sys/module/socksplice/parameters/short_wait"
# An emulated CPU is ten to thirty times slower than a real one, so a wait that is short there is this one.
SHORT_WAITS = {"asleep": 0, "longer": 200}
SHORT_WAIT_DEFAULT = 10
CGROUP = lab.CGROUPS + "/bench"
HOST = "127.0.0.1"
REDIS, NGINX, HAPROXY, MEMCACHED, POSTGRES, GO, NODE = range(7000, 7007)
DIR = "/tmp/programs"
MESSAGES = 1000	# of pingpong, in a second

NGINX_CONF = f"""
daemon off;
user root;
worker_processes 1;
pid {DIR}/nginx.pid;
error_log {DIR}/nginx.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path {DIR}/body;
    proxy_temp_path {DIR}/proxy;
    fastcgi_temp_path {DIR}/fastcgi;
    uwsgi_temp_path {DIR}/uwsgi;
    scgi_temp_path {DIR}/scgi;
    server {{
        listen {HOST}:{NGINX};
        root {DIR}/root;
    }}
}}
"""

HAPROXY_CONF = f"""
global
    nbthread 1
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend front
    bind {HOST}:{HAPROXY}
    default_backend app
backend app
    http-reuse always
    server app {HOST}:{NGINX}
"""


def enter():
    lab.write(CGROUP + "/cgroup.procs", "0")


def start(*command, **options):
    return subprocess.Popen(command, preexec_fn=enter, stdout=options.pop("stdout", subprocess.DEVNULL), **options)


def load(*command, **options):
    return lab.run(*command, preexec_fn=enter, **options)


def found(pattern, text):
    match = re.search(pattern, text, re.M)
    if not match:
        sys.exit(f"bench: a load generator printed no figure: {text}")
    return float(match[1])


def await_port(port, program):
    return lab.await_port(HOST, port, program)


def redis_server():
    return await_port(REDIS, start("redis-server", "--save", "", "--appendonly", "no", "--daemonize", "no",
                                   "--port", str(REDIS), "--dir", DIR, "--logfile", DIR + "/redis.log"))


def redis(clients, pipeline):
    def measure(count):
        out = load("redis-benchmark", "-p", str(REDIS), "-c", str(clients), "-P", str(pipeline), "-n", str(count),
                   "-d", "1024", "-t", "get", "--csv")
        return found(r'^"GET","([\d.]+)"', out)
    return measure


def nginx_server():
    lab.write(DIR + "/nginx.conf", NGINX_CONF)
    return await_port(NGINX, start("nginx", "-e", DIR + "/nginx.log", "-c", DIR + "/nginx.conf"))


def haproxy_server():
    lab.write(DIR + "/haproxy.cfg", HAPROXY_CONF)
    return await_port(HAPROXY, start("haproxy", "-db", "-f", DIR + "/haproxy.cfg", stderr=subprocess.DEVNULL))


def wrk(port):
    def measure(seconds):
        out = load("wrk", "-t", "1", "-c", "10", "-d", f"{max(1, round(seconds))}s", f"http://{HOST}:{port}/file")
        if "Non-2xx" in out or "Socket errors" in out:
            sys.exit(f"bench: wrk: {out}")
        return found(r"^Requests/sec:\s+([\d.]+)", out)
    return measure


def memcached_server():
    return await_port(MEMCACHED, start("memcached", "-u", "nobody", "-l", HOST, "-p", str(MEMCACHED), "-t", "1"))


def memcached(count):
    """memcslap's four clients get COUNT values in all; it prints how long that took."""
    each = max(100, count // 4)
    out = load("memcslap", f"--servers={HOST}:{MEMCACHED}", "--test=get", "--concurrency=4", f"--execute-number={each}",
               "--initial-load=100", "--flush")
    return 4 * each / found(r"^Time to get .* threads:\s*([\d.]+)", out)


def postgres_where():
    base = "/usr/lib/postgresql"
    return f"{base}/{max(os.listdir(base), key=int)}/bin"


def postgres_user():
    entry = pwd.getpwnam("postgres")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def postgres_server():
    data = DIR + "/postgres"
    os.mkdir(data, 0o700)
    os.chown(data, pwd.getpwnam("postgres").pw_uid, -1)
    lab.run(postgres_where() + "/initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N", cwd=data, **postgres_user())
    # setpriv changes the user after enter(), which wants root
    server = await_port(POSTGRES, subprocess.Popen(
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", postgres_where() + "/postgres", "-D", data,
         "-p", str(POSTGRES), "-c", "fsync=off", "-c", "unix_socket_directories=" + data],
        preexec_fn=enter, cwd=data, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    end = time.monotonic() + 60
    while subprocess.run([postgres_where() + "/pg_isready", "-q", "-h", HOST, "-p", str(POSTGRES)], check=False).returncode:
        if time.monotonic() > end:
            sys.exit("bench: PostgreSQL lets nobody in")
        time.sleep(0.1)
    load(postgres_where() + "/pgbench", "-q", "-i", "-s", "1", "-h", HOST, "-p", str(POSTGRES), "-U", "postgres", "postgres")
    return server


def postgres(seconds):
    out = load(postgres_where() + "/pgbench", "-n", "-S", "-M", "prepared", "-c", "4", "-T", str(max(1, round(seconds))), "-h", HOST,
               "-p", str(POSTGRES), "-U", "postgres", "postgres")
    return found(r"^tps = ([\d.]+)", out)


def go_server():
    return await_port(GO, start(BUILD + "/echo", str(GO)))


def node_server():
    return await_port(NODE, start("node", HERE + "/echo/echo.js", str(NODE)))


def echo(port):
    def measure(count):
        out = "/run/pings"
        began = time.monotonic()
        load(BUILD + "/pingpong", "client", f"{HOST}:{port}", "--rounds", str(count), "--out", out)
        with open(out, encoding="ascii") as f:
            times = [int(line) for line in f]
        if len(times) < count - 1 or time.monotonic() - began <= 0:
            sys.exit(f"bench: pingpong took {len(times)} times of {count}")
        return len(times) / (sum(times) / 1e9)
    return measure


# What a row wants to run, what measures it, and what that is given: seconds, or a count.
ROWS = {
    "redis GET 1 KB, 1 connection": ((redis_server,), redis(1, 1), "count"),
    "redis GET 1 KB, 50 connections": ((redis_server,), redis(50, 1), "count"),
    "redis GET 1 KB, 50 connections, pipelines of 16": ((redis_server,), redis(50, 16), "count"),
    "nginx, 1 KB by wrk, 10 connections": ((nginx_server,), wrk(NGINX), "seconds"),
    "HAProxy before nginx, 1 KB by wrk, 10 connections": ((nginx_server, haproxy_server), wrk(HAPROXY), "seconds"),
    "memcached, get by memcslap, 4 connections": ((memcached_server,), memcached, "count"),
    "PostgreSQL, pgbench -S, 4 connections": ((postgres_server,), postgres, "seconds"),
    "Go, echo of 64 B, 1 connection": ((go_server,), echo(GO), "count"),
    "Node.js, echo of 64 B, 1 connection": ((node_server,), echo(NODE), "count"),
}


def set_way(way):
    if way == "tcp":
        lab.socksplice("policy", "clear")
    else:
        lab.socksplice("policy", "set", "--cgroup", CGROUP)
    lab.write(BUSY_POLL, str(POLL_USEC if way == "poll" else 0))
    lab.write(SHORT_WAIT, str(SHORT_WAITS.get(way, SHORT_WAIT_DEFAULT)))


def sample(host, row, way, amount):
    before, look, began = lab.stats(), host.look(), time.monotonic()
    value = ROWS[row][1](amount)
    seconds = time.monotonic() - began
    others = host.others(look)
    after = lab.stats()
    by = lab.paths(before, after)
    share = by["ring"] / max(1, sum(by.values()))
    polls = after["napi_polls"] - before["napi_polls"]
    if way == "tcp" and by["ring"] or way != "tcp" and (share < 0.9 or not by["ring"]) or (way == "poll") != (polls > 0):
        sys.exit(f"bench {row} {way}: {by} bytes, {polls} polls")
    spun = (after["busy_poll_nsec"] - before["busy_poll_nsec"]) / 1e9 / seconds
    return {"value": value, "ring": share, "spun": spun, "others": others}


def cpu_of(program):
    with open(f"/proc/{program.pid}/stat", encoding="ascii") as f:
        values = f.read().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def idle(servers, seconds=2):
    """What redis takes of a CPU while nobody asks, with a paired connection."""
    if redis_server not in servers:
        return {}
    said = {}
    for way in WAYS:
        set_way(way)
        client = start("redis-cli", "-p", str(REDIS), stdin=subprocess.PIPE, text=True, bufsize=1, stdout=subprocess.PIPE)
        for _ in range(3):
            print("PING", file=client.stdin)
            client.stdout.readline()
        before = cpu_of(servers[redis_server])
        time.sleep(seconds)	# the time that is measured
        said[way] = (cpu_of(servers[redis_server]) - before) / seconds
        client.kill()
        client.wait()
    return said


def calibrate(row, seconds):
    """How many requests take about so long over TCP."""
    amount = MESSAGES * seconds
    if ROWS[row][2] == "seconds":
        return seconds
    ROWS[row][1](int(amount))	# warm
    return max(50, int(ROWS[row][1](int(amount)) * seconds))


def restart_proxy(servers):
    """A new HAProxy: an old one would go on with the connections that it has to nginx."""
    if haproxy_server in servers:
        servers[haproxy_server].terminate()
        servers[haproxy_server].wait()
        servers[haproxy_server] = haproxy_server()


def measure(rounds, seconds, only):
    host = lab.Host()
    rows = {row: {way: [] for way in WAYS} for row in ROWS if re.search(only, row)}
    if not rows:
        sys.exit(f"bench: no row matches '{only}'")
    lab.make_cgroup(CGROUP)
    os.makedirs(DIR + "/root")
    lab.write(DIR + "/root/file", "x" * 1024)
    servers = {server: None for row in rows for server in ROWS[row][0]}
    for server in servers:
        lab.say(f"starting {server.__name__.replace('_', ' ')}")
        servers[server] = server()
    amounts = {row: calibrate(row, seconds) for row in rows}
    for n in range(rounds):
        for way in WAYS:
            set_way(way)
            restart_proxy(servers)
            for row, ways in rows.items():
                ways[way].append(sample(host, row, way, amounts[row]))
        lab.say_round(n, rounds, rows)
    unused = idle(servers)
    for program in servers.values():
        program.terminate()
    json.dump({"schema": 1, "machine": lab.machine(), "commit": os.environ.get("COMMIT", "unknown"), "seconds": seconds,
               "poll_usec": POLL_USEC, "idle": unused, "rows": rows}, sys.stdout, indent=1)


def medians(ways):
    return {w: lab.summary([s["value"] for s in lab.quiet(samples)])["median"] for w, samples in ways.items()}


def rough(ways):
    return any(lab.contended(s) for samples in ways.values() for s in lab.quiet(samples))


def ratios(data):
    """For bench/whole.py: the row, what is compared with what, how many times better it
    is, and whether others on the host disturbed it."""
    for row, ways in data["rows"].items():
        by = medians(ways)
        for way in PAIRED:
            yield row, f"{WAYS[way]} to TCP", by[way] / by["tcp"], rough(ways)


def lines(data):
    yield ["requests/s", *WAYS.values(), "by ring"]
    for row, ways in data["rows"].items():
        by = medians(ways)
        ring = min(s["ring"] for w in PAIRED for s in ways[w])
        yield [row + (" *" if rough(ways) else ""), *(f"{by[w]:,.0f}" for w in WAYS), f"{ring:.1%}"]


def ratio_lines(data):
    """To TCP, and how much of one CPU the module's own spins took."""
    yield ["to TCP, and CPUs that the module spins on", *(WAYS[way] for way in PAIRED)]
    for row, ways in data["rows"].items():
        by = medians(ways)
        yield [row, *(f"{by[w] / by['tcp']:.2f}x {statistics.median(s['spun'] for s in ways[w]):.1%}" for w in PAIRED)]


def report(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    samples = [s for ways in data["rows"].values() for w in ways.values() for s in w]
    rounds = max(len(s) for ways in data["rows"].values() for s in ways.values())
    print("", *lab.where(data["machine"]), sep="\n")
    print(f"socksplice {data['commit']}. Medians of {rounds} rounds of {data['seconds']:g} s, all ways in turn in one boot. "
          f"Spinning: net.core.busy_poll is {data['poll_usec']} us. Paired alone: short_wait is {SHORT_WAIT_DEFAULT} us.\n"
          "'by ring' is the least share of the bytes in any paired sample.")
    busy = sum(map(lab.contended, samples))
    if busy:
        print(f"Others took more than {lab.CONTENDED:.0%} of the host's CPUs during {busy} of {len(samples)} samples: those are "
              "dropped, but in rows marked * too few remained.")
    print("", *lab.grid([*lines(data)]), "", *lab.grid([*ratio_lines(data)]), sep="\n")
    if data["idle"]:
        print("", "redis without a request takes of a CPU: " +
              ", ".join(f"{WAYS[w]} {share:.0%}" for w, share in data["idle"].items()), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
    elif sys.argv[1:2] == ["report"] and len(sys.argv) == 3:
        report(sys.argv[2])
    else:
        sys.exit(__doc__)
