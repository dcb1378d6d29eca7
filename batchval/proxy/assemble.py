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
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from batchval.ledger import ClaimsLedger
from batchval.optional import MissingExtraError
from batchval.policy import TopicPolicy
from batchval.proxy.ages import Ages
from batchval.proxy.audit_file import AuditFile
from batchval.proxy.audit_log import RefusalLog
from batchval.proxy.background import in_background
from batchval.proxy.clients_page import Asked, page_of
from batchval.proxy.config import Listener, Settings
from batchval.proxy.connection_log import ConnectionLog
from batchval.proxy.control import Offer
from batchval.proxy.discovery import Discovery, DiscoveryOptions
from batchval.proxy.gate import Gate
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
from batchval.proxy.options import Counters, Limits, ObserveGlobs, ProxyOptions, Refusal
from batchval.proxy.parts import Parts, named
from batchval.proxy.policies import read_brokers, read_topic_configs
from batchval.proxy.prepared import Prepared, Step
from batchval.proxy.quarantine import Quarantine
from batchval.proxy.server import Proxy, Shared
from batchval.proxy.state_file import StateFile
from batchval.proxy.tls import identity_of, subject_of
from batchval.proxy.values import Address

if TYPE_CHECKING:
    from batchval.proxy.otlp_export import OtlpExport

__all__ = ["RunningGate"]

#: Between looks at how long requests have waited, and whether the cluster can be reached.
LOOK_S: Final = 1.0
#: At the end of a gate, for the end of the one that it has taken over.
FOLLOW_S: Final = 10.0
#: Until the registries of settings before are closed: batches may wait for their answers.
RETIRE_S: Final = 60.0
#: Sessions whose requests are collected in one turn of the loop, before /clients is answered.
COLLECTED_A_TURN: Final = 100

log = logging.getLogger("batchval.proxy")


class RunningGate:
    """All of it. ``start`` and ``stop`` on a running loop. ConfigError where certificates or secrets cannot be read.

    ``addresses``       where each listener is, by its name;  ``metrics_at`` where /metrics is, None where it is off
    ``max_connections`` of clients: fewer than in the settings where open files do not suffice
    ``predecessor``     the gate that this one takes over: it accepts nothing until ``accept``
    """

    #: Whether this process judges batches; the parent of several workers does not.
    judges: ClassVar[bool] = True

    def __init__(self, settings: Settings, *, version: str = "", predecessor: TakeOver | None = None) -> None:
        self.settings = settings
        self.counters = Counters()
        self.refusals = RefusalLog(settings.log.refusals_per_second)
        # one more, so that denied requests hide no refused batch
        self.denials = RefusalLog(settings.log.refusals_per_second, what="denied requests")
        self.connection_log = ConnectionLog(settings.log.connections_per_second)
        self.audit_file = None if settings.log.audit_file is None else AuditFile(settings.log.audit_file)
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
        self.hold(Parts(settings, self.read_topics))
        self.quarantine = Quarantine.made(settings.quarantine, version) if self.judges else None
        self.discovery = self._discovery()
        self.predecessor = predecessor
        if predecessor is not None:
            self.discovery.inherit(predecessor.state)
        self.ports = ListeningSockets(None if predecessor is None else predecessor.sockets)
        options = self.options_of(self.parts)
        self.shared = self._shared(next(iter(options.values())))
        self.proxies = {name: self._proxy(each) for name, each in options.items()}
        self.ledger: ClaimsLedger | None = None
        for proxy in self.proxies.values():
            proxy.accepts = predecessor is None
            if proxy.gate.ledger is not None:
                # a lie that came by one listener is known at the others
                self.ledger = proxy.gate.ledger = self.ledger or proxy.gate.ledger
                self.metrics.add_ledger(self.ledger)
        self.health = HealthServer(self._metrics_page, self.unready, self._clients_page)
        self.metrics_at: Address | None = None
        self.max_connections = settings.limits.max_connections
        self._ages = Ages()
        self._metrics_sockets: list[socket.socket] = []
        self._following: asyncio.Task[None] | None = None
        self._draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._topics_task: asyncio.Task[None] | None = None
        self._retired: list[tuple[Parts, list[Gate]]] = []
        self.otlp = self._export(version)
        self._watch()

    # ---- what it is made of ------------------------------------------------------------------------------------------

    def hold(self, parts: Parts) -> None:
        """Use these parts from now on, in what asks for them each time."""
        self.parts = parts
        self.settings = parts.settings
        self.upstream_tls = parts.upstream_tls
        self.cluster_topics = parts.cluster_topics
        self.record_parts = parts.record_parts
        self._named_topics = parts.named_topics

    def options_of(self, parts: Parts) -> dict[str, ProxyOptions]:
        """Return the options of each listener, by its name."""
        return {one.name: self._options(one, parts) for one in parts.settings.listeners}

    def _options(self, listener: Listener, parts: Parts) -> ProxyOptions:
        settings, limits = parts.settings, parts.settings.limits
        tls = parts.listener_tls.get(listener.name)
        return ProxyOptions(
            listen=(listener.address.host or "0.0.0.0", listener.address.port),
            upstream=tuple((one.host, one.port) for one in settings.upstream.bootstrap),
            advertised_host=listener.advertised_host,
            advertised_port=listener.advertised_port,
            advertised_first_port=listener.advertised_first_port,
            sni=None if listener.sni is None else ServerNames(*listener.sni.names),
            first_broker_port=listener.first_broker_port,
            broker_ports=listener.broker_ports,
            state_directory=settings.state_folder,
            mode=settings.mode,
            observe=tuple(ObserveGlobs(rule.topics, rule.principals) for rule in settings.observe),
            deny=tuple(one.rule for one in settings.deny),
            topics=parts.topics,
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
            listen_tls=None if tls is None else tls.context,
            upstream_tls=None if parts.upstream_tls is None else parts.upstream_tls.context,
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
            on_denied=self.denials.denied,
            quarantine=self.quarantine,
        )

    def discovery_options(self, parts: Parts) -> DiscoveryOptions:
        """Return how the brokers are found."""
        settings, admin, tls = parts.settings, parts.settings.upstream.admin, parts.upstream_tls
        directory = settings.state_folder
        return DiscoveryOptions(
            bootstrap=tuple((one.host, one.port) for one in settings.upstream.bootstrap),
            tls=None if tls is None else self._upstream_context,
            find_brokers=None if admin is None else self._find_brokers,
            authenticates=admin is not None and admin.mechanism != "NONE",
            connect_s=settings.upstream.connect_timeout_ms / 1000,
            state=None if directory is None else StateFile(directory),
        )

    def _discovery(self) -> Discovery:
        """Return what finds the brokers."""
        return Discovery(self.discovery_options(self.parts))

    def _shared(self, options: ProxyOptions) -> Shared:
        """Return what all listeners share."""
        return Shared.made(options, self.counters, self.discovery, self.ports, self.connection_log)

    def _proxy(self, options: ProxyOptions) -> Proxy:
        """Return what serves one listener."""
        return Proxy(options, shared=self.shared)

    def _judged(self) -> int:
        """Return how many batches have been judged."""
        return self.counters.produce_partitions_total

    def _upstream_context(self) -> ssl.SSLContext:
        assert self.upstream_tls is not None
        return self.upstream_tls.context

    async def _find_brokers(self, address: BrokerAddress, client_id: str) -> ClusterView:
        return await read_brokers(self.settings.upstream, self.upstream_tls, address, client_id)

    async def read_topics(self, topics: Iterable[str] | None) -> Mapping[str, TopicPolicy]:
        addresses = self.discovery.addresses()
        return await read_topic_configs(self.settings.upstream, self.upstream_tls, topics, addresses)

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
        metrics.add(self._families)
        if self.quarantine is not None:
            metrics.add(self.quarantine.families)
        text = "Denied requests without a log line."
        metrics.count("log_denied_left_out", text, lambda: self.denials.suppressed_total)
        metrics.count("log_refusals_left_out", "Refusals without a log line.", lambda: self.refusals.suppressed_total)
        metrics.add(self.connection_log.families)
        if self.audit_file is not None:
            metrics.add(self.audit_file.families)
        if (file := self.observed_file) is not None:
            metrics.count(
                "observed_file_failures", "Counts of refusals that could not be written.", lambda: file.failures_total
            )

    def _families(self) -> Iterator[Family]:
        """Yield the metrics of what a reload may replace."""
        yield from self.record_parts.families()
        if (topics := self.cluster_topics) is None:
            return
        text = "Topics whose configuration is known."
        yield Family("gauge", "topic_configs", text, (), [((), len(topics))], "max")
        text = "Since all were read; -1: never."
        yield Family("gauge", "topic_configs_age_seconds", text, (), [((), topics.age_s)], "max")
        yield Family("counter", "topic_config_failures", "Attempts that failed.", (), [((), topics.failures_total)])

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
            self._open_audit_file()
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
            if self.audit_file is not None:
                self.audit_file.stop()
            raise
        if self.predecessor is None:
            self.health.accept(self._metrics_sockets)
            if self.observed_file is not None:
                self.observed_file.start()
        if self.quarantine is not None:
            self.quarantine.start()
        self._tasks = [asyncio.create_task(self._look())]
        if self.otlp is not None:
            self.otlp.start()
        self.start_judging()
        self.read_topics_anew()

    def start_judging(self) -> None:
        """Start what judges records."""
        self.record_parts.start()

    def _export(self, version: str) -> OtlpExport | None:
        """Return what sends metrics to a collector, where the settings name one. ConfigError."""
        otlp = self.settings.metrics.otlp
        if otlp is None:
            return None
        try:
            from batchval.proxy.otlp_export import OtlpExport
        except MissingExtraError as error:
            raise ConfigError([f"metrics.otlp: {error}"]) from None
        with named("metrics.otlp.headers"):
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

    def _open_audit_file(self) -> None:
        if self.audit_file is not None:
            try:
                self.audit_file.start()
            except OSError as error:
                text = f"log.audit_file {self.audit_file.path} cannot be opened: {error.strerror}"
                raise OSError(error.errno, text) from None

    def reopen_files(self) -> None:
        """Open the audit file anew: its name may stand for another file now."""
        if self.audit_file is not None:
            self.audit_file.reopen()

    async def _open_metrics(self, address: Address) -> None:
        socks = self.ports.open_metrics(*address) or await self.health.bound(*address)
        self.ports.keep_metrics(socks)
        self._metrics_sockets = socks
        self.metrics_at = Address(*socks[0].getsockname()[:2])

    def _bound_connections(self) -> None:
        """Allow as many clients as the open files suffice for. Raises OSError."""
        self.max_connections = self.connections_for(self.settings)
        self.shared.budget.bound_connections(self.max_connections)

    def connections_for(self, settings: Settings) -> int:
        """Raise the limit of open files, and return how many clients it suffices for. Raises
        OSError.
        """
        limit, wanted = raise_limit(), settings.limits.max_connections
        listening = sum(1 + (listener.broker_ports if listener.sni is None else 0) for listener in settings.listeners)
        health = 0 if settings.metrics.address is None else MOST_CONNECTIONS
        reserve = reserve_for(listening, settings.limits.threads, health)
        allowed = connections_allowed(limit, wanted, reserve)
        advice = "raise it (ulimit -n, LimitNOFILE=)"
        if allowed < 1:
            text = f"at most {limit} open files are allowed, and the gate keeps {reserve} for itself"
            raise OSError(errno.EMFILE, f"{text}: {advice}, or lower listeners[].broker_ports")
        if allowed == wanted:
            return allowed
        # nobody has asked for the default
        level = logging.WARNING if "max_connections" in settings.limits.model_fields_set else logging.INFO
        log.log(
            level,
            "limits.max_connections is %d here, not %d: at most %d open files are allowed, "
            "the gate keeps %d for itself, and each client takes 2: %s, "
            "or lower limits.max_connections",
            *(allowed, wanted, limit, reserve, advice),
        )
        return allowed

    # ---- the hand-over ---------------------------------------------------------------------------

    def preparing(self) -> str | None:
        """Return what this gate still lacks before it may take over; None: nothing."""
        topics = self.cluster_topics
        if topics is not None and topics.age_s < 0 and not topics.failures_total:
            return "the configurations of topics are being read"
        return self.unready()

    def accept(self) -> None:
        """Accept connections at the sockets of the gate that is taken over, and close those that
        are not used.
        """
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
        """Leave /metrics and the file of the brokers to the gate that has taken over."""
        self.health.close_port()
        self.discovery.hand_over()

    # ---- its end ---------------------------------------------------------------------------------

    def leave(self) -> None:
        """Let /readyz say that this gate ends, and serve on."""
        self._draining = True

    async def stop(self, drain_s: float | None = None) -> None:
        """Takes nothing new, delivers what is under way for at most ``drain_s`` (default: the settings'), and ends."""
        self._draining = True  # /readyz says so first, for as long as it lasts
        drain_s = self.settings.limits.drain_timeout_ms / 1000 if drain_s is None else drain_s
        await asyncio.gather(*(proxy.stop(drain_s) for proxy in self.proxies.values()))
        await self.discovery.stop()
        tasks = [task for task in (*self._tasks, self._topics_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.health.stop()
        if self.otlp is not None:
            await self.otlp.stop()
        for sock in self._metrics_sockets:  # where nothing has been accepted yet
            sock.close()
        self._close_retired()
        self.record_parts.close()
        if self.quarantine is not None:
            await asyncio.to_thread(self.quarantine.stop)
        self.refusals.flush()
        self.denials.flush()
        if self.audit_file is not None:
            await asyncio.to_thread(self.audit_file.stop)
        if self._following is not None:
            await asyncio.wait((self._following,), timeout=FOLLOW_S)
            if self._following.cancel():
                log.warning("the newest counts of refusals are not written: the gate before this one still drains")
        self.connection_log.flush()
        if self.observed_file is not None:
            await self.observed_file.stop()

    # ---- other settings --------------------------------------------------------------------------

    async def prepare(self, settings: Settings) -> Step:
        """Build what other settings need, in a thread. Nothing changes before it is applied.
        ConfigError.
        """
        return await in_background(partial(Prepared, self, settings))

    def read_topics_anew(self) -> None:
        """Read topic configurations now, and from now on as the settings ask."""
        if self._topics_task is not None:
            self._topics_task.cancel()
            self._topics_task = None
        if self.cluster_topics is not None:
            self.cluster_topics.refresh_s = self.parts.refresh_s
            self._topics_task = asyncio.create_task(self.cluster_topics.run())

    def retire(self, parts: Parts, gates: list[Gate]) -> None:
        """Close what was used before, once nobody waits for an answer of it any more."""
        self._retired.append((parts, gates))
        asyncio.get_running_loop().call_later(RETIRE_S, self._close_retired)

    def _close_retired(self) -> None:
        """Close all that was retired; a thread frees it, which takes long for many policies."""
        retired, self._retired = self._retired, []
        for parts, _ in retired:
            parts.record_parts.close(self.record_parts)
        if retired:
            threading.Thread(target=retired.clear, daemon=True).start()

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
            self.denials.flush()
            self.connection_log.flush()
            await asyncio.sleep(LOOK_S)


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
