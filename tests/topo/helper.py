# SPDX-License-Identifier: GPL-2.0
"""helper.py: an FTP client in namespace c and its server in s, one process.

Prints "holding" when bytes have gone both ways. After a line of input it sends a
PORT command by TCP and more bytes behind it at once, and compares what the server gets.
"""
import ctypes
import os
import socket
import sys

CLONE_NEWNET = 0x40000000
MSG_ZEROCOPY = 0x4000000  # without SO_ZEROCOPY: by TCP, and nothing else
COMMAND = b"PORT 10,8,1,1,4,1\r\n"
CHANGED = b"PORT 10,8,2,254,4,1\r\n"
libc = ctypes.CDLL(None, use_errno=True)


def socket_in(namespace):
    fd = os.open("/run/netns/" + namespace, os.O_RDONLY)
    if libc.setns(fd, CLONE_NEWNET):
        sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")
    os.close(fd)
    return socket.socket()


listener = socket_in("s")
listener.bind(("10.8.2.1", 21))
listener.listen()
client = socket_in("c")
client.connect(("10.8.2.1", 21))
server, _ = listener.accept()
for end, other in [(client, server), (server, client)] * 2 + [(client, server)] * 20:
    end.sendall(b"hello\n")  # a line: the helper looks for commands behind one
    other.recv(6, socket.MSG_WAITALL)
print("holding", flush=True)
sys.stdin.readline()
client.send(COMMAND, MSG_ZEROCOPY)
client.send(b"behind it\r\n")
server.settimeout(20)
got = b""
try:
    while len(got) < len(CHANGED) + 11:
        got += server.recv(100)
except TimeoutError:
    pass
if got != CHANGED + b"behind it\r\n":
    sys.exit(f"the server has got {got}")
