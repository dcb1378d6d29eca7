"""Whose address is whose: each broker has a listener of its own here, and clients hear of no other address.

Brokers become known as answers name them (and by a Metadata request at the start, version 1 for no topics, so that
clients which still know a port of before a restart find somebody there). A listener is bound before the answer that
names it is sent on; what comes meanwhile waits in its backlog.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameSplitter
from batchval.protocol.messages.metadata import MetadataRequest, MetadataResponse
from batchval.proxy.options import ProxyOptions

__all__ = ["Cluster", "Listener", "SilentBrokerError", "ask_metadata", "resolved"]

log = logging.getLogger("batchval.proxy")

BACKLOG = 1024
_METADATA_VERSION = 1


@dataclass(slots=True, eq=False)
class Listener:
    """One listening port. ``node_id`` is None for the one that clients bootstrap from."""

    node_id: int | None
    sock: socket.socket
    host: str
    port: int
    brokers: tuple[tuple[str, int], ...]  # the broker's own address; of the bootstrap listener: all there are to try
    server: asyncio.Server | None = None


class Cluster:
    """The listeners, and the mapping from a broker's id to its own."""

    def __init__(self, options: ProxyOptions, serve: Callable[[Listener], None]) -> None:
        self.options = options
        self._serve = serve
        self.bootstrap: Listener | None = None
        self.brokers: dict[int, Listener] = {}

    @property
    def listeners(self) -> list[Listener]:
        """All of them, the one to bootstrap from first."""
        first = [] if self.bootstrap is None else [self.bootstrap]
        return first + list(self.brokers.values())

    def open_bootstrap(self) -> Listener:
        """Binds the listener of the configuration. Raises OSError."""
        host, port = self.options.listen
        sock = bound(host, port)
        self.bootstrap = Listener(None, sock, host, sock.getsockname()[1], self.options.upstream)
        self._serve(self.bootstrap)
        return self.bootstrap

    def listener_of(self, node_id: int, host: str, port: int) -> Listener:
        """The listener of a broker that an answer names; a new one, where it was not known. Raises OSError."""
        assert self.bootstrap is not None
        if node_id < 0:  # a broker that does not know its own name
            return self.bootstrap
        known = self.brokers.get(node_id)
        address = (host, port)
        if known is not None:
            if known.brokers[0] != address:
                log.info("broker %d is at %s:%d now", node_id, host, port)
                known.brokers = (address,)
            return known
        sock = self._bind_for(node_id)
        known = Listener(node_id, sock, self.options.listen[0], sock.getsockname()[1], (address,))
        self.brokers[node_id] = known
        log.info("broker %d (%s:%d) is at port %d", node_id, host, port, known.port)
        self._serve(known)
        return known

    def _bind_for(self, node_id: int) -> socket.socket:
        """The same port for the same broker after a restart, where that is free."""
        assert self.bootstrap is not None
        host, asked = self.options.listen
        first = self.options.first_broker_port
        if first is None:
            first = asked + 1 if asked else 0
        wanted = first + node_id if first else 0
        if wanted > 0xFFFF:
            log.warning("broker %d would be at port %d: it gets another", node_id, wanted)
            wanted = 0
        try:
            return bound(host, wanted)
        except OSError as error:
            if not wanted or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            log.warning("port %d for broker %d cannot be had (%s): it gets another", wanted, node_id, error.strerror)
            return bound(host, 0)

    def close(self) -> None:
        """Stops listening. Connections are not touched."""
        for listener in self.listeners:
            if listener.server is not None:
                listener.server.close()
            listener.sock.close()


def bound(host: str, port: int) -> socket.socket:
    """A listening socket."""
    family, kind, number, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def resolved(tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None) -> ssl.SSLContext | None:
    """The context itself, where a function gives the newest."""
    return tls if tls is None or isinstance(tls, ssl.SSLContext) else tls()


class SilentBrokerError(ConnectionError):
    """A broker that was reached, and ended the connection instead of answering: it wants credentials first, or TLS."""


class _Asker(asyncio.Protocol):
    """Sends one request, and hands on the first frame that comes."""

    def __init__(self, answer: asyncio.Future[memoryview], request: bytes) -> None:
        self.answer = answer
        self.request = request
        self.splitter = FrameSplitter(16 << 20)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self.request)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        try:
            frames = self.splitter.feed(data)
        except ProtocolError as error:
            self.connection_lost(error)
            return
        if frames and not self.answer.done():
            self.answer.set_result(frames[0])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            if exc is None or isinstance(exc, ConnectionError):
                exc = SilentBrokerError("the connection was closed without an answer")
            self.answer.set_exception(exc)


async def ask_metadata(
    host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float
) -> list[tuple[int, str, int]]:
    """(node_id, host, port) of each broker, as one of them says.

    Raises OSError (SilentBrokerError where it hung up), ProtocolError or TimeoutError.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[memoryview] = loop.create_future()
    request = MetadataRequest(api_version=_METADATA_VERSION, topics=[])
    frame = b"".join(request.encode(1, "batchval-proxy"))
    async with asyncio.timeout(timeout_s):
        transport, _ = await loop.create_connection(
            lambda: _Asker(answer, frame), host, port, ssl=tls, server_hostname=host if tls else None
        )
        try:
            response: MetadataResponse = request.decode(await answer)
        finally:
            transport.close()
    return [(broker.node_id, broker.host, broker.port) for broker in response.brokers]
