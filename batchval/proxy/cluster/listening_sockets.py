"""The listening sockets of a gate, by listener and broker: bound here, or taken over; and how
connections are accepted on them.

(listener, None)     the port that clients bootstrap from
(listener, node_id)  the port of one broker
(":metrics", n)      the n-th address of /metrics

``Acceptor`` accepts connections, a few at a time, as long as there may be more. asyncio and uvloop
accept the whole backlog before the first of these connections is handled: a burst takes all
descriptors of the process, and then the loop leaves every listener alone for a second or closes
what waits. Here a connection above the limit is closed before any object is made for it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from batchval.proxy.kit.background_threads import spawned
from batchval.proxy.kit.open_files import SpareFiles

__all__ = [
    "BACKLOG",
    "METRICS",
    "Acceptor",
    "ListeningSockets",
    "OpeningConnections",
    "Port",
    "Ports",
    "SocketKey",
    "bound",
]

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


#: Connections that are accepted in one turn of the loop.
MAX_ACCEPTED_AT_ONCE: Final = 16

PAUSE_S: Final = 0.1

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """The acceptor of one listening socket, which it owns, until ``close``.

    ``take``     gets each connection, which does not block
    ``free``     how many more connections there may be; one above that is closed at once
    ``refused``  called with the socket address of each client that was closed for that reason
    ``spare``    descriptors that connections may take when the process has no others
    """

    def __init__(
        self,
        sock: socket.socket,
        take: Callable[[socket.socket], object],
        *,
        free: Callable[[], int] = lambda: MAX_ACCEPTED_AT_ONCE,
        refused: Callable[[Any], None] = lambda _: None,
        spare: SpareFiles | None = None,
    ) -> None:
        self.sock = sock
        self._take = take
        self._free = free
        self._refused = refused
        self._spare = spare
        self._loop = asyncio.get_running_loop()
        self._paused: asyncio.TimerHandle | None = None
        self._is_held = False
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening. Connections stay open."""
        if self._paused is not None:
            self._paused.cancel()
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock.fileno())
            self.sock.close()

    def hold(self, is_held: bool) -> None:
        """Leave connections in the backlog, or accept them again."""
        if is_held == self._is_held or self.sock.fileno() < 0:
            return
        self._is_held = is_held
        if is_held:
            self._loop.remove_reader(self.sock.fileno())
        elif self._paused is None:
            self._loop.add_reader(self.sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTED_AT_ONCE):
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

    def _accepted(self) -> tuple[socket.socket, Any]:
        try:
            return self.sock.accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._spare:
                raise
        self._spare.take()
        return self.sock.accept()

    def _pause(self, error: OSError) -> None:
        log.warning("no connection can be accepted: %s", error.strerror)
        self._loop.remove_reader(self.sock.fileno())
        self._paused = self._loop.call_later(PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._paused = None
        if not self._is_held:
            self._loop.add_reader(self.sock.fileno(), self._accept)


class OpeningTransport(Protocol):
    """A transport that tells its protocol of its connection when it is started."""

    def start(self) -> None: ...
    def get_protocol(self) -> asyncio.BaseProtocol: ...


class OpeningConnections:
    """Accepted connections that their owner does not count yet: until ``opened``, or until they
    have failed.

    ``unopened``  called with a protocol that never gets its connection
    """

    def __init__(self, unopened: Callable[[Any], None] = lambda _: None) -> None:
        self._unopened = unopened
        self._protocols: set[asyncio.BaseProtocol] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._protocols)

    def open(self, connection: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        """Give a protocol its connection, in a task.

        Nothing cancels the task, which ends in the next turn: uvloop never tells a protocol that
        has its connection of an end by cancellation.
        """
        self._protocols.add(protocol)
        spawned(self._tasks, self._open(connection, protocol))

    def open_plain(self, transport: OpeningTransport) -> None:
        """Start a transport, whose protocol gets its connection, in the next turn of the loop."""
        self._protocols.add(transport.get_protocol())
        asyncio.get_running_loop().call_soon(self._start, transport)

    def _start(self, transport: OpeningTransport) -> None:
        protocol = transport.get_protocol()
        try:
            transport.start()
        except OSError:
            pass  # the client has left
        finally:
            self._fail_unopened(protocol)

    def opened(self, protocol: asyncio.BaseProtocol) -> None:
        """Stop counting a connection, because its owner counts it from now on.

        asyncio ends the task of a connection some turns after ``connection_made``; a connection
        that counted twice in between would take the place of another.
        """
        self._protocols.discard(protocol)

    async def _open(self, connection: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError:  # the client has left
            connection.close()
        except BaseException:
            connection.close()
            raise
        finally:
            self._fail_unopened(protocol)

    def _fail_unopened(self, protocol: asyncio.BaseProtocol) -> None:
        """Tell the owner of a protocol that has not got its connection."""
        if protocol in self._protocols:
            self.opened(protocol)
            self._unopened(protocol)
