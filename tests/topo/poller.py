# SPDX-License-Identifier: GPL-2.0
"""poller.py USEC COUNT [EVERY]: a reader with SO_BUSY_POLL. The sender sends each byte once
the reader sleeps, or EVERY microseconds after that.
"""
import socket
import sys
import threading
import time

from asleep import is_asleep_in

SO_BUSY_POLL = 46

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
for _ in range(2):  # the first bytes arm the ring
    client.sendall(b"x")
    server.recv(1)
server.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, int(sys.argv[1]))


def when_asleep(count):
    for _ in range(count):
        reader = threading.Thread(target=server.recv, args=(1,))
        reader.start()
        while not is_asleep_in(reader, "recvfrom"):
            pass
        client.sendall(b"x")
        reader.join()


def regularly(count, every):
    def read():
        while server.recv(1):
            pass

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(count):
        while not is_asleep_in(reader, "recvfrom"):
            pass
        time.sleep(every / 1e6)  # this interval is under test; it does not wait for an event
        client.sendall(b"x")
    client.close()
    reader.join()


if len(sys.argv) > 3:
    regularly(int(sys.argv[2]), int(sys.argv[3]))
else:
    when_asleep(int(sys.argv[2]))
