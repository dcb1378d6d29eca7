"""Arrival times of answers: the kernel's timestamps of received bytes, where a socket has them.

Linux stamps segments as they arrive (SO_TIMESTAMPNS, CLOCK_REALTIME: struct timespec in a control
message of recvmsg). asyncio's transports read without control messages, so the first byte is peeked
at just before the transport reads. Elsewhere, and under TLS, the instant is that at which the
transport hands the bytes over.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Final

__all__ = ["ANCILLARY_BYTES", "FirstBytes", "arrived_ns", "ask_for_stamps"]

_SO_TIMESTAMPNS: Final = 35  # Linux, asm-generic/socket.h; not in the socket module
_TIMESPEC: Final = struct.Struct("@ll")
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_TIMESPEC.size)
_READINGS: Final = 5
_TOGETHER_NS: Final = 3_000
_OLDEST_NS: Final = 60_000_000_000  # an older stamp is a clock that was set meanwhile


def ask_for_stamps(sock: socket.socket) -> bool:
    """Ask the kernel to stamp what this socket receives; return whether it does."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def arrived_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """Return when the bytes of these control messages arrived, in ns of the monotonic clock.

    0 without a timestamp.
    """
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            now, ahead = _clocks()
            arrived = seconds * 1_000_000_000 + nanoseconds - ahead
            return arrived if 0 <= now - arrived <= _OLDEST_NS else 0
    return 0


def _clocks() -> tuple[int, int]:
    """Return the monotonic clock, and how far the real-time clock is ahead of it, ns."""
    for _ in range(_READINGS):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if after - before <= _TOGETHER_NS:  # else the thread was interrupted in between
            break
    return after, real - (before + after) // 2


class FirstBytes:
    """The instants of one connection's reads, in ns of the monotonic clock."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._socket: socket.socket | None = None
        self._arrived = 0
        shown = transport.get_extra_info("socket")
        if shown is None or transport.get_extra_info("sslcontext") is not None:
            return
        # the transport's own object may refuse recvmsg; a copy of the descriptor reads the same
        # stream
        copy = socket.socket(fileno=socket.dup(shown.fileno()))
        copy.setblocking(False)
        if ask_for_stamps(copy):
            self._socket = copy
        else:
            copy.close()

    def peek(self) -> None:
        """Note when the next byte to be read arrived. Call it just before a read."""
        self._arrived = 0
        if self._socket is None:
            return
        try:
            _, ancillary, _, _ = self._socket.recvmsg(1, ANCILLARY_BYTES, socket.MSG_PEEK)
        except OSError:  # nothing there, or an end that the transport will find itself
            return
        self._arrived = arrived_ns(ancillary)

    def read(self) -> int:
        """Return when the first of the bytes just read arrived; the present time if unknown."""
        return self._arrived or time.monotonic_ns()

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
