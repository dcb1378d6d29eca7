"""The listener that a session belongs to, as the session and its handlers see it.

``life.listener_server`` is above the sessions and makes them: it is named here by what they use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from batchval.protocol.old_versions import Raised
from batchval.proxy.cluster.listeners import ListeningPort
from batchval.proxy.kit.topics import KnownTopics
from batchval.proxy.produce.validation_queue import ValidationQueue
from batchval.proxy.session.budget import Budget
from batchval.proxy.session.connection_log import ConnectionLog
from batchval.proxy.session.connections import BrokerConnection, ClientConnection
from batchval.proxy.session.fast_path import Routes
from batchval.proxy.session.identity import Identity
from batchval.proxy.session.lifetime import AgeLimit
from batchval.proxy.session.requests import Surroundings
from batchval.proxy.watch.clients import ClientCounts
from batchval.proxy.watch.request_latency import Traffic
from batchval.proxy.watch.senders import SenderTable

__all__ = ["Owner"]

#: A session.
S_contra = TypeVar("S_contra", contravariant=True)


class Owner(Surroundings, Protocol[S_contra]):
    """The part of a listener that its sessions use, with the objects that all listeners share."""

    loop: asyncio.AbstractEventLoop
    budget: Budget
    clients: ClientCounts
    ages: AgeLimit
    connection_log: ConnectionLog
    senders: SenderTable
    topics: KnownTopics
    validation: ValidationQueue
    now: float
    fast_routes: Routes

    def routes_of(
        self, principal: str | None, raised: Mapping[int, Raised]
    ) -> tuple[frozenset[int], Routes]: ...
    def learn_topics_then(
        self, body: memoryview, version: int, then: Callable[[], None]
    ) -> None: ...

    async def connect(self, listener: ListeningPort, broker: BrokerConnection) -> None: ...
    def upstream_failed(self) -> None: ...
    def traffic_of(self, listener: ListeningPort) -> Traffic: ...
    def closed(self, why: str) -> None: ...
    def admit(self, session: S_contra, client: Identity) -> bool: ...
    def forget(self, session: S_contra, client: Identity) -> None: ...
    def names_of(self, transport: asyncio.BaseTransport) -> tuple[str, str | None]: ...
    def secure(
        self, client: ClientConnection, choose: Callable[[ListeningPort], None]
    ) -> Awaitable[asyncio.Transport] | None: ...
