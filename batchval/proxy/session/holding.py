"""The memory that one session holds, and the reasons for which its client is not read."""

from __future__ import annotations

from typing import Final, Protocol

from batchval.proxy.kit.sockets import unread
from batchval.proxy.session.answering import Answering
from batchval.proxy.session.broker_connection import BrokerConnection, ClientConnection
from batchval.proxy.session.budget import Budget
from batchval.proxy.session.lifetime import Lifetime
from batchval.proxy.session.session_states import State
from batchval.proxy.settings.options import Counters, Limits

__all__ = [
    "ANSWERS",
    "BROKER",
    "BUDGET",
    "CONVERTING",
    "ENDING",
    "IN_WORDS",
    "SASL",
    "TURN",
    "UNKNOWN",
    "VALIDATING",
    "Holding",
]

BROKER: Final = 1  # the broker does not take what is there

VALIDATING: Final = 2  # enough waits for its verdict, or for its place

ANSWERS: Final = 4  # the client does not take its answers; the broker is not read either

BUDGET: Final = 8  # all sessions together hold too much; the broker is not read either

ENDING: Final = 16

TURN: Final = 32  # requests that have been read wait for their turn on the loop

SASL: Final = 64  # the broker's answer decides how the next bytes are read

UNKNOWN: Final = 128  # nobody knows yet whether brokers authenticate, and the request is large

CONVERTING: Final = 256  # the broker alone is not read: an answer of it is converted

#: The reasons for a client, for the log.
IN_WORDS: Final = {
    BROKER: "the broker takes no requests",
    VALIDATING: "requests wait for their verdict",
    ANSWERS: "the client takes no answers",
    BUDGET: "limits.max_bytes_held",
    ENDING: "the connection ends",
    TURN: "other clients have their turn",
    SASL: "the broker's answer to SaslHandshake is awaited",
    UNKNOWN: "no broker has shown whether clients have to authenticate",
}

#: Bytes that may wait for a client however many clients there are.
LEAST_WRITE_BUFFER: Final = 16 << 10


class Held(Protocol):
    """The part of a session that counts its bytes.

    ``waiting``  bytes of requests that wait, and of those whose answers are merged
    """

    address: str
    waiting: int
    lifetime: Lifetime
    client: ClientConnection
    broker: BrokerConnection | None
    answering: Answering
    limits: Limits
    budget: Budget
    counters: Counters

    def abort(self, why: str) -> None: ...


class Holding:
    """The bytes of one session.

    ``counted``  what the budget has noted of them outside of blocks
    """

    __slots__ = ("_session", "_write_buffer", "counted")

    def __init__(self, session: Held) -> None:
        self.counted = 0
        self._session = session
        self._write_buffer = 0

    def look(self) -> None:
        """Let the budget count what the session holds, and pause it where that is too much."""
        session = self._session
        session.budget.count(self, session.answering.made)
        if session.lifetime.state is not State.CLOSED:
            session.budget.look(self)

    def bound_writes(self) -> None:
        """Bound what waits for the client: less, the more clients there are."""
        session = self._session
        limit = max(
            LEAST_WRITE_BUFFER,
            session.budget.limit // 16 // max(1, session.counters.connections_open),
        )
        limit = min(session.limits.write_buffer, limit)
        if limit != self._write_buffer and session.client.transport is not None:
            self._write_buffer = limit
            session.client.transport.set_write_buffer_limits(limit)

    # ---- what the budget asks --------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Return the client's address, without the port."""
        return self._session.address

    @property
    def spoke(self) -> bool:
        """Return whether the client has sent a whole request."""
        return self._session.lifetime.spoke

    def held(self) -> int:
        """Return about how many bytes this session holds: frames in part, and what waits."""
        session = self._session
        held = (
            self.partial_held()
            + session.client.unwritten()
            + session.waiting
            + session.answering.made
        )
        return held if session.broker is None else held + session.broker.unwritten()

    def is_read(self) -> bool:
        """Return whether only the budget or the client keeps its request from growing."""
        return not self._session.client.holds & ~(BUDGET | ANSWERS)

    def partial_bytes(self) -> int:
        """Return what has come of the client's unfinished request."""
        return self._session.client.splitter.buffered

    def answer_bytes(self) -> int:
        """Return what has come of an answer that must be whole, if only the budget holds it up."""
        broker = self._session.broker
        return 0 if broker is None or broker.holds & ~BUDGET else broker.splitter.buffered

    def unwritten(self) -> int:
        """Return the bytes of answers that the client has not taken."""
        return self._session.client.unwritten()

    def unread(self) -> int:
        """Return what the client has sent and nobody has read; -1 where that is not known."""
        return unread(self._session.client.transport)

    def partial_held(self) -> int:
        """Return the memory of an unfinished request, and of an answer that must be whole."""
        held, broker = self._session.client.splitter.held_bytes, self._session.broker
        return held if broker is None else held + broker.splitter.held_bytes

    def partial_size(self) -> int:
        """Return the larger size that an unfinished request or answer states; 0: not known yet."""
        size, broker = self._session.client.splitter.partial_size, self._session.broker
        return max(size, broker.splitter.partial_size) if self.answer_bytes() and broker else size

    # ---- what the budget asks for ----------------------------------------------------------------

    def pause(self) -> None:
        """Read neither side: all sessions together hold too much."""
        self._session.client.hold(BUDGET)
        if self._session.broker is not None:
            self._session.broker.hold(BUDGET)

    def go_on(self) -> None:
        """Read both sides again."""
        self._session.client.release(BUDGET)
        if self._session.broker is not None:
            self._session.broker.release(BUDGET)

    def abort(self, why: str) -> None:
        """End the session at once."""
        self._session.abort(why)
