"""One Metadata request to one broker, without credentials: which brokers are there.

request   Metadata version 1, no topics: what every broker since Kafka 0.10 answers
response  the brokers; a broker that requires authentication closes the connection
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameError, FrameSplitter
from batchval.protocol.messages.metadata import MetadataRequest, MetadataResponse

__all__ = [
    "CLIENT_ID",
    "BrokerAddress",
    "ClusterView",
    "SilentBrokerError",
    "ask_metadata",
    "foreign_protocol",
    "resolved",
    "speaks_http",
    "speaks_tls",
]

BrokerAddress = tuple[str, int]

#: Client ids of the gate's own requests start with this.
CLIENT_ID: Final = "batchval-proxy"

_METADATA_VERSION: Final = 1
_MAX_RESPONSE_BYTES: Final = 16 << 20
_TLS_RECORD_TYPES: Final = (0x15, 0x16)  # alert, handshake: RFC 8446, 5.1


class ClusterView(NamedTuple):
    """The brokers that one Metadata response names. ``cluster_id`` None: not known."""

    brokers: list[tuple[int, str, int]]  # node id, host, port
    cluster_id: str | None = None


class SilentBrokerError(ConnectionError):
    """A broker that accepted the connection and closed it in place of an answer.

    It requires authentication, or TLS.
    """


def resolved(
    tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None,
) -> ssl.SSLContext | None:
    """Return the context, or what the function that was set in its place returns now."""
    return tls if tls is None or isinstance(tls, ssl.SSLContext) else tls()


def foreign_protocol(error: BaseException) -> str | None:
    """Return "HTTP" or "TLS" if the peer's first bytes caused this error and belong to it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, FrameError):
        cause = cause.__cause__
    if cause is None:
        return None
    return "TLS" if _is_tls(cause.first_bytes) else cause.peer


class _Exchange(asyncio.Protocol):
    """A protocol that sends one request and returns the first frame of the answer."""

    def __init__(self, answer: asyncio.Future[memoryview], request: bytes) -> None:
        self.answer = answer
        self.request = request
        self.splitter = FrameSplitter(_MAX_RESPONSE_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self.request)  # uvloop's is not a subclass

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
    address: BrokerAddress,
    client_id: str,
    tls: ssl.SSLContext | None,
    *,
    connect_s: float,
    answer_s: float,
) -> ClusterView:
    """Ask one broker for all brokers. Times are in seconds.

    Raises OSError (SilentBrokerError if the broker closed the connection), ProtocolError
    (FrameError if the answer is not Kafka's) or TimeoutError.
    """
    loop = asyncio.get_running_loop()
    host, port = address
    answer: asyncio.Future[memoryview] = loop.create_future()
    request = MetadataRequest(api_version=_METADATA_VERSION, topics=[])
    frame = b"".join(request.encode(1, client_id))
    async with asyncio.timeout(connect_s):
        transport, _ = await loop.create_connection(
            lambda: _Exchange(answer, frame),
            host,
            port,
            ssl=tls,
            server_hostname=host if tls else None,
        )
    try:
        async with asyncio.timeout(answer_s):
            response: MetadataResponse = request.decode(await answer)
    finally:
        if answer.done() and not answer.cancelled():
            answer.exception()  # an error after the timeout is of no interest
        transport.abort()
    return ClusterView([(broker.node_id, broker.host, broker.port) for broker in response.brokers])


async def speaks_http(address: BrokerAddress, tls: ssl.SSLContext | None, timeout_s: float) -> bool:
    """Return whether an HTTP server answers at this address, within a time in seconds.

    Kafka brokers close the connection: the request's first four bytes are too large a length.
    """
    return await _first_bytes(address, b"GET / HTTP/1.0\r\n\r\n", tls, timeout_s) == b"HTTP/"


async def speaks_tls(address: BrokerAddress, timeout_s: float) -> bool:
    """Return whether a TLS server answers at this address, within a time in seconds.

    Kafka brokers without TLS close the connection, as above.
    """
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(
            ssl.MemoryBIO(), hello, server_hostname=address[0]
        ).do_handshake()
    return _is_tls(await _first_bytes(address, hello.read(), None, timeout_s))


async def _first_bytes(
    address: BrokerAddress, request: bytes, tls: ssl.SSLContext | None, timeout_s: float
) -> bytes:
    """Return the first five bytes of the answer; no bytes if they do not come in time."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(*address, ssl=tls)
            try:
                writer.write(request)
                return await reader.readexactly(5)
            finally:
                writer.transport.abort()
    except (OSError, EOFError, ValueError):
        return b""


def _is_tls(first: bytes) -> bool:
    return len(first) > 1 and first[0] in _TLS_RECORD_TYPES and first[1] == 3
