#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Run in the kernel of bench/uml/run: gives SMC the identifier (UEID) without which SMC-D, version 2,
offers no device of its own. Without one each AF_SMC connection goes by TCP. The request is that of
linux/smc.h, by generic netlink."""

import socket
import struct
import sys

NETLINK_GENERIC = 16
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2
NLM_F_REQUEST_ACK = 5
NLMSG_ERROR = 2
SMC_NETLINK_ADD_UEID, SMC_NLA_EID_TABLE_ENTRY = 10, 1
UEID = b"SOCKSPLICE.BENCH".ljust(32) + b"\0"


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def ask(sock, family, command, attributes):
    """Sends one request; returns the attributes of an answer, if there is one before the ACK."""
    body = struct.pack("=BBH", command, 1, 0) + attributes
    sock.send(struct.pack("=IHHII", 16 + len(body), family, NLM_F_REQUEST_ACK, 1, 0) + body)
    found = {}
    while True:
        data = sock.recv(65536)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            if kind == NLMSG_ERROR:
                error = struct.unpack_from("=i", data, 16)[0]
                if error:
                    raise OSError(-error, "netlink")
                return found
            at = 20
            while at < length:
                size, name = struct.unpack_from("=HH", data, at)
                found[name] = data[at + 4:at + size]
                at += (size + 3) & ~3
            data = data[(length + 3) & ~3:]


def main():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC) as sock:
        sock.bind((0, 0))
        found = ask(sock, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, attribute(CTRL_ATTR_FAMILY_NAME, b"SMC_GEN_NETLINK\0"))
        family = struct.unpack("=H", found[CTRL_ATTR_FAMILY_ID])[0]
        ask(sock, family, SMC_NETLINK_ADD_UEID, attribute(SMC_NLA_EID_TABLE_ENTRY, UEID))


if sys.argv[1:2] in (["--help"], ["-h"]):
    print(__doc__)
else:
    main()
