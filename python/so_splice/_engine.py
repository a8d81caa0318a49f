# SPDX-License-Identifier: MIT OR Apache-2.0
"""Both directions, without an event loop: forward() waits by poll(2), aio.forward() by asyncio."""

from __future__ import annotations

import enum
import errno
import fcntl
import select
import socket
import struct
import termios
import time
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from . import _option

BUFFER = 64 << 10
# Steps of each direction after which others may have their turn.
ROUNDS = 32
# Looks at an error that poll(2) shows and SO_ERROR does not. The kernel hides a source's error for
# the time of one send on that socket, and reports no event after that.
LOOKS = 20
# Seconds that bytes received from one side have to reach the other after the first one failed.
LAST_BYTES = 1.0
PAUSE = 0.001


class Way(enum.Enum):
    """A way by which bytes go."""

    SPLICE = "SO_SPLICE"
    COPY = "copy"

    def __str__(self) -> str:
        return self.value


@dataclass
class Traffic:
    """What went in one direction. Each byte was accepted by the sink's TCP, and counts once."""

    way: Way = Way.SPLICE
    """The way that was taken last."""
    spliced: int = 0
    """Number of bytes by SO_SPLICE, as the kernel has counted them."""
    copied: int = 0
    refused: Optional[OSError] = None
    """Why the kernel did not splice."""
    exact: bool = True
    """False if an administrator has ended the splice (socksplice drain) and the kernel has
    discarded its count. spliced is then too low.

    True is no proof after a drain. If no bytes follow it before the stream ends or fails, a
    discarded count looks like that of a splice that has moved nothing. Then spliced is 0, and may
    be too low."""

    @property
    def total(self) -> int:
        """The bytes of both ways. After socksplice drain they may be too few: see exact."""
        return self.spliced + self.copied


@dataclass
class Report:
    """What went in both directions."""

    a_to_b: Traffic
    b_to_a: Traffic


class ForwardError(OSError):
    """The connection of one side ("a" or "b") failed. report is what was forwarded before. ELOOP
    means that the bytes would come back to their source."""

    def __init__(self, error: OSError, side: str, report: Report) -> None:
        super().__init__(error.errno, f"connection {side}: {error.strerror}")
        self.side = side
        self.report = report


class _State(enum.Enum):
    START = 0
    SPLICED = 1     # the kernel forwards; reads return EAGAIN until that is over
    CARRY = 2       # this program forwards
    DONE = 3


class _SinkError(Exception):
    """An error of the sink. from_write: it may be that of the sink's own splice."""

    def __init__(self, error: OSError, from_write: bool) -> None:
        super().__init__(error)
        self.error = error
        self.from_write = from_write


def is_connected(s: socket.socket) -> bool:
    """True until a reset, or until both streams have ended."""
    try:
        s.getpeername()
    except OSError:
        return False
    return True


def _reset() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def _unsent(s: socket.socket) -> int:
    """Bytes that s has not sent, or that its peer has not acknowledged."""
    try:
        count: int = struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, bytes(4)))[0]
        return count
    except OSError:
        return 0


def _has_error(s: socket.socket) -> bool:
    poll = select.poll()
    poll.register(s, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


class Flow:
    """One direction. step() makes a few system calls and returns whether something moved, raises
    EOFError at the end of the stream, OSError if the source failed, _SinkError if the sink did."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.state = _State.START
        self.traffic = Traffic()
        self.told: Optional[OSError] = None     # its splice's error, if a write took it
        self.held = b""
        self._at_end: Optional[OSError] = None  # to raise after the source's last bytes
        self._looks = 0

    def is_done(self) -> bool:
        return self.state is _State.DONE

    def finish(self) -> None:
        if self.state is _State.SPLICED:
            self._end_splice()
        self.state = _State.DONE
        self.held = b""

    def step(self) -> bool:
        if self.state is _State.START:
            self._start()
            return True
        if self.state is _State.SPLICED:
            return self._spliced()
        if self.state is _State.DONE:
            return False
        return self._write() if self.held else self._read()

    def _start(self) -> None:
        self.state = _State.CARRY
        try:
            _option.splice(self.source, self.sink)
            self.state = _State.SPLICED
        except OSError as e:
            if not _option.is_unavailable(e):
                raise
            self.traffic.refused = e
            self.traffic.way = Way.COPY

    def _end_splice(self) -> None:
        try:
            # It may have ended. If not, end it, so that its count is final.
            _option.unsplice(self.source)
        except OSError:
            pass
        try:
            self.traffic.spliced = _option.moved(self.source)
        except OSError:
            self.traffic.exact = False
        self.state = _State.CARRY

    def _spliced(self) -> bool:
        try:
            more = self._look()
        except OSError as e:
            self._end_splice()
            if e.errno == errno.ELOOP:
                raise
            # The kernel reports an error of the sink at the source. If the source is still
            # connected, it had no error of its own. EPIPE is one of the source too, if it was reset
            # after the end of its stream.
            if is_connected(self.source) or e.errno == errno.EPIPE and not is_connected(self.sink):
                raise _SinkError(e, False) from None
            self._at_end = e
            return True
        if more is None:
            return False
        self._end_splice()
        if not more:
            raise EOFError
        # An administrator has ended the splice, or it met bytes that it cannot move. After a drain
        # the kernel knows no count any more, and returns 0.
        if not self.traffic.spliced:
            self.traffic.exact = False
        self.traffic.way = Way.COPY
        return True

    def _look(self) -> Optional[bool]:
        """True if the splice has left bytes, False at the end of the stream, None while it runs."""
        while True:
            self._raise_error()
            more: Optional[bool]
            try:
                more = bool(self.source.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
            except BlockingIOError:
                more = None
            # The splice may have ended after the first look for its error. The kernel sets the
            # error at the moment from which reads return bytes again, so look again.
            self._raise_error()
            # An error queue that the program does not read makes poll(2) show an error for ever.
            # So the looks of a whole connection are counted.
            if self._looks == LOOKS or not _has_error(self.source):
                return more
            self._looks += 1
            time.sleep(PAUSE)

    def _raise_error(self) -> None:
        number = self.source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, errno.errorcode.get(number, "error"))
        if self.told:
            told, self.told = self.told, None
            raise told

    def _read(self) -> bool:
        try:
            self.held = self.source.recv(BUFFER, socket.MSG_DONTWAIT)
        except OSError as e:
            if self._at_end:
                raise self._at_end from None
            if isinstance(e, BlockingIOError):
                return False
            raise
        if not self.held:
            raise self._at_end or EOFError
        return True

    def _write(self) -> bool:
        try:
            sent = self.sink.send(self.held, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError as e:
            raise _SinkError(e, True) from None
        self.traffic.copied += sent
        self.held = self.held[sent:]
        return True


class Engine:
    """Both directions. run() moves what can be moved; interest() says what to wait for."""

    def __init__(self, a: socket.socket, b: socket.socket) -> None:
        _option.refuse_tls(a, b)
        self.ends = (a, b)
        self.flows = (Flow(a, b), Flow(b, a))
        self.failure: Optional[Tuple[OSError, str]] = None
        self.lingers: List[bytes] = [s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
                                     for s in self.ends]
        # Until nothing was lost for certain, a close resets: even the end of the process cannot make
        # a stream look complete that was cut off.
        self._set_lingers([struct.pack("ii", 1, 0)] * 2)
        # With a timeout Python waits in a call that would return EAGAIN.
        self.timeouts = [s.gettimeout() for s in self.ends]
        for s in self.ends:
            s.settimeout(0)

    def _set_lingers(self, values: Sequence[bytes]) -> None:
        for s, value in zip(self.ends, values):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, value)

    def is_over(self) -> bool:
        return all(flow.is_done() for flow in self.flows)

    def run(self) -> Tuple[bool, bool]:
        """Returns whether something moved, and whether it may go on at once."""
        moved = False
        for _ in range(ROUNDS):
            now = [self._step(i) for i in range(2)]
            if self.is_over() or not any(now):
                return moved or any(now), False
            moved = True
        return True, True

    def interest(self) -> Dict[socket.socket, int]:
        """Returns the events of poll(2) to wait for. 0 stands for those that it reports unasked."""
        events: Dict[socket.socket, int] = {}
        for flow in self.flows:
            if flow.held:
                events[flow.sink] = events.get(flow.sink, 0) | select.POLLOUT
            elif not flow.is_done():
                events[flow.source] = events.get(flow.source, 0) | select.POLLIN
                if self._reads_no_more(flow):
                    events.setdefault(flow.sink, 0)     # poll(2) reports a reset unasked
        return events

    def _reads_no_more(self, flow: Flow) -> bool:
        """Whether nothing reads from the sink of a flow any more, so that no call finds a reset.
        The kernel notices it for a splice."""
        other = self.flows[1] if flow is self.flows[0] else self.flows[0]
        return flow.state is _State.CARRY and other.is_done()

    def _step(self, i: int) -> bool:
        flow, other = self.flows[i], self.flows[1 - i]
        try:
            if flow.step():
                return True
            if not self._reads_no_more(flow) or is_connected(flow.sink):
                return False
            raise _SinkError(_reset(), False)
        except EOFError:
            self._end_of_stream(i)
        except _SinkError as e:
            if e.from_write and other.state is _State.SPLICED and is_connected(flow.sink):
                # The sink is the source of the other splice, whose error this write has taken.
                other.told = e.error
                return True
            self._fail(e.error, 1 - i)
            flow.finish()
            # A server may answer and close before it has read everything. What it has sent can
            # still be read, and must arrive. The other flow then ends by itself.
            if is_connected(flow.sink):
                self.stop()
        except OSError as e:
            self._fail(e, i)
            self.stop()
        return True

    def _end_of_stream(self, i: int) -> None:
        flow, other = self.flows[i], self.flows[1 - i]
        flow.finish()
        if self.failure:
            return
        if not other.is_done() and not is_connected(flow.source):
            # After a reset of the source, a write of the other flow may have taken the error. A read
            # then only finds an end of stream.
            self._fail(_reset(), i)
            self.stop()
            return
        try:
            flow.sink.shutdown(socket.SHUT_WR)
        except OSError as e:
            if e.errno != errno.ENOTCONN:
                self._fail(e, 1 - i)
                self.stop()
            elif other.is_done():
                self._fail(_reset(), 1 - i)
            # Else the other flow reads from this socket, and finds the error.

    def _fail(self, error: OSError, side: int) -> None:
        """The first failure counts, but a sink that is gone only says EPIPE: the other flow, which
        reads from there, may find out why."""
        if not self.failure or (self.failure[0].errno, self.failure[1]) == (errno.EPIPE, "ab"[side]):
            self.failure = error, "ab"[side]

    def close(self) -> None:
        """Ends both flows, and gives the sockets their timeouts back."""
        self.stop()
        for s, timeout in zip(self.ends, self.timeouts):
            s.settimeout(timeout)

    def stop(self) -> None:
        """Ends both flows, and their splices."""
        for flow in self.flows:
            if not flow.is_done():
                flow.finish()

    def has_unsent(self) -> bool:
        """Whether closing a socket now would discard bytes that its peer has not acknowledged."""
        return any(is_connected(s) and _unsent(s) for s in self.ends)

    def result(self) -> Report:
        report = Report(self.flows[0].traffic, self.flows[1].traffic)
        if self.failure:
            error, side = self.failure
            raise ForwardError(error, side, report)
        self._set_lingers(self.lingers)
        return report


class Pauses:
    """How long to sleep after wake-ups that have led to nothing. poll(2) may go on to report an
    error that nobody waits for. One wake-up for nothing is usual."""

    def __init__(self) -> None:
        self.vain = 0

    def next(self, moved: bool) -> float:
        self.vain = 0 if moved else self.vain + 1
        return 0.0 if self.vain < 2 else min(PAUSE * (1 << min(self.vain - 2, 5)), 20 * PAUSE)


def forward(a: socket.socket, b: socket.socket) -> Report:
    """Forwards between two connected sockets, both ways, until both streams have ended. When one
    stream ends, its end is passed on (a half-close), and the other direction goes on. Returns
    what went each way, and how.

    The calling thread waits, so give each connection a thread. No other code may read from or
    write to the sockets meanwhile, which are non-blocking; their timeouts have no effect.

    Raises TypeError for an ssl.SSLSocket, because the kernel forwards beneath TLS. Sockets of other
    TLS libraries are not recognised: pass none.

    Raises ForwardError if a connection fails. From the start of the function on, closing the
    sockets resets their connections (SO_LINGER); a success undoes that. So after an error close
    both: their peers must not take a stream that was cut off for a complete one."""
    engine = Engine(a, b)
    pauses = Pauses()
    try:
        while True:
            moved, more = engine.run()
            if engine.is_over():
                break
            if more:
                continue
            if pause := pauses.next(moved):
                time.sleep(pause)
            poll = select.poll()
            for s, events in engine.interest().items():
                poll.register(s, events)
            poll.poll()
    finally:
        engine.close()
    start = time.monotonic()
    while engine.failure and engine.has_unsent() and time.monotonic() - start < LAST_BYTES:
        time.sleep(PAUSE)
    return engine.result()
