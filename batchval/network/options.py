"""Options and metrics of connections, and how a connection is opened.

Socket buffers are left to the kernel's autotuning unless asked: a fixed one costs 25 times on a
path of 140 ms.
"""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from batchval.network.in_flight import DEFAULT_MAX_IN_FLIGHT
from batchval.network.request import FrameSplitter
from batchval.protocol import frames

__all__ = ["ConnectionMetrics", "ConnectionOptions", "connected"]

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


@dataclass(slots=True, kw_only=True)
class ConnectionOptions:
    """The options of all connections of a client. Times in milliseconds, sizes in bytes."""

    splitter: Callable[[], FrameSplitter] = frames.FrameSplitter  # frames of at most 100 MiB
    max_in_flight: int | None = DEFAULT_MAX_IN_FLIGHT
    client_id: str | None = "batchval"
    request_timeout_ms: float = 30_000
    ssl: tls.SSLContext | None = None
    server_hostname: str | None = None  # for TLS; default: the host that was asked for
    send_buffer_bytes: int | None = None  # None leaves SO_SNDBUF, and so autotuning, alone
    receive_buffer_bytes: int | None = None  # the same of SO_RCVBUF
    #: Called for each answer: API key, last byte written, first byte of the answer read (ns,
    #: monotonic clock).
    on_wire: Callable[[int, int, int], None] | None = None


@dataclass(slots=True)
class ConnectionMetrics:
    """Counts since the connection was opened."""

    requests: int = 0
    responses: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    request_timeouts: int = 0
    throttled_responses: int = 0
    throttle_time_ms: int = 0  # reported by brokers, summed
    throttle_time_ms_max: int = 0
    callback_errors: int = 0


async def connected(
    host: str, port: int, options: ConnectionOptions, protocol: Callable[[], ProtocolT]
) -> ProtocolT:
    """Return a protocol on a new connection, with TLS if the options have a context.

    Raises OSError (ssl.SSLError is one).
    """
    loop = asyncio.get_running_loop()
    name = (options.server_hostname or host) if options.ssl else None
    if options.send_buffer_bytes is None and options.receive_buffer_bytes is None:
        return (
            await loop.create_connection(
                protocol, host, port, ssl=options.ssl, server_hostname=name
            )
        )[1]
    sock = await _connected_socket(loop, host, port, options)
    try:
        return (
            await loop.create_connection(protocol, sock=sock, ssl=options.ssl, server_hostname=name)
        )[1]
    except BaseException:
        sock.close()
        raise


async def _connected_socket(
    loop: asyncio.AbstractEventLoop, host: str, port: int, options: ConnectionOptions
) -> socket.socket:
    """Return a connected socket.

    The receive buffer is set before connecting: TCP's window scale is fixed by then.
    """
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if options.send_buffer_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
            if options.receive_buffer_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure
