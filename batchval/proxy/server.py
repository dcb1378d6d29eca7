"""The proxy as a whole: its listeners, its connections, what all of them together may hold, and its end.

One event loop (uvloop's, where the caller runs one) and a few threads for long decompression. Every client's
connection has one of its own to the broker that the client meant.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor

from batchval.errors import BatchvalError
from batchval.network.errors import AuthenticationError
from batchval.protocol.addresses import WITH_ADDRESSES
from batchval.protocol.api_versions import carried_versions
from batchval.protocol.apis import APIS, ApiKey
from batchval.proxy.cluster import Cluster, Listener, SilentBrokerError, ask_metadata, resolved
from batchval.proxy.downstream import BUDGET, Downstream
from batchval.proxy.gate import Gate
from batchval.proxy.lane import Routes
from batchval.proxy.options import Counters, ProxyOptions
from batchval.proxy.upstream import Upstream

__all__ = ["Proxy"]

log = logging.getLogger("batchval.proxy")

_NEVER = 0x7FFF
_MOST_SLACK = 128 << 10  # bytes: telling costs as much as passing on a small frame does
_MOST_ASKED = 16  # of those that wait, at a time, whether leave would be of use to them
_DISCOVERY_S = (0.2, 5.0)  # between attempts, doubled up to the second
_SILENT_S = 60.0  # the second, for a cluster that does not want to answer


def carried() -> dict[int, tuple[int, int]]:
    """The versions that clients are offered. SaslHandshake 0 is not: what follows it are tokens without headers."""
    versions = carried_versions()
    versions[ApiKey.SASL_HANDSHAKE] = (1, versions[ApiKey.SASL_HANDSHAKE][1])
    return versions


def _changed_from(key: int) -> int:
    """The version of an API from which its answers may hold addresses."""
    version = APIS[key].addresses_from if key in WITH_ADDRESSES else None
    return _NEVER if version is None else version


class Proxy:
    """A gate in front of one cluster. ``start`` and ``stop`` it on a running loop.

    ``listening``  broker id -> (host, port) of its listener;  ``bootstrap`` is where clients begin
    ``ready``      whether the cluster could be reached when it was last tried
    """

    def __init__(self, options: ProxyOptions, metrics: Counters | None = None) -> None:
        self.options = options
        self.counters = Counters() if metrics is None else metrics
        self.gate = Gate(options, self.counters)
        self.cluster = Cluster(options, self._serve)
        self.carried: Mapping[int, tuple[int, int]] = carried()
        self.routes = {key: (first, last, _changed_from(key)) for key, (first, last) in self.carried.items()}
        self.lane_routes = Routes(self.routes)
        self.ready = False
        self.now = 0.0
        self.slack = 0
        self.connections: dict[Downstream, None] = {}
        self.loop: asyncio.AbstractEventLoop
        self.pool: ThreadPoolExecutor
        self._paused: dict[Downstream, None] = {}  # for the budget, in the order in which they were
        self._granted: Downstream | None = None
        self._whole = 0  # of the bytes held, those that no client has to add to
        self._draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._last_error: tuple[str, float] = ("", 0.0)

    @property
    def listening(self) -> dict[int, tuple[str, int]]:
        """Broker id -> (host, port)."""
        return {node_id: (listener.host, listener.port) for node_id, listener in self.cluster.brokers.items()}

    @property
    def bootstrap(self) -> tuple[str, int]:
        """Where clients begin."""
        first = self.cluster.bootstrap
        return self.options.listen if first is None else (first.host, first.port)

    # ---- start and stop --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens. The cluster need not be there: it is looked for until it is. Raises OSError."""
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time()
        self.pool = ThreadPoolExecutor(self.options.threads, thread_name_prefix="batchval-gate")
        self.cluster.open_bootstrap()
        await asyncio.gather(*self._tasks)
        self._spawn(self._discover())
        limits = self.options.limits
        self._tick_s = max(0.01, min(1.0, limits.handshake_s / 4, limits.idle_s / 4, limits.linger_s / 4))
        self._sweep = self.loop.call_later(self._tick_s, self._tick)

    async def stop(self, drain_s: float = 30.0) -> None:
        """Takes no more connections and no more requests, delivers what is under way, and ends what is left then."""
        self._draining = True
        for task in self._tasks:
            task.cancel()
        self.cluster.close()
        for connection in list(self.connections):
            connection.end("drain")
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
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _spawn(self, coroutine: Coroutine[object, object, None]) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _serve(self, listener: Listener) -> None:
        self._spawn(self._open(listener))

    async def _open(self, listener: Listener) -> None:
        tls = resolved(self.options.listen_tls)
        listener.server = await self.loop.create_server(
            lambda: Downstream(self, listener),
            sock=listener.sock,
            ssl=tls,
            ssl_handshake_timeout=self.options.limits.handshake_s if tls else None,
        )

    async def _discover(self) -> None:
        """Learns the brokers, so that each has its listener before a client asks; again and again until it works.

        A cluster that tells nobody its brokers without credentials is asked rarely, and no more once a client's answer
        has named them.
        """
        wait_s = _DISCOVERY_S[0]
        told = False
        while not (told and self.cluster.brokers):
            longest_s = _DISCOVERY_S[1]
            for host, port in self.options.upstream:
                try:
                    brokers = await self._ask_brokers(host, port)
                    for broker in brokers:
                        self.cluster.listener_of(*broker)
                except SilentBrokerError:
                    longest_s = _SILENT_S
                    if not told:
                        told = True
                        log.info(
                            "%s:%d names its brokers to nobody without credentials (or wants TLS): they are learnt "
                            "from its answers to clients",
                            host,
                            port,
                        )
                except (OSError, BatchvalError) as error:
                    if isinstance(error, AuthenticationError):
                        longest_s = _SILENT_S
                    self.log_error(f"{host}:{port} did not say which brokers there are", error)
                else:
                    if brokers:
                        self.ready = True
                        return
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, longest_s)

    async def _ask_brokers(self, host: str, port: int) -> list[tuple[int, str, int]]:
        if self.options.find_brokers is not None:
            return await self.options.find_brokers()
        return await ask_metadata(host, port, resolved(self.options.upstream_tls), self.options.limits.connect_s)

    # ---- what connections ask for ----------------------------------------------------------------------------------

    def admit(self, connection: Downstream) -> bool:
        """Whether one more connection may be."""
        limits = self.options.limits
        if (
            self._draining
            or len(self.connections) >= limits.max_listener_connections
            or self.counters.connections_open >= limits.max_connections
        ):
            self.counters.connections_refused_total += 1
            return False
        self.connections[connection] = None
        self._set_slack()
        self.counters.connections_total += 1
        self.counters.connections_open += 1
        return True

    def forget(self, connection: Downstream) -> None:
        """Both sides of it are gone."""
        if connection in self.connections:
            del self.connections[connection]
            self._set_slack()
            self.counters.connections_open -= 1
        self._paused.pop(connection, None)
        if connection is self._granted:
            self._granted = None
        self.counters.bytes_held -= connection.held
        self._whole -= connection.whole
        connection.held = connection.whole = 0

    def closed(self, why: str) -> None:
        """A connection is ended from here."""
        reasons = self.counters.connections_closed
        reasons[why] = reasons.get(why, 0) + 1

    def sender_of(self, transport: asyncio.BaseTransport) -> str:
        """By what name claims are kept: the certificate's, else the listener's."""
        name = None
        if self.options.sender is not None:
            name = self.options.sender(transport.get_extra_info("peercert"))
        return f"listener {self.options.listener_name}" if name is None else f"certificate {name}"

    async def connect(self, listener: Listener, upstream: Upstream) -> None:
        """Connects it to the listener's broker. Raises OSError or TimeoutError."""
        tls = resolved(self.options.upstream_tls)
        error: OSError | TimeoutError = ConnectionError("no broker is known")
        for host, port in listener.brokers:
            try:
                async with asyncio.timeout(self.options.limits.connect_s):
                    await self.loop.create_connection(
                        lambda: upstream, host, port, ssl=tls, server_hostname=host if tls else None
                    )
            except (OSError, TimeoutError) as failed:
                error = failed
            else:
                self.ready = True
                return
        raise error

    def upstream_failed(self, listener: Listener, error: BaseException) -> None:
        """A broker could not be reached."""
        self.counters.upstream_failures_total += 1
        if listener.node_id is None:
            self.ready = False
        self.log_error(f"{listener.brokers[0][0]}:{listener.brokers[0][1]} cannot be reached", error)

    def log_error(self, text: str, error: BaseException | None) -> None:
        """One line; the same one at most once a second."""
        now = self.loop.time()
        if self._last_error[0] == text and now - self._last_error[1] < 1.0:
            return
        self._last_error = (text, now)
        log.warning("%s%s", text, "" if error is None else f": {str(error) or type(error).__name__}")

    # ---- bytes and time --------------------------------------------------------------------------------------------

    def _set_slack(self) -> None:
        """What each connection may hold untold: all of them together a quarter of the limit."""
        self.slack = min(_MOST_SLACK, self.options.limits.max_bytes_held // 4 // max(len(self.connections), 1))

    def account(self, connection: Downstream, held: int) -> None:
        """What a connection holds now. Above the limit it is not read until others have let go.

        One of those that wait has leave to go on all the same, until it has let go of something or its frame is whole:
        else frames that are here in part could wait for each other.
        """
        if connection not in self.connections:
            return
        let_go = held < connection.held
        total = self.counters.bytes_held + held - connection.held
        self.counters.bytes_held = total
        connection.held = held
        whole = max(0, held - connection.splitter.buffered)
        self._whole += whole - connection.whole
        connection.whole = whole
        if connection is self._granted and (let_go or held > connection.splitter.buffered):
            self._granted = None
        above = total > self.options.limits.max_bytes_held
        if above and held and connection is not self._granted and connection not in self._paused:
            self._paused[connection] = None
            connection.hold(BUDGET)
        if self._paused:
            if total <= self.options.limits.max_bytes_held * 3 // 4:
                self._resume_one()
            elif self._granted is None:  # what is held may be frames in part, and nothing else
                self._granted = self._grant()

    def _grant(self) -> Downstream | None:
        """Leave for one that holds nothing but a frame in part: the others wait for a peer, and would only hold more.

        None where whole frames and answers alone are above the limit: peers have to take some of them first.
        """
        limits = self.options.limits
        if self._whole > limits.max_bytes_held:
            return None
        for _ in range(min(len(self._paused), _MOST_ASKED)):
            connection = next(iter(self._paused))
            if connection.held <= connection.splitter.buffered:
                return self._resume_one()
            del self._paused[connection]  # to the end of the queue
            self._paused[connection] = None
        return None

    def _resume_one(self) -> Downstream:
        connection = next(iter(self._paused))
        del self._paused[connection]
        connection.release(BUDGET)
        return connection

    def _tick(self) -> None:
        self.now = now = self.loop.time()
        for connection in list(self.connections):
            connection.check_time(now)
            if connection.held:
                connection.account()
        if self._paused:  # the leave goes round: who has it may be stuck
            above = self.counters.bytes_held > self.options.limits.max_bytes_held
            self._granted = self._grant() if above else self._resume_one()
        with contextlib.suppress(RuntimeError):
            self._sweep = self.loop.call_later(self._tick_s, self._tick)
