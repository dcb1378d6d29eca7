"""The parent of several workers: its gate serves no client itself.

It binds, accepts and admits, asks the cluster for its brokers, keeps the state files, answers
/metrics, /clients and /readyz for all workers, and ends with them.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import pickle
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from batchval.protocol.errors import TooManyBrokersError
from batchval.proxy.cluster.discovery import ClusterNews
from batchval.proxy.cluster.listeners import ListeningPort
from batchval.proxy.cluster.listening_sockets import Acceptor
from batchval.proxy.kit.open_files import raise_limit, too_few
from batchval.proxy.life.file_limits import log_fewer, reserve_of
from batchval.proxy.life.gate import Gate
from batchval.proxy.life.handover import TakeOver
from batchval.proxy.life.listener_server import ListenerServer, Shared
from batchval.proxy.life.reload import Step
from batchval.proxy.produce.broker_releases import BrokerReleases
from batchval.proxy.session.budget import Budget
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.setting_checks import share_faults
from batchval.proxy.settings.worker_limits import share_of, workers_of
from batchval.proxy.watch.metrics import Family, GateMetrics
from batchval.proxy.watch.observed_batches import ObservedCounts
from batchval.proxy.workers.control_messages import (
    AddressFailed,
    AddressReached,
    Apply,
    Learned,
    ObservedRows,
    OwnRequest,
    PassedHeader,
    PortAnswer,
    PortOf,
    Ready,
    RefreshMetadata,
    Reopen,
    Seen,
    Unauthenticated,
    WorkerConfiguration,
)
from batchval.proxy.workers.metric_totals import Totals
from batchval.proxy.workers.pool import Accepted, WorkerPool
from batchval.proxy.workers.processes import Processes
from batchval.proxy.workers.worker_reload import PreparedWorkers, prepared_by
from batchval.yaml_settings.faults import Source, lines_of

__all__ = ["Parent", "gate_of"]

#: Seconds for a worker's answer; without it, the values of its last one are shown.
ANSWER_S: Final = 1.0
#: Seconds between looks at what is new of the cluster.
NEWS_S: Final = 0.1
#: Sockets of a worker, and its process.
FILES_A_WORKER: Final = 4

_numbers = itertools.count(1)  # of connections


def gate_of(settings: Settings, *, version: str = "", predecessor: TakeOver | None = None) -> Gate:
    """Return the gate that the settings ask for: one process, or a parent of several."""
    count = workers_of(settings)
    workers = None if count == 1 else Parent(settings, count, version=version)
    return Gate(settings, version=version, predecessor=predecessor, workers=workers)


class Parent:
    """The workers of a gate: what they are made of, what they report, and what they are asked."""

    def __init__(self, settings: Settings, count: int, *, version: str = "") -> None:
        self.pool = WorkerPool(count, self)
        self._settings = settings
        self._version = version
        self._secret = os.urandom(32)
        self._news: ClusterNews | None = None
        self._capacity: int | None = None  # connections that the workers can serve
        self._totals = Totals(lambda: self._settings.metrics)
        self._asked = 0  # how often the workers were asked for their metrics
        self._processes = Processes()

    def attach(
        self,
        shared: Shared,
        observed: ObservedCounts,
        listeners: Mapping[str, ListenerServer],
        releases: BrokerReleases,
    ) -> None:
        """Take the parts of the gate that workers tell of, and ask for."""
        self._shared = shared
        self._discovery = shared.discovery
        self._observed = observed
        self._listeners = listeners
        self._releases = releases

    # ---- what the gate asks ----------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers, and wait until they serve. Raises ConfigError and OSError."""
        await self.pool.start()
        self._capacity = self.pool.capacity

    def passing(self, listener: str, shared: Shared) -> PassedConnections:
        """Return what passes the connections of a listener to workers."""
        return PassedConnections(listener, shared, self.pool)

    def validated(self) -> int:
        """Return how many batches the workers have validated."""
        return self.pool.validated

    def connections_of(self, settings: Settings) -> int:
        """Raise the limit of open files; return the clients of all workers. Raises OSError."""
        limit = raise_limit()
        reserve = reserve_of(settings, 0) + FILES_A_WORKER * len(self.pool.workers)
        if limit < reserve:
            whose = f"the gate's parent process needs {reserve}"
            raise too_few(limit, whose, ", or lower listeners[].broker_ports")
        wanted = settings.limits.max_connections
        if self._capacity is None or self._capacity >= wanted:
            return wanted
        why = f"the open files of {len(self.pool.workers)} workers suffice for no more connections"
        log_fewer(settings, self._capacity, f"{why}: raise their limit (ulimit -n, LimitNOFILE=)")
        return self._capacity

    async def prepare(self, settings: Settings, own: Callable[[], Awaitable[Step]]) -> Step:
        """Let all workers prepare these settings, and this process. Raises ConfigError."""
        workers = len(self.pool.workers)
        faults = list(share_faults(settings.limits, workers))  # ``auto`` would start fewer now
        if faults:
            raise ConfigError(lines_of(faults, Source()))
        content = pickle.dumps(share_of(settings, workers))
        try:
            self._capacity = await prepared_by(self.pool, content) or self._capacity
            return PreparedWorkers(await own(), partial(self._apply, settings, content))
        except BaseException:
            self._capacity = self.pool.capacity
            raise

    def _apply(self, settings: Settings, content: bytes) -> None:
        self._settings = settings
        self.pool.broadcast(Apply(content))

    def _count_capacity(self) -> None:
        """Allow as many clients as the workers can serve now."""
        if self._capacity is not None:  # else the workers are being started
            self._capacity = self.pool.capacity
            wanted = self._settings.limits.max_connections
            self._shared.budget.bound_connections(min(wanted, self._capacity))

    def unready(self) -> str | None:
        """Return why workers serve no client; None if they do."""
        return None if self.pool.serving else "no worker serves clients"

    def reopen_files(self) -> None:
        """Let all workers open their audit files anew."""
        self.pool.broadcast(Reopen())

    def pool_families(self) -> Iterator[Family]:
        """Yield the metrics about the workers themselves."""
        return self.pool.families()

    async def families(self, own: GateMetrics) -> Callable[[], Iterable[Family]]:
        """Take the values of all processes; what is returned adds them up, in any thread."""
        asked = self._asked = self._asked + 1
        answers = await self.pool.ask("families", ANSWER_S)
        ended = self.pool.ended_starts()
        return partial(self._totals.merged, own.families(), answers, ended, asked)

    async def metrics_page(self, own: GateMetrics) -> Callable[[], bytes]:
        """Take the values of all processes; what is returned writes them, in any thread."""
        families, pids = await self.families(own), self.pool.pids()
        return lambda: own.format(families(), self._processes.collect(pids))

    async def collect_clients(self) -> None:
        """Let the workers report their clients now."""
        await self.pool.ask("clients", ANSWER_S)

    # ---- workers ---------------------------------------------------------------------------------

    def parts_of(self, index: int) -> WorkerConfiguration:
        """Return what a worker is made of."""
        settings = share_of(self._settings, len(self.pool.workers))
        return WorkerConfiguration(
            index,
            settings,
            self._version,
            self._discovery.instance,
            self._secret,
            self._cluster_news(),
        )

    def received(self, message: object) -> None:
        """Take what a worker has found out."""
        match message:
            case Seen(clients):
                for client in clients:
                    self._shared.clients.add(*client)
            case ObservedRows(rows):
                self._shared.topics.learn((b"", key.topic) for key, _, is_known in rows if is_known)
                for key, row, _ in rows:
                    self._observed.merge(key, row)
            case Learned(node_id, host, port):
                try:
                    self._discovery.learn(node_id, host, port)
                except TooManyBrokersError as error:
                    self._discovery.refused(error)
            case RefreshMetadata():
                self._discovery.look()
            case AddressReached(address):
                self._discovery.reached(address)
            case AddressFailed(address, reason):
                self._discovery.failed(address, OSError(reason))
            case Ready():
                self._count_capacity()
            case Unauthenticated():
                self._discovery.answered_without_authentication()

    def asked(self, question: object) -> object:
        """Answer a worker that waits."""
        match question:
            case PortOf(listener, node_id, address):
                return self._port_of(listener, node_id, address)
            case OwnRequest(client_id):
                return self._discovery.is_own_request(client_id)
        raise AssertionError(question)

    def _port_of(self, listener: str, node_id: int, address: tuple[str, int]) -> PortAnswer:
        try:
            self._listeners[listener].cluster.listener_of(node_id, *address)
        except TooManyBrokersError as error:
            self._discovery.refused(error)
            return PortAnswer({}, (errno.ENOBUFS, str(error)))
        except OSError as error:
            return PortAnswer(
                {}, (error.errno or errno.EADDRNOTAVAIL, error.strerror or str(error))
            )
        found = {
            (name, node_id): one.cluster.brokers.get(node_id)
            for name, one in self._listeners.items()
        }
        return PortAnswer({key: one.port for key, one in found.items() if one is not None})

    def _cluster_news(self) -> ClusterNews:
        ports = {
            (name, listener.node_id): listener.port
            for name, proxy in self._listeners.items()
            for listener in proxy.cluster.listeners
        }
        known = self._discovery
        return ClusterNews(
            dict(known.brokers),
            known.cluster_id,
            known.requires_authentication,
            known.endpoints,
            ports,
            self._releases.release,
        )

    async def spread_news(self) -> None:
        """Send the workers what is new of the cluster, until it is cancelled."""
        while True:
            if (news := self._cluster_news()) != self._news:
                self._news = news
                self.pool.broadcast(news)
            await asyncio.sleep(NEWS_S)


class PassedConnections:
    """The connections of one listener that workers serve."""

    def __init__(self, listener: str, shared: Shared, pool: WorkerPool) -> None:
        self._listener = listener
        self._budget = shared.budget
        self._discovery = shared.discovery
        self._log = shared.connection_log
        self._pool = pool
        self._passed: set[_Passed] = set()

    def __len__(self) -> int:
        return len(self._passed)

    def hold_when_full(self, acceptor: Acceptor) -> None:
        """Let it accept only while a worker takes connections."""
        self._pool.add_acceptor(acceptor)

    async def stop(self, drain_s: float) -> None:
        """Let the workers deliver what is under way, and end them."""
        await self._pool.stop(drain_s)

    def take(self, connection: socket.socket, listener: ListeningPort, most: int) -> None:
        """Admit a connection and pass it on, or close it. ``most``: connections of the listener."""
        try:
            address, port = connection.getpeername()[:2]
        except OSError:  # the client has left
            connection.close()
            return
        why = self._budget.admit(address, len(self._passed), most)
        if why is not None:
            connection.close()
            self._log.refused(self._listener, f"{address}:{port}", why)
            return
        passed = _Passed(address, self._budget, self._passed)
        self._passed.add(passed)
        self._pool.take(Accepted(connection, self._header(listener), passed))

    def _header(self, listener: ListeningPort) -> PassedHeader:
        node_id, broker = listener.node_id, None
        if node_id is not None and (address := self._discovery.brokers.get(node_id)) is not None:
            broker = listener.port, address
        return PassedHeader(next(_numbers), self._listener, node_id, broker)


@dataclass(slots=True, eq=False)
class _Passed:
    """A connection that the budget counts until it is released."""

    address: str
    budget: Budget
    others: set[_Passed]

    def release(self) -> None:
        """Note that the client is gone."""
        if self in self.others:
            self.others.discard(self)
            self.budget.release_connection(self.address)
