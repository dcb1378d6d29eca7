"""The connection of a session to its broker, until it is open."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from batchval.proxy.cluster.listeners import Listener, UnknownBrokerError
from batchval.proxy.session.broker_connection import BrokerConnection, BrokerSide
from batchval.proxy.session.budget import Budget
from batchval.proxy.session.connection_log import Connection, ConnectionLog
from batchval.proxy.session.holding import ANSWERS, BROKER, BUDGET
from batchval.proxy.session.lifetime import Lifetime
from batchval.proxy.session.session_states import Event, State
from batchval.proxy.settings.options import Limits
from batchval.proxy.watch.durations import Traffic
from batchval.proxy.watch.senders import Sender

__all__ = ["Connecting", "Connector"]


class Connector(Protocol):
    """The part of a listener that opens connections to brokers, and counts the ends of sessions."""

    loop: asyncio.AbstractEventLoop

    def closed(self, why: str) -> None: ...

    async def connect(self, listener: Listener, broker: BrokerConnection) -> None: ...
    def upstream_failed(self) -> None: ...
    def traffic_of(self, listener: Listener) -> Traffic: ...


class Connected(Connection, BrokerSide, Protocol):
    """The part of a session that connecting uses.

    ``unsent``  requests for a broker that is not connected yet
    ``task``    the TLS handshake, or the connection to the broker, while it is under way
    """

    account: Sender
    authenticated: bool
    waiting: int
    budget: Budget
    lifetime: Lifetime
    limits: Limits
    log: ConnectionLog
    unsent: list[bytes | memoryview]
    task: asyncio.Task[None] | None

    @property
    def proxy(self) -> Connector: ...
    def abort(self, why: str, detail: str = "") -> None: ...
    def read_if_bounded(self) -> None: ...
    def close_if_done(self) -> None: ...
    def forget_if_gone(self) -> None: ...


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
        if session.lifetime.state is State.CLOSED:
            self._has_begun = False
            session.forget_if_gone()
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
            session.abort("broker_unknown", str(error))
        except (OSError, TimeoutError) as error:
            session.proxy.upstream_failed()
            session.task = None
            session.abort("upstream_unreachable", str(error))
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
        session.lifetime.move(Event.CONNECTED)
        if session.authenticated:
            session.lifetime.move(Event.AUTHENTICATED)
        unsent, session.unsent = session.unsent, []
        session.client.release(BROKER)  # the broker may be full again at once
        if unsent:
            session.waiting -= sum(map(len, unsent))
            broker.write(unsent)
        session.read_if_bounded()
        if session.lifetime.state >= State.DRAINING:
            session.close_if_done()
        if session.client.holds & ANSWERS:
            broker.hold(ANSWERS)
        if session.client.holds & BUDGET:
            broker.hold(BUDGET)
