"""The lifetime of one session: its state, why it ends, and its deadlines.

    1. the first reason to end counts
    2. no more requests are taken; requests in progress are completed, within
       ``Limits.linger_s``
    3. a client that does nothing wrong gets an end of file, and the time to end by itself
    4. each side is closed once what is written to it is gone; a session without connections is
       forgotten

Step 3 is for an end that the gate chooses (``GRACEFUL``): after drain, max_connection_age and idle.

    1. the last answer is written, then an end of file (not with TLS, which has none of its own)
    2. what the client still sends is read: batches with acks=0 go to the broker, because nobody
       would send them again. Other requests are dropped: their client sends them again
    3. the connection is closed once the client has closed it, or has acknowledged every answer and
       sends nothing more, or after ``MAX_CLOSE_S``

A connection that is closed while something of it is unread is reset by the kernel (RFC 1122,
4.2.2.13), and a reset destroys answers that are still on their way.

``Lifetime`` decides; the session carries out. It gets back what is to be done: an ``End``, the
seconds until the next look, or nothing.
"""

from __future__ import annotations

import enum
import math
import random
import time
from typing import Final, NamedTuple

from batchval.proxy.kit.end_reasons import CLIENT
from batchval.proxy.kit.sockets import TCP_CLOSE, TCP_CLOSE_WAIT, silent_s, tcp_state
from batchval.proxy.kit.state_machine import StateMachine
from batchval.proxy.session.connections import ClientConnection
from batchval.proxy.session.session_states import TRANSITIONS, SessionEvent, SessionState
from batchval.proxy.settings.config import Limits
from batchval.proxy.settings.options import Counters
from batchval.token_bucket import TokenBucket

__all__ = ["GRACEFUL", "AgeLimit", "End", "How", "Lifetime"]

#: Reasons for which a client that does nothing wrong is disconnected.
GRACEFUL: Final = frozenset({"drain", "max_age", "idle"})

#: Seconds between looks at a client that may end by itself.
QUIET_S: Final = 0.25
#: Seconds that it has for that.
MAX_CLOSE_S: Final = 2.0

#: Bytes a second that a request has to come with, besides ``limits.frame_timeout_ms``.
MIN_RATE: Final = 1 << 20

#: The share of ``limits.max_connection_age_ms`` by which the ages of connections differ.
JITTER: Final = 0.1
#: Seconds for the end of a request or of a SASL exchange, once a connection is too old.
AGED_S: Final = 10.0
#: Connections that may end by their age in a second, however few there are.
MIN_ENDS_PER_S: Final = 5.0


class How(enum.Enum):
    """How a session ends."""

    DRAIN = "drain"  # what is under way is delivered
    WHEN_TAKEN = "when taken"  # the same, after the requests that have been read
    NOW = "now"  # both connections are aborted


class End(NamedTuple):
    """An end that is to be carried out. ``request``: API key and version of its cause."""

    why: str
    how: How = How.DRAIN
    detail: str = ""
    request: tuple[int, int] | None = None


class AgeLimit:
    """A limit on the connections that end by their age in a second, over all listeners.

    Twice as many may as would end if their ages were spread evenly, so that clients which have come
    at once do not come again at once.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._ends = TokenBucket(MIN_ENDS_PER_S, MIN_ENDS_PER_S, time.monotonic)

    def take(self, max_age_s: float) -> bool:
        """Return whether one more may end now."""
        self._ends.per_second = self._ends.most = max(
            MIN_ENDS_PER_S, 2 * self._counters.connections_open / max_age_s
        )
        return self._ends.take()


class Lifetime(StateMachine[SessionState, SessionEvent]):
    """The state and the deadlines of one session. Times are seconds of the loop's clock."""

    __slots__ = (
        "_after",
        "_asked",
        "_is_quiet",
        "_left",
        "_looked",
        "_old_at",
        "_part_until",
        "_started",
        "deadline",
        "frame_s",
        "is_aged",
        "reason",
        "seen",
        "spoke",
        "state",
    )
    transitions = TRANSITIONS

    def __init__(self, limits: Limits, now: float) -> None:
        self.state = SessionState.CONNECTING
        # why it ends and when what is under way is dropped: from DRAINING on, set once by ``end``
        self.reason: str | None = None
        self.deadline = math.inf
        self.is_aged = False  # it ends after the request that is being read
        # the session writes these three at each read
        self.spoke = False  # a whole request has come
        self.seen = now  # when something came last
        self.frame_s = 0.0  # for how long the unfinished request has come, while it was read
        # the end that comes once the requests which have been read are taken
        self._after: End | None = None
        self._is_quiet = True  # in PARTING: nothing has come since the last look
        self._part_until = math.inf  # the end of PARTING
        self._started = self._asked = self._looked = now
        self._left: float | None = None  # when a client that was not read was found to have left
        self._old_at = now + limits.max_age_s * random.uniform(1 - JITTER, 1 + JITTER)

    # ---- the end ---------------------------------------------------------------------------------

    def end(
        self, why: str, now: float, limits: Limits, event: SessionEvent = SessionEvent.END
    ) -> bool:
        """Begin to end, or go on to CLOSED; return whether this is the first reason."""
        is_first = self.reason is None
        if is_first:
            self.reason = why
            self.deadline = now + limits.linger_s
        self.move(event)
        return is_first

    def refused(self, now: float) -> None:
        """Close a session whose client the listener has refused, counted and logged it."""
        self.reason, self.deadline = "refused", now
        self.move(SessionEvent.CLOSE)

    def end_after(self, end: End) -> None:
        """Keep an end until the requests that have been read are taken; the first counts."""
        self._after = self._after or end

    def all_taken(self) -> End | None:
        """Return the end that was kept until now, if one was."""
        return self._after

    @property
    def is_taking(self) -> bool:
        """Return whether requests that have been read are still taken."""
        # what a client sent before it left is delivered; while it parts, acks=0 is
        return self.state < SessionState.DRAINING or self.may_part or self.reason == CLIENT

    # ---- the client may end by itself ------------------------------------------------------------

    @property
    def may_part(self) -> bool:
        """Return whether the client has an end of file, and what it sends is read."""
        return SessionState.DRAINING < self.state < SessionState.CLOSED

    def part(self, now: float) -> float | None:
        """Let a client that has every answer end by itself; return the seconds until the next look.

        None where its connection ends otherwise, or has the end of file already.
        """
        if not self.spoke or self.reason not in GRACEFUL or not self.move(SessionEvent.PART):
            return None
        self._part_until = now + MAX_CLOSE_S
        return QUIET_S

    def came_late(self) -> None:
        """Note that the client, which may end by itself, still sends."""
        self._is_quiet = False

    def look_parting(self, now: float, unacknowledged: int) -> float | None:
        """Return the seconds until the next look; None once nothing more comes."""
        if now > self._part_until or (self._is_quiet and not unacknowledged):
            self.move(SessionEvent.QUIET)
            return None
        self._is_quiet = True
        return QUIET_S

    # ---- deadlines -------------------------------------------------------------------------------

    def check(
        self,
        now: float,
        client: ClientConnection,
        limits: Limits,
        ages: AgeLimit,
        *,
        is_idle: bool,
        is_between_requests: bool,
    ) -> End | None:
        """Return how a session that has waited too long ends. Called now and then.

        ``is_idle``  no request waits, and no answer
        """
        elapsed_s, self._looked = now - self._looked, now
        if now - self._asked > limits.peer_timeout_ms / 10_000:
            self._asked = now
            if silent_s(client.transport) > limits.peer_timeout_ms / 1000:
                return End("client_gone", How.NOW)
        end = None
        if self.state >= SessionState.DRAINING:
            return End("linger", How.NOW) if now > self.deadline else None
        if client.holds:
            self._started = now  # a client that is not read cannot send its first request
            end = self._check_peer(now, client, limits)
        elif not self.spoke and now - self._started > limits.handshake_timeout_ms / 1000:
            end = End("handshake")
        elif client.splitter.buffered:
            end = self._check_frame(elapsed_s, client.splitter.partial_size, limits)
        elif self.spoke and is_idle and now - self.seen > limits.idle_timeout_ms / 1000:
            end = End("idle")
        if end is None and now > self._old_at:
            end = self._check_age(now, limits, ages, is_between_requests)
        return end

    def _check_age(
        self, now: float, limits: Limits, ages: AgeLimit, is_between_requests: bool
    ) -> End | None:
        """End a session that is too old: between two requests, or ``AGED_S`` later."""
        if not self.is_aged:
            if not ages.take(limits.max_age_s):
                return None
            self.is_aged = True
            self._old_at = now
        if is_between_requests or now - self._old_at > AGED_S:
            return End("max_age", How.WHEN_TAKEN)
        return None

    def _check_frame(self, elapsed_s: float, size: int, limits: Limits) -> End | None:
        """End a session whose client does not finish its request in time."""
        self.frame_s += elapsed_s
        if self.frame_s > limits.frame_timeout_ms / 1000 + size / MIN_RATE:
            return End("frame_timeout")
        return None

    def _check_peer(self, now: float, client: ClientConnection, limits: Limits) -> End | None:
        """Ask the kernel about a client that is not read, and so not heard when it leaves."""
        state = tcp_state(client.transport)
        if state == TCP_CLOSE:
            return End("client_gone", How.NOW)
        if state != TCP_CLOSE_WAIT:
            self._left = None
        elif self._left is None:  # what it sent before may still be taken
            self._left = now
        elif now - self._left > limits.linger_s:
            return End("client_gone", How.NOW)
        return None
