#!/usr/bin/env python3
"""Event loops that spin in epoll_wait(2) for ring bytes: by net.core.busy_poll, by EPIOCSPARAMS of
their own, and by `socksplice poll`. Peers speak by messages; the counter napi_polls proves that the
kernel's busy loop ran."""

import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

if sys.argv[1:2] in (['--help'], ['-h']):
    print(__doc__)
    sys.exit()

SIZE = 1024
ROUNDS = 2000
SYSCTL = '/proc/sys/net/core/busy_poll'
EPIOCSPARAMS = 0x40088a01
SO_INCOMING_NAPI_ID = 56
USEC = 1000


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


class Loop:
    """One end: reads and writes whole messages when its epoll set says that there are bytes."""

    def __init__(self, sock, flags=0, usec=0):
        self.sock = sock
        sock.setblocking(False)
        self.set = select.epoll()
        if usec:
            fcntl.ioctl(self.set.fileno(), EPIOCSPARAMS, struct.pack('IHBB', usec, 0, 0, 0))
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

    def end(self):
        self.loop.sock.shutdown(socket.SHUT_WR)
        check(self.loop.read(1) == b'', 'bytes at the end')
        self.loop.sock.close()
        _, status = os.waitpid(self.pid, 0)
        check(status == 0, 'the echo ended with %d' % status)


def spins(expected, flags=0, usec=0, before=lambda echo: None):
    """Runs rounds; the kernel's busy loop is to run, or not, and all goes by ring."""
    echo = Echo(flags, usec)
    echo.rounds(10)
    before(echo)
    polls, ring = counter('napi_polls'), counter('ring_bytes')
    echo.rounds(10)	# the counter may have taken longer than path_timeout
    start = time.monotonic()
    echo.rounds()
    speed = ROUNDS / (time.monotonic() - start)
    polls, ring = counter('napi_polls') - polls, counter('ring_bytes') - ring
    check(ring >= 2 * ROUNDS * SIZE, '%d bytes by ring' % ring)
    print('remark: %d polls, %d round trips a second' % (polls, speed))
    check((polls > 0) == expected, '%d polls of the rings\' instance' % polls)
    return echo


def off():
    spins(False).end()


def by_sysctl():
    sysctl(USEC)
    try:
        spins(True).end()
        spins(True, select.EPOLLET).end()
    finally:
        sysctl(0)


def by_the_program():
    spins(True, usec=USEC).end()
    spins(True, select.EPOLLET, usec=USEC).end()


def by_command():
    def on(echo):
        said = command('poll', 'set', '--pid', str(os.getpid()), str(echo.pid), '--usec', str(USEC))
        check({s['pid'] for s in said['sets']} >= {os.getpid(), echo.pid}, said)

    echo = spins(True, before=on)
    sets = command('poll', 'show')['sets']
    check([s['usec'] for s in sets if s['pid'] == echo.pid] == [USEC], sets)
    command('poll', 'clear', '--pid', str(os.getpid()), str(echo.pid))
    check(not [s for s in command('poll', 'show')['sets'] if s['pid'] == echo.pid], 'still set')
    polls = counter('napi_polls')
    echo.rounds(100)
    check(counter('napi_polls') == polls, 'it spins after poll clear')
    echo.end()


# The id belongs to pairs: a socket that has gone back to TCP names no instance.
def back_to_tcp():
    echo = spins(True, usec=USEC)
    sock = echo.loop.sock
    echo.rounds(1)
    command('pair', 'drop', '--all')
    check(sock.getsockopt(socket.SOL_SOCKET, SO_INCOMING_NAPI_ID) == 0, 'the id is left')
    echo.rounds(100)
    echo.end()


# A thread that spins for half an hour, as any user may, does not keep the module from unloading.
def unload():
    echo = spins(True, usec=USEC)
    child = os.fork()
    if not child:
        fcntl.ioctl(echo.loop.set.fileno(), EPIOCSPARAMS, struct.pack('IHBB', 2 ** 31 - 1, 0, 0, 0))
        echo.loop.set.poll()
        os._exit(0)
    try:
        polls, limit = counter('napi_polls'), time.monotonic() + 60
        while counter('napi_polls') < polls + 1000:
            check(time.monotonic() < limit, 'the thread does not spin')
        command('drain')
        subprocess.run(['rmmod', 'socksplice'], check=True, timeout=20)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    echo.rounds(10)
    echo.end()
    subprocess.run(['insmod', os.environ['MODULE_KO'], 'enroll_all=1'], check=True)


def main():
    failed = False
    for case in off, by_sysctl, by_the_program, by_command, back_to_tcp, unload:
        if len(sys.argv) > 1 and case.__name__ not in sys.argv[1:]:
            continue
        try:
            case()
            print('ok topo/epoll/' + case.__name__, flush=True)
        except Exception as e:	# whatever it is, the next case may say more
            print('not ok topo/epoll/%s: %r' % (case.__name__, e), flush=True)
            failed = True
    sys.exit(failed)


main()
