"""The listening sockets of a gate, by listener and broker: bound here, or taken over.

(listener, None)     the port that clients bootstrap from
(listener, node_id)  the port of one broker
(":metrics", n)      the n-th address of /metrics
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

__all__ = ["BACKLOG", "METRICS", "ListeningSockets", "Port", "Ports", "SocketKey", "bound"]

log = logging.getLogger("batchval.proxy")

BACKLOG: Final = 1024

SocketKey = tuple[str, int | None]
"""(listener, node id); the node id is None for the port that clients bootstrap from."""

#: In place of a listener's name, which has no colon.
METRICS: Final = ":metrics"


class Port(NamedTuple):
    """A port that clients connect to. ``sock`` is None where another process accepts.

    ``is_awaited``  the other gate of a hand-over has it: ``open`` it again soon
    """

    number: int
    sock: socket.socket | None
    is_awaited: bool = False


class Ports(Protocol):
    """The source of each listener's ports."""

    def open(self, key: SocketKey, host: str, numbers: Sequence[int]) -> Port:
        """Return a port at the first of ``numbers`` that is free (0: any). Raises OSError."""
        ...

    def close(self, key: SocketKey) -> None:
        """Stop listening at a port."""
        ...


class ListeningSockets:
    """The listening sockets that this process owns.

    ``inherited``     sockets of another process, used in place of new ones at their address
    ``most``          ports that brokers may have: files are for clients, too
    ``shared_until``  on the clock of ``time.monotonic``: up to then the other gate of a hand-over
                      may have bound the port of a broker that is new since its sockets were sent
    """

    def __init__(self, inherited: Mapping[SocketKey, socket.socket] | None = None) -> None:
        self._inherited = dict(inherited or {})
        self.sockets: dict[SocketKey, socket.socket] = {}
        self.shared_until = 0.0
        self.most = 1 << 20

    def open(self, key: SocketKey, host: str, numbers: Sequence[int]) -> Port:
        """Return a port at the first of ``numbers`` that is free (0: any). Raises OSError."""
        if key[1] is not None and len(self.sockets) > self.most and key not in self._inherited:
            text = f"brokers have {self.most} ports, as many as the limit of open files allows"
            raise OSError(errno.EMFILE, text)
        sock = self._first_free(key, host, numbers)
        if sock is None:
            return Port(numbers[0], None, is_awaited=True)
        self.sockets[key] = sock
        return Port(sock.getsockname()[1], sock)

    def open_metrics(self, host: str, port: int) -> list[socket.socket]:
        """Return the inherited sockets of /metrics at this address: none where it is another."""
        found = [key for key in self._inherited if key[0] == METRICS]
        socks = [self._inherited[key] for key in found]
        if not all(_is_at(sock, host, port) for sock in socks):
            return []
        for key in found:
            del self._inherited[key]
        return socks

    def keep_metrics(self, socks: Sequence[socket.socket]) -> None:
        """Note the sockets of /metrics. Who accepts there closes them."""
        self.sockets |= {(METRICS, n): sock for n, sock in enumerate(socks)}

    def close_unused(self) -> None:
        """Close inherited sockets that nothing has opened: the settings lack their addresses."""
        for sock in self._inherited.values():
            sock.close()
        self._inherited.clear()

    def close(self, key: SocketKey) -> None:
        """Stop listening at a port."""
        if (sock := self.sockets.pop(key, None)) is not None:
            sock.close()

    def _first_free(
        self, key: SocketKey, host: str, numbers: Sequence[int]
    ) -> socket.socket | None:
        """Return a socket; None where the first number comes free with the end of a hand-over."""
        *others, last = numbers
        for number in others:
            try:
                return self._at(key, host, number)
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                if error.errno == errno.EADDRINUSE and self._may_be_shared(key):
                    return None
                log.warning(
                    "port %d of broker %s cannot be bound (%s): another port is used",
                    number,
                    key[1],
                    error.strerror,
                )
        return self._at(key, host, last)

    def _may_be_shared(self, key: SocketKey) -> bool:
        """Return whether the other gate may have bound a port: not one whose socket was sent."""
        return key not in self._inherited and time.monotonic() < self.shared_until

    def _at(self, key: SocketKey, host: str, number: int) -> socket.socket:
        """Return an inherited socket at this address (for any port its own), or a new one."""
        keys = [key] if key in self._inherited else []
        if number:  # a listener may have another name now
            keys += [one for one in self._inherited if one != key]
        for one in keys:
            if _is_at(self._inherited[one], host, number):
                return self._inherited.pop(one)
        return bound(host, number)


def _is_at(sock: socket.socket, host: str, number: int) -> bool:
    at, port = sock.getsockname()[:2]
    if number not in (0, port):
        return False
    found = socket.getaddrinfo(
        host or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return at in {address[0] for *_, address in found}


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
