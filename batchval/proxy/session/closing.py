"""The end of one session: why it ends, and when its two connections are closed.

    1. the first reason counts: it is counted and logged
    2. only Produce requests with acks=0 are still taken; requests in progress are completed, within
       ``Limits.linger_s``
    3. a client that does nothing wrong gets an end of file, and the time to end by itself
       (``parting``)
    4. each side is closed once what is written to it is gone; a session without connections is
       forgotten

``abort`` closes both sides at once.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from batchval.proxy.session.answering import Answering
from batchval.proxy.session.connection_log import Connection, ConnectionLog, Request
from batchval.proxy.session.holds import ANSWERS, BUDGET, CONVERTING, ENDING, TURN
from batchval.proxy.session.parting import GRACEFUL, Parting
from batchval.proxy.session.session_states import Event, State
from batchval.proxy.settings.options import Limits

__all__ = ["Closed", "Closing", "Counting"]


class Counting(Protocol):
    """The counter of the ends of sessions."""

    loop: asyncio.AbstractEventLoop

    def closed(self, why: str) -> None: ...


class Closed(Connection, Protocol):
    """The part of a session that its end uses.

    ``ending``   why it ends, once it does
    ``is_busy``  whether requests wait to be sent
    ``unsent``   requests for a broker that is not connected yet; None once it is
    ``untaken``  requests that have been read and wait for their turn
    ``task``     the TLS handshake, or the connection to the broker, while it is under way
    """

    state: State
    ending: str | None
    spoke: bool
    limits: Limits
    log: ConnectionLog
    answering: Answering
    unsent: list[bytes | memoryview] | None
    untaken: list[memoryview]
    task: asyncio.Task[None] | None

    @property
    def proxy(self) -> Counting: ...
    @property
    def is_busy(self) -> bool: ...
    def move(self, event: Event) -> bool: ...
    def drop_requests(self) -> None: ...
    def dissolve(self) -> None: ...
    def take_late(self, frames: list[memoryview]) -> None: ...


class Closing:
    """The progress of the end of one session.

    ``parting``   the end of its client's connection, once every answer is written
    ``deadline``  when what is under way is dropped, in seconds of the loop's clock
    """

    __slots__ = ("_after", "_session", "deadline", "parting")

    def __init__(self, session: Closed) -> None:
        self.parting: Parting | None = None
        self.deadline: float | None = None
        self._session = session
        # why it ends once the requests that have been read are taken
        self._after: tuple[str, str] | None = None

    def note_ending(self, why: str, detail: str = "", request: Request | None = None) -> None:
        """Note, count and log why the session ends; the first reason counts."""
        session = self._session
        if session.ending is None:
            session.ending = why
            session.proxy.closed(why)
            session.log.ended(session, why, detail, request)

    def end(self, why: str, detail: str = "", request: Request | None = None) -> None:
        """Take no more requests; close once what is under way is delivered.

        ``request``  the one that is the cause, if one is
        """
        session = self._session
        if session.ending is not None:
            return
        self.note_ending(why, detail, request)
        session.move(Event.END)
        self._set_deadline()
        session.client.hold(ENDING)
        session.proxy.loop.call_soon(self._close_later, session)

    def end_when_taken(self, why: str, detail: str = "") -> None:
        """Take the requests that have been read, and then no more."""
        if self._session.untaken:
            self._after = self._after or (why, detail)
        else:
            self.end(why, detail)

    def all_taken(self) -> None:
        """Note that the requests which have been read are taken."""
        if self._after is not None:
            self.end(*self._after)
        self.close_if_done()

    def may_end(self) -> None:
        """Close once what was taken is delivered: the client has had the time to end by itself."""
        if self.parting is not None:
            self.parting.finish()
        self.close_if_done()

    def close_if_done(self) -> None:
        """Close both sides of a session that ends, unless anything is under way."""
        session = self._session
        if session.ending is None or session.is_busy:
            return
        if (not session.answering or session.client.transport is None) and not self._parts():
            self.close(session.ending)

    def _close_later(self, session: Closed) -> None:
        """Close in a later turn of the loop, which keeps ``session`` until then."""
        self.close_if_done()

    def _parts(self) -> bool:
        """Return whether the client may still send: it has every answer, and an end of file."""
        session = self._session
        if session.client.transport is None or not session.spoke or session.state is State.CLOSED:
            return False
        if self.parting is None and session.ending in GRACEFUL:
            self.parting = Parting(session, session.proxy.loop, self.may_end)
            session.client.release(ENDING)
        return self.parting is not None and not self.parting.is_over

    def close(self, why: str) -> None:
        """Close both sides once what is written to them is gone."""
        self.note_ending(why)
        self._session.move(Event.CLOSE)
        self._set_deadline()
        if self._session.client.transport is not None:
            self._session.client.transport.close()
        self.close_broker()

    def close_broker(self) -> None:
        """Close the broker's side. The broker still gets the requests that were taken."""
        session = self._session
        self._set_deadline()
        if session.is_busy:
            return
        session.move(Event.CLOSE)
        self._cancel_task()
        if session.broker is not None and session.broker.transport is not None:
            # a transport that is not read never sees its end
            session.broker.release(ANSWERS | BUDGET | TURN | CONVERTING)
            session.broker.close()
        self.forget_if_gone()

    def abort(self, why: str, detail: str = "") -> None:
        """End both sides at once."""
        session = self._session
        self.note_ending(why, detail)
        session.move(Event.CLOSE)
        session.drop_requests()
        session.unsent = None
        if session.client.transport is not None:
            session.client.transport.abort()
        if session.broker is not None and session.broker.transport is not None:
            session.broker.transport.abort()
        self._cancel_task()
        self.forget_if_gone()

    def forget_if_gone(self) -> None:
        """Forget and free the session once both of its connections are gone."""
        session = self._session
        if session.client.transport is None and session.broker is None and session.task is None:
            session.state = State.CLOSED
            session.client.splitter.clear()
            session.seen_client.collect()
            if self.parting is not None:
                self.parting.finish()
                self.parting = None
            session.dissolve()

    def _set_deadline(self) -> None:
        if self.deadline is None:
            self.deadline = self._session.proxy.loop.time() + self._session.limits.linger_s

    def _cancel_task(self) -> None:
        task, self._session.task = self._session.task, None
        if task is not None:
            task.cancel()
