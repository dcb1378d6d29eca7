"""Options and metrics of connections, and how a connection is opened.

Socket buffers are left to the kernel's autotuning unless asked: a fixed one costs 25 times on a
path of 140 ms.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl as tls
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from batchval.network.in_flight import DEFAULT_MAX_IN_FLIGHT
from batchval.network.request import FrameSplitter
from batchval.protocol import frames

__all__ = [
    "ConnectionMetrics",
    "ConnectionOptions",
    "Ip",
    "connected",
    "connected_socket",
    "literal_address",
]

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

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
    sock = await connected_socket(
        host,
        port,
        send_buffer_bytes=options.send_buffer_bytes,
        receive_buffer_bytes=options.receive_buffer_bytes,
    )
    try:
        return (
            await loop.create_connection(protocol, sock=sock, ssl=options.ssl, server_hostname=name)
        )[1]
    except BaseException:
        sock.close()
        raise


async def connected_socket(
    host: str,
    port: int,
    *,
    send_buffer_bytes: int | None = None,
    receive_buffer_bytes: int | None = None,
) -> socket.socket:
    """Return a non-blocking socket, connected to the first address of a host that accepts.

    A literal address is not resolved, which takes a thread. The receive buffer is set before
    connecting: TCP's window scale is fixed by then. Raises OSError, of the last address, and
    UnicodeError for a host that cannot be a name.
    """
    loop = asyncio.get_running_loop()
    if (literal := literal_address(host)) is not None:
        family = socket.AF_INET if literal.version == 4 else socket.AF_INET6
        found: list[Any] = [(family, socket.SOCK_STREAM, 0, "", (str(literal), port))]
    else:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    error = OSError(f"{host!r} has no address")
    for family, kind, number, _, address in found:
        sock = socket.socket(family, kind, number)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if send_buffer_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if receive_buffer_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            await loop.sock_connect(sock, address)
        except OSError as failed:
            sock.close()
            error = failed
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    try:
        raise error
    finally:
        del error  # its traceback holds this frame


def literal_address(host: str) -> Ip | None:
    """Return the address that a host spells out, IPv4 for one that IPv6 maps; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
