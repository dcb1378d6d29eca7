"""From settings to a gate that runs: one proxy for each listener, and what they share.

Counters, the budget of bytes, the refusal log, topic policies and the ledger of senders are one for
all listeners.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import logging
import math
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from batchval.kafka_versions import Release
from batchval.ledger import ClaimsLedger
from batchval.optional import MissingExtraError
from batchval.policy import TopicPolicy
from batchval.proxy.cluster.discovery import Discovery, DiscoveryOptions
from batchval.proxy.cluster.endpoints import problem_of
from batchval.proxy.cluster.listening_sockets import ListeningSockets, Ports
from batchval.proxy.cluster.metadata_client import BrokerAddress, ClusterView
from batchval.proxy.cluster.state_file import StateFile
from batchval.proxy.kit.background_threads import in_background
from batchval.proxy.life.configured_parts import ConfiguredParts, named, options_for
from batchval.proxy.life.file_limits import connections_of, most_ports
from batchval.proxy.life.handover import Succession, TakeOver
from batchval.proxy.life.health import HealthServer
from batchval.proxy.life.listener_server import ConnectionPassing, ListenerServer, Shared
from batchval.proxy.life.reload import Step, changes_only_mode, restart_faults
from batchval.proxy.produce.broker_releases import (
    BrokerAnswer,
    BrokerReleases,
    BrokerView,
    read_broker,
)
from batchval.proxy.produce.policies import read_brokers, read_topic_configs
from batchval.proxy.produce.produce_validator import ProduceValidator
from batchval.proxy.produce.quarantine import QuarantineWriter
from batchval.proxy.session.connection_log import ConnectionLog
from batchval.proxy.session.session import Session
from batchval.proxy.settings.config import Listener, Settings
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.options import Counters, ProxyOptions, Refusal
from batchval.proxy.settings.setting_types import Address
from batchval.proxy.watch import audit_log
from batchval.proxy.watch.audit_file import AuditFile, FalseClaims
from batchval.proxy.watch.audit_log import RefusalLog, lines_left_out
from batchval.proxy.watch.clients import Asked, ClientCounts, ClientTable, page_of
from batchval.proxy.watch.metrics import Family, GateMetrics, of_clients, single
from batchval.proxy.watch.observed_batches import ObservedCounts, ObservedFile
from batchval.proxy.watch.senders import SenderTable
from batchval.yaml_settings.faults import Source, lines_of

if TYPE_CHECKING:
    from batchval.proxy.watch.otlp_export import OtlpExport

__all__ = ["Ages", "Gate", "Pages", "ParentParts", "Prepared", "Workers"]

#: Seconds between looks at the ages of requests and at the lines that the log left out.
LOOK_S: Final = 1.0
#: Seconds between two requests for the release of a broker, without ``upstream.admin``.
REFRESH_S: Final = 300.0
#: Seconds between looks at the release of the brokers that is in force.
RELEASE_LOOK_S: Final = 0.2
#: Seconds until a release that could not be taken is tried again.
RELEASE_RETRY_S: Final = 10.0
#: Seconds until the parts of earlier settings are closed: batches may wait for their answers.
RETIRE_S: Final = 60.0

log = logging.getLogger("batchval.proxy")


class Workers(Protocol):
    """The processes that serve the clients of a gate and validate their batches.

    ``attach`` gives them the parts of the gate that they tell of; ``prepare`` prepares other
    settings in them, then in this process, by ``own``; ``families`` and ``metrics_page`` have the
    values of all processes.
    """

    def attach(
        self,
        shared: Shared,
        observed: ObservedCounts,
        listeners: Mapping[str, ListenerServer],
        releases: BrokerReleases,
    ) -> None: ...
    async def start(self) -> None: ...
    async def spread_news(self) -> None: ...
    def passing(self, listener: str, shared: Shared) -> ConnectionPassing: ...
    def connections_of(self, settings: Settings) -> int: ...
    def validated(self) -> int: ...
    def unready(self) -> str | None: ...
    async def prepare(self, settings: Settings, own: Callable[[], Awaitable[Step]]) -> Step: ...
    def reopen_files(self) -> None: ...
    def pool_families(self) -> Iterator[Family]: ...
    async def families(self, own: GateMetrics) -> Callable[[], Iterable[Family]]: ...
    async def metrics_page(self, own: GateMetrics) -> Callable[[], bytes]: ...
    async def collect_clients(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ParentParts:
    """The parts of a worker's gate that its parent answers for.

    ``discovery``      knows the brokers that the parent knows
    ``ports``          those of the parent, which listens
    ``clients``        report to the table of the parent
    ``gone``           called with each session that was not admitted, or has ended
    ``connections_of`` returns the clients that the open files of a worker suffice for
    ``claims_secret``  decides which claims are sampled, the same in all workers
    ``release``        of Kafka that the brokers run, as far as the parent knows; None: not known
    """

    discovery: Discovery
    ports: Ports
    clients: ClientCounts
    gone: Callable[[Session], None]
    connections_of: Callable[[Settings], int]
    claims_secret: bytes
    release: Release | None = None


class Gate:
    """The whole gate of one process. Call ``start`` and ``stop`` on a running loop. Raises
    ConfigError where certificates or secrets cannot be read.

    ``addresses``        where each listener is, by its name
    ``metrics_at``       where /metrics is; None where it is off
    ``predecessor``      the gate that this one takes over; nothing is accepted before ``accept``
    ``succession``       takes over, and is taken over
    ``pages``            what the gate shows
    ``workers``          serve the clients and validate their batches; None: this process does
    ``parent``           of this worker, which listens, reports and keeps the files; None: this
                         process does
    """

    def __init__(
        self,
        settings: Settings,
        *,
        version: str = "",
        predecessor: TakeOver | None = None,
        workers: Workers | None = None,
        parent: ParentParts | None = None,
    ) -> None:
        self.settings = settings
        self.workers = workers
        self._parent = parent
        part = workers or parent
        self.connections_for = connections_of if part is None else part.connections_of
        self.counters = Counters()
        self.senders = SenderTable()
        self.refusals = RefusalLog(settings.log.refusals_per_second, senders=self.senders)
        # a log of its own: denied requests must not hide refused batches
        self.denials = RefusalLog(
            settings.log.refusals_per_second, what="denied requests", senders=self.senders
        )
        self.connection_log = ConnectionLog(
            settings.log.connections_per_second, senders=self.senders
        )
        self.audit_file = AuditFile.made(settings.log)
        self.metrics = GateMetrics(
            self.counters,
            mode=settings.mode,
            version=version,
            topics=settings.metrics.topics,
            is_known=self._is_known_topic,
        )
        self.observed = ObservedCounts(
            settings.mode,
            is_known=self._is_known_topic,
            judged=(lambda: self.counters.produce_partitions_total)
            if workers is None
            else workers.validated,
        )
        folder = settings.state_folder
        self.observed_file = None if folder is None else ObservedFile(folder, self.observed)
        self.broker_releases = BrokerReleases(self._named_brokers, self._read_broker, REFRESH_S)
        if parent is not None and parent.release is not None:
            self.broker_releases.follow(parent.release)
        detected = self.broker_releases.release
        self.hold(ConfiguredParts(settings, self.read_topics, detected=detected))
        self.quarantine = (
            QuarantineWriter.made(settings.quarantine, version) if workers is None else None
        )
        self.discovery = (
            Discovery(self.discovery_options(self.parts)) if parent is None else parent.discovery
        )
        if predecessor is not None:
            self.discovery.inherit(predecessor.state)
        self.ports = ListeningSockets(None if predecessor is None else predecessor.sockets)
        self.ports.most = most_ports(settings)
        if predecessor is not None:
            self.ports.shared_until = math.inf
        options = self.options_of(self.parts)
        self.clients = ClientTable()
        self.shared = Shared.made(
            next(iter(options.values())),
            self.counters,
            self.discovery,
            self.ports if parent is None else parent.ports,
            self.connection_log,
            self.senders,
            self.clients if parent is None else parent.clients,
        )
        self.proxies = {name: self._proxy(each) for name, each in options.items()}
        self.ledger: ClaimsLedger | None = None
        for proxy in self.proxies.values():
            proxy.accepts = predecessor is None
            if proxy.gate.ledger is not None:
                # a false claim on one listener is known at the others
                self.ledger = proxy.gate.ledger = self.ledger or proxy.gate.ledger
                self.metrics.add_ledger(self.ledger)
        self.pages = Pages(self)
        self.health = HealthServer(
            self.pages.metrics_page,
            self.unready,
            self.pages.clients_page,
            allowed_hosts=self.pages.allowed_hosts,
            warnings=self.warnings,
        )
        self.succession = Succession(
            predecessor,
            self.ports,
            self.discovery,
            self.observed_file,
            self.health,
            is_ending=lambda: self.is_draining,
            unready=self.unready,
        )
        self.metrics_at: Address | None = None
        self._false_claims = FalseClaims()
        self._metrics_sockets: list[socket.socket] = []
        self.is_draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._topics_task: asyncio.Task[None] | None = None
        self._releases_task: asyncio.Task[None] | None = None
        self._retired: list[tuple[ConfiguredParts, list[ProduceValidator]]] = []
        self.otlp = self.pages.export(version) if parent is None else None
        self.pages.watch()
        if workers is not None:
            workers.attach(self.shared, self.observed, self.proxies, self.broker_releases)
            self.metrics.add(workers.pool_families)

    # ---- what it is made of ----------------------------------------------------------------------

    def hold(self, parts: ConfiguredParts) -> None:
        """Use these parts from now on: they are looked up at each use."""
        self.parts = parts
        self.settings = parts.settings
        self.upstream_tls = parts.upstream_tls
        self.cluster_topics = parts.cluster_topics
        self.record_parts = parts.record_parts
        self._named_topics = parts.named_topics

    def options_of(self, parts: ConfiguredParts) -> dict[str, ProxyOptions]:
        """Return the options of each listener, by its name."""
        return {one.name: self._options(one, parts) for one in parts.settings.listeners}

    def _options(self, listener: Listener, parts: ConfiguredParts) -> ProxyOptions:
        refused, denied = self._refused, self.denials.denied
        options = options_for(
            listener, parts, on_refusal=refused, on_denied=denied, quarantine=self.quarantine
        )
        options.claims_secret = None if self._parent is None else self._parent.claims_secret
        return options

    def discovery_options(self, parts: ConfiguredParts) -> DiscoveryOptions:
        """Return how the brokers are found."""
        settings, admin = parts.settings, parts.settings.upstream.admin
        directory = settings.state_folder
        return DiscoveryOptions(
            bootstrap=settings.upstream.bootstrap,
            tls=None if parts.upstream_tls is None else self._upstream_context,
            find_brokers=None if admin is None else self._find_brokers,
            authenticates=admin is not None and admin.mechanism != "NONE",
            connect_s=settings.upstream.connect_timeout_ms / 1000,
            state=None if directory is None else StateFile(directory),
        )

    def _proxy(self, options: ProxyOptions) -> ListenerServer:
        """Return what serves one listener."""
        if self.workers is not None:
            passing = self.workers.passing(options.listener.name, self.shared)
            return ListenerServer(options, shared=self.shared, passing=passing)
        if self._parent is not None:
            return ListenerServer(options, shared=self.shared, gone=self._parent.gone)
        return ListenerServer(options, shared=self.shared)

    def _upstream_context(self) -> ssl.SSLContext:
        assert self.upstream_tls is not None
        return self.upstream_tls

    async def _find_brokers(self, address: BrokerAddress, client_id: str) -> ClusterView:
        return await read_brokers(self.settings.upstream, self.upstream_tls, address, client_id)

    async def read_topics(self, topics: Iterable[str] | None) -> Mapping[str, TopicPolicy]:
        addresses = self.discovery.addresses()
        return await read_topic_configs(
            self.settings.upstream,
            self.upstream_tls,
            topics,
            addresses,
            kafka_version=self.parts.release,
        )

    def _named_brokers(self) -> Mapping[int, BrokerView]:
        known = self.discovery
        found = {}
        for node_id in known.named_brokers():
            if addresses := known.addresses(node_id):
                found[node_id] = BrokerView(tuple(addresses), known.is_away(node_id))
        return found

    async def _read_broker(self, address: BrokerAddress, topic: str | None) -> BrokerAnswer:
        return await read_broker(self.settings.upstream, self.upstream_tls, address, topic)

    def _refused(self, refusal: Refusal) -> None:
        self.metrics.topics(refusal)
        self.observed(refusal)
        self.refusals(refusal)
        if self.audit_file is not None:
            self.audit_file(refusal)

    def _is_known_topic(self, topic: str) -> bool:
        """Return whether the settings or the cluster have this topic."""
        if topic in self._named_topics or self.shared.topics.is_known(topic):
            return True
        return self.cluster_topics is not None and topic in self.cluster_topics

    # ---- its life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen on all addresses. Raises OSError where one cannot be bound, and opens none."""
        if self.observed_file is not None and self.succession.predecessor is None:
            self.observed_file.load()
        self._bound_connections()
        if self._parent is None:
            self._log_absent()
        started = []
        try:
            self._open_audit_file()
            for listener in self.settings.listeners:
                with _listening(listener.address):
                    await self.proxies[listener.name].start()
                started.append(self.proxies[listener.name])
            if (address := self.settings.metrics.address) is not None:
                with _listening(address):
                    await self._open_metrics(address)
            # last: the caller prints the addresses before discovery logs what it finds
            await self.discovery.start()
        except BaseException:
            await self.discovery.stop()
            for proxy in started:
                await proxy.stop(0)
            if self.audit_file is not None:
                self.audit_file.stop()
            raise
        if self.succession.predecessor is None:
            self.health.accept(self._metrics_sockets)
            if self.observed_file is not None:
                self.observed_file.start()
        if self.quarantine is not None:
            self.quarantine.start()
        self._tasks = [asyncio.create_task(self._look())]
        if self.otlp is not None:
            self.otlp.start()
        self.start_validation()
        self.read_topics_anew()
        self.read_releases_anew()
        if self.workers is None:
            self._tasks.append(asyncio.create_task(self._follow_release()))
        else:
            await self._start_workers(self.workers)

    async def _start_workers(self, workers: Workers) -> None:
        try:
            await workers.start()
        except BaseException:
            await self.stop(0)
            raise
        self._bound_connections()
        self._tasks.append(asyncio.create_task(workers.spread_news()))

    def start_validation(self) -> None:
        """Start the parts that check records, where this process does."""
        if self.workers is None:
            self.record_parts.start()

    def _log_absent(self) -> None:
        """Log what follows from settings that are not there."""
        if "mode" not in self.settings.model_fields_set:
            log.warning(
                "this gate observes, because no mode is set: batches that break a rule are "
                "forwarded, counted and logged. Set mode: enforce to refuse them, or mode: observe "
                "to leave out this line"
            )
        if self.cluster_topics is None and not self.settings.topics.policies:
            log.info(
                "no topic limits are known: the gate limits no topic. "
                "Set topics.policies, or upstream.admin to read them from the cluster"
            )

    def _open_audit_file(self) -> None:
        if self.audit_file is not None:
            try:
                self.audit_file.start()
            except OSError as error:
                text = f"log.audit_file {self.audit_file.path} cannot be opened: {error.strerror}"
                raise OSError(error.errno, text) from None

    def reopen_files(self) -> None:
        """Open the audit files anew: their names may stand for other files now."""
        if self.audit_file is not None:
            self.audit_file.reopen()
        if self.workers is not None:
            self.workers.reopen_files()

    async def _open_metrics(self, address: Address) -> None:
        socks = self.ports.open_metrics(*address) or await self.health.bound(*address)
        self.ports.keep_metrics(socks)
        self._metrics_sockets = socks
        self.metrics_at = Address(*socks[0].getsockname()[:2])

    def _bound_connections(self) -> None:
        """Allow as many clients as the open files suffice for. Raises OSError."""
        self.shared.budget.bound_connections(self.connections_for(self.settings))

    @property
    def max_connections(self) -> int:
        """Return how many clients there may be."""
        return self.shared.budget.max_connections

    # ---- the hand-over ---------------------------------------------------------------------------

    def preparing(self) -> str | None:
        """Return what this gate still lacks before it may take over; None: nothing."""
        topics = self.cluster_topics if self.workers is None else None  # workers read their own
        if topics is not None and topics.is_awaited:
            return "the configurations of topics are being read"
        if self.asks_releases and self.broker_releases.is_awaited:
            return "the releases of brokers are being read"
        return self.unready()

    def accept(self) -> None:
        """Accept connections at the sockets of the gate that is taken over; close unused ones."""
        for proxy in self.proxies.values():
            proxy.accept()
        self.health.accept(self._metrics_sockets)
        self.ports.close_unused()
        self.discovery.own_file()

    def succeeded(self) -> None:
        """Note that the other gate does not accept any more; its end is awaited in a task."""
        self.succession.succeeded()

    # ---- its end ---------------------------------------------------------------------------------

    def leave(self) -> None:
        """Let /readyz say that this gate ends, and serve on."""
        self.is_draining = True

    async def stop(self, drain_s: float | None = None) -> None:
        """Stop accepting, deliver answers for ``drain_s`` (None: the settings'), and end."""
        self.is_draining = True  # /readyz says so first, for as long as it lasts
        drain_s = self.settings.limits.drain_timeout_ms / 1000 if drain_s is None else drain_s
        await asyncio.gather(*(proxy.stop(drain_s) for proxy in self.proxies.values()))
        await self.discovery.stop()
        own = (*self._tasks, self._topics_task, self._releases_task)
        tasks = [task for task in own if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.health.stop()
        if self.otlp is not None:
            await self.otlp.stop()
        for sock in self._metrics_sockets:  # where nothing has been accepted yet
            sock.close()
        self._close_retired(len(self._retired))
        self.record_parts.close()
        if self.quarantine is not None:
            await asyncio.to_thread(self.quarantine.stop)
        self.refusals.flush()
        self.denials.flush()
        if self.audit_file is not None:
            await asyncio.to_thread(self.audit_file.stop)
        await self.succession.stop()
        self.connection_log.flush()
        if self.observed_file is not None:
            await self.observed_file.stop()

    # ---- other settings --------------------------------------------------------------------------

    async def prepare(self, settings: Settings) -> Step:
        """Prepare other settings, in a thread; ``apply`` takes them. Raises ConfigError."""
        own = partial(in_background, partial(Prepared, self, settings))
        return await (own() if self.workers is None else self.workers.prepare(settings, own))

    def read_topics_anew(self) -> None:
        """Read topic configurations now, and from now on as the settings ask; workers read their
        own.
        """
        if self._topics_task is not None:
            self._topics_task.cancel()
            self._topics_task = None
        if self.cluster_topics is not None and self.workers is None:
            self.cluster_topics.refresh_s = self.parts.refresh_s
            self._topics_task = asyncio.create_task(self.cluster_topics.run())

    @property
    def asks_releases(self) -> bool:
        """Return whether this process asks brokers for their releases; workers follow its news."""
        return self.settings.validation.release is None and self._parent is None

    def read_releases_anew(self) -> None:
        """Ask brokers for their releases from now on, where the settings ask for it."""
        if self._releases_task is not None:
            self._releases_task.cancel()
            self._releases_task = None
        if self.asks_releases:
            self.broker_releases.refresh_s = self.parts.refresh_s or REFRESH_S
            self._releases_task = asyncio.create_task(self.broker_releases.run())

    async def _follow_release(self) -> None:
        """Validate as the release of the brokers does, whenever another one is in force."""
        while True:
            try:
                await self._take_release()
            except Exception:  # a defect must not end it: the gate goes on as it was
                log.exception("the release of the brokers could not be taken")
                await asyncio.sleep(RELEASE_RETRY_S)
            await asyncio.sleep(RELEASE_LOOK_S)

    async def _take_release(self) -> None:
        parts, release = self.parts, self.broker_releases.release
        if self.settings.validation.release is not None or parts.release == release:
            return
        step = await in_background(partial(Prepared, self, self.settings, release))
        if self.parts is parts:  # else other settings were taken meanwhile: prepared again
            step.apply()

    def release_families(self) -> Iterator[Family]:
        """Yield the metrics about releases of Kafka; a worker has none of its own."""
        if self._parent is not None:
            return
        release = self.settings.validation.release or self.broker_releases.release
        text = "1: the release of Kafka as which the gate answers."
        samples = [((release.name,), 1.0)]
        yield Family("gauge", "kafka_version", text, ("release",), samples, "max")
        if self.asks_releases:
            yield from self.broker_releases.families()

    def retire(self, parts: ConfiguredParts, gates: list[ProduceValidator]) -> None:
        """Close what was used before, once nobody waits for an answer of it any more."""
        self._retired.append((parts, gates))
        asyncio.get_running_loop().call_later(RETIRE_S, self._close_retired, 1)

    def _close_retired(self, count: int) -> None:
        """Close the oldest of what was retired; a thread frees it, since that may take long."""
        retired, self._retired = self._retired[:count], self._retired[count:]
        used = [parts.record_parts for parts, _ in self._retired]
        for parts, _ in retired:
            parts.record_parts.close(self.record_parts, *used)
        if retired:
            threading.Thread(target=retired.clear, daemon=True).start()

    def unready(self) -> str | None:
        """Return why clients cannot be served; None if they can."""
        if self.is_draining:
            return "draining"
        workers_unready = None if self.workers is None else self.workers.unready()
        return workers_unready or self.discovery.unready()

    def admin_problem(self) -> str:
        """Return why brokers refuse the login of ``upstream.admin``; "" where none does."""
        if self.settings.upstream.admin is None:
            return ""
        topics = self.cluster_topics
        refused = topics.problem if topics is not None and topics.is_refused else ""
        return self.discovery.admin_problem or refused

    def warnings(self) -> Iterator[str]:
        """Yield what is wrong while clients are served all the same, a line each."""
        if problem := self.admin_problem():
            yield f"the login of upstream.admin is refused: {problem}"
        if self.cluster_topics is not None and (problem := self.cluster_topics.problem):
            yield f"topic configurations cannot be read: {problem}"
        if self.asks_releases and (problem := self.broker_releases.problem):
            yield f"the release of a broker cannot be read: {problem}"

    @property
    def addresses(self) -> dict[str, Address]:
        """Return the bootstrap address of each listener, by its name."""
        return {name: Address(*proxy.bootstrap) for name, proxy in self.proxies.items()}

    async def _look(self) -> None:
        while True:
            await self.pages.oldest.look(list(self.pages.sessions()))
            self.refusals.flush()
            self.denials.flush()
            self.connection_log.flush()
            await self._false_claims.look(self.ledger)
            await asyncio.sleep(LOOK_S)


@contextlib.contextmanager
def _listening(address: Address) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = f"cannot listen on {address}: {problem_of(error)}"
        raise OSError(error.errno, text) from None


#: Connections that are looked at in one turn of the event loop: some 0.1 ms.
LOOKED_A_TURN: Final = 500


class Ages:
    """The time for which the oldest request has waited, measured outside of the sessions."""

    def __init__(self) -> None:
        self.oldest_s = 0.0
        self._first: dict[object, tuple[object, float]] = {}

    async def look(self, connections: Sequence[Any]) -> None:
        """Look at all connections, some in each turn of the loop. Calls must not overlap."""
        now = oldest = asyncio.get_running_loop().time()
        before, self._first = self._first, {}
        for begin in range(0, len(connections), LOOKED_A_TURN):
            for connection in connections[begin : begin + LOOKED_A_TURN]:
                known = before.pop(connection, None)
                answers = connection.requests.answers
                if answers:
                    first = answers[0]
                    if known is None or known[0] is not first:
                        known = first, now
                    self._first[connection] = known
                    oldest = min(oldest, known[1])
            await asyncio.sleep(0)
        self.oldest_s = now - oldest


#: Sessions whose requests are collected in one turn of the loop, before /clients is answered.
COLLECTED_A_TURN: Final = 100


class Pages:
    """The pages of one gate; ``oldest`` is how long the oldest requests have waited."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.oldest = Ages()

    def watch(self) -> None:
        """Show in the metrics what the parts of the gate count."""
        gate = self.gate
        gate.metrics.add(partial(of_clients, gate.clients))
        gate.metrics.add(self._families)
        parts = (gate.shared.traffic, gate.connection_log, gate.quarantine, gate.audit_file)
        for part in parts:
            if part is not None:
                gate.metrics.add(part.families)

    def sessions(self) -> Iterator[Session]:
        """Yield all sessions of the gate."""
        return (one for proxy in self.gate.proxies.values() for one in proxy.connections)

    def _families(self) -> Iterator[Family]:
        """Yield the metrics of the gate itself, and of what a reload may replace."""
        gate = self.gate
        waiting = sum(len(one.requests.answers) for one in self.sessions())
        yield single("gauge", "requests_in_flight", "Requests that await an answer.", waiting)
        text = "Seconds that the oldest request has waited."
        yield single("gauge", "oldest_request_age_seconds", text, self.oldest.oldest_s, "max")
        ready = float(gate.unready() is None)
        yield single("gauge", "ready", "1 where clients can be served.", ready, "min")
        text = "Denied requests without a log line."
        yield single("counter", "log_denied_left_out", text, gate.denials.suppressed_total)
        text = "Refused, observed and reported batches without a log line."
        yield single("counter", "log_refusals_left_out", text, gate.refusals.suppressed_total)
        known = gate.discovery
        yield single("gauge", "brokers", "Brokers that are known.", len(known.brokers), "max")
        text = "Answers of brokers that name too many brokers, which were refused."
        yield single("counter", "broker_answers_refused", text, known.answers_refused_total)
        text = "Brokers that were forgotten, and their ports closed: no answer named them any more."
        yield single("counter", "brokers_forgotten", text, known.forgotten_total)
        text = "Log lines about brokers that were left out."
        yield single("counter", "log_brokers_left_out", text, known.lines.left_out_total)
        text = "Log lines that stderr did not take."
        yield single("counter", "log_lines_left_out", text, lines_left_out())
        if (file := gate.observed_file) is not None:
            text = "Counts of refusals that could not be written."
            yield single("counter", "observed_file_failures", text, file.failures_total)
        if gate.otlp is not None:
            text = "Exports of metrics that the collector has taken."
            yield single("counter", "otlp_exports", text, gate.otlp.exports_total)
            text = "Exports of metrics that failed."
            yield single("counter", "otlp_failures", text, gate.otlp.failures_total)
        if gate.settings.upstream.admin is not None:
            text = "1 while brokers refuse the login of upstream.admin."
            yield single("gauge", "admin_refused", text, float(bool(gate.admin_problem())), "max")
        yield from gate.release_families()
        yield from gate.record_parts.families()
        if (topics := self.gate.cluster_topics) is None:
            return
        text = "Topics whose configuration is known."
        yield single("gauge", "topic_configs", text, len(topics), "max")
        text = "Seconds since all topic configurations were read; -1 before the first time."
        yield single("gauge", "topic_configs_age_seconds", text, topics.age_s, "max")
        text = "1 while topic configurations cannot be read: limits are unknown, or may be old."
        yield single("gauge", "topic_configs_unread", text, float(bool(topics.problem)), "max")
        text = "Attempts to read topic configurations that failed."
        yield single("counter", "topic_config_failures", text, topics.failures_total)

    async def metrics_page(self) -> Callable[[], bytes]:
        """Take the values of /metrics; what is returned writes them, in any thread."""
        if self.gate.workers is not None:
            return await self.gate.workers.metrics_page(self.gate.metrics)
        self.gate.shared.budget.measure()
        return self.gate.metrics.page()

    def allowed_hosts(self) -> frozenset[str]:
        """Return the names by which /clients may be asked for, as the settings are now."""
        metrics = self.gate.settings.metrics
        own = "" if metrics.address is None else metrics.address.host
        return frozenset(name.lower() for name in (own, *metrics.allowed_hosts) if name)

    async def clients_page(self, asked: Asked) -> Callable[[], tuple[str, bytes]]:
        """Take the table of /clients; what is returned writes it, in any thread."""
        if self.gate.workers is not None:
            await self.gate.workers.collect_clients()
        await self.collect_clients()
        raised = next(iter(self.gate.proxies.values())).raised
        return page_of(self.gate.clients, raised, asked)

    async def collect_clients(self) -> None:
        """Enter the clients' requests that have not been collected yet into the table."""
        for proxy in self.gate.proxies.values():
            for n, session in enumerate(list(proxy.connections)):
                session.seen_client.collect()
                if n % COLLECTED_A_TURN == COLLECTED_A_TURN - 1:
                    await asyncio.sleep(0)

    async def families(self) -> Callable[[], Iterable[Family]]:
        """Take the values of the whole gate; what is returned gives its families, in any thread."""
        if self.gate.workers is not None:
            return await self.gate.workers.families(self.gate.metrics)
        self.gate.shared.budget.measure()
        families = self.gate.metrics.families()
        return lambda: families

    def export(self, version: str) -> OtlpExport | None:
        """Return the exporter of metrics to a collector, if one is set. Raises ConfigError."""
        settings = self.gate.settings
        otlp = settings.metrics.otlp
        if otlp is None:
            return None
        try:
            from batchval.proxy.watch.otlp_export import OtlpExport
        except MissingExtraError as error:
            raise ConfigError([f"metrics.otlp: {error}"]) from None
        with named("metrics.otlp.headers"):
            return OtlpExport(otlp, self.families, version=version, mode=settings.mode)


#: Topics whose validators are compiled before the swap: those that clients have used first.
MAX_WARMED_TOPICS: Final = 1_000


class Prepared:
    """Other settings for a running gate, with all that they need. Any thread may make them. Raises
    ConfigError. Where only the mode is new, or the ``release`` of the brokers, no file is read.

    One that is not applied needs no end: nothing runs before ``apply``.
    """

    def __init__(self, gate: Gate, settings: Settings, release: Release | None = None) -> None:
        faults = list(restart_faults(gate.settings, settings))
        if faults:
            raise ConfigError(lines_of(faults, Source()))
        try:
            self.max_connections = gate.connections_for(settings)
        except OSError as error:
            raise ConfigError([f"limits.max_connections: {error.strerror}"]) from None
        if release is not None:
            self.parts, self.exporter = gate.parts.for_release(release), None
        elif changes_only_mode(gate.settings, settings):
            self.parts, self.exporter = gate.parts.for_mode_of(settings), None
        else:
            detected = gate.broker_releases.release
            self.parts = ConfiguredParts(settings, gate.read_topics, gate.parts, detected=detected)
            with named("metrics.otlp.headers"):
                self.exporter = None if gate.otlp is None else gate.otlp.renewed()
        self.options = gate.options_of(self.parts)
        self._gate = gate
        self.gates = {
            name: gate.proxies[name].gate_of(options) for name, options in self.options.items()
        }
        self._share_ledger()
        self._warm()

    def _share_ledger(self) -> None:
        """Let all listeners have one ledger: the running gate's, if it has one."""
        self.ledger = self._gate.ledger
        for one in self.gates.values():
            if one.ledger is not None:
                self.ledger = self.ledger or one.ledger
                one.ledger = self.ledger

    def _warm(self) -> None:
        """Compile what the first requests after the swap would compile on the event loop."""
        settings = self.parts.settings
        for glob in [rule.match for rule in settings.topics.policies]:
            fnmatch.fnmatchcase("", glob)  # keeps the pattern
        names = self._gate.parts.asked_topics()[:MAX_WARMED_TOPICS]
        for one in self.gates.values():
            _compile(one, names)

    def apply(self) -> None:
        """Take the settings. On the event loop."""
        gate, parts, settings = self._gate, self.parts, self.parts.settings
        before = gate.parts
        gate.hold(parts)
        audit_log.change(settings.log)
        gate.refusals.bound(settings.log.refusals_per_second)
        gate.denials.bound(settings.log.refusals_per_second)
        gate.connection_log.bound(settings.log.connections_per_second)
        if gate.audit_file is not None:
            gate.audit_file.follow(settings.log)
        gate.metrics.name_mode(settings.mode)
        gate.metrics.topics.most = settings.metrics.topics
        gate.shared.traffic.nodes = settings.metrics.nodes
        gate.observed.mode = settings.mode
        if gate.otlp is not None and self.exporter is not None:
            gate.otlp.use(self.exporter)
        self._apply_ledger()
        gate.shared.budget.use(settings.limits, self.max_connections)
        gate.shared.validation.use(settings.limits.threads)
        gate.start_validation()
        if settings.upstream != before.settings.upstream:
            gate.discovery.use(gate.discovery_options(parts))
        if (
            settings.upstream != before.settings.upstream
            or parts.cluster_topics is not before.cluster_topics
        ):
            gate.read_topics_anew()
        if (
            settings.upstream != before.settings.upstream
            or settings.validation.kafka_version != before.settings.validation.kafka_version
        ):
            gate.read_releases_anew()
        gate.retire(before, [proxy.gate for proxy in gate.proxies.values()])
        for name, proxy in gate.proxies.items():
            proxy.use(self.options[name], self.gates[name])

    def _apply_ledger(self) -> None:
        gate, policy = self._gate, self.parts.settings.claims_in
        gate.ledger = self.ledger
        if self.ledger is not None and policy.word != "ignore":
            self.ledger.follow(policy)
            gate.metrics.add_ledger(self.ledger)


def _compile(gate: ProduceValidator, names: list[str]) -> None:
    for name in names:
        gate.validators_of(name)
