# SPDX-License-Identifier: MIT OR Apache-2.0
"""The option itself: begin a splice, end it, count its bytes."""

from __future__ import annotations

import errno
import math
import socket
import struct
import sys

# As in socksplice.h(3).
_LEVEL = socket.IPPROTO_IP
_SO_SPLICE = 0x5350

_UNAVAILABLE = (errno.ENOPROTOOPT, errno.EPERM, errno.EINVAL, errno.EPROTONOSUPPORT, errno.ENOMEM,
                errno.ENOTCONN, errno.EACCES, errno.EOPNOTSUPP, errno.EINTR)


def refuse_tls(*sockets: socket.socket) -> None:
    """Raises TypeError if one is an ssl.SSLSocket: the kernel would forward ciphertext of one TLS
    connection into another, or send plaintext where the peer expects TLS."""
    # A program that has not imported ssl has no such socket.
    tls = getattr(sys.modules.get("ssl"), "SSLSocket", None)
    if tls and any(isinstance(s, tls) for s in sockets):
        raise TypeError("the kernel forwards beneath TLS: copy between ssl.SSLSocket objects "
                        "by recv() and sendall()")


def splice(source: socket.socket, sink: socket.socket, *, max_bytes: int = 0,
           idle: float = 0.0) -> None:
    """Has the kernel forward to sink what source receives. What source has received and nobody
    has read goes first. The splice ends after max_bytes, with EFBIG in the source's SO_ERROR,
    or after idle seconds without a byte, with ETIMEDOUT; 0 means no limit. It also ends with
    the source's stream, and with an error.

    Raises TypeError for an ssl.SSLSocket, because the kernel forwards beneath TLS. Sockets of other
    TLS libraries are not recognised: pass none. Raises ValueError if a limit is out of range, else
    OSError as in so_splice(4). Both sockets are then unchanged. is_unavailable() tells after which
    errors a program should copy."""
    refuse_tls(source, sink)
    if not 0 <= max_bytes < 1 << 63:
        raise ValueError("max_bytes must be 0 to 2**63 - 1")
    if not 0 <= idle < 1 << 40:
        raise ValueError("idle must be 0 to 2**40 seconds")
    # Never round down to no limit.
    seconds, rest = divmod(math.ceil(idle * 1_000_000), 1_000_000)
    # struct splice: int, padding, off_t, struct timeval
    argument = struct.pack("@iqll", sink.fileno(), max_bytes, seconds, rest)
    source.setsockopt(_LEVEL, _SO_SPLICE, argument)


def unsplice(source: socket.socket) -> None:
    """Ends the splice of source. Bytes that were not sent can then be read from source. Raises
    OSError with ENOTCONN if there is no splice."""
    source.setsockopt(_LEVEL, _SO_SPLICE, -1)


def moved(source: socket.socket) -> int:
    """Returns the bytes that the splice of source has moved so far, or that the last one moved.
    0 if an administrator's socksplice drain has discarded the count."""
    count: int = struct.unpack("@q", source.getsockopt(_LEVEL, _SO_SPLICE, 8))[0]
    return count


def is_unavailable(error: OSError) -> bool:
    """Tells whether a program should copy after splice() has raised error. The copy then works,
    or its own error tells what is wrong. ENOTCONN is among these errors: the connection has
    ended, but what the source received before can still be read. EPROTONOSUPPORT: one of the
    two is not TCP, such as MPTCP."""
    return error.errno in _UNAVAILABLE


def probe() -> None:
    """Asks whether this process may splice now. Raises OSError if not: ENOPROTOOPT if the module
    is not loaded or the feature is off, EPERM if the caller may not splice."""
    with socket.socket() as asking:
        try:
            # The kernel checks the feature and the caller's rights before it checks the socket.
            splice(asking, asking)
        except OSError as e:
            if e.errno in (errno.ENOPROTOOPT, errno.EPERM):
                raise
