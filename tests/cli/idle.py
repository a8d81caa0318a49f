#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""idle.py PORT MANY: keeps so many connections open that ask for nothing, and makes each
anew that the server ends. Says "holding MANY" once all are there."""
import select
import socket
import sys

port, many = int(sys.argv[1]), int(sys.argv[2])
poll = select.epoll()
held = {}


def hold():
    client = socket.create_connection(("127.0.0.1", port))
    held[client.fileno()] = client
    poll.register(client, select.EPOLLIN)


for _ in range(many):
    hold()
print("holding", many, flush=True)
while True:
    for fd, _ in poll.poll():
        poll.unregister(fd)
        held.pop(fd).close()
        hold()
