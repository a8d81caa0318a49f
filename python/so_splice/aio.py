# SPDX-License-Identifier: MIT OR Apache-2.0
"""Forwarding between sockets in an event loop of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import time

from ._engine import LAST_BYTES, PAUSE, Engine, Pauses, Report

__all__ = ["forward"]


async def forward(a: socket.socket, b: socket.socket) -> Report:
    """so_splice.forward() for asyncio. The sockets are connected, non-blocking, and of no
    transport or stream: use loop.sock_accept() and loop.sock_connect(). TLS is refused. While the kernel forwards,
    nothing wakes the task.

    If the task is cancelled, the splices end. Bytes that were read and not yet written are lost,
    and closing the sockets resets their connections, as after an error."""
    engine = Engine(a, b)
    pauses = Pauses()
    try:
        while True:
            moved, more = engine.run()
            if engine.is_over():
                break
            if more:
                await asyncio.sleep(0)
                continue
            if pause := pauses.next(moved):
                await asyncio.sleep(pause)
            await _ready(engine)
    finally:
        engine.close()
    start = time.monotonic()
    while engine.failure and engine.has_unsent() and time.monotonic() - start < LAST_BYTES:
        await asyncio.sleep(PAUSE)
    return engine.result()


async def _ready(engine: Engine) -> None:
    """Waits for an event that the engine wants."""
    loop = asyncio.get_running_loop()
    event = loop.create_future()

    def wake() -> None:
        if not event.done():
            event.set_result(None)

    wanted = engine.interest()
    with contextlib.ExitStack() as undo:
        for s, events in wanted.items():
            if events & select.POLLIN:
                loop.add_reader(s, wake)
                undo.callback(loop.remove_reader, s)
            if events & select.POLLOUT:
                loop.add_writer(s, wake)
                undo.callback(loop.remove_writer, s)
            if not events:
                # A loop of asyncio cannot wait for a reset alone. An epoll instance can, and is
                # readable then.
                resets = undo.enter_context(select.epoll())
                resets.register(s, 0)
                loop.add_reader(resets, wake)
                undo.callback(loop.remove_reader, resets)
        await event
