"""One Metadata request to one broker, without credentials: which brokers are there.

request   Metadata version 1, no topics: what every broker since Kafka 0.10 answers
response  the brokers; a broker that requires authentication closes the connection
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from batchval.network.connection import Connection
from batchval.network.errors import CorrelationIdMismatchError, DisconnectError
from batchval.network.options import ConnectionOptions
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameError, FrameSplitter
from batchval.protocol.messages.metadata import MetadataRequest, MetadataResponse
from batchval.protocol.primitives import Reader
from batchval.protocol.walkers.addresses import check_brokers

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "CLIENT_ID",
    "BrokerAddress",
    "ClusterView",
    "SilentBrokerError",
    "ask_metadata",
    "brokers_by",
    "foreign_protocol",
    "is_tls",
    "resolved",
]

BrokerAddress = tuple[str, int]

#: Client ids of the gate's own requests start with this.
CLIENT_ID: Final = "batchval-proxy"

_METADATA_VERSION: Final = 1
_TLS_RECORD_TYPES: Final = (0x15, 0x16)  # alert, handshake: RFC 8446, 5.1
_splitter = partial(FrameSplitter, 1 << 20)  # bytes of an answer: twice what MAX_BROKERS take
_THROTTLE_FROM: Final = 3  # the first version whose answer begins with a throttle time


class ClusterView(NamedTuple):
    """The brokers that one Metadata response names. ``cluster_id`` None: not known."""

    brokers: list[tuple[int, str, int]]  # node id, host, port
    cluster_id: str | None = None


class _BrokersRequest(MetadataRequest):
    """A Metadata request whose answer may name MAX_BROKERS brokers: they are counted before they
    are read.
    """

    __slots__ = ()

    def decode(self, frame: Buffer) -> MetadataResponse:
        r = Reader(frame, self.api_version >= MetadataResponse.flexible_from)
        r.int32()
        r.unknown_tags()
        if self.api_version >= _THROTTLE_FROM:
            r.int32()
        check_brokers(r.count())
        return super().decode(frame)


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
    return "TLS" if is_tls(cause.first_bytes) else cause.peer


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
    (FrameError if the answer is not Kafka's, TooManyBrokersError) or TimeoutError.
    """
    options = ConnectionOptions(client_id=client_id, ssl=tls, splitter=_splitter)
    async with asyncio.timeout(connect_s):
        connection = await Connection.open(*address, options)
    try:
        async with asyncio.timeout(answer_s):
            return await brokers_by(connection, _METADATA_VERSION)
    finally:
        connection.close()


async def brokers_by(connection: Connection, version: int) -> ClusterView:
    """Return the answer to one Metadata request on an open connection. Raises as above."""
    request = _BrokersRequest(topics=[], api_version=version)
    try:
        answer: MetadataResponse = await connection.request(request)
    except CorrelationIdMismatchError as error:
        raise ProtocolError(str(error)) from None
    except DisconnectError as error:
        cause = error.__cause__
        if error.timed_out:
            raise
        if cause is None or isinstance(cause, ConnectionError):
            text = "the connection was closed without an answer"
            raise SilentBrokerError(text) from error
        raise cause if isinstance(cause, ProtocolError) else error from None
    brokers = [(broker.node_id, broker.host, broker.port) for broker in answer.brokers]
    return ClusterView(brokers, answer.cluster_id)


def is_tls(first: bytes) -> bool:
    """Return whether a peer's first bytes begin a TLS record."""
    return len(first) > 1 and first[0] in _TLS_RECORD_TYPES and first[1] == 3
