"""Accept connections on a listening socket, a few at a time, as long as there may be more.

asyncio and uvloop accept the whole backlog before the first of these connections is handled: a
burst takes all descriptors of the process, and then the loop leaves every listener alone for a
second or closes what waits. Here a connection above the limit is closed before any object is made
for it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from batchval.proxy.kit.background import spawned
from batchval.proxy.kit.open_files import SpareFiles

__all__ = ["Acceptor"]

#: Connections that are accepted in one turn of the loop.
MOST_AT_ONCE: Final = 16
PAUSE_S: Final = 0.1
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("batchval.proxy")


class Acceptor:
    """The acceptor of one listening socket, which it owns, until ``close``.

    ``factory``  makes the protocol of a connection
    ``free``     how many more connections there may be; one above that is closed at once
    ``refused``  called with the socket address of each client that was closed for that reason
    ``unopened`` called with a protocol that never gets its connection
    ``spare``    descriptors that connections may take when the process has no others
    ``opening``  protocols of accepted connections that their owner does not count yet: until
                 ``opened``, or until the connection has failed
    """

    def __init__(
        self,
        sock: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        free: Callable[[], int] = lambda: MOST_AT_ONCE,
        refused: Callable[[Any], None] = lambda _: None,
        unopened: Callable[[Any], None] = lambda _: None,
        spare: SpareFiles | None = None,
        tls: ssl.SSLContext | None = None,
        handshake_s: float | None = None,
    ) -> None:
        self.sock = sock
        self.opening: set[asyncio.BaseProtocol] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._factory = factory
        self._free = free
        self._refused = refused
        self._unopened = unopened
        self._spare = spare
        self._tls = tls
        self._handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        self._paused: asyncio.TimerHandle | None = None
        self._is_held = False
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening, and cancel TLS handshakes. Other connections stay open.

        The task of a connection without TLS ends by itself in the next turn. uvloop never tells a
        protocol that has its connection of an end by cancellation.
        """
        if self._paused is not None:
            self._paused.cancel()
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock.fileno())
            self.sock.close()
        if self._tls is not None:
            for task in self._tasks:
                task.cancel()

    def hold(self, is_held: bool) -> None:
        """Leave connections in the backlog, or accept them again."""
        if is_held == self._is_held or self.sock.fileno() < 0:
            return
        self._is_held = is_held
        if is_held:
            self._loop.remove_reader(self.sock.fileno())
        elif self._paused is None:
            self._loop.add_reader(self.sock.fileno(), self._accept)

    def opened(self, protocol: asyncio.BaseProtocol) -> None:
        """Stop counting a connection, because its owner counts it from now on.

        asyncio ends the task of a connection some turns after ``connection_made``; a connection
        that counted twice in between would take the place of another.
        """
        self.opening.discard(protocol)

    def _accept(self) -> None:
        for _ in range(MOST_AT_ONCE):
            if self._is_held:
                return
            try:
                connection, client = self._accepted()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(error)
                return
            if self._free() <= 0:
                connection.close()
                self._refused(client)
                continue
            connection.setblocking(False)
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        protocol = self._factory()
        self.opening.add(protocol)
        spawned(self._tasks, self._open(connection, protocol))

    def _accepted(self) -> tuple[socket.socket, Any]:
        try:
            return self.sock.accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._spare:
                raise
        self._spare.take()
        return self.sock.accept()

    async def _open(self, connection: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        handshake_s = self._handshake_s if self._tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=handshake_s
            )
        except OSError:  # the client has left, or its handshake has failed
            connection.close()
        except BaseException:
            connection.close()
            raise
        finally:
            if protocol in self.opening:
                self.opened(protocol)
                self._unopened(protocol)

    def _pause(self, error: OSError) -> None:
        log.warning("no connection can be accepted: %s", error.strerror)
        self._loop.remove_reader(self.sock.fileno())
        self._paused = self._loop.call_later(PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._paused = None
        if not self._is_held:
            self._loop.add_reader(self.sock.fileno(), self._accept)
