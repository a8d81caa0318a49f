# SPDX-License-Identifier: GPL-2.0
"""Tests the shipped units of the relay under the systemd that runs. systemd.test has installed them."""

import json
import os
import signal
import socket
import time

from lib import Echo, case, check, done, read_exactly, run

UNIT = "socksplice-relay.service"
BY_SOCKET, OWN = 8080, 7001     # the port of the socket unit, and one that the relay opens itself
first, second = Echo(b"1"), Echo(b"2")


def configure(to, more=""):
    text = f"admin = 'unix:/run/socksplice-relay/admin.sock'\n{more}"
    for name, at in (("socket", BY_SOCKET), ("own", OWN)):
        text += f"[[listener]]\nname = '{name}'\nlisten = '127.0.0.1:{at}'\nto = '{to}'\n"
    with open("/etc/socksplice/relay.toml", "w", encoding="ascii") as f:
        f.write(text)


def show(key):
    return run("systemctl", "show", "--value", f"--property={key}", UNIT).strip()


def until(key, wanted):
    end = time.monotonic() + 120
    while (value := show(key)) != wanted:
        check(time.monotonic() < end, key, "is", value, "and not", wanted)
        time.sleep(0.2)


def status(*more):
    return json.loads(run("socksplice-relay", "status", *more))


def connect(port, name):
    s = socket.create_connection(("127.0.0.1", port), 60)
    check((answer := s.recv(1)) == name, "it is", answer)
    return s


def goes_on(s):
    s.sendall(b"still")
    check(read_exactly(s, 5) == b"still")


def activation():
    """The first connection to the socket starts the relay, which gets the socket, and forwards without
    privileges by SO_SPLICE."""
    configure(first.to())
    run("systemctl", "start", "socksplice-relay.socket")
    check(show("ActiveState") == "inactive", "it runs already")
    with connect(BY_SOCKET, b"1") as s:
        goes_on(s)
        goes_on(s)    # the first bytes of each direction were copied
        check((show("Type"), show("ActiveState")) == ("notify", "active"), show("ActiveState"))
        [entry] = status("--connections")["connections"]
        check((entry["listener"], entry["mode_up"], entry["mode_down"]) == ("socket", "sosplice", "sosplice"), entry)
        with open(f"/proc/{show('MainPID')}/status", encoding="ascii") as f:
            uid = next(line.split()[1] for line in f if line.startswith("Uid:"))
        check(uid != "0", "it runs as root")


def ready():
    """A start returns when the relay listens, and one with a mistake fails."""
    run("systemctl", "restart", UNIT)
    connect(OWN, b"1").close()
    configure("nonsense")
    run("systemctl", "restart", UNIT, status=1)
    configure(first.to())
    run("systemctl", "reset-failed", UNIT)
    run("systemctl", "restart", UNIT)
    connect(BY_SOCKET, b"1").close()


def reload():
    pid = show("MainPID")
    with connect(OWN, b"1") as old:
        configure(second.to())
        run("systemctl", "reload", UNIT)
        end = time.monotonic() + 60
        while status()["reloads"] != 1:
            check(time.monotonic() < end, "not reloaded")
            time.sleep(0.1)
        for port in (OWN, BY_SOCKET):
            connect(port, b"2").close()
        goes_on(old)
    check((show("MainPID"), show("ActiveState")) == (pid, "active"))
    check("SO_SPLICE is there" in run("journalctl", "--no-pager", "-u", UNIT), "nothing in the journal")


def upgrade():
    """systemd follows the new process. The old one ends with its last connection."""
    pid = show("MainPID")
    old = connect(OWN, b"2")
    run("systemctl", "kill", "--kill-who=main", "--signal=USR2", UNIT)
    end = time.monotonic() + 60
    while show("MainPID") == pid:
        check(time.monotonic() < end, "the main process is still the old one")
        time.sleep(0.1)
    for port in (OWN, BY_SOCKET):
        connect(port, b"2").close()
    goes_on(old)
    check(os.path.exists(f"/proc/{pid}"), "the old process has ended")
    old.close()
    while os.path.exists(f"/proc/{pid}"):
        check(time.monotonic() < end + 60, "the old process does not end")
        time.sleep(0.1)
    check(show("ActiveState") == "active")


def watchdog():
    """A relay that does nothing any more is started anew."""
    check(show("WatchdogUSec") == "15s" and show("NRestarts") == "0", "it was started anew already")
    os.kill(int(show("MainPID")), signal.SIGSTOP)
    until("NRestarts", "1")
    until("ActiveState", "active")
    # This systemd logs to the kernel log.
    check("Watchdog timeout" in run("dmesg"), "nothing in the log")
    for port in (OWN, BY_SOCKET):
        connect(port, b"2").close()


def stop():
    """A stop lets connections go on. The unit has ended when they have."""
    run("systemctl", "stop", "socksplice-relay.socket")
    s = connect(OWN, b"2")
    run("systemctl", "stop", "--no-block", UNIT)
    until("ActiveState", "deactivating")
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", OWN), 60).close()
            check(time.monotonic() < end, "it still accepts")
        except ConnectionRefusedError:
            break
    goes_on(s)
    check(show("ActiveState") == "deactivating", "it did not wait")
    s.close()
    until("ActiveState", "inactive")
    check((show("Result"), show("ExecMainStatus")) == ("success", "0"), show("Result"), show("ExecMainStatus"))


if __name__ == "__main__":
    for one in (activation, ready, reload, upgrade, watchdog, stop):
        case(f"systemd/{one.__name__}", one)
    run("systemctl", "stop", "socksplice-relay.socket", UNIT)
    done()
