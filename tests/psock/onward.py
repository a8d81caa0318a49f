# SPDX-License-Identifier: GPL-2.0
"""onward.py: sends 100,000 bytes over a connection, and SO_SPLICE forwards them to another."""
import socket
import threading

SO_SPLICE = 0x5350  # at SOL_IP: include/socksplice.h
MESSAGE = bytes(i * 7 % 251 for i in range(100000))


def connection():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]


client, source = connection()
sink, server = connection()
source.setsockopt(socket.SOL_IP, SO_SPLICE, sink.fileno())
sender = threading.Thread(target=client.sendall, args=(MESSAGE,))
sender.start()
got = b""
while len(got) < len(MESSAGE):
    part = server.recv(65536)
    if not part:
        break
    got += part
sender.join()
if got != MESSAGE:
    raise SystemExit(f"{len(got)} bytes came, not those that were sent")
