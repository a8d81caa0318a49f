# SPDX-License-Identifier: GPL-2.0
"""ftp.py serve ADDRESS PORT | fetch ADDRESS PORT: one file by FTP, in passive mode.

The server prints "serving", then answers one client. The client prints "fetched" if it got
the file whole.
"""
import re
import socket
import sys

FILE = bytes(i * 31 % 253 for i in range(100000))


def serve(address):
    listener = socket.create_server(address)
    print("serving", flush=True)
    control, _ = listener.accept()
    lines = control.makefile("rwb", buffering=0)
    data = None

    def say(text):
        lines.write(text.encode() + b"\r\n")

    say("220 ready")
    for line in lines:
        verb = line.split()[0].upper()
        if verb == b"PASV":
            data = socket.create_server((control.getsockname()[0], 0))
            host, port = data.getsockname()
            numbers = host.split(".") + [str(port >> 8), str(port & 255)]
            say(f"227 Entering Passive Mode ({','.join(numbers)}).")
        elif verb == b"RETR":
            connection, _ = data.accept()
            say("150 sending")
            connection.sendall(FILE)
            connection.close()
            say("226 sent")
        elif verb == b"QUIT":
            say("221 bye")
            return
        else:
            say("200 done")


def fetch(address):
    control = socket.create_connection(address, timeout=20)
    lines = control.makefile("rwb", buffering=0)

    def ask(command, code):
        if command:
            lines.write(command + b"\r\n")
        answer = lines.readline().decode()
        if not answer.startswith(code):
            sys.exit(f"{command} was answered: {answer}")
        return answer

    ask(None, "220")
    for command in b"USER someone", b"PASS word", b"SYST", b"TYPE I":
        ask(command, "200")
    numbers = re.search(r"\((.*)\)", ask(b"PASV", "227")).group(1).split(",")
    where = ".".join(numbers[:4]), int(numbers[4]) * 256 + int(numbers[5])
    try:
        data = socket.create_connection(where, timeout=5)
    except OSError as error:
        sys.exit(f"no connection for data, to {where}: {error}")
    ask(b"RETR file", "150")
    got = b"".join(iter(lambda: data.recv(65536), b""))
    ask(None, "226")
    ask(b"QUIT", "221")
    print("fetched" if got == FILE else f"damaged: {len(got)} bytes", flush=True)


{"serve": serve, "fetch": fetch}[sys.argv[1]]((sys.argv[2], int(sys.argv[3])))
