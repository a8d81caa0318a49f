# SPDX-License-Identifier: GPL-2.0
"""poller.py USEC COUNT: a reader with SO_BUSY_POLL, to whom each byte is sent when he
sleeps.
"""
import socket
import sys
import threading

SO_BUSY_POLL = 46

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
for _ in range(2):  # the first bytes arm the ring
    client.sendall(b"x")
    server.recv(1)
server.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, int(sys.argv[1]))


def sleeps(thread):
    with open(f"/proc/self/task/{thread.native_id}/stat", encoding="ascii") as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "S"


for _ in range(int(sys.argv[2])):
    reader = threading.Thread(target=server.recv, args=(1,))
    reader.start()
    while not sleeps(reader):
        pass
    client.sendall(b"x")
    reader.join()
