# SPDX-License-Identifier: GPL-2.0
"""loops.py BYTES: two event loops on one CPU, one of which sends BYTES to the other, in
parts of 16 KB, as fast as that goes; neither sleeps in a call on its socket. Prints "whole" if
every byte came, in order."""
import hashlib
import os
import select
import socket
import sys

PART = bytes(i * 7 % 251 for i in range(16384))
left = int(sys.argv[1])

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
listener = socket.create_server(("127.0.0.1", 0))
child = os.fork()
if child == 0:
    connection, _ = listener.accept()
    connection.setblocking(False)
    digest = hashlib.sha256()
    while True:
        select.select([connection], [], [])
        try:
            part = connection.recv(65536)
        except BlockingIOError:
            continue
        if not part:
            break
        digest.update(part)
    connection.send(digest.digest())
    os._exit(0)

client = socket.create_connection(listener.getsockname())
client.setblocking(False)
digest = hashlib.sha256()
while left:
    part = PART[:left]
    digest.update(part)
    left -= len(part)
    while part:
        try:
            part = part[client.send(part):]
        except BlockingIOError:
            select.select([], [client], [])
client.shutdown(socket.SHUT_WR)
client.setblocking(True)
got = client.recv(digest.digest_size, socket.MSG_WAITALL)
print("whole" if got == digest.digest() else "not what was sent")
os.waitpid(child, 0)
