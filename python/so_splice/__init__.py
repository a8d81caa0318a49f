# SPDX-License-Identifier: MIT OR Apache-2.0
"""SO_SPLICE on Linux: the kernel forwards the bytes that one TCP socket, the source, receives
to another one, the sink. It comes from the kernel module socksplice. Where the kernel does not
offer it, forward() copies. so_splice.aio.forward() is the same for asyncio."""

from . import aio
from ._engine import ForwardError, Report, Traffic, Way, forward
from ._option import is_unavailable, moved, probe, splice, unsplice

__all__ = ["ForwardError", "Report", "Traffic", "Way", "aio", "forward", "is_unavailable",
           "moved", "probe", "splice", "unsplice"]
