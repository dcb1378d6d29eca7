"""The kernel's facts of TCP connections and hosts, and timeouts for a peer that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios
import threading
from typing import Final

from batchval.network.options import Ip, literal_address

__all__ = [
    "TCP_CLOSE",
    "TCP_CLOSE_WAIT",
    "address_of",
    "addresses_of",
    "is_local",
    "keep_alive",
    "listens",
    "silent_s",
    "tcp_state",
    "transferred",
    "unacknowledged",
    "unread",
    "wildcard",
]

#: Of Linux' tcp_states.h: reset, and ended by the peer.
TCP_CLOSE = 7

TCP_CLOSE_WAIT = 8

#: Of Linux' struct tcp_info: retransmits, probes (both 0 once the peer acknowledges), and
#: last_ack_recv in ms.
_TCP_INFO = struct.Struct("=2xBB52xI")

_PROBES = 6

#: bytes_received, bytes_sent and, of these, bytes_retrans (Linux 4.19 and later)
_TCP_BYTES = struct.Struct("=128xQ64xQQ")

_TCP_STATE = struct.Struct("=B")


def address_of(transport: asyncio.BaseTransport) -> tuple[str, int]:
    """Return the peer's host and port; ("unknown", 0) for a transport without one."""
    peer = transport.get_extra_info("peername")
    return (peer[0], peer[1]) if isinstance(peer, tuple) else ("unknown", 0)


def keep_alive(
    transport: asyncio.Transport, timeout_s: float, *, bound_unacknowledged: bool
) -> None:
    """Detect a peer that is gone, and send small writes at once.

    Keepalive covers a connection on which nothing is under way. The kernel repeats what is under
    way for a quarter of an hour: ``bound_unacknowledged`` bounds that, too (TCP_USER_TIMEOUT). It
    also ends a peer that acknowledges and does not read.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", max(1, int(timeout_s / 2))),
        ("TCP_KEEPINTVL", max(1, int(timeout_s / 2 / _PROBES))),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", int(timeout_s * 1000) if bound_unacknowledged else 0),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def silent_s(transport: asyncio.Transport | None) -> float:
    """Return for how many seconds the peer has acknowledged nothing although the kernel asks it to.

    0 where the kernel asks nothing. A peer that only does not read answers the kernel's probes of
    its window, and is not silent.
    """
    if (info := _tcp_info(transport, _TCP_INFO)) is None:
        return 0.0
    retransmits, probes, last_ack_ms = info
    return float(last_ack_ms) / 1000 if retransmits or probes else 0.0


def transferred(transport: asyncio.Transport | None) -> tuple[int | None, int | None]:
    """Return the bytes received from the peer and sent to it; None where they are not counted."""
    if (info := _tcp_info(transport, _TCP_BYTES)) is None:
        return None, None
    received, sent, repeated = info
    return received, sent - repeated


def unread(transport: asyncio.Transport | None) -> int:
    """Return the bytes that the kernel has and nobody has read; -1 where it cannot tell."""
    return _queued(transport, termios.FIONREAD)


def unacknowledged(transport: asyncio.Transport) -> int:
    """Return the bytes that are written and that the peer has not acknowledged, about."""
    return transport.get_write_buffer_size() + max(0, _queued(transport, termios.TIOCOUTQ))


def _queued(transport: asyncio.Transport | None, queue: int) -> int:
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None:
        return -1
    try:
        found = fcntl.ioctl(sock.fileno(), queue, b"\0\0\0\0")
    except OSError:
        return -1
    return int.from_bytes(found, sys.byteorder)


def tcp_state(transport: asyncio.Transport | None) -> int:
    """Return the connection's state (tcp_states.h), 0 where the kernel has none."""
    info = _tcp_info(transport, _TCP_STATE)
    return 0 if info is None else int(info[0])


def _tcp_info(transport: asyncio.Transport | None, fields: struct.Struct) -> tuple[int, ...] | None:
    """Return fields of struct tcp_info; None where the kernel does not have them."""
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        return fields.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, fields.size))
    except (OSError, struct.error):
        return None


RESOLVE_S: Final = 3.0


def wildcard(host: str) -> int | None:
    """Return the IP version of which ``host`` stands for every address, None if it does not."""
    if not host:
        return 4
    address = literal_address(host)
    return address.version if address is not None and address.is_unspecified else None


def listens(host: str, address: Ip) -> bool:
    """Return whether a listener on every address takes this one: ``::`` takes IPv4 too on Linux."""
    return wildcard(host) in (6, address.version)


def addresses_of(host: str) -> frozenset[Ip]:
    """Return the addresses of a host; none where its name cannot be resolved in RESOLVE_S."""
    literal = literal_address(host)
    if literal is not None:
        return frozenset((literal,))
    found: set[Ip] = set()

    def resolve() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
                one = literal_address(str(address[0]))
                if one is not None:
                    found.add(one)

    # getaddrinfo has no timeout of its own
    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(RESOLVE_S)
    return frozenset(found)


def is_local(address: Ip) -> bool:
    """Return whether an interface of this machine has the address, so that it can be bound."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((str(address), 0))
    except OSError:
        return False
    return True
