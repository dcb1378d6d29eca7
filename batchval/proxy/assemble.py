"""From settings to a gate that runs: one proxy for each listener, and what they share.

Counters, the budget of bytes, the refusal log, topic policies and the ledger of senders are one for all listeners.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from batchval.optional import MissingExtraError
from batchval.policy import TopicPolicy
from batchval.proxy.audit_log import RefusalLog
from batchval.proxy.clients_page import Asked, page_of
from batchval.proxy.config import Listener, Settings
from batchval.proxy.connection_log import ConnectionLog
from batchval.proxy.control import Offer
from batchval.proxy.discovery import Discovery, DiscoveryOptions
from batchval.proxy.handover import TakeOver
from batchval.proxy.handover_messages import HandOverError
from batchval.proxy.health import MOST_CONNECTIONS, HealthServer
from batchval.proxy.host_patterns import ServerNames
from batchval.proxy.listening_sockets import ListeningSockets
from batchval.proxy.loading import ConfigError
from batchval.proxy.metadata_client import BrokerAddress, ClusterView
from batchval.proxy.metrics import Family, GateMetrics
from batchval.proxy.observed import ObservedCounts
from batchval.proxy.observed_file import ObservedFile
from batchval.proxy.open_files import connections_allowed, raise_limit, reserve_for
from batchval.proxy.options import Counters, Limits, ObserveGlobs, ProxyOptions, Refusal, TopicPolicies
from batchval.proxy.policies import UNBOUNDED, ClusterTopics, TopicLookup, read_brokers, read_topic_configs
from batchval.proxy.record_parts import RecordParts
from batchval.proxy.server import Proxy, Shared
from batchval.proxy.state_file import StateFile
from batchval.proxy.tls import ListenerContext, UpstreamContext, identity_of, subject_of
from batchval.proxy.values import Address

if TYPE_CHECKING:
    from batchval.proxy.otlp_export import OtlpExport

__all__ = ["RunningGate"]

#: Between looks at how long requests have waited, and whether the cluster can be reached.
LOOK_S: Final = 1.0
#: At the end of a gate, for the end of the one that it has taken over.
FOLLOW_S: Final = 10.0
#: Sessions whose requests are collected in one turn of the loop, before /clients is answered.
COLLECTED_A_TURN: Final = 100

log = logging.getLogger("batchval.proxy")


class RunningGate:
    """All of it. ``start`` and ``stop`` on a running loop. ConfigError where certificates or secrets cannot be read.

    ``addresses``       where each listener is, by its name;  ``metrics_at`` where /metrics is, None where it is off
    ``max_connections`` of clients: fewer than in the settings where open files do not suffice
    ``predecessor``     the gate that this one takes over: it accepts nothing until ``accept``
    """

    def __init__(self, settings: Settings, *, version: str = "", predecessor: TakeOver | None = None) -> None:
        self.settings = settings
        self.counters = Counters()
        self.refusals = RefusalLog(settings.log.refusals_per_second)
        self.connection_log = ConnectionLog(settings.log.connections_per_second)
        self._named_topics = {rule.match for rule in settings.topics.policies if not set(rule.match) & set("*?[")}
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
            judged=self._judged,
        )
        folder = settings.state_folder
        self.observed_file = None if folder is None else ObservedFile(folder, self.observed)
        self.upstream_tls = None if settings.upstream.tls is None else UpstreamContext(settings.upstream.tls)
        self.listener_tls = {one.name: ListenerContext(one.tls) for one in settings.listeners if one.tls is not None}
        self.cluster_topics: ClusterTopics | None = None
        admin = settings.upstream.admin
        if settings.reads_topic_configs and admin is not None:
            if admin.password is not None:
                with _named("upstream.admin.password"):
                    admin.password.reveal()
            self.cluster_topics = ClusterTopics(self._read_topics, admin.refresh_ms / 1000)
        self.record_parts = RecordParts(settings)
        topics = self._topics()
        self.discovery = self._discovery()
        self.predecessor = predecessor
        if predecessor is not None:
            self.discovery.inherit(predecessor.state)
        self.ports = ListeningSockets(None if predecessor is None else predecessor.sockets)
        options = {one.name: self._options(one, topics) for one in settings.listeners}
        self.shared = self._shared(next(iter(options.values())))
        self.proxies = {name: self._proxy(each) for name, each in options.items()}
        for proxy in self.proxies.values():
            proxy.accepts = predecessor is None
            if proxy.gate.ledger is not None:
                # a lie that came by one door is known at the others
                proxy.gate.ledger = next(p.gate.ledger for p in self.proxies.values() if p.gate.ledger is not None)
                self.metrics.add_ledger(proxy.gate.ledger)
        self.health = HealthServer(self._metrics_page, self.unready, self._clients_page)
        self.metrics_at: Address | None = None
        self.max_connections = settings.limits.max_connections
        self._ages = _Ages()
        self._metrics_sockets: list[socket.socket] = []
        self._following: asyncio.Task[None] | None = None
        self._draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self.otlp = self._export(version)
        self._watch()

    # ---- what it is made of ------------------------------------------------------------------------------------------

    def _options(self, listener: Listener, topics: TopicPolicies) -> ProxyOptions:
        settings, limits = self.settings, self.settings.limits
        tls = self.listener_tls.get(listener.name)
        return ProxyOptions(
            listen=(listener.address.host or "0.0.0.0", listener.address.port),
            upstream=self.discovery.options.bootstrap,
            advertised_host=listener.advertised_host,
            advertised_port=listener.advertised_port,
            advertised_first_port=listener.advertised_first_port,
            sni=None if listener.sni is None else ServerNames(*listener.sni.names),
            first_broker_port=listener.first_broker_port,
            broker_ports=listener.broker_ports,
            state_directory=settings.state_folder,
            mode=settings.mode,
            observe=tuple(ObserveGlobs(rule.topics, rule.principals) for rule in settings.observe),
            topics=topics,
            validator={
                "mode": settings.validation.rules,
                "kafka_version": settings.validation.kafka_version,
                "extras": settings.validation.all_extras,
                "max_decompressed_bytes": settings.validation.max_decompressed_bytes,
            },
            claims_in=settings.claims_in_of(listener),
            claims_out=settings.claims_out,
            bridge=frozenset(settings.bridge),
            bridge_isolation_level=settings.bridge_isolation_level,
            listener_name=listener.name,
            listen_tls=None if tls is None else partial(getattr, tls, "context"),
            upstream_tls=None if self.upstream_tls is None else self._upstream_context,
            sender=identity_of,
            principal=_principal,
            limits=Limits(
                max_frame_bytes=limits.max_frame_bytes,
                max_connections=limits.max_connections,
                max_listener_connections=listener.max_connections or limits.max_connections,
                max_bytes_held=limits.max_bytes_held,
                write_buffer=limits.write_buffer_bytes,
                max_waiting=limits.max_requests_waiting,
                handshake_s=limits.handshake_timeout_ms / 1000,
                idle_s=limits.idle_timeout_ms / 1000,
                connect_s=settings.upstream.connect_timeout_ms / 1000,
                linger_s=max(limits.drain_timeout_ms / 1000, 0.1),
                peer_timeout_s=limits.peer_timeout_ms / 1000,
                max_partitions=limits.max_partitions_per_request,
                max_address_connections=limits.max_connections_per_address,
                max_unauthenticated_frame_bytes=limits.max_unauthenticated_frame_bytes,
                frame_s=limits.frame_timeout_ms / 1000,
                max_age_s=None if limits.max_connection_age_ms is None else limits.max_connection_age_ms / 1000,
            ),
            threads=limits.threads,
            on_refusal=self._refused,
        )

    def _topics(self) -> TopicPolicies:
        rules, kafka_version = self.settings.topics.policies, self.settings.validation.kafka_version
        if self.cluster_topics is None:
            globs: dict[str, TopicPolicy] = {}
            for rule in rules:  # the first that matches
                policy = UNBOUNDED if rule.leaves_configuration else rule.policy(kafka_version)
                globs.setdefault(rule.match, policy)
            return TopicPolicies(UNBOUNDED, globs, self.record_parts.topic_rules)
        topics = TopicPolicies(UNBOUNDED, rules=self.record_parts.topic_rules)
        topics.known = TopicLookup(rules, self.cluster_topics, kafka_version=kafka_version)
        return topics

    def _discovery(self) -> Discovery:
        settings, admin = self.settings, self.settings.upstream.admin
        directory = settings.state_folder
        return Discovery(
            DiscoveryOptions(
                bootstrap=tuple((one.host, one.port) for one in settings.upstream.bootstrap),
                tls=None if self.upstream_tls is None else self._upstream_context,
                find_brokers=None if admin is None else self._find_brokers,
                authenticates=admin is not None and admin.mechanism != "NONE",
                connect_s=settings.upstream.connect_timeout_ms / 1000,
                state=None if directory is None else StateFile(directory),
            )
        )

    def _shared(self, options: ProxyOptions) -> Shared:
        """Return what all listeners share."""
        return Shared.made(options, self.counters, self.discovery, self.ports, self.connection_log)

    def _proxy(self, options: ProxyOptions) -> Proxy:
        """Return what serves one listener."""
        return Proxy(options, shared=self.shared)

    def _judged(self) -> int:
        """Return how many batches have been judged."""
        return self.counters.produce_partitions_total

    def _upstream_context(self) -> Any:
        assert self.upstream_tls is not None
        return self.upstream_tls.context

    async def _find_brokers(self, address: BrokerAddress, client_id: str) -> ClusterView:
        return await read_brokers(self.settings.upstream, self.upstream_tls, address, client_id)

    async def _read_topics(self, topics: Iterable[str] | None) -> Mapping[str, TopicPolicy]:
        addresses = self.discovery.addresses()
        return await read_topic_configs(self.settings.upstream, self.upstream_tls, topics, addresses)

    def _refused(self, refusal: Refusal) -> None:
        self.metrics.topics(refusal)
        self.observed(refusal)
        self.refusals(refusal)

    def _is_known_topic(self, topic: str) -> bool:
        """Return whether the settings or the cluster have this topic."""
        if topic in self._named_topics or self.shared.topics.is_known(topic):
            return True
        return self.cluster_topics is not None and topic in self.cluster_topics

    def _watch(self) -> None:
        metrics = self.metrics
        metrics.add_clients(self.shared.clients)
        metrics.watch("requests_in_flight", "Requests that await an answer.", self._in_flight)
        text = "How long the oldest has waited."
        metrics.watch("oldest_request_age_seconds", text, lambda: self._ages.oldest_s, "max")
        metrics.watch("ready", "1 where clients can be served.", lambda: float(self.unready() is None), "min")
        self.shared.traffic.nodes = self.settings.metrics.nodes
        metrics.add(self.shared.traffic.families)
        if self.otlp is not None:
            metrics.add(partial(_otlp_families, self.otlp))
        metrics.add(self.record_parts.families)
        metrics.count("log_refusals_left_out", "Refusals without a log line.", lambda: self.refusals.suppressed_total)
        metrics.add(self.connection_log.families)
        if (file := self.observed_file) is not None:
            metrics.count(
                "observed_file_failures", "Counts of refusals that could not be written.", lambda: file.failures_total
            )
        if (topics := self.cluster_topics) is not None:
            metrics.watch("topic_configs", "Topics whose configuration is known.", lambda: len(topics), "max")
            metrics.watch("topic_configs_age_seconds", "Since all were read; -1: never.", lambda: topics.age_s, "max")
            metrics.count("topic_config_failures", "Attempts that failed.", lambda: topics.failures_total)

    async def _metrics_page(self) -> Callable[[], bytes]:
        self.shared.budget.measure()
        return self.metrics.page()

    async def _clients_page(self, asked: Asked) -> Callable[[], tuple[str, bytes]]:
        await self.collect_clients()
        raised = next(iter(self.proxies.values())).raised
        return page_of(self.shared.clients, raised, asked)

    async def collect_clients(self) -> None:
        """Enter the clients' requests that have not been collected yet into the table."""
        for proxy in self.proxies.values():
            for n, session in enumerate(list(proxy.connections)):
                session.seen_client.collect()
                if n % COLLECTED_A_TURN == COLLECTED_A_TURN - 1:
                    await asyncio.sleep(0)

    def _in_flight(self) -> int:
        return sum(len(one.answers) for proxy in self.proxies.values() for one in proxy.connections)

    # ---- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens everywhere. Raises OSError where a port cannot be had; what was opened is closed again."""
        if self.observed_file is not None and self.predecessor is None:
            self.observed_file.load()
        self._bound_connections()
        self._log_unbounded()
        started = []
        try:
            for listener in self.settings.listeners:
                with _listening(listener.address):
                    await self.proxies[listener.name].start()
                started.append(self.proxies[listener.name])
            await self.discovery.start()
            if (address := self.settings.metrics.address) is not None:
                with _listening(address):
                    await self._open_metrics(address)
        except BaseException:
            await self.discovery.stop()
            for proxy in started:
                await proxy.stop(0)
            raise
        if self.predecessor is None:
            self.health.accept(self._metrics_sockets)
            if self.observed_file is not None:
                self.observed_file.start()
        self._tasks = [asyncio.create_task(self._look())]
        if self.otlp is not None:
            self.otlp.start()
        self._start_judging()

    def _export(self, version: str) -> OtlpExport | None:
        """Return what sends metrics to a collector, where the settings name one. ConfigError."""
        otlp = self.settings.metrics.otlp
        if otlp is None:
            return None
        try:
            from batchval.proxy.otlp_export import OtlpExport
        except MissingExtraError as error:
            raise ConfigError([f"metrics.otlp: {error}"]) from None
        with _named("metrics.otlp.headers"):
            return OtlpExport(otlp, self._taken_families, version=version, mode=self.settings.mode)

    async def _taken_families(self) -> Callable[[], Iterable[Family]]:
        """Take the values of the whole gate; what is returned gives its families, in any thread."""
        self.shared.budget.measure()
        families = self.metrics.families()
        return lambda: families

    def _log_unbounded(self) -> None:
        if self.cluster_topics is None and not self.settings.topics.policies:
            log.info(
                "topic limits: none known: every topic is unbounded here. "
                "Set topics.policies, or upstream.admin to read them from the cluster"
            )

    def _start_judging(self) -> None:
        """Start what only a process that judges batches needs."""
        self.record_parts.start()
        if self.cluster_topics is not None:
            self._tasks.append(asyncio.create_task(self.cluster_topics.run()))

    async def _open_metrics(self, address: Address) -> None:
        socks = self.ports.open_metrics(*address) or await self.health.bound(*address)
        self.ports.keep_metrics(socks)
        self._metrics_sockets = socks
        self.metrics_at = Address(*socks[0].getsockname()[:2])

    def _bound_connections(self) -> None:
        """Raise the limit of open files, and allow as many clients as it suffices for. Raises
        OSError.
        """
        settings = self.settings
        limit, wanted = raise_limit(), settings.limits.max_connections
        listening = sum(1 + (listener.broker_ports if listener.sni is None else 0) for listener in settings.listeners)
        health = 0 if settings.metrics.address is None else MOST_CONNECTIONS
        reserve = reserve_for(listening, settings.limits.threads, health)
        allowed = connections_allowed(limit, wanted, reserve)
        advice = "raise it (ulimit -n, LimitNOFILE=)"
        if allowed < 1:
            text = f"at most {limit} open files are allowed, and the gate keeps {reserve} for itself"
            raise OSError(errno.EMFILE, f"{text}: {advice}, or lower listeners[].broker_ports")
        self.max_connections = allowed
        if allowed == wanted:
            return
        # nobody has asked for the default
        level = logging.WARNING if "max_connections" in settings.limits.model_fields_set else logging.INFO
        log.log(
            level,
            "limits.max_connections is %d here, not %d: at most %d open files are allowed, "
            "the gate keeps %d for itself, and each client takes 2: %s, "
            "or lower limits.max_connections",
            *(allowed, wanted, limit, reserve, advice),
        )
        self.shared.budget.bound_connections(allowed)

    # ---- the hand-over -----------------------------------------------------------------------------------------------

    def preparing(self) -> str | None:
        """Return what this gate still lacks before it may take over; None: nothing."""
        topics = self.cluster_topics
        if topics is not None and topics.age_s < 0 and not topics.failures_total:
            return "the configurations of topics are being read"
        return self.unready()

    def accept(self) -> None:
        """Accept connections at the sockets of the gate that is taken over, and close those that are not used."""
        for proxy in self.proxies.values():
            proxy.accept()
        self.health.accept(self._metrics_sockets)
        self.ports.close_unused()
        self.discovery.own_file()
        if self.predecessor is not None:
            self._following = asyncio.create_task(self._follow(self.predecessor))

    async def _follow(self, predecessor: TakeOver) -> None:
        """Wait for the end of the other gate; the files are this one's then."""
        await predecessor.ended()
        self.predecessor = None
        if self.observed_file is not None:
            await self.observed_file.follow()

    def offer(self) -> Offer:
        """Return what a new gate gets. Raises HandOverError."""
        if self.predecessor is not None:
            raise HandOverError(f"the gate that it has taken over (process {self.predecessor.pid}) still drains")
        if self._draining:
            raise HandOverError("it ends")
        return Offer(dict(self.ports.sockets), self.discovery.state().encode().decode(), self.unready())

    def hand_over(self) -> None:
        """Leave the file of the brokers to the gate that has taken over."""
        self.discovery.hand_over()

    # ---- its end -----------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Let /readyz say that this gate ends, and serve on."""
        self._draining = True

    async def stop(self, drain_s: float | None = None) -> None:
        """Takes nothing new, delivers what is under way for at most ``drain_s`` (default: the settings'), and ends."""
        self._draining = True  # /readyz says so first, for as long as it lasts
        drain_s = self.settings.limits.drain_timeout_ms / 1000 if drain_s is None else drain_s
        await asyncio.gather(*(proxy.stop(drain_s) for proxy in self.proxies.values()))
        await self.discovery.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.health.stop()
        if self.otlp is not None:
            await self.otlp.stop()
        for sock in self._metrics_sockets:  # where nothing has been accepted yet
            sock.close()
        self.record_parts.close()
        self.refusals.flush()
        if self._following is not None:
            await asyncio.wait((self._following,), timeout=FOLLOW_S)
            if self._following.cancel():
                log.warning("the newest counts of refusals are not written: the gate before this one still drains")
        self.connection_log.flush()
        if self.observed_file is not None:
            await self.observed_file.stop()

    def reload(self) -> bool:
        """Reads certificates and keys again; whether all could be read. The others stay as they were."""
        whole = True
        contexts: dict[str, ListenerContext | UpstreamContext] = {
            f"listener {name}": context for name, context in self.listener_tls.items()
        }
        if self.upstream_tls is not None:
            contexts["upstream"] = self.upstream_tls
        for name, context in contexts.items():
            try:
                context.reload()
            except ConfigError as error:
                log.error("the certificates of %s stay as they were: %s", name, error)
                whole = False
            else:
                log.info("the certificates of %s were read again", name)
        try:
            self.record_parts.reload()
        except ConfigError as error:
            log.error("the authorities of schema registries stay as they were: %s", error)
            whole = False
        return whole

    def unready(self) -> str | None:
        """Why clients cannot be served; None if they can."""
        if self._draining:
            return "draining"
        return self.discovery.unready()

    @property
    def addresses(self) -> dict[str, Address]:
        """Where clients begin, by the listener's name."""
        return {name: Address(*proxy.bootstrap) for name, proxy in self.proxies.items()}

    async def _look(self) -> None:
        while True:
            self._ages.look(one for proxy in self.proxies.values() for one in proxy.connections)
            self.refusals.flush()
            self.connection_log.flush()
            await asyncio.sleep(LOOK_S)


class _Ages:
    """How long the first in each queue has been first: seen from outside, so that no request pays for it."""

    def __init__(self) -> None:
        self.oldest_s = 0.0
        self._first: dict[object, tuple[object, float]] = {}

    def look(self, connections: Iterable[Any]) -> None:
        """To be called now and then; ages are known as exactly as that."""
        now = asyncio.get_running_loop().time()
        seen: dict[object, tuple[object, float]] = {}
        for connection in connections:
            if connection.answers:
                first = connection.answers[0]
                known = self._first.get(connection)
                seen[connection] = known if known is not None and known[0] is first else (first, now)
        self._first = seen
        self.oldest_s = max((now - since for _, since in seen.values()), default=0.0)


def _principal(certificate: Mapping[str, Any] | None) -> str | None:
    """Return Kafka's principal of a verified certificate."""
    subject = subject_of(certificate)
    return None if subject is None else f"User:{subject}"


def _otlp_families(otlp: OtlpExport) -> Iterator[Family]:
    taken, failed = [((), otlp.exports_total)], [((), otlp.failures_total)]
    yield Family("counter", "otlp_exports", "Exports of metrics that the collector has taken.", (), taken)
    yield Family("counter", "otlp_failures", "Exports of metrics that failed.", (), failed)


@contextlib.contextmanager
def _listening(address: Address) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise OSError(error.errno, f"cannot listen on {address}: {why}") from None


@contextlib.contextmanager
def _named(key: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ConfigError([f"{key}: {error}"]) from None
