"""The listening ports of one configured listener: one to bootstrap from, and one for each broker.

Clients get no other address. ``Discovery`` calls ``Listeners`` for each broker that becomes known,
so a port is bound before the answer that names it is sent on. Connections that come before it is
served wait in its backlog.

With server names (SNI) there is the bootstrap port alone: the name chooses the broker.

``AwaitedBrokers`` holds clients that wait for a broker which is not known yet: a server name may
come before discovery. Each of them waits until the broker is known, ``WAIT_S`` at most. The cluster
is asked at once.

``Advertised`` chooses the addresses of brokers that clients are sent:

host   advertised_host, or the listener's server name for the broker; "" stands for the host
       that the client itself has connected to
port   advertised_port; or advertised_first_port + the broker's id; or the port of the listener
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from batchval.proxy.cluster.discovery import Discovery
from batchval.proxy.cluster.listening_sockets import Acceptor, Port, Ports
from batchval.proxy.settings.host_patterns import HostPattern
from batchval.proxy.settings.options import ProxyOptions

__all__ = [
    "WAIT_S",
    "Advertised",
    "AwaitedBrokers",
    "Listeners",
    "ListeningPort",
    "UnknownBrokerError",
]


class Advertised:
    """The addresses of one listener as its clients see them.

    ``is_fixed``  whether all clients see the same
    """

    def __init__(self, options: ProxyOptions) -> None:
        self._port = options.listener.advertised_port
        self._first_port = options.listener.advertised_first_port
        self._bootstrap = ""
        if options.sni is not None:
            self._bootstrap = options.sni.bootstrap
            self._hosts = options.sni.broker
        else:
            self._hosts = HostPattern.parse(options.listener.advertised_host or "")
            if self._hosts.after is None:
                self._bootstrap = self._hosts.before
        self.is_fixed = bool(self._bootstrap)

    def bootstrap(self, port: int) -> tuple[str, int]:
        """Return the address that stands for a broker without an id. ``port`` is the listener's."""
        return self._bootstrap, self._port or port

    def broker(self, node_id: int, port: int, *, is_wanted: bool) -> tuple[str, int]:
        """Return the address of a broker whose listener is at ``port``.

        ``is_wanted``  whether that is the port of the settings: a NAT maps only those
        """
        if self._port is not None:
            port = self._port
        elif self._first_port is not None and is_wanted:
            port = self._first_port + node_id
        return self._hosts.host_of(node_id), port


WAIT_S: Final = 5.0


class UnknownBrokerError(ConnectionError):
    """An error: no Metadata answer has named this broker."""


class AwaitedBrokers:
    """The waiting clients, by the broker's id."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}

    async def known(self, node_id: int, wait_s: float) -> None:
        """Return once the broker is known. Raises UnknownBrokerError."""
        if node_id in self._discovery.brokers:
            return
        self._discovery.look()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(node_id, set()).add(future)
        try:
            async with asyncio.timeout(wait_s):
                await future
        except TimeoutError:
            raise UnknownBrokerError(f"broker {node_id} is not known") from None
        finally:
            self._forget(node_id, future)

    def learned(self, node_id: int) -> None:
        """Let those go on that wait for this broker: one in each turn of the loop connects."""
        if node_id in self._waiting:
            self._release(deque(self._waiting[node_id]))

    def _release(self, futures: deque[asyncio.Future[None]]) -> None:
        future = futures.popleft()
        if not future.done():
            future.set_result(None)
        if futures:
            asyncio.get_running_loop().call_soon(self._release, futures)

    def _forget(self, node_id: int, future: asyncio.Future[None]) -> None:
        waiting = self._waiting[node_id]
        waiting.discard(future)
        if not waiting:
            del self._waiting[node_id]


log = logging.getLogger("batchval.proxy")

#: Pairs of an advertised host and a version of Metadata whose answers are kept; with one more all
#: are forgotten.
MAX_WRITTEN_ANSWERS: Final = 64

#: Seconds until a port is tried again that the other gate of a hand-over has.
AGAIN_S: Final = 0.05


@dataclass(slots=True, eq=False)
class ListeningPort:
    """One listening port. ``node_id`` is None for the one that clients bootstrap from, ``sock``
    where another process accepts, and for a broker that clients choose by server name.

    ``advertised``  (host, port) in answers to clients, see ``Advertised``
    """

    node_id: int | None
    sock: socket.socket | None
    host: str
    port: int
    advertised: tuple[str, int]
    server: Acceptor | None = None


class Listeners:
    """The listening ports, and the mapping from a broker's id to its own.

    ``serve`` is called once for each port, after it is bound.
    """

    def __init__(
        self,
        options: ProxyOptions,
        discovery: Discovery,
        serve: Callable[[ListeningPort], None],
        ports: Ports,
    ) -> None:
        self.options = options
        self.discovery = discovery
        self._serve = serve
        self._ports = ports
        self._advertised = Advertised(options)
        self._awaited = AwaitedBrokers(discovery)
        self.bootstrap: ListeningPort | None = None
        self.brokers: dict[int, ListeningPort] = {}
        self._closed = False
        self._written: dict[tuple[str, int], dict[bytes, bytes]] = {}
        # brokers that answers have named since ``_written`` was cleared, and when it was last used
        self._named: set[int] = set()
        self._used_s = 0.0

    @property
    def listeners(self) -> list[ListeningPort]:
        """Return all listeners, the bootstrap listener first."""
        first = [] if self.bootstrap is None else [self.bootstrap]
        return first + list(self.brokers.values())

    def open_bootstrap(self) -> ListeningPort:
        """Bind the port of the configuration, and those of all brokers known. Raises OSError."""
        host, port = self.options.listen
        bound = self._ports.open((self.options.listener.name, None), host, [port])
        self.bootstrap = ListeningPort(
            None, bound.sock, host, bound.number, self._advertised.bootstrap(bound.number)
        )
        self._serve(self.bootstrap)
        self.discovery.subscribe(self._learned, self._forgotten)
        return self.bootstrap

    def listener_of(self, node_id: int, host: str, port: int) -> ListeningPort:
        """Return the port of a broker that an answer names; bind it if it is new.

        Raises OSError, and TooManyBrokersError where no other broker can be known.

        An answer that names a broker of an unknown id or without an address, as FindCoordinator
        does with an error, gets the bootstrap port.
        """
        known = self.brokers.get(node_id)
        if known is not None and self.discovery.brokers.get(node_id) == (host, port):
            self.discovery.named(node_id)
            self._named.add(node_id)
            return known
        assert self.bootstrap is not None
        self.discovery.learn(node_id, host, port)
        if node_id not in self.discovery.brokers:
            return self.bootstrap
        self._named.add(node_id)
        return known or self.brokers.get(node_id) or self._open(node_id)

    def use(self, options: ProxyOptions) -> None:
        """Take other options: answers hold their advertised addresses from now on."""
        self.options = options
        self._advertised = Advertised(options)
        self._forget_written()
        for listener in self.listeners:
            listener.advertised = self._address_of(listener.node_id, listener.port)

    def _address_of(self, node_id: int | None, port: int) -> tuple[str, int]:
        if node_id is None:
            return self._advertised.bootstrap(port)
        is_wanted = self.options.sni is not None or port == self._wanted(node_id)
        return self._advertised.broker(node_id, port, is_wanted=is_wanted)

    def named(self, node_id: int | None) -> ListeningPort:
        """Return the listener of a broker by its server name, known or not; None: of any broker."""
        assert self.bootstrap is not None
        if node_id is None:
            return self.bootstrap
        return self.brokers.get(node_id) or self._by_name(node_id)

    async def known(self, node_id: int) -> None:
        """Return once a broker is known. Raises UnknownBrokerError."""
        connect_s = self.options.settings.upstream.connect_timeout_ms / 1000
        await self._awaited.known(node_id, min(WAIT_S, connect_s))

    def written_brokers(self, own_host: str, version: int) -> dict[bytes, bytes]:
        """Return what was written for the brokers of Metadata answers: bytes that came -> written.

        ``own_host`` is the host that the client has connected to.

        ``rewrite_addresses`` fills it. It is valid while no broker is new or moves: an answer that
        names a broker at its address of before must reach ``listener_of`` again.
        """
        self._used_s = time.monotonic()
        key = "" if self._advertised.is_fixed else own_host, version
        written = self._written.get(key)
        if written is None:
            if len(self._written) >= MAX_WRITTEN_ANSWERS:
                self._forget_written()
            written = self._written[key] = {}
        return written

    def _forget_written(self) -> None:
        """Forget what was written; up to its last use, answers named the brokers in it."""
        self._written.clear()
        for node_id in self._named:
            self.discovery.named(node_id, self._used_s)
        self._named.clear()

    def _forgotten(self, node_id: int) -> None:
        """Close the port of a broker that is not known any more. Its connections stay."""
        self._named.discard(node_id)
        self._forget_written()
        listener = self.brokers.pop(node_id, None)
        if listener is None:
            return
        if listener.server is not None:
            listener.server.close()
        if self.options.sni is None:
            self._ports.close((self.options.listener.name, node_id))

    def _learned(self, node_id: int, host: str, port: int) -> None:
        self._forget_written()
        self._awaited.learned(node_id)
        if node_id in self.brokers or self._closed:
            return
        try:
            listener = self._open(node_id)
        except OSError as error:
            text = "no port for broker %d (%s:%d): %s"
            self.discovery.lines.write(
                logging.WARNING, text, node_id, host, port, error.strerror or error
            )
        else:
            if self.bootstrap is not None and self.bootstrap.sock is None:
                return  # the process that accepts writes the line
            where = listener.advertised[0] if self.options.sni else f"port {listener.port}"
            text = "broker %d (%s:%d) is at %s"
            self.discovery.lines.write(logging.INFO, text, node_id, host, port, where)

    def _open(self, node_id: int) -> ListeningPort:
        if self.options.sni is not None:
            listener = self.brokers[node_id] = self._by_name(node_id)
            return listener
        port = self._port_of(node_id)
        advertised = self._address_of(node_id, port.number)
        listener = ListeningPort(
            node_id, port.sock, self.options.listen[0], port.number, advertised
        )
        self.brokers[node_id] = listener
        if port.is_awaited:
            log.info(
                "port %d of broker %d is bound once the other gate has closed it",
                port.number,
                node_id,
            )
            self._await(listener, node_id)
        else:
            self.discovery.keep_port(self.options.listener.name, node_id, listener.port)
            self._serve(listener)
        return listener

    def _port_of(self, node_id: int) -> Port:
        key = self.options.listener.name, node_id
        return self._ports.open(key, self.options.listen[0], self._numbers(node_id))

    def _await(self, listener: ListeningPort, node_id: int) -> None:
        """Bind the port of a broker later, which the other gate of a hand-over has."""
        asyncio.get_running_loop().call_later(AGAIN_S, self._open_again, listener, node_id)

    def _open_again(self, listener: ListeningPort, node_id: int) -> None:
        if self._closed or self.brokers.get(node_id) is not listener:
            return
        try:
            port = self._port_of(node_id)
        except OSError as error:
            log.warning("no port for broker %d: %s", node_id, error.strerror)
            del self.brokers[node_id]  # the next answer that names it tries again
            return
        if port.is_awaited:
            self._await(listener, node_id)
            return
        if port.number != listener.port:
            self._forget_written()
        listener.sock, listener.port = port.sock, port.number
        listener.advertised = self._address_of(node_id, port.number)
        self.discovery.keep_port(self.options.listener.name, node_id, listener.port)
        self._serve(listener)

    def moved(self, node_id: int, number: int) -> None:
        """Name another port of a broker in answers: the process that listens has it now."""
        listener = self.brokers.get(node_id)
        if listener is not None and listener.port != number:
            self._forget_written()
            listener.port = number
            listener.advertised = self._address_of(node_id, number)

    def _by_name(self, node_id: int) -> ListeningPort:
        """Return the listener of a broker that has no port of its own."""
        assert self.bootstrap is not None
        port = self.bootstrap.port
        return ListeningPort(
            node_id, None, self.options.listen[0], port, self._address_of(node_id, port)
        )

    def _numbers(self, node_id: int) -> list[int]:
        """Return the ports to try: the configured one, that of the last start, then any."""
        kept = self.discovery.kept_port(self.options.listener.name, node_id)
        wanted = self._wanted(node_id)
        last = min(self._wanted(self.options.listener.broker_ports - 1), 0xFFFF)
        if wanted > last:
            text = "broker %d would be at port %d, and broker_ports ends at %d: it gets another"
            self.discovery.lines.write(logging.WARNING, text, node_id, wanted, last)
            wanted = 0
        return [port for port in dict.fromkeys((wanted, kept)) if port] + [0]

    def _wanted(self, node_id: int) -> int:
        """Return the port of the configuration; 0 if any will do."""
        asked = self.options.listen[1]
        first = self.options.listener.first_broker_port
        if first is None:
            first = asked + 1 if asked else 0
        return first + node_id if first else 0

    def close(self) -> None:
        """Stop listening. Connections are not touched."""
        self._closed = True
        self.discovery.unsubscribe(self._learned)
        for listener in self.listeners:
            if listener.server is not None:
                listener.server.close()
            if listener is self.bootstrap or self.options.sni is None:
                self._ports.close((self.options.listener.name, listener.node_id))
