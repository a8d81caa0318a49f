# SPDX-License-Identifier: GPL-2.0
"""sleeper.py: a reader that is asleep in recv(2) until somebody writes a line to stdin.

Prints "asleep" once it is, and "woken" when it got the byte that was sent then.
"""
import os
import socket
import sys
import threading

RECVFROM = "45"  # the number of recv(2)'s system call

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
connection, _ = listener.accept()
for a, b in ((client, connection), (connection, client)) * 10:
    a.sendall(b"hello")
    b.recv(5, socket.MSG_WAITALL)

got = []
reader = threading.Thread(target=lambda: got.append(connection.recv(1)))
reader.start()
while True:
    with open(f"/proc/{os.getpid()}/task/{reader.native_id}/syscall") as file:
        if file.read().split()[0] == RECVFROM:
            break
print("asleep", flush=True)
sys.stdin.readline()
client.sendall(b"x")
reader.join()
if got != [b"x"]:
    sys.exit(f"it got {got}")
print("woken")
