# SPDX-License-Identifier: GPL-2.0
"""reader.py fin|open: a reader that is stopped with bytes to read.

Prints "stopped" then. Once somebody lets the reader go on, it fails unless the reader gets
every byte, in order, and with fin the end of file, and its answer comes back.
"""
import os
import signal
import socket
import sys

MESSAGE = bytes(i * 7 % 251 for i in range(200000))  # more than a ring holds
fin = sys.argv[1] == "fin"

listener = socket.create_server(("127.0.0.1", 0))
child = os.fork()
if child == 0:
    connection, _ = listener.accept()
    connection.sendall(connection.recv(5))  # its first bytes arm the ring
    connection.recv(5)
    os.kill(os.getpid(), signal.SIGSTOP)
    got = b""
    while len(got) < len(MESSAGE) + 4:
        part = connection.recv(65536)
        if not part:
            break
        got += part
    if fin and connection.recv(1) != b"":
        os._exit(1)
    connection.sendall(b"seen")
    os._exit(0 if got == MESSAGE + b"last" else 1)

client = socket.create_connection(listener.getsockname())
client.sendall(b"hello")
client.recv(5, socket.MSG_WAITALL)
client.sendall(b"again")
os.waitpid(child, os.WUNTRACED)
client.sendall(MESSAGE)
client.sendall(b"last")
if fin:
    client.shutdown(socket.SHUT_WR)
print("stopped", flush=True)
answer = client.recv(4, socket.MSG_WAITALL)
_, status = os.waitpid(child, 0)
if answer != b"seen" or status != 0:
    sys.exit(f"damaged: the reader ended with {status}, and its answer is {answer}")
