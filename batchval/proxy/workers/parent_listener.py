"""One listener of a parent: it accepts, admits, and passes connections to workers."""

from __future__ import annotations

import asyncio
import itertools
import socket
from dataclasses import dataclass

from batchval.proxy.cluster.listeners import ListeningPort
from batchval.proxy.cluster.listening_sockets import Acceptor
from batchval.proxy.life.listener_server import ListenerServer, Shared
from batchval.proxy.settings.options import ProxyOptions
from batchval.proxy.workers.control_messages import PassedHeader
from batchval.proxy.workers.pool import Accepted, WorkerPool

__all__ = ["ParentListenerServer"]

_numbers = itertools.count(1)


class ParentListenerServer(ListenerServer):
    """The ports of one listener. ``passed``: its clients, which workers serve."""

    def __init__(self, options: ProxyOptions, shared: Shared, pool: WorkerPool) -> None:
        super().__init__(options, shared=shared)
        self.passed: set[_Passed] = set()
        self._pool = pool

    async def _open(self, listener: ListeningPort) -> None:
        if listener.sock is not None and self.accepts:
            listener.server = _ParentAcceptor(listener.sock, self, listener)
            self._pool.add_acceptor(listener.server)

    async def stop(self, drain_s: float = 30.0) -> None:
        """Accept nothing more, let the workers deliver what is under way, and end."""
        self._draining = True
        self.cluster.close()
        await self._pool.stop(drain_s)
        await super().stop(0)

    def take(self, connection: socket.socket, listener: ListeningPort) -> None:
        """Admit a connection and pass it on, or close it."""
        try:
            address, port = connection.getpeername()[:2]
        except OSError:  # the client has left
            connection.close()
            return
        most = self.options.limits.max_listener_connections
        why = self.budget.admit(address, len(self.passed), most)
        if why is not None:
            connection.close()
            self.connection_log.refused(self.options.listener_name, f"{address}:{port}", why)
            return
        passed = _Passed(self, address)
        self.passed.add(passed)
        self._pool.take(Accepted(connection, self._header(listener), passed))

    def _header(self, listener: ListeningPort) -> PassedHeader:
        node_id, broker = listener.node_id, None
        if node_id is not None and (address := self.discovery.brokers.get(node_id)) is not None:
            broker = listener.port, address
        return PassedHeader(next(_numbers), self.options.listener_name, node_id, broker)

    def free(self) -> int:
        """Return how many more clients this listener may have."""
        here = self.options.limits.max_listener_connections - len(self.passed)
        return min(here, self.budget.free_connections())


@dataclass(slots=True, eq=False)
class _Passed:
    """A client that a worker serves, as the budget counts it."""

    proxy: ParentListenerServer
    address: str
    counted: int = 0

    @property
    def connections(self) -> _Passed:
        """Return itself: nothing of it is held here."""
        return self

    def release(self) -> None:
        """Note that the client is gone."""
        if self in self.proxy.passed:
            self.proxy.passed.discard(self)
            self.proxy.budget.release(self, self.address)  # type: ignore[arg-type]


class _ParentAcceptor(Acceptor):
    def __init__(
        self, sock: socket.socket, proxy: ParentListenerServer, listener: ListeningPort
    ) -> None:
        super().__init__(sock, _no_protocol, free=proxy.free, refused=proxy.refused)
        self._proxy = proxy
        self._listener = listener

    def _take(self, connection: socket.socket) -> None:
        self._proxy.take(connection, self._listener)


def _no_protocol() -> asyncio.BaseProtocol:
    raise AssertionError("workers make the protocols of connections")
