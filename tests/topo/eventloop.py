# SPDX-License-Identifier: GPL-2.0
"""What the tests of event loops share: the two ends of a connection that echoes, each with an epoll
set, the module's counters, and the run of the cases."""

import contextlib
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time

SIZE = 1024
ROUNDS = 2000
SYSCTL = '/proc/sys/net/core/busy_poll'
EPIOCSPARAMS = 0x40088a01
PARAMETERS = '/sys/module/socksplice/parameters/'
USEC = 1000
SO_INCOMING_NAPI_ID = 56


def counter(name):
    said = subprocess.run(['socksplice', '-j', 'stats', 'show'], check=True, capture_output=True)
    return json.loads(said.stdout)['stats'][name]


def check(good, what):
    if not good:
        raise AssertionError(what)


def command(*words, status=0):
    said = subprocess.run(['socksplice', '-j', *words], capture_output=True, text=True)
    check(said.returncode == status, '%s: %s%s' % (' '.join(words), said.stdout, said.stderr))
    return json.loads(said.stdout or said.stderr)


def sysctl(usec):
    with open(SYSCTL, 'w') as f:
        f.write(str(usec))


@contextlib.contextmanager
def parameter(name, value):
    with open(PARAMETERS + name) as f:
        before = f.read()
    try:
        with open(PARAMETERS + name, 'w') as f:
            f.write(str(value))
        yield
    finally:
        with open(PARAMETERS + name, 'w') as f:
            f.write(before)


def short_wait(usec):
    """A reader spins for so long if its waits are that short; 0: for none."""
    return parameter('short_wait', usec)


def instance(sock):
    """The NAPI instance at which a wait for @sock spins; 0: there is none."""
    return sock.getsockopt(socket.SOL_SOCKET, SO_INCOMING_NAPI_ID)


def until_named(exchange, *socks):
    """Exchanges messages until each of @socks names a NAPI instance, so that waits can spin. A pair
    names none while the module settles after the last pair before has gone (inflight.h), which takes
    long on a starved machine."""
    limit = time.monotonic() + 30
    while True:
        exchange()
        if all(instance(sock) for sock in socks):
            break
        check(time.monotonic() < limit, 'no instance')


def set_spin(epoll, usec):
    fcntl.ioctl(epoll.fileno(), EPIOCSPARAMS, struct.pack('IHBB', usec, 0, 0, 0))


class Loop:
    """One end: reads and writes whole messages when its epoll set says that there are bytes."""

    def __init__(self, sock, flags=0, usec=0):
        self.sock = sock
        sock.setblocking(False)
        self.set = select.epoll()
        if usec:
            set_spin(self.set, usec)
        self.set.register(sock.fileno(), select.EPOLLIN | flags)

    def read(self, size=SIZE):
        data = b''
        while len(data) < size:
            try:
                more = self.sock.recv(size - len(data))
                if not more:
                    return data
                data += more
            except BlockingIOError:
                self.set.poll()
        return data

    def write(self, data):
        check(self.sock.send(data) == len(data), 'a short write')


class Echo:
    """A process that echoes on one connection until its end."""

    def __init__(self, flags=0, usec=0):
        listener = socket.create_server(('127.0.0.1', 0))
        self.pid = os.fork()
        if not self.pid:
            listener_sock, _ = listener.accept()
            loop = Loop(listener_sock, flags, usec)
            while data := loop.read():
                loop.write(data)
            os._exit(0)
        self.loop = Loop(socket.create_connection(listener.getsockname()), flags, usec)
        listener.close()

    def rounds(self, n=ROUNDS):
        for i in range(n):
            data = bytes([i % 251]) * SIZE
            self.loop.write(data)
            check(self.loop.read() == data, 'round %d' % i)

    def until_named(self):
        until_named(lambda: self.rounds(10), self.loop.sock)

    def end(self):
        self.loop.sock.shutdown(socket.SHUT_WR)
        check(self.loop.read(1) == b'', 'bytes at the end')
        self.loop.sock.close()
        _, status = os.waitpid(self.pid, 0)
        check(status == 0, 'the echo ended with %d' % status)


def succeeds(name, case):
    # On a busy host a connection may be idle between two rounds for longer than the default. Its next
    # message would then go by TCP, and the cases count what goes by ring.
    try:
        with parameter('path_timeout', 300):
            case()
        print('ok topo/%s/%s' % (name, case.__name__), flush=True)
        return True
    except Exception as e:	# whatever it is, the next case may say more
        print('not ok topo/%s/%s: %r' % (name, case.__name__, e), flush=True)
        return False


def run(name, *cases):
    """Runs the cases, or those that the command line names, and exits."""
    wanted = [case for case in cases if len(sys.argv) < 2 or case.__name__ in sys.argv[1:]]
    sys.exit(not all([succeeds(name, case) for case in wanted]))
