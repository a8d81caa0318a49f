#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Speaks to the module by netlink as somebody who should learn nothing.

stranger.py join               joins the events; prints "joined" or the error
stranger.py listen FILE GO     joins them, makes FILE, waits for a line from GO,
                               prints what came: "nothing", or how many bytes
stranger.py listen-all FILE GO the same, to the events of all namespaces that its own has
                               a number for, after giving that of process 1 one
stranger.py opener             opens the socket with the rights it has, gives them
                               up, and prints what each command answers, as
                               "NAME ok" or "NAME EPERM"
stranger.py commands           the same, without opening it before
"""
import errno
import os
import socket
import struct
import sys

if sys.argv[1:2] in (["--help"], ["-h"]):
    print(__doc__)
    sys.exit()

CTRL, GETFAMILY, FAMILY_NAME, FAMILY_ID, MCAST_GROUPS, GROUP_ID = 16, 3, 2, 1, 7, 2
REQUEST, ACK, DUMP = 1, 4, 0x300
SOL_NETLINK, ADD_MEMBERSHIP, LISTEN_ALL_NSID = 270, 1, 8
RTM_NEWNSID, NETNSA_NSID, NETNSA_PID = 88, 1, 2


def attribute(kind, value):
    data = struct.pack("HH", 4 + len(value), kind) + value
    return data + bytes(-len(data) % 4)


def attributes(data):
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3:]


def ask(sock, family, command, flags, payload=b""):
    """The first answer's attributes, or the error's name."""
    body = struct.pack("BBH", command, 1, 0) + payload
    sock.send(struct.pack("IHHII", 16 + len(body), family, REQUEST | flags, 1, 0) + body)
    first = b""
    while True:
        data = sock.recv(65536)
        while data:
            length, kind = struct.unpack_from("IH", data)
            if kind == 2 or kind == 3:  # an error or acknowledgement; the end of a dump
                code = struct.unpack_from("i", data, 16)[0]
                return errno.errorcode[-code] if code else first
            first = first or data[20:length]
            data = data[(length + 3) & ~3:]


def find(sock):
    answer = dict(attributes(ask(sock, CTRL, GETFAMILY, ACK, attribute(FAMILY_NAME, b"socksplice\0"))))
    groups = [dict(attributes(group)) for _, group in attributes(answer[MCAST_GROUPS])]
    return struct.unpack("H", answer[FAMILY_ID])[0], struct.unpack("I", groups[0][GROUP_ID])[0]


def commands(sock, family):
    off = attribute(7, b"\0")
    for name, command, flags, payload in (
        ("status", 1, ACK, b""),
        ("stats", 2, DUMP, b""),
        ("pairs", 3, DUMP, b""),
        ("set", 4, ACK, off),
        ("drop", 5, ACK, b""),
    ):
        answer = ask(sock, family, command, flags, payload)
        print(name, answer if isinstance(answer, str) else "ok")


def number_process_1():
    route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    route.bind((0, 0))
    body = bytes(4) + attribute(NETNSA_NSID, struct.pack("i", 5)) + attribute(NETNSA_PID, struct.pack("I", 1))
    route.send(struct.pack("IHHII", 16 + len(body), RTM_NEWNSID, REQUEST | ACK, 1, 0) + body)
    code = struct.unpack_from("i", route.recv(65536), 16)[0]
    if code:
        sys.exit(errno.errorcode[-code])


sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
sock.bind((0, 0))
family, group = find(sock)
if sys.argv[1] in ("opener", "commands"):
    if sys.argv[1] == "opener":
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    commands(sock, family)
    sys.exit()
try:
    if sys.argv[1] == "listen-all":
        number_process_1()
        sock.setsockopt(SOL_NETLINK, LISTEN_ALL_NSID, 1)
    sock.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, group)
except OSError as error:
    sys.exit(print(errno.errorcode[error.errno]))
if sys.argv[1] == "join":
    sys.exit(print("joined"))
open(sys.argv[2], "w").close()
open(sys.argv[3]).readline()
try:
    print(len(sock.recv(65536, socket.MSG_DONTWAIT)), "bytes")
except BlockingIOError:
    print("nothing")
