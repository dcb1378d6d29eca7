"""The connection to a broker behind one client: frames out as they are given, answers in, in the order of the requests.

There is no cap here and no queue: the client's own window bounds what is under way. A broker that does not read fills
the transport's buffer, and then the client is not read any more.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, cast

from batchval.protocol.frames import FrameError, FrameSplitter

if TYPE_CHECKING:
    from batchval.proxy.downstream import Downstream

__all__ = ["TCP_CLOSE", "TCP_CLOSE_WAIT", "Upstream", "keep_alive", "silent_s", "tcp_state"]

#: Of Linux' tcp_states.h: reset, and ended by the peer.
TCP_CLOSE = 7
TCP_CLOSE_WAIT = 8

#: Of Linux' struct tcp_info: retransmits, probes (both 0 once the peer acknowledges), last_ack_recv in ms.
_TCP_INFO = struct.Struct("=2xBB52xI")
_PROBES = 6


def keep_alive(transport: asyncio.Transport, timeout_s: float, *, bound_unacknowledged: bool) -> None:
    """Finds a peer that is gone without a word, where nothing is under way to it; and no waiting for more to send.

    What is under way is no matter of keepalive, and the kernel would repeat it for a quarter of an hour:
    ``bound_unacknowledged`` ends that, too (TCP_USER_TIMEOUT). It also ends a peer that acknowledges and does not read.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", max(1, int(timeout_s / 2))),
        ("TCP_KEEPINTVL", max(1, int(timeout_s / 2 / _PROBES))),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", int(timeout_s * 1000) if bound_unacknowledged else 0),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def silent_s(transport: asyncio.Transport | None) -> float:
    """For how long the peer has acknowledged nothing although the kernel asks it to: 0 where it asks nothing.

    A peer that only does not read answers the kernel's probes of its window, and is not silent.
    """
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return 0.0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        retransmits, probes, last_ack_ms = _TCP_INFO.unpack(info)
    except (OSError, struct.error):
        return 0.0
    return float(last_ack_ms) / 1000 if retransmits or probes else 0.0


def tcp_state(transport: asyncio.Transport | None) -> int:
    """The kernel's word for where a connection stands; 0 where it has none."""
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return 0
    try:
        return int(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0])
    except OSError:
        return 0


class Upstream(asyncio.BufferedProtocol):
    """One connection to a broker, for one client's."""

    __slots__ = ("_paused", "downstream", "get_buffer", "splitter", "transport")

    def __init__(self, downstream: Downstream, max_answer_bytes: int, write_buffer: int) -> None:
        self.downstream = downstream
        self.splitter = FrameSplitter(max_answer_bytes, whole=True)
        self.get_buffer = self.splitter.get_buffer  # type: ignore[assignment,method-assign]  # a call less
        self.transport: asyncio.Transport | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(self.downstream.limits.write_buffer)
        keep_alive(self.transport, self.downstream.limits.peer_timeout_s, bound_unacknowledged=True)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self.splitter.buffer_updated(nbytes)
        except FrameError as error:
            self.downstream.answered(error.frames)
            self.downstream.abort("upstream_frame")
            return
        if frames:
            self.downstream.answered(frames)

    def pause_writing(self) -> None:
        self.downstream.upstream_full()

    def resume_writing(self) -> None:
        self.downstream.upstream_drained()

    def pause(self) -> None:
        """The client does not take its answers: the broker is not read meanwhile."""
        if not self._paused and self.transport is not None and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """The client takes answers again."""
        if self._paused and self.transport is not None and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def waiting(self) -> int:
        """Bytes that the broker has not taken, and what has come of an unfinished answer."""
        written = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return written + self.splitter.buffered

    def connection_lost(self, exc: Exception | None) -> None:
        self.downstream.upstream_lost(exc)
