"""The end of a client's connection that the gate chooses: after drain, max_connection_age and idle.

    1. the last answer is written, then an end of file (not with TLS, which has none of its own)
    2. what the client still sends is read: batches with acks=0 go to the broker, because nobody
       would send them again. Other requests are dropped: their client sends them again
    3. the connection is closed once the client has closed it, or has acknowledged every answer and
       sends nothing more, or after ``MOST_S``

A connection that is closed while something of it is unread is reset by the kernel (RFC 1122,
4.2.2.13), and a reset destroys answers that are still on their way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.produce import ProduceRequestView
from batchval.proxy.kit.sockets import unacknowledged
from batchval.proxy.session.client_connection import ClientConnection
from batchval.proxy.settings.options import Limits

__all__ = ["GRACEFUL", "Parting"]

#: Reasons for which a client that does nothing wrong is disconnected.
GRACEFUL: Final = frozenset({"drain", "max_age", "idle"})

QUIET_S: Final = 0.25
MOST_S: Final = 2.0


class Departing(Protocol):
    """The part of a session that its parting uses."""

    client: ClientConnection
    limits: Limits

    def take_late(self, frames: list[memoryview]) -> None: ...


class Parting:
    """The end of one connection, from its last answer on.

    ``over``  is called once nothing more comes
    """

    def __init__(
        self, session: Departing, loop: asyncio.AbstractEventLoop, over: Callable[[], None]
    ) -> None:
        self.is_over = False
        self._over = over
        self._session = session
        self._loop = loop
        self._is_quiet = True
        self._until = loop.time() + MOST_S
        session.client.end_writing()
        self._timer = loop.call_later(QUIET_S, self._look)

    def take(self, frames: list[memoryview]) -> None:
        """Take what comes after the last answer; ``frames`` are those that are complete by now."""
        self._is_quiet = False
        late = [
            frame
            for frame in frames
            if _wants_no_answer(frame, self._session.limits.max_partitions)
        ]
        if late:
            self._session.take_late(late)

    def finish(self) -> None:
        """Read no more."""
        self.is_over = True
        self._timer.cancel()

    def _look(self) -> None:
        transport = self._session.client.transport
        if self.is_over or transport is None or transport.is_closing():
            return
        if self._loop.time() > self._until or (self._is_quiet and not unacknowledged(transport)):
            self.finish()
            self._over()
            return
        self._is_quiet = True
        self._timer = self._loop.call_later(QUIET_S, self._look)


def _wants_no_answer(frame: memoryview, max_partitions: int) -> bool:
    if frame[4:6] != int(ApiKey.PRODUCE).to_bytes(2, "big"):
        return False
    try:
        request = ProduceRequestView(frame[4:], max_partitions=max_partitions, oldest=0)
    except ProtocolError:
        return False
    return not request.expects_response
