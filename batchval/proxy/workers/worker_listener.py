"""One listener of a worker: its connections have been accepted by the parent."""

from __future__ import annotations

import socket
from collections.abc import Callable

from batchval.proxy.kit.background_threads import spawned
from batchval.proxy.life.listener_server import ListenerServer, Shared
from batchval.proxy.session.identity import Identity
from batchval.proxy.session.session import Session
from batchval.proxy.settings.options import ProxyOptions

__all__ = ["WorkerListenerServer"]


class WorkerListenerServer(ListenerServer):
    """A listener whose connections another process has accepted."""

    def __init__(self, options: ProxyOptions, shared: Shared) -> None:
        super().__init__(options, shared=shared)
        self._gone: dict[Session, Callable[[], None]] = {}

    def adopt(
        self, connection: socket.socket, node_id: int | None, gone: Callable[[], None]
    ) -> None:
        """Serve a connection.

        ``node_id``  broker whose port it came by
        ``gone``     is called once both connections of its session are gone
        """
        listener = self.cluster.named(node_id)
        connection.setblocking(False)
        session = Session(self, listener)
        self._gone[session] = gone
        spawned(self._tasks, self._connect(connection, session))

    async def _connect(self, connection: socket.socket, session: Session) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: session.client, connection)
        except BaseException as error:
            connection.close()
            if session not in self.connections:  # it never gets its connection
                session.dissolve()
            self._let_go(session)
            if not isinstance(error, OSError):  # the client has left
                raise

    def admit(self, session: Session, client: Identity) -> bool:
        """Return whether one more client may connect."""
        is_admitted = super().admit(session, client)
        if not is_admitted:
            self._let_go(session)
        return is_admitted

    def forget(self, session: Session, client: Identity) -> None:
        """Forget a session both of whose connections are gone."""
        super().forget(session, client)
        self._let_go(session)

    def _let_go(self, session: Session) -> None:
        if (gone := self._gone.pop(session, None)) is not None:
            gone()
