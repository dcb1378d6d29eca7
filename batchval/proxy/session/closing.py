"""The life of one session's connections: its broker's is opened, both are closed, and why.

    1. the first reason counts: it is counted and logged
    2. only Produce requests with acks=0 are still taken; requests in progress are completed, within
       ``Limits.linger_s``
    3. a client that does nothing wrong gets an end of file, and the time to end by itself
       (``Parting``)
    4. each side is closed once what is written to it is gone; a session without connections is
       forgotten

``abort`` closes both sides at once.

``Parting`` is an end that the gate chooses: after drain, max_connection_age and idle.

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
from functools import partial
from typing import Final, Protocol

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.proxy.cluster.listeners import Listener, UnknownBrokerError
from batchval.proxy.kit.sockets import unacknowledged
from batchval.proxy.session.answering import Answering
from batchval.proxy.session.broker_connection import BrokerConnection, BrokerSide, ClientConnection
from batchval.proxy.session.budget import Budget
from batchval.proxy.session.connection_log import Connection, ConnectionLog, Request
from batchval.proxy.session.holding import ANSWERS, BROKER, BUDGET, CONVERTING, ENDING, TURN
from batchval.proxy.session.session_states import Event, State
from batchval.proxy.settings.options import Limits
from batchval.proxy.watch.durations import Traffic
from batchval.proxy.watch.senders import Sender

__all__ = ["GRACEFUL", "Closed", "Closing", "Connecting", "Connector", "Counting", "Parting"]

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


class Connector(Counting, Protocol):
    """The part of a listener that opens connections to brokers."""

    async def connect(self, listener: Listener, broker: BrokerConnection) -> None: ...
    def upstream_failed(self) -> None: ...
    def traffic_of(self, listener: Listener) -> Traffic: ...


class Connected(Closed, BrokerSide, Protocol):
    """The part of a session that connecting uses."""

    account: Sender
    authenticated: bool
    waiting: int
    budget: Budget
    closing: Closing

    @property
    def proxy(self) -> Connector: ...
    def read_if_bounded(self) -> None: ...


class Connecting:
    """The connection of one session to its broker, made once."""

    __slots__ = ("_has_begun", "_session")

    def __init__(self, session: Connected) -> None:
        self._session = session
        self._has_begun = False

    def begin(self) -> None:
        """Connect in a later turn of the loop: one session in each turn does."""
        if not self._has_begun and self._session.broker is None:
            self._has_begun = True
            # the turn keeps the session, which may be gone by then
            session = self._session
            session.budget.take_turn(partial(self._start, session), session.account.key)

    def _start(self, session: Connected) -> None:
        if session.state is State.CLOSED and not session.unsent:
            self._has_begun = False
            session.closing.forget_if_gone()
        else:
            session.task = session.proxy.loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Open the connection, and send what has come meanwhile."""
        session = self._session
        broker = BrokerConnection(session, session.limits, session.budget.spare)
        try:
            await session.proxy.connect(session.listener, broker)
        except UnknownBrokerError as error:
            session.task = None
            session.closing.abort("broker_unknown", str(error))
        except (OSError, TimeoutError) as error:
            session.proxy.upstream_failed()
            session.task = None
            session.closing.abort("upstream_unreachable", str(error))
        except asyncio.CancelledError:
            if broker.transport is not None:
                broker.transport.abort()
            raise
        else:
            session.task = None
            self._opened(broker)
        finally:
            session.task = None
            if session.broker is not broker:
                # uvloop may have closed it when this was cancelled, without a call of the protocol
                broker.transport = None

    def _opened(self, broker: BrokerConnection) -> None:
        session = self._session
        session.broker = broker
        # its broker may be known only now
        session.fast_path.measure(session.proxy.traffic_of(session.listener))
        if session.log.is_debug:
            session.log.debug(
                session,
                "broker connected",
                broker=session.listener.node_id,
                broker_address=broker.address,
            )
        if broker.limits is not session.limits:
            broker.bound(session.limits)
        session.move(Event.CONNECTED)
        if session.authenticated:
            session.move(Event.AUTHENTICATED)
        unsent, session.unsent = session.unsent, None
        session.client.release(BROKER)  # the broker may be full again at once
        if unsent:
            session.waiting -= sum(map(len, unsent))
            broker.write(unsent)
        session.read_if_bounded()
        if session.ending is not None:
            if session.client.transport is None:
                session.closing.close_broker()
            else:
                session.closing.close_if_done()
        if session.client.holds & ANSWERS:
            broker.hold(ANSWERS)
        if session.client.holds & BUDGET:
            broker.hold(BUDGET)
