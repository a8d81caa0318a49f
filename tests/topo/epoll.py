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

from eventloop import ROUNDS, SIZE, USEC, Echo, check, command, counter, run, set_spin, sysctl

if sys.argv[1:2] in (['--help'], ['-h']):
    print(__doc__)
    sys.exit()

SO_INCOMING_NAPI_ID = 56


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
        set_spin(echo.loop.set, 2 ** 31 - 1)
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


run('epoll', off, by_sysctl, by_the_program, by_command, back_to_tcp, unload)
