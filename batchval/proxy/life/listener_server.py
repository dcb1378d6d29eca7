"""One configured listener: its ports, its sessions, and what it shares with the other listeners.

One event loop (uvloop's, where the caller runs one) and a few threads for long validation. Every
client's connection has one of its own to the broker that the client meant.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Final, Protocol

from batchval.core.format.crc32c import crc32c
from batchval.network.options import connected_socket
from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.gate_versions import carried_versions, intersect_api_versions
from batchval.protocol.message import Chunks
from batchval.protocol.message_class import prepare
from batchval.protocol.old_versions import Raised
from batchval.protocol.walkers.addresses import WITH_ADDRESSES
from batchval.protocol.walkers.topic_ids import TopicsInMetadata
from batchval.proxy.cluster.discovery import Discovery, DiscoveryOptions
from batchval.proxy.cluster.endpoints import address_text, problem_of
from batchval.proxy.cluster.listeners import Listeners, ListeningPort
from batchval.proxy.cluster.listening_sockets import (
    Acceptor,
    ListeningSockets,
    OpeningConnections,
    Ports,
)
from batchval.proxy.cluster.metadata_client import resolved
from batchval.proxy.kit.background_threads import spawned
from batchval.proxy.kit.topics import KnownTopics
from batchval.proxy.produce.produce_validator import ProduceValidator
from batchval.proxy.produce.validation_queue import ValidationQueue
from batchval.proxy.session.budget import Budget
from batchval.proxy.session.connection_log import ConnectionLog
from batchval.proxy.session.connections import BrokerConnection, ClientConnection
from batchval.proxy.session.deny_list import DenyList
from batchval.proxy.session.fast_path import Routes
from batchval.proxy.session.identity import Identity
from batchval.proxy.session.lifetime import AgeLimit
from batchval.proxy.session.session import Session
from batchval.proxy.session.socket_transport import SocketTransport
from batchval.proxy.session.version_bridge import raised_by
from batchval.proxy.settings.config import DenyRule
from batchval.proxy.settings.options import Counters, ProxyOptions
from batchval.proxy.tls.handshakes import Handshakes
from batchval.proxy.tls.sni import node_asked_for
from batchval.proxy.watch.clients import ClientCounts, ClientTable
from batchval.proxy.watch.request_latency import Traffic
from batchval.proxy.watch.senders import SenderTable
from batchval.proxy.watch.traffic import TrafficTable

__all__ = ["ConnectionPassing", "ListenerServer", "Shared"]

log = logging.getLogger("batchval.proxy")

_NEVER = 0x7FFF
_CHECKED_A_TURN = 250  # sessions whose time is checked in one turn of the loop
#: Answers to ApiVersions that are remembered, which differ by broker and version only, and the
#: bytes of the largest: Kafka's have some 600.
_REMEMBERED_VERSIONS: Final = 100
_REMEMBERED_VERSIONS_BYTES: Final = 16 << 10

#: Sessions that take other settings in one turn of the loop, and the seconds that this may last.
RENEWED_A_TURN: Final = 250
RENEW_S: Final = 0.0005

#: Bytes of a Metadata answer above which it is learnt only once, and how many are remembered.
SMALL_METADATA: Final = 1 << 10
REMEMBERED_METADATA: Final = 32

#: These never take the fast path: the SASL exchange has to be followed.
_FOLLOWED = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


def _changed_from(key: int) -> int:
    """Return the version of an API from which its answers may hold addresses."""
    version = APIS[key].addresses_from if key in WITH_ADDRESSES else None
    return _NEVER if version is None else version


@dataclass(slots=True)
class Shared:
    """The objects that all listeners of one gate share."""

    counters: Counters
    budget: Budget
    validation: ValidationQueue
    topics: KnownTopics
    discovery: Discovery
    handshakes: Handshakes
    clients: ClientCounts
    connection_log: ConnectionLog
    ports: Ports
    ages: AgeLimit
    traffic: TrafficTable
    senders: SenderTable
    users: int = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind to the loop. Each listener starts what it shares with the others, and stops it."""
        self.users += 1
        self.budget.start(loop)
        self.validation.start(loop)

    def stop(self) -> None:
        """End the threads with the last listener."""
        self.users -= 1
        if not self.users:
            self.validation.stop()
            self.handshakes.close()

    @classmethod
    def made(
        cls,
        options: ProxyOptions,
        counters: Counters | None = None,
        discovery: Discovery | None = None,
        ports: Ports | None = None,
        connection_log: ConnectionLog | None = None,
        senders: SenderTable | None = None,
        clients: ClientCounts | None = None,
    ) -> Shared:
        """Return what a gate with these options shares between its listeners."""
        counters = Counters() if counters is None else counters
        senders = SenderTable() if senders is None else senders
        return cls(
            counters,
            Budget(options.limits, counters),
            ValidationQueue(options.settings.limits.threads, counters, senders),
            KnownTopics(),
            _discovery_of(options) if discovery is None else discovery,
            Handshakes(counters),
            ClientTable() if clients is None else clients,
            ConnectionLog() if connection_log is None else connection_log,
            ListeningSockets() if ports is None else ports,
            AgeLimit(counters),
            TrafficTable(options.settings.metrics.nodes),
            senders,
        )


def _discovery_of(options: ProxyOptions) -> Discovery:
    connect_s = options.settings.upstream.connect_timeout_ms / 1000
    return Discovery(
        DiscoveryOptions(
            options.settings.upstream.bootstrap, options.upstream_tls, connect_s=connect_s
        )
    )


class ConnectionPassing(Protocol):
    """Passes the connections of one listener to other processes, which serve them.

    ``take`` admits a connection and passes it on, or closes it; ``most``: of the listener. ``stop``
    lets the processes deliver what is under way, and ends them.
    """

    def __len__(self) -> int: ...
    def hold_when_full(self, acceptor: Acceptor) -> None: ...
    def take(self, connection: socket.socket, listener: ListeningPort, most: int) -> None: ...
    async def stop(self, drain_s: float) -> None: ...


class ListenerServer:
    """One listener of a gate in front of one cluster. ``start`` and ``stop`` it on a running loop.

    ``listening``  broker id -> (host, port) of its listener
    ``bootstrap``  where clients begin
    ``passing``    passes accepted connections to the processes that serve them; None: this one does
    ``gone``       called with each session that was not admitted, or has ended
    """

    def __init__(
        self,
        options: ProxyOptions,
        counters: Counters | None = None,
        shared: Shared | None = None,
        *,
        passing: ConnectionPassing | None = None,
        gone: Callable[[Session], None] = lambda _: None,
    ) -> None:
        prepare()  # no client's request waits for the compiler
        self.options = options
        self.shared = Shared.made(options, counters) if shared is None else shared
        self.counters = self.shared.counters
        self.budget = self.shared.budget
        self.validation = self.shared.validation
        self.topics = self.shared.topics
        self.clients = self.shared.clients
        self.traffic = self.shared.traffic
        self.senders = self.shared.senders
        self.ages = self.shared.ages
        self.connection_log = self.shared.connection_log
        self.gate = self.gate_of(options)
        self._has_own_discovery = shared is None
        self.discovery = self.shared.discovery
        self.cluster = Listeners(options, self.discovery, self._serve, self.shared.ports)
        self.carried: Mapping[int, tuple[int, int]] = carried_versions()
        self.routes: Mapping[int, tuple[int, int, int]] = {
            key: (first, last, _changed_from(key)) for key, (first, last) in self.carried.items()
        }
        self._routes_by: dict[tuple[frozenset[int], frozenset[int], frozenset[int]], Routes] = {}
        self._bridge(options.settings.bridge)
        self.deny_list = self._deny_list(options.deny)
        self.now = 0.0
        self.connections: dict[Session, None] = {}
        self._opening = OpeningConnections(lambda client: self._unopened(client.session))
        self._passing = passing
        self._gone = gone
        self.loop: asyncio.AbstractEventLoop
        self._seen_metadata: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED_METADATA)
        self._versions: dict[tuple[bytes, int, frozenset[int]], bytes] = {}
        self.accepts = True
        self._draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._last_error: tuple[str, float] = ("", 0.0)

    def routes_for(
        self,
        denied: frozenset[int],
        raised: Mapping[int, Raised],
        shared: frozenset[int] = frozenset(),
    ) -> Routes:
        """Return the fast path's routes for raised versions, without denied APIs.

        ``shared``  APIs of which the requests of brokers are denied
        """
        key = denied, frozenset(raised), shared
        found = self._routes_by.get(key)
        if found is None:
            routes = (
                {**self.routes}
                | {api: (*self.carried[api], 0) for api in _FOLLOWED}
                | {api: (one.first_kept, *self.routes[api][1:]) for api, one in raised.items()}
            )
            found = self._routes_by[key] = Routes(
                {api: route for api, route in routes.items() if api not in denied}, shared
            )
        return found

    def routes_of(
        self, principal: str | None, raised: Mapping[int, Raised]
    ) -> tuple[frozenset[int], Routes]:
        """Return the APIs that some clients may not use, and the fast path's routes of a client.

        These are without the APIs that are denied to its principal; while that may change (None),
        without all that are denied to anybody.
        """
        deny_list = self.deny_list
        if deny_list is None:
            return frozenset(), self.routes_for(frozenset(), raised)
        denied, shared = deny_list.denied_to(principal), deny_list.shared_of(principal)
        return deny_list.guarded, self.routes_for(denied, raised, shared)

    def _deny_list(self, rules: Iterable[DenyRule]) -> DenyList | None:
        """Return what these rules deny on this listener; None: nothing."""
        found = DenyList(rules, self.options.listener.name)
        return found if found.guarded else None

    @property
    def listening(self) -> dict[int, tuple[str, int]]:
        """Return broker id -> (host, port)."""
        return {
            node_id: (listener.host, listener.port)
            for node_id, listener in self.cluster.brokers.items()
        }

    @property
    def bootstrap(self) -> tuple[str, int]:
        """Return the bootstrap address."""
        first = self.cluster.bootstrap
        return self.options.listen if first is None else (first.host, first.port)

    # ---- start and stop --------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen for clients, and look for the cluster until it is found. Raises OSError."""
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time()
        self.shared.start(self.loop)
        self.cluster.open_bootstrap()
        await asyncio.gather(*self._tasks)
        if self._has_own_discovery:
            await self.discovery.start()
        self._sweep = self.loop.call_later(self._tick_s, self._tick)

    @property
    def _tick_s(self) -> float:
        """Return the seconds between checks of the timeouts of all sessions."""
        limits = self.options.limits
        shortest_ms = min(limits.handshake_timeout_ms, limits.idle_timeout_ms)
        return max(0.01, min(1.0, shortest_ms / 4000, limits.linger_s / 4))

    async def stop(self, drain_s: float = 30.0) -> None:
        """Stop accepting, deliver pending answers for ``drain_s`` at most, and end what is left."""
        self._draining = True
        for task in self._tasks:
            task.cancel()
        self.cluster.close()
        if self._passing is not None:
            await self._passing.stop(drain_s)
        if self._has_own_discovery:
            await self.discovery.stop()
        for n, connection in enumerate(list(self.connections)):
            connection.end_when_taken("drain")
            if n % _CHECKED_A_TURN == _CHECKED_A_TURN - 1:
                await asyncio.sleep(0)
        until = self.loop.time() + drain_s
        while self.connections and self.loop.time() < until:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort("drain")
        for _ in range(100):
            if not self.connections:
                break
            await asyncio.sleep(0.01)
        if self._sweep is not None:
            self._sweep.cancel()
        self.shared.stop()

    def _serve(self, listener: ListeningPort) -> None:
        spawned(self._tasks, self._open(listener))

    def accept(self) -> None:
        """Accept connections that wait in the backlog since ``accepts`` was False."""
        self.accepts = True
        for listener in self.cluster.listeners:
            self._serve(listener)

    async def _open(self, listener: ListeningPort) -> None:
        if listener.sock is None or not self.accepts:
            return
        take = partial(self.take, listener=listener)
        listener.server = Acceptor(listener.sock, take, free=self.free, refused=self.refused)
        if self._passing is not None:
            self._passing.hold_when_full(listener.server)

    def take(self, connection: socket.socket, listener: ListeningPort) -> None:
        """Serve a connection that came by this port, or pass it on."""
        if self._passing is None:
            self.serve(connection, listener)
        else:
            self._passing.take(connection, listener, self.options.max_connections)

    def serve(self, connection: socket.socket, listener: ListeningPort) -> Session:
        """Return the session of a connection that came by this port; it begins soon."""
        session = Session(self, listener)
        if resolved(self.options.listen_tls) is None:
            self._opening.open_plain(SocketTransport(self.loop, connection, session.client))
        else:
            self._opening.open(connection, session.client)
        return session

    def _unopened(self, session: Session) -> None:
        session.dissolve()
        self._gone(session)

    def free(self) -> int:
        """Return how many more clients this listener may have; opening ones count as had."""
        open_here = len(self.connections if self._passing is None else self._passing)
        here = self.options.max_connections - open_here
        return min(here, self.budget.free_connections()) - len(self._opening)

    def refused(self, client: tuple[str, int]) -> None:
        """Count a client that was closed before it had a session."""
        everywhere = self.budget.free_connections() <= 0
        why = "max_connections" if everywhere else "max_listener_connections"
        self.budget.refuse(why)
        self.connection_log.refused(self.options.listener.name, f"{client[0]}:{client[1]}", why)

    def secure(
        self, client: ClientConnection, choose: Callable[[ListeningPort], None]
    ) -> Awaitable[asyncio.Transport] | None:
        """Begin the TLS handshake with a client; return an awaitable of the secured transport.

        None where the listener has no TLS. Awaiting it raises HandshakeError.

        ``choose``  is called with the listener of the broker that the client's ClientHello names
        """
        context = resolved(self.options.listen_tls)
        if context is None or client.transport is None:
            return None
        look = partial(self._choose_broker, choose)
        timeout_s = self.options.limits.handshake_timeout_ms / 1000
        return self.shared.handshakes.secure(client.transport, client, context, timeout_s, look)

    def _choose_broker(self, choose: Callable[[ListeningPort], None], hello: bytes) -> None:
        """Let the server name of a client choose its broker. Raises HandshakeError."""
        if self.options.sni is not None:
            choose(self.cluster.named(node_asked_for(hello, self.options.sni)))

    # ---- other settings --------------------------------------------------------------------------

    def gate_of(self, options: ProxyOptions) -> ProduceValidator:
        """Return the gate of these options. For any thread. Raises BatchvalError."""
        gate = ProduceValidator(options, self.counters)
        gate.topic_names = self.topics.by_id.get
        return gate

    def _bridge(self, bridge: tuple[str, ...]) -> None:
        """Raise old versions for these clients, of sessions that begin from now on."""
        self.raised: Mapping[int, Raised] = raised_by(bridge)
        self.fast_routes = self.routes_for(frozenset(), self.raised)

    def use(self, options: ProxyOptions, gate: ProduceValidator) -> None:
        """Serve by these options from now on; open sessions in the next turns of the loop."""
        bridge, deny = options.settings.bridge, options.deny
        if (bridge, deny) != (self.options.settings.bridge, self.options.deny):
            self._routes_by.clear()
            self._bridge(bridge)
            self.deny_list = self._deny_list(deny)
        self.options = options
        self.cluster.use(options)
        self.gate = gate
        self._renew(iter(list(self.connections)))

    def _renew(self, sessions: Iterator[Session]) -> None:
        """Let sessions use the options of now, as many as one turn of the loop may."""
        end = time.perf_counter() + RENEW_S
        for session in islice(sessions, RENEWED_A_TURN):
            try:
                session.renew()
            except Exception as error:  # one session's fault must not keep the others from it
                self.log_error("a session could not take the new settings", error)
                session.abort("fault")
            if time.perf_counter() > end:
                break
        if length_hint(sessions):
            self.loop.call_soon(self._renew, sessions)

    def traffic_of(self, listener: ListeningPort) -> Traffic:
        """Return the counts of a port. Brokers that discovery does not know share a label."""
        is_known = listener.node_id is None or listener.node_id in self.discovery.brokers
        return self.traffic.of(self.options.listener.name, listener.node_id, is_known=is_known)

    # ---- what sessions ask for -------------------------------------------------------------------

    def admit(self, session: Session, client: Identity) -> bool:
        """Return whether one more client may connect."""
        self._opening.opened(session.client)
        why = self._why_not(client.address)
        if why is not None:
            self.connection_log.refused(self.options.listener.name, client.name, why)
            self._gone(session)
            return False
        self.connections[session] = None
        return True

    def _why_not(self, address: str) -> str | None:
        """Count one more client; return why it may not connect, or None."""
        if self._draining:
            self.budget.refuse("drain")
            return "drain"
        here, most = len(self.connections), self.options.max_connections
        return self.budget.admit(address, here, most)

    def forget(self, session: Session, client: Identity) -> None:
        """Forget a session both of whose connections are gone."""
        if session in self.connections:
            del self.connections[session]
            self.budget.release(session, client.address)
        self._gone(session)

    def closed(self, why: str) -> None:
        """Count a session that is ended from here."""
        reasons = self.counters.connections_closed
        reasons[why] = reasons.get(why, 0) + 1

    def names_of(self, transport: asyncio.BaseTransport) -> tuple[str, str | None]:
        """Return the name of a client's claims, and the principal of its verified certificate."""
        options = self.options
        name = (
            None
            if options.sender is None
            else options.sender(transport.get_extra_info("ssl_object"))
        )
        if name is None:
            return f"listener {options.listener.name}", None
        principal = (
            None
            if options.principal is None
            else options.principal(transport.get_extra_info("peercert"))
        )
        return f"certificate {name}", principal

    def learn_topics(self, body: memoryview, version: int) -> None:
        """Remember the topics of a Metadata answer: a part of it now, the rest in later turns of
        the loop.

        An answer that has come before is not read again: clients ask for their topics every few
        minutes. One that cannot be read names no topics; ``rewrite_addresses`` decides whether it
        goes on.
        """
        if len(body) > SMALL_METADATA:
            seen = len(body), version, crc32c(body[4:])
            if seen in self._seen_metadata:
                return
            self._seen_metadata.append(seen)
        with contextlib.suppress(ProtocolError):
            self._learn(TopicsInMetadata(body, version))

    def learn_topics_then(self, body: memoryview, version: int, then: Callable[[], None]) -> None:
        """Remember the topics of the answer to a question of the gate's own, in turns of the loop;
        call ``then`` afterwards. Where it cannot be read, the topics stay unknown.
        """
        with contextlib.suppress(ProtocolError):
            self._learn(TopicsInMetadata(body, version), then)
            return
        self.loop.call_soon(then)

    def _learn(self, walk: TopicsInMetadata, then: Callable[[], None] = lambda: None) -> None:
        try:
            self.topics.learn(walk.next())
        except ProtocolError:
            self.loop.call_soon(then)
            return
        if walk.done:
            self.loop.call_soon(then)
        else:
            self.budget.take_turn(partial(self._learn, walk, then))

    def intersected(
        self, body: memoryview, version: int, correlation_id: int, raised: Mapping[int, Raised]
    ) -> Chunks:
        """Return the answer to ApiVersions for clients. Brokers repeat theirs, so it is kept.

        A large answer is not kept: the memory budget does not count it.
        """
        is_kept = len(body) <= _REMEMBERED_VERSIONS_BYTES
        key = bytes(body[4:]) if is_kept else b"", version, frozenset(raised)
        known = self._versions.get(key) if is_kept else None
        if known is None:
            known = b"".join(
                intersect_api_versions(body, version, self.carried, correlation_id=0, raised=raised)
            )
            if is_kept:
                if len(self._versions) >= _REMEMBERED_VERSIONS:
                    self._versions.clear()
                self._versions[key] = known
        return [known[:4], correlation_id.to_bytes(4, "big", signed=True), memoryview(known)[8:]]

    async def connect(self, listener: ListeningPort, broker: BrokerConnection) -> None:
        """Connect to the listener's broker. Raises UnknownBrokerError, else the last OSError."""
        if listener.node_id is not None:
            await self.cluster.known(listener.node_id)
        tls = resolved(self.options.upstream_tls)
        error = ConnectionError("no broker is known")
        addresses = self.discovery.addresses(listener.node_id)
        for i, (host, port) in enumerate(addresses):
            try:
                async with asyncio.timeout(
                    self.discovery.connect_timeout_s(len(addresses) - 1 - i)
                ):
                    if tls is None:
                        sock = await connected_socket(host, port)
                        SocketTransport(self.loop, sock, broker).start()
                    else:
                        await self.loop.create_connection(
                            lambda: broker, host, port, ssl=tls, server_hostname=host
                        )
            except (OSError, TimeoutError, UnicodeError) as failed:
                if isinstance(failed, UnicodeError):  # a host that cannot be a name (IDNA)
                    failed = OSError(f"{host!r} is not a host name")
                error = ConnectionError(f"{address_text((host, port))}: {problem_of(failed)}")
                self.discovery.failed((host, port), failed)
            else:
                self.discovery.reached((host, port))
                return
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def upstream_failed(self) -> None:
        """Note that no broker was reachable; discovery has logged why."""
        self.counters.upstream_failures_total += 1

    def log_error(self, text: str, error: BaseException | None) -> None:
        """Log one line; the same one at most once a second."""
        now = self.loop.time()
        if self._last_error[0] == text and now - self._last_error[1] < 1.0:
            return
        self._last_error = (text, now)
        log.warning(
            "%s%s", text, "" if error is None else f": {str(error) or type(error).__name__}"
        )

    # ---- time ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Look at all sessions, so many in one turn of the loop."""
        self.now = self.loop.time()
        self.budget.measure()
        self._check(list(self.connections))
        self._sweep = self.loop.call_later(self._tick_s, self._tick)

    def _check(self, sessions: list[Session]) -> None:
        for session in sessions[:_CHECKED_A_TURN]:
            if session in self.connections:
                try:
                    session.check_time(self.now)
                except Exception as error:  # one session's fault must not end the others' clock
                    self.log_error("the timeouts of a session could not be checked", error)
                    session.abort("fault")
        if len(sessions) > _CHECKED_A_TURN:
            self.loop.call_soon(self._check, sessions[_CHECKED_A_TURN:])
