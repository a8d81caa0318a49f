# SPDX-License-Identifier: MIT OR Apache-2.0
"""What forward() and aio.forward() do. SOSPLICE_EXPECT names the way that has to be taken:
SO_SPLICE where the module is loaded, copy where it is not."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import struct
import threading
import unittest

import so_splice

EXPECTED = os.environ.get("SOSPLICE_EXPECT")
TIME = 60
UP = bytes(i * 7 % 251 for i in range(300_000)) * 4
DOWN = bytes(i * 11 % 241 for i in range(200_000)) * 4
LATE = b"after the half-close"


def read_all(s):
    parts = []
    while part := s.recv(65536):
        parts.append(part)
    return b"".join(parts)


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def tls(s):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return context.wrap_socket(s, do_handshake_on_connect=False, server_hostname="localhost")


async def forward_async(a, b):
    for s in (a, b):
        s.setblocking(False)
    return await so_splice.aio.forward(a, b)


class Thread:
    """A thread; join() returns what its function has returned, or raises its exception."""

    def __init__(self, function, *arguments):
        self.result = None

        def run():
            try:
                self.result = function(*arguments), None
            except Exception as e:
                self.result = None, e
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def join(self):
        self.thread.join(TIME)
        if not self.result:
            raise AssertionError("it does not end")
        value, error = self.result
        if error:
            raise error
        return value


class Forwards:
    """The cases of both APIs."""

    forward = None

    def setUp(self):
        self.stack = contextlib.ExitStack()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def connect():
                one = socket.create_connection(listener.getsockname(), TIME)
                other, _ = listener.accept()
                other.settimeout(TIME)
                return self.stack.enter_context(one), self.stack.enter_context(other)
            self.client, self.a = connect()
            self.b, self.server = connect()

    def tearDown(self):
        self.stack.close()

    def start(self):
        def run():
            # After an error the closes reset both connections.
            with self.a, self.b:
                return type(self).forward(self.a, self.b)
        return Thread(run)

    def exchange(self, first, second):
        first.sendall(b"x")
        self.assertEqual(second.recv(1), b"x")
        second.sendall(b"y")
        self.assertEqual(first.recv(1), b"y")

    def check(self, report, up, down):
        for traffic, total in ((report.a_to_b, up), (report.b_to_a, down)):
            self.assertEqual((traffic.total, traffic.exact), (total, True))
            if EXPECTED:
                self.assertEqual(str(traffic.way), EXPECTED)
            if traffic.way is so_splice.Way.SPLICE:
                self.assertEqual((traffic.copied, traffic.refused), (0, None))
            else:
                self.assertEqual(traffic.spliced, 0)
                self.assertIsInstance(traffic.refused, OSError)

    def test_half_close(self):
        relay = self.start()
        talk = Thread(lambda: (self.client.sendall(UP), self.client.shutdown(socket.SHUT_WR)))
        answer = Thread(self.server.sendall, DOWN)
        listen = Thread(read_all, self.client)
        self.assertTrue(read_all(self.server) == UP)
        talk.join()
        answer.join()
        self.server.sendall(LATE)
        self.server.shutdown(socket.SHUT_WR)
        self.assertTrue(listen.join() == DOWN + LATE)
        self.check(relay.join(), len(UP), len(DOWN) + len(LATE))

    def test_reset(self):
        for side in "ab":
            with self.subTest(side):
                if side == "b":
                    self.tearDown()
                    self.setUp()
                relay = self.start()
                self.exchange(self.client, self.server)
                reset(self.client if side == "a" else self.server)
                with self.assertRaises(ConnectionResetError):
                    (self.server if side == "a" else self.client).recv(1)
                with self.assertRaises(so_splice.ForwardError) as raised:
                    relay.join()
                self.assertEqual((raised.exception.side, raised.exception.errno), (side, errno.ECONNRESET))
                self.check(raised.exception.report, 1, 1)

    def test_reset_after_end(self):
        """An end that has ended its stream resets the connection, while the other end is silent."""
        for side in "ab":
            with self.subTest(side):
                if side == "b":
                    self.tearDown()
                    self.setUp()
                first, second = (self.client, self.server) if side == "a" else (self.server, self.client)
                relay = self.start()
                self.exchange(self.client, self.server)
                first.shutdown(socket.SHUT_WR)
                self.assertEqual(second.recv(1), b"")
                reset(first)
                with self.assertRaises(so_splice.ForwardError) as raised:
                    relay.join()
                self.assertEqual(raised.exception.side, side)
                self.check(raised.exception.report, 1, 1)

    def test_early_answer(self):
        """A server answers, and closes before it has read everything: a reset."""
        relay = self.start()
        self.exchange(self.client, self.server)
        self.client.sendall(b"unread")
        self.server.recv(1, socket.MSG_PEEK)
        self.server.sendall(DOWN[:30_000])
        self.server.close()
        got = b""
        with self.assertRaises(ConnectionResetError):
            while True:
                got += self.client.recv(65536)
        self.assertEqual(len(got), 30_000)
        with self.assertRaises(so_splice.ForwardError) as raised:
            relay.join()
        self.assertEqual(raised.exception.report.b_to_a.total, 30_001)


    def test_tls(self):
        """Neither end may be TLS, and the other one stays as it is."""
        linger = self.a.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
        self.b = self.stack.enter_context(tls(self.b))
        for ends in ((self.a, self.b), (self.b, self.a)):
            with self.assertRaisesRegex(TypeError, "TLS"):
                Thread(type(self).forward, *ends).join()
        self.assertEqual(self.a.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8), linger)
        self.a.settimeout(TIME)
        self.exchange(self.client, self.a)


class Blocking(Forwards, unittest.TestCase):
    forward = staticmethod(so_splice.forward)


class Asyncio(Forwards, unittest.TestCase):
    forward = staticmethod(lambda a, b: asyncio.run(forward_async(a, b)))

    def test_cancel(self):
        async def run():
            task = asyncio.create_task(forward_async(self.a, self.b))
            await asyncio.sleep(0.05)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        with self.a, self.b:
            asyncio.run(run())
        for s in (self.client, self.server):
            with self.assertRaises(ConnectionResetError):
                s.recv(1)


class Option(unittest.TestCase):
    def test_limits(self):
        with socket.socket() as a, socket.socket() as b:
            for limits in ({"max_bytes": -1}, {"max_bytes": 1 << 63}, {"idle": -1}, {"idle": 1e300}):
                with self.assertRaises(ValueError):
                    so_splice.splice(a, b, **limits)

    def test_tls(self):
        with tls(socket.socket()) as a, socket.socket() as b:
            for ends in ((a, b), (b, a)):
                with self.assertRaisesRegex(TypeError, "TLS"):
                    so_splice.splice(*ends)

    def test_probe(self):
        offered = True
        try:
            so_splice.probe()
        except OSError as e:
            self.assertTrue(so_splice.is_unavailable(e))
            offered = False
        if EXPECTED:
            self.assertEqual(offered, EXPECTED == "SO_SPLICE")


if __name__ == "__main__":
    unittest.main()
