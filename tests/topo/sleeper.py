# SPDX-License-Identifier: GPL-2.0
"""sleeper.py [splice]: a reader that is asleep in recv(2) until somebody writes a line to stdin.
With "splice" in splice(2), of a descriptor that is closed meanwhile.

Prints "asleep" once it is. Fails unless it gets the byte that is sent then.
"""
import os
import socket
import sys
import threading

from asleep import is_asleep_in

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
connection, _ = listener.accept()
for a, b in ((client, connection), (connection, client)) * 10:
    a.sendall(b"hello")
    b.recv(5, socket.MSG_WAITALL)

splices = sys.argv[1:] == ["splice"]
source = os.dup(connection.fileno())
out, into = os.pipe()
got = []


def read():
    if splices:
        os.splice(source, into, 1)
        got.append(os.read(out, 1))
    else:
        got.append(connection.recv(1))


reader = threading.Thread(target=read)
reader.start()
while not is_asleep_in(reader, "splice" if splices else "recvfrom"):
    pass
if splices:
    os.close(source)  # cannot be entered again
print("asleep", flush=True)
sys.stdin.readline()
client.sendall(b"x")
reader.join()
if got != [b"x"]:
    sys.exit(f"it got {got}")
