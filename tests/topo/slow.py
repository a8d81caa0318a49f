# SPDX-License-Identifier: GPL-2.0
"""slow.py USEC COUNT: a reader in recv, to whom a byte is sent every USEC microseconds."""
import socket
import sys
import threading
import time

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
for _ in range(2):  # the first bytes arm the ring
    client.sendall(b"x")
    server.recv(1)


def read():
    while server.recv(1):
        pass


reader = threading.Thread(target=read)
reader.start()
for _ in range(int(sys.argv[2])):
    time.sleep(int(sys.argv[1]) / 1e6)
    client.sendall(b"x")
client.close()
reader.join()
