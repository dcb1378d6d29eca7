"""How long one session may wait: for its first request, for the rest of one, for lost peers."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol

from batchval.proxy.client_connection import ClientConnection
from batchval.proxy.options import Limits
from batchval.proxy.sockets import TCP_CLOSE, TCP_CLOSE_WAIT, silent_s, tcp_state

__all__ = ["SessionClock", "Timed"]

#: Bytes a second that a request has to come with, besides ``Limits.frame_s``.
LEAST_RATE: Final = 1 << 20


class Timed(Protocol):
    """What the clock needs of its session."""

    client: ClientConnection
    limits: Limits
    answers: deque[Any]
    outbox: deque[Any]
    deadline: float | None
    holds: int
    spoke: bool
    seen: float

    def partial_size(self) -> int: ...
    def bound_writes(self) -> None: ...
    def end(self, why: str) -> None: ...
    def abort(self, why: str) -> None: ...


class SessionClock:
    """The times of one session, in seconds. ``check`` is called now and then.

    ``frame_s``  for how long the unfinished request has come, while the client was read
    """

    def __init__(self, session: Timed, now: float) -> None:
        self.session = session
        self.frame_s = 0.0
        self._started = self._asked = self._looked = now
        self._left: float | None = None  # when a client that was not read was found to have left

    def check(self, now: float) -> None:
        """End what has waited too long."""
        session = self.session
        limits, client = session.limits, session.client
        elapsed_s, self._looked = now - self._looked, now
        if now - self._asked > limits.peer_timeout_s / 10:
            self._asked = now
            if silent_s(client.transport) > limits.peer_timeout_s:
                session.abort("client_gone")
                return
        if session.deadline is not None:
            if now > session.deadline:
                session.abort("linger")
        elif session.holds:
            self._started = now  # while it is not read it cannot be blamed for saying nothing
            self._check_peer(now)
        elif not session.spoke and now - self._started > limits.handshake_s:
            session.end("handshake")
        elif client.splitter.buffered:
            self._check_frame(elapsed_s)
        elif session.spoke and not session.answers and not session.outbox and now - session.seen > limits.idle_s:
            session.end("idle")
        if client.unwritten():
            session.bound_writes()

    def _check_frame(self, elapsed_s: float) -> None:
        """End a session whose client does not finish its request in time."""
        self.frame_s += elapsed_s
        if self.frame_s > self.session.limits.frame_s + self.session.partial_size() / LEAST_RATE:
            self.session.end("frame_timeout")

    def _check_peer(self, now: float) -> None:
        """Ask the kernel about a client that is not read, and so not heard when it leaves."""
        state = tcp_state(self.session.client.transport)
        if state == TCP_CLOSE:
            self.session.abort("client_gone")
        elif state != TCP_CLOSE_WAIT:
            self._left = None
        elif self._left is None:  # what it sent before may still be taken
            self._left = now
        elif now - self._left > self.session.limits.linger_s:
            self.session.abort("client_gone")
