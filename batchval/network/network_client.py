"""Connections to all nodes, opened when needed: Kafka's NetworkClient without its selector.

``ready`` starts a connection, ``send`` passes a request to one that takes it. ``on_complete`` gets
each outcome, never from inside ``send``. Everything else happens on the loop; ``on_change`` reports
that it has.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import random
import ssl as tls
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from batchval.errors import ErrorCode, shown_ms
from batchval.network.connection import Connection, settle
from batchval.network.errors import AuthenticationError, DisconnectError, UnsupportedVersionError
from batchval.network.node import Backoff, ConnectionState, NodeState, Resolve, resolve
from batchval.network.options import ConnectionOptions
from batchval.network.request import AnyRequest, Build, ClientRequest, Node, RequestBuilder
from batchval.network.version_negotiation import ApiVersions
from batchval.protocol.apis import ApiKey

__all__ = ["ApiVersionsOf", "NetworkClient", "NetworkOptions"]

RECONNECT_BACKOFF = Backoff(50, 1_000)  # KIP-144
SETUP_TIMEOUT = Backoff(10_000, 30_000)  # KIP-601

log = logging.getLogger("batchval.network")


class ApiVersionsOf(Protocol):
    """A factory of ApiVersions requests. Their ``decode`` must read a version 0 body where the
    error code is 35 (KIP-511).

    The response has ``error_code`` and ``api_keys``, each of these ``api_key``, ``min_version``,
    ``max_version``.
    """

    @property
    def latest(self) -> int:
        """Return the version to ask with first."""

    def __call__(self, version: int) -> AnyRequest:
        """Return the request of that version."""


@dataclass(slots=True, kw_only=True)
class NetworkOptions:
    """The options of making connections. Times in milliseconds."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    # None: a node is believed to speak whatever it is sent
    api_versions: ApiVersionsOf | None = field(default_factory=ApiVersions)
    # SASL, on a fresh connection
    authenticate: Callable[[Connection], Awaitable[None]] | None = None
    reconnect_backoff: Backoff = RECONNECT_BACKOFF
    setup_timeout: Backoff = SETUP_TIMEOUT
    resolve: Resolve = resolve


class NetworkClient:
    """The states of nodes, and their connections."""

    def __init__(
        self,
        options: NetworkOptions,
        clock_ms: Callable[[], float],
        on_complete: Callable[[ClientRequest, AnyRequest | None, Any, BaseException | None], None],
        on_change: Callable[[], None],
    ) -> None:
        self.options = options
        self._clock_ms = clock_ms
        self._on_complete = on_complete
        self._on_change = on_change
        self._states: dict[int, NodeState] = {}
        self._dying: set[asyncio.Task[None]] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self.connections_opened = 0

    # --- questions

    def state(self, node: Node) -> NodeState:
        """Return the state of a node, found by its id.

        A new host or port of a disconnected node resets its state: backoff and addresses
        (KAFKA-7890). A live connection is used whatever its address, as in Kafka.
        """
        state = self._states.get(node.id)
        if state is None or (state.node != node and state.state.is_disconnected):
            state = self._states[node.id] = NodeState(node)
        return state

    def is_ready(self, node: Node) -> bool:
        """Return whether it is connected, its versions are known and it is not throttled."""
        return self.state(node).is_ready

    def has_ready_nodes(self) -> bool:
        """Return whether any node is ready."""
        return any(state.is_ready for state in self._states.values())

    def is_connected_or_connecting(self, node: Node) -> bool:
        """Return whether the node has a connection, or is being connected to."""
        state = self._states.get(node.id)
        return state is not None and not state.state.is_disconnected

    def connection_failed(self, node: Node) -> bool:
        """Return whether the last connection ended or failed, and no other is being tried."""
        state = self.state(node)
        return state.failure_unseen or (state.state.is_disconnected and state.failures > 0)

    def failures_were_seen(self) -> AuthenticationError | None:
        """Allow failed nodes to be tried again, after their requests have been failed.

        Return the first authentication error.
        """
        refused = None
        for state in self._states.values():
            if state.failure_unseen:
                state.failure_unseen = False
                refused = refused or state.authentication_error
        return refused

    def last_error(self, node: Node) -> BaseException | None:
        """Return why its last connection ended or was not made."""
        state = self._states.get(node.id)
        return state.error if state is not None else None

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        """Return the TLS or SASL error of the last attempt; the next attempt clears it."""
        state = self._states.get(node.id)
        return state.authentication_error if state is not None else None

    def connection_delay_ms(self, node: Node, now_ms: float) -> float:
        """Return how long until a connection may be tried."""
        return self.state(node).connection_delay_ms(now_ms)

    def poll_delay_ms(self, node: Node, now_ms: float) -> float:
        """Return the ms for which a node's requests may wait, unless ``on_change`` is called."""
        state = self.state(node)
        if state.state.is_disconnected:
            return state.connection_delay_ms(now_ms)
        throttled = state.connection.throttled_ms if state.connection is not None else 0.0
        return throttled or float("inf")

    def in_flight_count(self, node: Node | None = None) -> int:
        """Return how many requests of one node, or of all, await an answer."""
        if node is not None:
            state = self._states.get(node.id)
            return state.in_flight_count if state is not None else 0
        return sum(state.in_flight_count for state in self._states.values())

    def connection(self, node: Node) -> Connection | None:
        """Return the connection to this node, or None."""
        state = self._states.get(node.id)
        return state.connection if state is not None else None

    def least_loaded_node(self, nodes: Iterable[Node]) -> Node | None:
        """Return the ready node with the fewest requests in flight.

        Else one that is connecting, else one that may be connected to; never a throttled one.
        """
        now = self._clock_ms()
        several = list(nodes)
        start = random.randrange(len(several)) if several else 0
        best: tuple[int, int] | None = None
        chosen: Node | None = None
        for node in several[start:] + several[:start]:
            state = self.state(node)
            if state.is_ready and state.can_send:
                rank = (0, state.in_flight_count)
            elif state.state in (ConnectionState.CONNECTING, ConnectionState.CHECKING_API_VERSIONS):
                rank = (1, 0)
            elif state.connection_delay_ms(now) == 0:
                rank = (2, 0)
            else:
                continue  # throttled, full, or failed a moment ago
            if best is None or rank < best:
                best, chosen = rank, node
        return chosen

    # --- actions

    def ready(self, node: Node, now_ms: float) -> bool:
        """Return whether ``send`` may be called for this node now; start a connection if needed."""
        state = self.state(node)
        if state.can_send:
            return True
        self._try_connect(state, now_ms)
        return False

    def try_connect(self, node: Node, now_ms: float) -> None:
        """Start a connection, unless there is one or the last failed a moment ago."""
        self._try_connect(self.state(node), now_ms)

    def _try_connect(self, state: NodeState, now_ms: float) -> None:
        if (
            not state.state.is_disconnected
            or state.failure_unseen
            or state.connection_delay_ms(now_ms) > 0
        ):
            return
        state.state = ConnectionState.CONNECTING
        state.authentication_error = None
        state.last_attempt_ms = now_ms
        state.setup_timeout_ms = self.options.setup_timeout.after(state.setup_failures)
        state.connecting = asyncio.get_running_loop().create_task(self._connect(state))
        self._connecting.add(state.connecting)
        state.connecting.add_done_callback(self._connecting.discard)

    def send(self, client_request: ClientRequest) -> None:
        """Pass a request to the node's connection; ``ready`` must have returned True.

        Failures go to ``on_complete``, too.
        """
        state = self.state(client_request.node)
        assert state.connection is not None
        request: AnyRequest | None = None
        try:
            request = sent = _at_a_version_that_both_speak(client_request.request, state)
            state.connection.send_nowait(
                request,
                lambda response, error: self._on_complete(client_request, sent, response, error),
                timeout_ms=client_request.request_timeout_ms,
            )
        except Exception as error:  # of the version or of encoding: nothing was written
            self._on_complete(client_request, request, None, error)

    def disconnect(self, node: Node, error: BaseException | None = None) -> None:
        """Close the node's connection, or cancel the attempt; fail its requests in flight."""
        state = self._states.get(node.id)
        if state is not None and not state.state.is_disconnected:
            self._end(state, error or DisconnectError(f"{node} was disconnected"))
            state.failure_unseen = False  # the caller knows, as it asked for it

    def close(self, error: BaseException) -> None:
        """Close all connections."""
        for state in self._states.values():
            self._end(state, error)

    async def wait_closed(self) -> None:
        """Wait until all earlier connections are closed."""
        await asyncio.gather(*self._connecting, return_exceptions=True)
        await asyncio.gather(*self._dying)

    # --- what becomes of a connection

    async def _connect(self, state: NodeState) -> None:
        connection: Connection | None = None
        try:
            async with asyncio.timeout(state.setup_timeout_ms / 1000):
                connection = await self._set_up(state)
            state.setup_failures = 0
            self.connections_opened += 1
            if self.options.api_versions is not None:
                state.api_versions = await self._versions_of(
                    state, connection, self.options.api_versions
                )
            if connection.error is not None:
                raise connection.error
        except asyncio.CancelledError:
            if connection is not None:
                connection.close(DisconnectError(f"{state.node} was disconnected"))
            raise
        except Exception as error:
            if connection is not None:
                connection.close(DisconnectError(f"{error}"))
            state.connecting = None
            self._failed_to_connect(state, error)
        else:
            state.connecting = None
            state.connection = connection
            state.state = ConnectionState.READY
            state.failures = 0
            state.backoff_ms = 0.0
            connection.on_sendable = self._on_change
            self._on_change()

    async def _set_up(self, state: NodeState) -> Connection:
        if not state.addresses:
            state.addresses = await self.options.resolve(state.node.host, state.node.port)
            if not state.addresses:
                raise OSError(f"{state.node.host} has no address")
        options = self.options.connection
        if options.ssl is not None and options.server_hostname is None:
            options = dataclasses.replace(options, server_hostname=state.node.host)
        connection = await Connection.open(
            state.addresses[0],
            state.node.port,
            options,
            on_lost=lambda lost, _: self._connection_lost(state, lost),
        )
        if self.options.authenticate is not None:
            try:
                await self.options.authenticate(connection)
            except BaseException:
                connection.close(DisconnectError("authentication was not finished"))
                raise
        return connection

    async def _versions_of(
        self, state: NodeState, connection: Connection, versions: ApiVersionsOf
    ) -> dict[int, tuple[int, int]]:
        """Return the versions of the node's APIs.

        A node that does not know our ApiVersions version answers UNSUPPORTED_VERSION (35) with
        the ones it knows (KIP-511).
        """
        version = versions.latest
        while True:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            await connection.produce_async(versions(version), functools.partial(settle, answer))
            # only now: a node believed to be asked that was not would stay so for ever
            # (KAFKA-13388)
            state.state = ConnectionState.CHECKING_API_VERSIONS
            response = await answer
            spoken = {
                int(api.api_key): (int(api.min_version), int(api.max_version))
                for api in response.api_keys
            }
            if response.error_code == ErrorCode.NONE:
                return spoken
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                raise DisconnectError(
                    f"{state.node} refuses ApiVersions with error {response.error_code}"
                )
            version = min(spoken.get(ApiKey.API_VERSIONS, (0, 0))[1], version - 1)

    def _failed_to_connect(self, state: NodeState, error: Exception) -> None:
        connected = state.state is ConnectionState.CHECKING_API_VERSIONS
        if isinstance(error, TimeoutError) and not connected:
            error = DisconnectError(
                f"no connection to {state.node} in {shown_ms(state.setup_timeout_ms)}"
            )
        if isinstance(error, tls.SSLError):
            error = AuthenticationError(f"TLS with {state.node}: {error}")
        log.debug("connecting to %s: %s", state.node, error)
        state.addresses = state.addresses[1:]  # none left: resolved again
        state.setup_failures += not connected
        if isinstance(error, AuthenticationError):
            state.authentication_error = error
        self._disconnected(state, error)

    def _connection_lost(self, state: NodeState, connection: Connection) -> None:
        self._dying.add(task := asyncio.get_running_loop().create_task(connection.wait_closed()))
        task.add_done_callback(self._dying.discard)
        if state.connection is connection:
            state.addresses = []  # the name may lead elsewhere by now (KAFKA-12193)
            self._disconnected(state, connection.error)

    def _disconnected(self, state: NodeState, error: BaseException | None) -> None:
        state.error = error
        state.connection = None
        state.api_versions = None
        failed = state.authentication_error is not None
        state.state = (
            ConnectionState.AUTHENTICATION_FAILED if failed else ConnectionState.DISCONNECTED
        )
        state.backoff_ms = self.options.reconnect_backoff.after(state.failures)
        state.last_attempt_ms = self._clock_ms()
        state.failures += 1
        state.failure_unseen = True
        self._on_change()

    def _end(self, state: NodeState, error: BaseException) -> None:
        if state.connecting is not None:
            state.connecting.cancel()
            state.connecting = None
            self._disconnected(state, error)
        elif state.connection is not None:
            state.connection.close(error)


def _at_a_version_that_both_speak(
    request: AnyRequest | RequestBuilder, state: NodeState
) -> AnyRequest:
    known = state.api_versions
    low, high = (0, 0x7FFF) if known is None else known.get(request.api_key, (0, -1))
    # what is nearly always there is asked first: a protocol's isinstance costs 30 µs
    if isinstance(request, Build | RequestBuilder):
        oldest, latest = request.versions
        version = min(high, latest)
        if version < max(low, oldest):
            raise _unsupported(state, request.api_key, low, high, f"{oldest}-{latest}")
        return request.build(version)
    if not low <= request.api_version <= high:
        raise _unsupported(state, request.api_key, low, high, str(request.api_version))
    return request


def _unsupported(
    state: NodeState, api_key: int, low: int, high: int, asked: str
) -> UnsupportedVersionError:
    if low > high:
        return UnsupportedVersionError(f"{state.node} does not know API {api_key}")
    return UnsupportedVersionError(f"{state.node} speaks API {api_key} {low}-{high}, not {asked}")
