# SPDX-License-Identifier: GPL-2.0
"""poller.py USEC: a reader with SO_BUSY_POLL. Prints "reads" when it is about to read
what comes only after a line on standard input.
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
reader = threading.Thread(target=server.recv, args=(1,))
reader.start()
print("reads", flush=True)
sys.stdin.readline()
client.sendall(b"x")
reader.join()
