#!/usr/bin/env python3
"""Event loops that spin in epoll_wait(2) for ring bytes: by net.core.busy_poll, by EPIOCSPARAMS of
their own, and by `socksplice poll`. Peers speak by messages; the counter napi_polls proves that the
kernel's busy loop ran."""

import os
import select
import signal
import socket
import subprocess
import sys
import time

from eventloop import (ROUNDS, SIZE, USEC, Echo, Loop, check, command, counter, instance, run, set_spin,
                       short_wait, sysctl)

if sys.argv[1:2] in (['--help'], ['-h']):
    print(__doc__)
    sys.exit()


def spins(expected, flags=0, usec=0, before=lambda echo: None):
    """Runs rounds; the kernel's busy loop is to run, or not, and all goes by ring."""
    echo = Echo(flags, usec)
    echo.until_named()
    before(echo)
    polls, ring = counter('napi_polls'), counter('ring_bytes')
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
    check(instance(sock) == 0, 'the id is left')
    echo.rounds(100)
    echo.end()


# A thread that spins for half an hour, as any user may, does not keep the module from unloading.
def unload():
    echo = spins(True, usec=USEC)
    child = os.fork()
    if not child:
        set_spin(echo.loop.set, 2 ** 31 - 1)
        echo.loop.set.poll()
        os._exit(0)
    try:
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
    finally:
        if not os.path.isdir('/sys/module/socksplice'):
            subprocess.run(['insmod', os.environ['MODULE_KO'], 'enroll_all=1'], check=True)


def hits(echo, rounds=500):
    """Runs rounds, all by ring. Returns how often a wait ended while the loop spun."""
    echo.rounds(10)
    ring, before = counter('ring_bytes'), counter('busy_poll_hits')
    echo.rounds(rounds)
    found, ring = counter('busy_poll_hits') - before, counter('ring_bytes') - ring
    check(ring >= 2 * rounds * SIZE * echo.connections, '%d bytes by ring' % ring)
    return found


def one_way(messages=500):
    """A stream to an event loop that only reads. Returns how often a wait ended while it spun."""
    listener = socket.create_server(('127.0.0.1', 0))
    pid = os.fork()
    if not pid:
        loop = Loop(listener.accept()[0])
        while loop.read():
            pass
        os._exit(0)
    sock = socket.create_connection(listener.getsockname())
    listener.close()
    ring, before = counter('ring_bytes'), counter('busy_poll_hits')
    for _ in range(messages):
        sock.sendall(b'x' * SIZE)
        time.sleep(0.0002)	# the reader waits, for a short time
    sock.close()
    _, status = os.waitpid(pid, 0)
    check(status == 0, 'the reader ended with %d' % status)
    check(counter('ring_bytes') > ring, 'nothing went by ring')
    return counter('busy_poll_hits') - before


class Several:
    """A process that echoes on several connections, all in one set, until their end. So is this one's
    set, and a round goes over all of them. If they are to wait, both wait until they may write before
    they do."""

    def __init__(self, connections, wait=False):
        self.connections, self.wait = connections, wait
        listener = socket.create_server(('127.0.0.1', 0))
        self.pid = os.fork()
        if not self.pid:
            socks = self.set_of([listener.accept()[0] for _ in range(connections)])
            while socks:
                for fd, _ in self.set.poll():
                    if data := socks[fd].recv(SIZE):
                        self.send(socks[fd], data)
                    else:
                        self.set.unregister(fd)
                        socks.pop(fd).close()
            os._exit(0)
        self.socks = self.set_of([socket.create_connection(listener.getsockname()) for _ in range(connections)])
        listener.close()

    def set_of(self, socks):
        self.set = select.epoll()
        for sock in socks:
            sock.setblocking(False)
            self.set.register(sock.fileno(), select.EPOLLIN)
        return {sock.fileno(): sock for sock in socks}

    def send(self, sock, data):
        if self.wait:
            self.set.modify(sock.fileno(), select.EPOLLOUT)
            self.set.poll()
        check(sock.send(data) == len(data), 'a short write')
        if self.wait:
            self.set.modify(sock.fileno(), select.EPOLLIN)

    def rounds(self, n):
        for i in range(n):
            data = bytes([i % 251]) * SIZE
            for sock in self.socks.values():
                self.send(sock, data)
            left = dict.fromkeys(self.socks, SIZE)
            while any(left.values()):
                for fd, _ in self.set.poll():
                    got = self.socks[fd].recv(SIZE)
                    check(got == data[:len(got)], 'round %d' % i)
                    left[fd] -= len(got)

    def end(self):
        for sock in self.socks.values():
            sock.shutdown(socket.SHUT_WR)
        _, status = os.waitpid(self.pid, 0)
        check(status == 0, 'the echo ended with %d' % status)


# On a starved machine few waits are short, and most messages of a stream come together.
def comes_to_spin(measure, who, least):
    limit = time.monotonic() + 60
    while (found := measure()) < least:
        check(time.monotonic() < limit, '%s do not spin' % who)
    print('remark: %d waits of %s ended while they spun' % (found, who))


# Without being asked: a loop spins when epoll_wait(2) asks its socket once more before it sleeps, if
# its waits are short. It does not if several sockets are busy, nor before it sends.
def before_it_sleeps():
    one, three, waits = Several(1), Several(3), Several(1, wait=True)
    with short_wait(1000):
        comes_to_spin(lambda: hits(one), 'loops that answer', 100)
        comes_to_spin(lambda: hits(waits), 'loops that wait to write', 100)
        comes_to_spin(one_way, 'readers of streams', 30)
        found = hits(three)
        check(found < 50, 'they spin %d times, for one of three sockets' % found)
    with short_wait(0):
        check(hits(one) == 0, 'they spin, switched off')
    for loops in (one, three, waits):
        loops.end()


run('epoll', before_it_sleeps, off, by_sysctl, by_the_program, by_command, back_to_tcp, unload)
