"""The parent of several workers: a gate that serves no client itself.

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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from batchval.protocol.errors import TooManyBrokersError
from batchval.proxy.cluster.listeners import ListeningPort
from batchval.proxy.cluster.listening_sockets import Acceptor
from batchval.proxy.kit.open_files import raise_limit, too_few
from batchval.proxy.life.file_limits import log_fewer, reserve_of
from batchval.proxy.life.gate import Gate
from batchval.proxy.life.handover import TakeOver
from batchval.proxy.life.http_pages import Pages
from batchval.proxy.life.listener_server import ListenerServer, Shared
from batchval.proxy.life.reload import Step
from batchval.proxy.session.budget import Budget
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.options import ProxyOptions
from batchval.proxy.settings.setting_checks import share_faults
from batchval.proxy.settings.worker_limits import share_of, workers_of
from batchval.proxy.watch.clients import Asked
from batchval.proxy.watch.metrics import Family
from batchval.proxy.workers.control_messages import (
    AddressFailed,
    AddressReached,
    ClusterNews,
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

__all__ = ["ParentGate", "gate_of"]

#: Seconds for a worker's answer; without it, the values of its last one are shown.
ANSWER_S: Final = 1.0
#: Seconds between looks at what is new of the cluster.
NEWS_S: Final = 0.1
#: Sockets of a worker, and its process.
FILES_A_WORKER: Final = 4

_numbers = itertools.count(1)  # of connections


def gate_of(settings: Settings, *, version: str = "", predecessor: TakeOver | None = None) -> Gate:
    """Return the gate that the settings ask for: one process, or a parent of several."""
    if (count := workers_of(settings)) == 1:
        return Gate(settings, version=version, predecessor=predecessor)
    return ParentGate(settings, count, version=version, predecessor=predecessor)


class ParentGate(Gate):
    """A gate whose clients are served by ``workers`` processes."""

    validates = False

    def __init__(
        self,
        settings: Settings,
        workers: int,
        *,
        version: str = "",
        predecessor: TakeOver | None = None,
    ) -> None:
        self.pool = WorkerPool(workers, self)
        self._version = version
        self._secret = os.urandom(32)
        self._news: ClusterNews | None = None
        self._capacity: int | None = None  # connections that the workers can serve
        super().__init__(settings, version=version, predecessor=predecessor)
        self.metrics.add(self.pool.families)

    def _proxy(self, options: ProxyOptions) -> ListenerServer:
        passing = PassedConnections(options.listener_name, self.shared, self.pool)
        return ListenerServer(options, shared=self.shared, passing=passing)

    def _pages(self) -> Pages:
        return _AllPages(self)

    def _validated(self) -> int:
        return self.pool.validated

    # ---- its life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen everywhere and start the workers. Raises OSError and ConfigError."""
        await super().start()
        try:
            await self.pool.start()
        except BaseException:
            await self.stop(0)
            raise
        self._capacity = self.pool.capacity
        self._bound_connections()
        self._tasks.append(asyncio.create_task(self._spread_news()))

    def start_validation(self) -> None:
        """Validate nothing: workers do."""

    def read_topics_anew(self) -> None:
        """Read nothing: workers do."""

    def connections_for(self, settings: Settings) -> int:
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

    async def prepare(self, settings: Settings) -> Step:
        """Let all workers prepare these settings, and this process. Raises ConfigError."""
        workers = len(self.pool.workers)
        faults = list(share_faults(settings.limits, workers))  # ``auto`` would start fewer now
        if faults:
            raise ConfigError(lines_of(faults, Source()))
        content = pickle.dumps(share_of(settings, workers))
        try:
            self._capacity = await prepared_by(self.pool, content) or self._capacity
            return PreparedWorkers(await super().prepare(settings), self.pool, content)
        except BaseException:
            self._capacity = self.pool.capacity
            raise

    def _count_capacity(self) -> None:
        """Allow as many clients as the workers can serve now."""
        if self._capacity is not None:  # else the workers are being started
            self._capacity = self.pool.capacity
            self.max_connections = min(self.settings.limits.max_connections, self._capacity)
            self.shared.budget.bound_connections(self.max_connections)

    def unready(self) -> str | None:
        """Return why clients cannot be served; None if they can."""
        if not self.is_draining and not self.pool.serving:
            return "no worker serves clients"
        return super().unready()

    def preparing(self) -> str | None:
        """Return what this gate still lacks before it may take over; workers read topics first."""
        return self.unready()

    def reopen_files(self) -> None:
        """Let all processes open their audit files anew."""
        super().reopen_files()
        self.pool.broadcast(Reopen())

    # ---- workers ---------------------------------------------------------------------------------

    def parts_of(self, index: int) -> WorkerConfiguration:
        """Return what a worker is made of."""
        settings = share_of(self.settings, len(self.pool.workers))
        return WorkerConfiguration(
            index,
            settings,
            self._version,
            self.discovery.instance,
            self._secret,
            self._cluster_news(),
        )

    def received(self, message: object) -> None:
        """Take what a worker has found out."""
        match message:
            case Seen(clients):
                for client in clients:
                    self.shared.clients.add(*client)
            case ObservedRows(rows):
                self.shared.topics.learn((b"", key.topic) for key, _, is_known in rows if is_known)
                for key, row, _ in rows:
                    self.observed.merge(key, row)
            case Learned(node_id, host, port):
                try:
                    self.discovery.learn(node_id, host, port)
                except TooManyBrokersError as error:
                    self.discovery.refused(error)
            case RefreshMetadata():
                self.discovery.look()
            case AddressReached(address):
                self.discovery.reached(address)
            case AddressFailed(address, reason):
                self.discovery.failed(address, OSError(reason))
            case Ready():
                self._count_capacity()
            case Unauthenticated():
                self.discovery.answered_without_authentication()

    def asked(self, question: object) -> object:
        """Answer a worker that waits."""
        match question:
            case PortOf(listener, node_id, address):
                return self._port_of(listener, node_id, address)
            case OwnRequest(client_id):
                return self.discovery.is_own_request(client_id)
        raise AssertionError(question)

    def _port_of(self, listener: str, node_id: int, address: tuple[str, int]) -> PortAnswer:
        try:
            self.proxies[listener].cluster.listener_of(node_id, *address)
        except TooManyBrokersError as error:
            self.discovery.refused(error)
            return PortAnswer({}, (errno.ENOBUFS, str(error)))
        except OSError as error:
            return PortAnswer(
                {}, (error.errno or errno.EADDRNOTAVAIL, error.strerror or str(error))
            )
        found = {
            (name, node_id): proxy.cluster.brokers.get(node_id)
            for name, proxy in self.proxies.items()
        }
        return PortAnswer({key: one.port for key, one in found.items() if one is not None})

    def _cluster_news(self) -> ClusterNews:
        ports = {
            (name, listener.node_id): listener.port
            for name, proxy in self.proxies.items()
            for listener in proxy.cluster.listeners
        }
        known = self.discovery
        return ClusterNews(
            dict(known.brokers),
            known.cluster_id,
            known.requires_authentication,
            known.endpoints,
            ports,
        )

    async def _spread_news(self) -> None:
        """Send the workers what is new of the cluster."""
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


class _AllPages(Pages):
    """The pages of all processes of a gate."""

    def __init__(self, gate: ParentGate) -> None:
        super().__init__(gate)
        self._pool = gate.pool
        self._totals = Totals(lambda: gate.settings.metrics)
        self._asked = 0  # how often the workers were asked for their metrics
        self._processes = Processes()

    async def metrics_page(self) -> Callable[[], bytes]:
        return partial(self._merged_page, await self.families(), self._pool.pids())

    async def families(self) -> Callable[[], Iterable[Family]]:
        """Take the values of all processes; what is returned adds them up, in any thread."""
        asked = self._asked = self._asked + 1
        answers = await self._pool.ask("families", ANSWER_S)
        return partial(
            self._totals.merged,
            self.gate.metrics.families(),
            answers,
            self._pool.ended_starts(),
            asked,
        )

    def _merged_page(self, families: Callable[[], Iterable[Family]], pids: list[int]) -> bytes:
        return self.gate.metrics.format(families(), self._processes.collect(pids))

    async def clients_page(self, asked: Asked) -> Callable[[], tuple[str, bytes]]:
        await self._pool.ask("clients", ANSWER_S)
        return await super().clients_page(asked)
