"""The listening sockets of a gate, by listener and broker: bound here, or taken over.

(listener, None)     the port that clients bootstrap from
(listener, node_id)  the port of one broker
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

__all__ = ["BACKLOG", "ListeningSockets", "Port", "Ports", "SocketKey", "bound"]

log = logging.getLogger("batchval.proxy")

BACKLOG: Final = 1024

SocketKey = tuple[str, int | None]
"""(listener, node id); the node id is None for the port that clients bootstrap from."""


class Port(NamedTuple):
    """A port that clients connect to. ``sock`` is None where another process accepts."""

    number: int
    sock: socket.socket | None


class Ports(Protocol):
    """Gives each listener its ports."""

    def open(self, key: SocketKey, host: str, numbers: Sequence[int]) -> Port:
        """Return a port at the first of ``numbers`` that is free (0: any). Raises OSError."""
        ...

    def close(self, key: SocketKey) -> None:
        """Stop listening at a port."""
        ...


class ListeningSockets:
    """The listening sockets that this process owns.

    ``inherited``  sockets of another process, which are used in place of new ones
    """

    def __init__(self, inherited: Mapping[SocketKey, socket.socket] | None = None) -> None:
        self._inherited = dict(inherited or {})
        self.sockets: dict[SocketKey, socket.socket] = {}

    def open(self, key: SocketKey, host: str, numbers: Sequence[int]) -> Port:
        """Return a port at the first of ``numbers`` that is free (0: any). Raises OSError."""
        sock = self._inherited.pop(key, None) or _first_free(key, host, numbers)
        self.sockets[key] = sock
        return Port(sock.getsockname()[1], sock)

    def close(self, key: SocketKey) -> None:
        """Stop listening at a port."""
        if (sock := self.sockets.pop(key, None)) is not None:
            sock.close()


def _first_free(key: SocketKey, host: str, numbers: Sequence[int]) -> socket.socket:
    *others, last = numbers
    for number in others:
        try:
            return bound(host, number)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            log.warning("port %d for broker %s cannot be had (%s): it gets another", number, key[1], error.strerror)
    return bound(host, last)


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError."""
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
