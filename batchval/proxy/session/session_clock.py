"""Time one session: its first request, unfinished requests, lost peers, and its age."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Sized
from typing import Any, Final, Protocol

from batchval.proxy.kit.sockets import TCP_CLOSE, TCP_CLOSE_WAIT, silent_s, tcp_state
from batchval.proxy.session.broker_connection import ClientConnection
from batchval.proxy.session.closing import Closing
from batchval.proxy.session.holding import Holding
from batchval.proxy.settings.options import Counters, Limits
from batchval.token_bucket import TokenBucket

__all__ = ["AgeLimit", "SessionClock", "Timed"]

#: Bytes a second that a request has to come with, besides ``Limits.frame_s``.
LEAST_RATE: Final = 1 << 20

#: The share of ``Limits.max_age_s`` by which the ages of connections differ.
JITTER: Final = 0.1
#: Seconds for the end of a request or of a SASL exchange, once a connection is too old.
AGED_S: Final = 10.0
#: Connections that may end by their age in a second, however few there are.
LEAST_ENDS: Final = 5.0


class Timed(Protocol):
    """The part of a session that its clock uses."""

    client: ClientConnection
    limits: Limits
    answers: deque[Any]
    ending: str | None
    spoke: bool
    is_aged: bool
    seen: float
    ages: AgeLimit
    closing: Closing
    holding: Holding

    @property
    def outbox(self) -> Sized: ...
    def is_between_requests(self) -> bool: ...
    def end(self, why: str) -> None: ...
    def end_when_taken(self, why: str) -> None: ...
    def abort(self, why: str) -> None: ...


class AgeLimit:
    """A limit on the connections that end by their age in a second, over all listeners.

    Twice as many may as would end if their ages were spread evenly, so that clients which have come
    at once do not come again at once.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._ends = TokenBucket(LEAST_ENDS, LEAST_ENDS, time.monotonic)

    def take(self, max_age_s: float) -> bool:
        """Return whether one more may end now."""
        self._ends.per_second = self._ends.most = max(
            LEAST_ENDS, 2 * self._counters.connections_open / max_age_s
        )
        return self._ends.take()


class SessionClock:
    """The times of one session, in seconds. ``check`` is called now and then.

    ``frame_s``  for how long the unfinished request has come, while the client was read
    """

    def __init__(self, session: Timed, now: float) -> None:
        self.session = session
        self.frame_s = 0.0
        self._started = self._asked = self._looked = now
        self._left: float | None = None  # when a client that was not read was found to have left
        age_s = session.limits.max_age_s
        self._old_at = (
            math.inf if age_s is None else now + age_s * random.uniform(1 - JITTER, 1 + JITTER)
        )

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
        if session.closing.deadline is not None:
            if now > session.closing.deadline:
                session.abort("linger")
        elif client.holds:
            self._started = now  # a client that is not read cannot send its first request
            self._check_peer(now)
        elif not session.spoke and now - self._started > limits.handshake_s:
            session.end("handshake")
        elif client.splitter.buffered:
            self._check_frame(elapsed_s)
        elif (
            session.spoke
            and not session.answers
            and not session.outbox
            and now - session.seen > limits.idle_s
        ):
            session.end("idle")
        if now > self._old_at and session.ending is None:
            self._check_age(now)
        if client.unwritten():
            session.holding.bound_writes()

    def _check_age(self, now: float) -> None:
        """End a session that is too old: between two requests, or ``AGED_S`` later."""
        session = self.session
        if not session.is_aged:
            if not session.ages.take(session.limits.max_age_s or math.inf):
                return
            session.is_aged = True
            self._old_at = now
        if session.is_between_requests() or now - self._old_at > AGED_S:
            session.end_when_taken("max_age")

    def _check_frame(self, elapsed_s: float) -> None:
        """End a session whose client does not finish its request in time."""
        session = self.session
        self.frame_s += elapsed_s
        size = session.client.splitter.partial_size
        if self.frame_s > session.limits.frame_s + size / LEAST_RATE:
            session.end("frame_timeout")

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
