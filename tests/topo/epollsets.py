#!/usr/bin/env python3
"""Epoll sets that spin for ring bytes: a connection in several sets (EPOLLEXCLUSIVE), several
processes at one set, a set with a network card's connection, an end that closes or goes back to TCP
meanwhile, and io_uring. Peers speak by messages; napi_polls proves that the busy loop ran."""

import contextlib
import ctypes
import os
import select
import socket
import struct
import subprocess
import sys
import time
import traceback

from eventloop import (SIZE, USEC, Echo, Loop, check, command, counter, instance, run, set_spin, short_wait,
                       until_named)

if sys.argv[1:2] in (['--help'], ['-h']):
    print(__doc__)
    sys.exit()

ROUNDS = 500
LONG = 2 ** 31 - 1	# microseconds; a wait that spins to its end takes longer than the test may
SO_ATTACH_FILTER = 26
TRACING = '/sys/kernel/tracing'


@contextlib.contextmanager
def spinning(ring_bytes):
    """The busy loop runs in the body, and at least so many bytes go by ring."""
    polls, ring = counter('napi_polls'), counter('ring_bytes')
    yield
    polls, ring = counter('napi_polls') - polls, counter('ring_bytes') - ring
    check(polls > 0, 'nothing spun')
    check(ring >= ring_bytes, '%d bytes by ring' % ring)


def fork(work):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        except Exception:	# the parent sees the status only
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def reap(pids):
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        check(status == 0, 'a process ended with %d' % status)


def message(i):
    return bytes([i % 251]) * SIZE


def exchange(loop, rounds=ROUNDS):
    for i in range(rounds):
        loop.write(message(i))
        check(loop.read() == message(i), 'round %d' % i)


def pair():
    listener = socket.create_server(('127.0.0.1', 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    listener.close()
    for sock in client, server:
        sock.setblocking(False)
    return client, server


def echo_from(sock):
    """Echoes a message, if there is one. True at the end of the connection."""
    try:
        data = sock.recv(SIZE)
    except BlockingIOError:
        return False
    check(len(data) in (0, SIZE), 'part of a message')
    if data:
        sock.send(data)
    return not data


# Three sets have one connection. Each message reaches one of them, and is read.
def exclusive():
    client, server = pair()

    def serve():
        client.close()
        epoll = select.epoll()
        set_spin(epoll, USEC)
        epoll.register(server.fileno(), select.EPOLLIN | select.EPOLLEXCLUSIVE)
        over = False
        while not over:
            epoll.poll()
            over = echo_from(server)

    servers = [fork(serve) for _ in range(3)]
    server.close()
    loop = Loop(client, usec=USEC)
    until_named(lambda: exchange(loop, 10), client)
    with spinning(2 * ROUNDS * SIZE):
        exchange(loop)
    client.close()
    reap(servers)


# Three processes wait at one set. Each connection is armed for one event, as servers with several
# threads do, so each message has one reader.
def shared():
    pairs = [pair() for _ in range(6)]
    epoll = select.epoll()
    set_spin(epoll, USEC)
    armed = select.EPOLLIN | select.EPOLLET | select.EPOLLONESHOT
    servers = {server.fileno(): server for _, server in pairs}
    for fd in servers:
        epoll.register(fd, armed)
    stop_read, stop_write = os.pipe()
    epoll.register(stop_read, select.EPOLLIN)

    def serve():
        os.close(stop_write)
        while True:
            for fd, _ in epoll.poll(maxevents=1):
                if fd == stop_read:
                    return
                echo_from(servers[fd])
                epoll.modify(fd, armed)

    pids = [fork(serve) for _ in range(3)]
    loops = [Loop(client, usec=USEC) for client, _ in pairs]

    def all_at_once(rounds):
        for i in range(rounds):
            for loop in loops:
                loop.write(message(i))
            for loop in loops:
                check(loop.read() == message(i), 'round %d' % i)

    until_named(lambda: all_at_once(3), *[client for client, _ in pairs])
    with spinning(len(loops) * ROUNDS // 4 * 2 * SIZE):
        all_at_once(ROUNDS // 4)
    os.close(stop_write)
    reap(pids)


def accept_all_filter(sock):
    """The filter keeps a connection on TCP."""
    code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0xffffffff))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER,
                    struct.pack('HxxxxxxP', 1, ctypes.addressof(code)))


def ip(*words):
    subprocess.run(['ip', *words], check=True)


@contextlib.contextmanager
def card():
    """A network card with a NAPI instance of its own: a veth that does GRO."""
    ip('netns', 'add', 'far')
    try:
        ip('link', 'add', 'near', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', 'far')
        ip('addr', 'add', '10.9.0.1/24', 'dev', 'near')
        ip('link', 'set', 'near', 'up')
        ip('-n', 'far', 'addr', 'add', '10.9.0.2/24', 'dev', 'eth0')
        ip('-n', 'far', 'link', 'set', 'eth0', 'up')
        subprocess.run(['ethtool', '-K', 'near', 'gro', 'on'], check=True)
        # GRO is left out for a peer that sends large segments
        subprocess.run(['ip', 'netns', 'exec', 'far', 'ethtool', '-K', 'eth0', 'tso', 'off'], check=True)
        yield '10.9.0.2'
    finally:
        ip('netns', 'delete', 'far')


def far_echo(address):
    """A process beyond the card that echoes on one connection by TCP; its port and its pid."""
    port_read, port_write = os.pipe()

    def serve():
        with open('/run/netns/far') as ns:
            check(ctypes.CDLL(None).setns(ns.fileno(), 0) == 0, 'setns')
        listener = socket.create_server((address, 0))
        accept_all_filter(listener)	# an accepted socket has its listener's filter
        os.write(port_write, str(listener.getsockname()[1]).encode())
        sock, _ = listener.accept()
        while data := sock.recv(SIZE, socket.MSG_WAITALL):
            sock.sendall(data)

    pid = fork(serve)
    return int(os.read(port_read, 16)), pid


# A set names one instance: that of the connection which had the last event. Spinning at the card's
# must not miss ring bytes, nor spinning at the ring's those of the card.
def mixed():
    with card() as address:
        port, far = far_echo(address)
        echo = Echo(usec=USEC)
        sock = socket.create_connection((address, port))
        accept_all_filter(sock)
        sock.setblocking(False)
        echo.loop.set.register(sock.fileno(), select.EPOLLIN)
        both = {echo.loop.sock.fileno(): echo.loop.sock, sock.fileno(): sock}

        def rounds(n):
            for i in range(n):
                for one in both.values():
                    check(one.send(message(i)) == SIZE, 'a short write')
                left = {fd: SIZE for fd in both}
                while any(left.values()):
                    for fd, _ in echo.loop.set.poll():
                        data = both[fd].recv(SIZE)
                        check(data == message(i)[:len(data)], 'round %d' % i)
                        left[fd] -= len(data)

        until_named(lambda: rounds(10), *both.values())
        ids = [instance(s) for s in both.values()]
        check(ids[0] != ids[1], 'the instances are %s' % ids)
        with spinning(2 * ROUNDS * SIZE):
            rounds(ROUNDS)
        echo.loop.set.unregister(sock.fileno())
        sock.close()
        reap([far])
        echo.end()


def timed(what, expected, act):
    """A wait that may spin for half an hour ends by what @act does."""
    client, server = pair()
    ours, theirs = Loop(client, select.EPOLLRDHUP, LONG), Loop(server)

    def exchange_one():
        theirs.write(message(1))
        check(ours.read() == message(1), 'a message')

    until_named(exchange_one, client)
    polls = counter('napi_polls')
    ready_read, ready_write = os.pipe()
    acts_read, acts_write = os.pipe()

    def actor():
        client.close()
        ours.set.close()
        os.read(ready_read, 1)
        limit = time.monotonic() + 30
        while counter('napi_polls') == polls:
            check(time.monotonic() < limit, what + ': nothing spins')
        os.write(acts_write, struct.pack('d', time.monotonic()))
        act(server)

    pid = fork(actor)
    server.close()
    os.write(ready_write, b'x')
    os.close(acts_write)
    events = dict(ours.set.poll()).get(client.fileno(), 0)
    took = time.monotonic() - struct.unpack('d', os.read(acts_read, 8))[0]
    check(events & expected, '%s: events %#x' % (what, events))
    check(took < 5, '%s: after %.1f s' % (what, took))
    reap([pid])
    return ours


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    sock.close()


def send_after_unpairing(sock):
    command('pair', 'drop', '--all')
    sock.send(message(2))


# What ends a wait without ring bytes ends it while it spins.
def ends():
    timed('close', select.EPOLLRDHUP, lambda sock: sock.close())
    timed('shutdown', select.EPOLLRDHUP, lambda sock: sock.shutdown(socket.SHUT_WR))
    timed('reset', select.EPOLLHUP, reset)
    timed('ring', select.EPOLLIN, lambda sock: sock.send(message(2)))
    ours = timed('un-pairing', select.EPOLLIN, send_after_unpairing)
    check(ours.read() == message(2), 'the message after un-pairing')


def wakeups(pids, work):
    """How often these processes are woken while @work runs."""
    event = TRACING + '/events/sched/sched_wakeup'

    def write(path, what):
        with open(path, 'w') as f:
            f.write(what)

    if not os.path.isdir(TRACING + '/events'):
        subprocess.run(['mount', '-t', 'tracefs', 'none', TRACING], check=True)
    write(event + '/filter', '||'.join('pid==%d' % pid for pid in pids))
    write(TRACING + '/trace', '')
    write(event + '/enable', '1')
    try:
        work()
    finally:
        write(event + '/enable', '0')
        write(event + '/filter', '0')
    with open(TRACING + '/trace') as f:
        return sum('sched_wakeup:' in line for line in f)


# A sender wakes nobody who spins, so it sends no interrupt to another CPU either.
def wakes_nobody():
    counts = {}
    for usec in 0, LONG:
        echo = Echo(usec=usec)
        with short_wait(0):
            echo.until_named()
            counts[usec] = wakeups((os.getpid(), echo.pid), lambda: echo.rounds(ROUNDS))
        echo.end()
    print('remark: %d wake-ups asleep, %d spinning, in %d rounds' % (counts[0], counts[LONG], ROUNDS))
    check(counts[0] > ROUNDS / 2, 'the loops did not sleep')
    check(counts[LONG] < ROUNDS / 10, 'the loops were woken')


# io_uring spins by the same instance, if a program registers for it (IORING_REGISTER_NAPI).
def uring():
    echo = Echo()	# keeps the instance for the programs below
    echo.until_named()
    for usec, expected in (0, False), (USEC, True):
        polls, ring = counter('napi_polls'), counter('ring_bytes')
        subprocess.run(['build/topo/uring', str(usec), str(ROUNDS), str(SIZE)], check=True)
        polls, ring = counter('napi_polls') - polls, counter('ring_bytes') - ring
        check(ring >= 2 * ROUNDS * SIZE, '%d bytes by ring' % ring)
        check((polls > 0) == expected, '%d polls with %d us' % (polls, usec))
    echo.end()


run('epollsets', exclusive, shared, mixed, ends, wakes_nobody, uring)
