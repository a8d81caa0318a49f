#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tap.py [-d] PROTOCOL [FILTER...]: packet sockets on lo, until standard input ends.

There is one for each filter, in tcpdump's language, or one without. They get packets of
the protocol, a number, or "all", and of these what the filter lets pass. It is set before
the socket gets anything, as DHCP clients do it. -d: without the packets' Ethernet headers.
"""
import ctypes
import socket
import struct
import subprocess
import sys

cooked = sys.argv[1] == "-d"
protocol, *filters = sys.argv[1 + cooked:]
socks = []
for expression in filters or [None]:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM if cooked else socket.SOCK_RAW, 0)
    if expression:
        link = "RAW" if cooked else "EN10MB"
        lines = subprocess.run(["tcpdump", "-ddd", "-y", link, expression], check=True,
                               stdout=subprocess.PIPE, text=True).stdout.split("\n")
        code = b"".join(struct.pack("HBBI", *map(int, line.split())) for line in lines[1:] if line)
        buffer = ctypes.create_string_buffer(code)
        sock.setsockopt(socket.SOL_SOCKET, 26,      # SO_ATTACH_FILTER
                        struct.pack("HL", len(code) // 8, ctypes.addressof(buffer)))
    sock.bind(("lo", 3 if protocol == "all" else int(protocol, 0)))
    socks.append(sock)
print("listening", flush=True)
sys.stdin.read()
