# SPDX-License-Identifier: GPL-2.0
"""What the demo and the benchmark need inside the VM: containers on a bridge,
the command line, and an eye on what else the host is doing. On a machine that is
no VM of ours (bench/run --here), what was made is removed at the end."""

import atexit
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time

CGROUPS = "/sys/fs/cgroup"
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)

# Why bytes of a pair went by TCP: the module's counters, and words for them.
TCP_REASONS = {
    "tcp_bytes_startup": "start-up: the reader had not read yet",
    "tcp_bytes_reader": "reader: an older call may still read",
    "tcp_bytes_spill": "spill: the ring was full",
    "tcp_bytes_special": "special: urgent, zerocopy, control messages",
    "tcp_bytes_memory": "memory: none for a ring",
    "tcp_bytes_closed": "closed: the ring was closed for good",
}


def say(text):
    print(f"  {text}", file=sys.stderr, flush=True)


def run(*command, **options):
    """Runs a command that must succeed; returns what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def accel():
    """tcg, icount or kvm in a VM of ours; native elsewhere."""
    return os.environ.get("VM_ACCEL", "native")


def undo(*command):
    """At the end, the last one first. A VM's end undoes everything."""
    if accel() == "native":
        atexit.register(subprocess.run, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def make_cgroup(path):
    if not os.path.isdir(path):
        os.mkdir(path)
        undo("rmdir", path)


def await_port(address, port, server, seconds=60, runs=run):
    """Until something accepts connections there. RUNS is what runs the command that tries it."""
    probe = (
        "import socket, sys, time\n"
        "end = time.monotonic() + float(sys.argv[3])\n"
        "while True:\n"
        "    try:\n"
        "        socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()\n"
        "        break\n"
        "    except OSError as e:\n"
        "        if time.monotonic() > end: sys.exit(str(e))\n"
        "        time.sleep(0.05)\n"
    )
    runs("/usr/bin/python3", "-c", probe, address, str(port), str(seconds))
    if server.poll() is not None:
        sys.exit(f"{server.args[0]} ended with status {server.returncode}")
    return server


class Container:
    """A network namespace with eth0 on the bridge, and a cgroup."""

    def __init__(self, name, number):
        self.name = name
        self.address = f"10.77.0.{number}"
        self.cgroup = f"{CGROUPS}/{name}"
        make_cgroup(self.cgroup)
        veth = f"v-{name}"
        run("ip", "netns", "add", name)
        undo("ip", "netns", "delete", name)
        run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", veth, "master", "br0", "up")
        run("ip", "-n", name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        self.netns = os.open(f"/run/netns/{name}", os.O_RDONLY)

    def _enter(self):
        write(f"{self.cgroup}/cgroup.procs", "0")
        if libc.setns(self.netns, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    def start(self, *command, **options):
        return subprocess.Popen(command, preexec_fn=self._enter, **options)

    def run(self, *command):
        return run(*command, preexec_fn=self._enter)

    def await_port(self, address, port, server, seconds=60):
        """Until something accepts connections there, as seen from in here."""
        await_port(address, port, server, seconds, self.run)

    def renew_cgroup(self):
        """As a restart of a service: a new cgroup with the old path. No process may be left in it."""
        os.rmdir(self.cgroup)
        os.mkdir(self.cgroup)

    def _lines(self, path):
        with self.start("cat", path, stdout=subprocess.PIPE, text=True) as p:
            return [line.split(":") for line in p.stdout if ":" in line]

    def accepted(self):
        """How many TCP connections have reached a listener of this network namespace."""
        names, values = (v.split() for k, v in self._lines("/proc/self/net/snmp") if k == "Tcp")
        return int(values[names.index("PassiveOpens")])

    def device_bytes(self):
        """What eth0 and lo have carried, both ways (lo counts each byte once)."""
        rows = self._lines("/proc/self/net/dev")
        total = 0
        for name, values in rows:
            v = values.split()
            total += int(v[0]) + (int(v[8]) if name.strip() != "lo" else 0)
        return total


def bridge():
    run("ip", "link", "add", "br0", "type", "bridge")
    undo("ip", "link", "delete", "br0")
    run("ip", "link", "set", "br0", "up")


def socksplice(*arguments):
    return run("socksplice", *arguments)


def stats():
    return json.loads(socksplice("-j", "stats", "show"))["stats"]


def paths(before, after):
    """Bytes by ring, and by TCP with the reason, between two looks."""
    delta = {name: after[name] - before[name] for name in TCP_REASONS}
    return {"ring": after["ring_bytes"] - before["ring_bytes"], **delta}


def kernel_memory():
    """Bytes that the kernel has: all that is neither free nor cached nor a process's. The caches of
    slabs, and the CPUs, give back the pages that they keep for later. Sockets and processes that
    have ended are freed a while later, so this waits until two looks agree, some seconds at most."""
    now = None
    for _ in range(20):
        last = now
        for cache in os.listdir("/sys/kernel/slab"):
            write(f"/sys/kernel/slab/{cache}/shrink", "1")
        write("/proc/sys/vm/compact_memory", "1")
        write("/proc/sys/vm/stat_refresh", "1")
        with open("/proc/meminfo", encoding="ascii") as f:
            kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in f}
        gone = sum(kilobytes[k] for k in ("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages"))
        now = (kilobytes["MemTotal"] - gone) * 1024
        if last is not None and abs(now - last) < 65536:
            break
        time.sleep(0.3)
    return now


class Host:
    """The CPU time that others took on the host while we measured.

    The VM's root is an overlay over the host's, so the host's /proc lies under
    our own; its files have no size, so they are read past the page cache.
    """

    def __init__(self):
        self.proc = None
        if accel() in ("icount", "native"):
            return  # whatever they take, its clock does not see it; there is no host
        try:
            os.makedirs("/run/host", exist_ok=True)
            run("mount", "--bind", "/", "/run/host")
            pid = self._find_vm()
            if pid:
                self.proc = f"/run/host/proc/{pid}/stat"
                self.look()
        except (OSError, ValueError, IndexError):
            self.proc = None

    @staticmethod
    def _read(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            return os.read(fd, 65536).decode(errors="replace")
        finally:
            os.close(fd)

    def _find_vm(self):
        out = os.environ["VM_OUT"]
        for pid in os.listdir("/run/host/proc"):
            if not pid.isdigit():
                continue
            try:
                if "qemu" in self._read(f"/run/host/proc/{pid}/comm") and \
                        out in self._read(f"/run/host/proc/{pid}/cmdline"):
                    return pid
            except OSError:
                pass
        return None

    def look(self):
        if not self.proc:
            return None
        first = self._read("/run/host/proc/stat").split("\n", 1)[0].split()[1:9]
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, first)
        own = self._read(self.proc).rpartition(")")[2].split()
        vm = int(own[11]) + int(own[12])
        busy = user + nice + system + irq + softirq + steal
        return busy + idle + iowait, busy, vm

    def others(self, before):
        """Their share of all CPUs since BEFORE, 0 to 1; None if not known."""
        if not before:
            return None
        total, busy, vm = (b - a for a, b in zip(before, self.look()))
        return max(0.0, (busy - vm) / total) if total > 0 else 0.0


def machine():
    model = ""
    # the host's own, the VM's is the emulator's
    try:
        if accel() == "native":
            with open("/proc/cpuinfo", encoding="utf-8") as f:
                text = f.read()
        else:
            text = Host._read("/run/host/proc/cpuinfo")
        for line in text.splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "cpu": model or platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "accel": accel(),
        "emulated": accel() in ("tcg", "icount"),
        "icount": accel() == "icount",
        "commit": os.environ.get("COMMIT", "unknown"),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


# More than this on the host beside us, and a sample says little.
CONTENDED = 0.15


def contended(sample):
    return sample["others"] is not None and sample["others"] > CONTENDED


def say_round(n, rounds, rows):
    """Tells that round N, from 0 on, is over. ROWS has a list of samples for each row and way."""
    taken = [samples[n] for ways in rows.values() for samples in ways.values()]
    say(f"round {n + 1} of {rounds}: {len(taken)} samples, {sum(map(contended, taken))} of them disturbed by others on the host")


def quiet(samples):
    """The samples that others did not disturb; all of them if too few are."""
    good = [s for s in samples if not contended(s)]
    return good if len(good) >= 3 else samples


def summary(values):
    values = sorted(values)
    return {
        "median": statistics.median(values),
        "low": values[0],
        "high": values[-1],
        "n": len(values),
    }


def where(machine):
    how = "EMULATED, by a clock that counts the CPU's instructions (a ns each): path lengths, whatever the host does" \
        if machine.get("icount") else "EMULATED (no usable /dev/kvm: ratios count, absolute figures do not)" \
        if machine["emulated"] else "on the machine itself, in no VM" \
        if machine.get("accel") == "native" else "in a VM on /dev/kvm"
    return [f"Linux {machine['kernel']}, {machine['cpus']} CPUs of {machine['cpu']}, {machine['date']}", how]


def size(count):
    return f"{count // 1024} KB" if count >= 1024 else f"{count} B"


def grid(rows, left=1):
    """Aligned text; the first LEFT columns to the left."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for r in rows:
        yield "  ".join(c.ljust(w) if i < left else c.rjust(w)
                        for i, (c, w) in enumerate(zip(r, widths))).rstrip()
