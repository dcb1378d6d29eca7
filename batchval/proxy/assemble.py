"""From settings to a gate that runs: one proxy for each listener, and what they share.

Counters, the budget of bytes, the refusal log, topic policies and the ledger of senders are one for all listeners.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from batchval.policy import TopicPolicy
from batchval.proxy.config import Listener, Settings
from batchval.proxy.health import HealthServer
from batchval.proxy.loading import ConfigError
from batchval.proxy.metrics import GateMetrics
from batchval.proxy.options import Counters, Limits, ProxyOptions, Refusal, TopicPolicies
from batchval.proxy.policies import UNBOUNDED, ClusterTopics, TopicLookup, read_brokers, read_topic_configs
from batchval.proxy.refusals import RefusalLog
from batchval.proxy.server import Proxy
from batchval.proxy.tls import ListenerContext, UpstreamContext, subject_of
from batchval.proxy.values import Address

__all__ = ["RunningGate", "check_files"]

#: Between looks at how long requests have waited, and whether the cluster can be reached.
LOOK_S: Final = 1.0

log = logging.getLogger("batchval.proxy")


class RunningGate:
    """All of it. ``start`` and ``stop`` on a running loop. ConfigError where certificates or secrets cannot be read.

    ``addresses``       where each listener is, by its name;  ``metrics_at`` where /metrics is, None where it is off
    """

    def __init__(self, settings: Settings, *, version: str = "") -> None:
        self.settings = settings
        self.counters = Counters()
        self.refusals = RefusalLog(settings.log.refusals_per_second)
        self.metrics = GateMetrics(self.counters, mode=settings.mode, version=version, topics=settings.metrics.topics)
        self.upstream_tls = None if settings.upstream.tls is None else UpstreamContext(settings.upstream.tls)
        self.listener_tls = {one.name: ListenerContext(one.tls) for one in settings.listeners if one.tls is not None}
        self.cluster_topics: ClusterTopics | None = None
        admin = settings.upstream.admin
        if settings.reads_topic_configs and admin is not None:
            if admin.password is not None:
                with _named("upstream.admin.password"):
                    admin.password.reveal()
            self.cluster_topics = ClusterTopics(self._read_topics, admin.refresh_ms / 1000)
        topics = self._topics()
        self.proxies = {one.name: Proxy(self._options(one, topics), self.counters) for one in settings.listeners}
        for proxy in self.proxies.values():
            if proxy.gate.ledger is not None:
                # a lie that came by one door is known at the others
                proxy.gate.ledger = next(p.gate.ledger for p in self.proxies.values() if p.gate.ledger is not None)
                self.metrics.add_ledger(proxy.gate.ledger)
        self.health = HealthServer(self.metrics.text, self.unready)
        self.metrics_at: Address | None = None
        self._ages = _Ages()
        self._reachable = False
        self._draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._watch()

    # ---- what it is made of ------------------------------------------------------------------------------------------

    def _options(self, listener: Listener, topics: TopicPolicies) -> ProxyOptions:
        settings, limits = self.settings, self.settings.limits
        tls = self.listener_tls.get(listener.name)
        return ProxyOptions(
            listen=(listener.address.host or "0.0.0.0", listener.address.port),
            upstream=((settings.upstream.bootstrap.host, settings.upstream.bootstrap.port),),
            advertised_host=listener.advertised_host,
            first_broker_port=listener.first_broker_port,
            mode=settings.mode,
            topics=topics,
            validator={
                "mode": settings.validation.rules,
                "kafka_version": settings.validation.kafka_version,
                "extras": settings.validation.all_extras,
                "max_decompressed_bytes": settings.validation.max_decompressed_bytes,
            },
            claims_in=settings.claims_in_of(listener),
            claims_out=settings.claims_out,
            listener_name=listener.name,
            listen_tls=None if tls is None else tls.context,
            upstream_tls=None if self.upstream_tls is None else self._upstream_context,
            find_brokers=None if settings.upstream.admin is None else self._find_brokers,
            sender=_subject,
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
            ),
            threads=limits.threads,
            on_refusal=self._refused,
        )

    def _topics(self) -> TopicPolicies:
        rules, kafka_version = self.settings.topics.policies, self.settings.validation.kafka_version
        if self.cluster_topics is None:
            globs: dict[str, TopicPolicy] = {}
            for rule in rules:
                globs.setdefault(rule.match, rule.policy(kafka_version))  # the first that matches
            return TopicPolicies(UNBOUNDED, globs)
        topics = TopicPolicies(UNBOUNDED)
        topics.known = TopicLookup(rules, self.cluster_topics, kafka_version=kafka_version)
        return topics

    def _upstream_context(self) -> Any:
        assert self.upstream_tls is not None
        return self.upstream_tls.context

    async def _find_brokers(self) -> list[tuple[int, str, int]]:
        return await read_brokers(self.settings.upstream, self.upstream_tls)

    async def _read_topics(self, topics: Iterable[str] | None) -> Mapping[str, TopicPolicy]:
        return await read_topic_configs(self.settings.upstream, self.upstream_tls, topics)

    def _refused(self, refusal: Refusal) -> None:
        self.metrics.topics(refusal)
        self.refusals(refusal)

    def _watch(self) -> None:
        metrics = self.metrics
        metrics.watch("requests_in_flight", "Requests that await an answer.", self._in_flight)
        metrics.watch("oldest_request_age_seconds", "How long the oldest has waited.", lambda: self._ages.oldest_s)
        metrics.watch("ready", "1 where clients can be served.", lambda: float(self.unready() is None))
        metrics.count("log_refusals_left_out", "Refusals without a log line.", lambda: self.refusals.suppressed_total)
        if (topics := self.cluster_topics) is not None:
            metrics.watch("topic_configs", "Topics whose configuration is known.", lambda: len(topics))
            metrics.watch("topic_configs_age_seconds", "Since all were read; -1: never.", lambda: topics.age_s)
            metrics.count("topic_config_failures", "Attempts that failed.", lambda: topics.failures_total)

    def _in_flight(self) -> int:
        return sum(len(one.answers) for proxy in self.proxies.values() for one in proxy.connections)

    # ---- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens everywhere. Raises OSError where a port cannot be had; what was opened is closed again."""
        started = []
        try:
            for listener in self.settings.listeners:
                with _listening(listener.address):
                    await self.proxies[listener.name].start()
                started.append(self.proxies[listener.name])
            if (address := self.settings.metrics.address) is not None:
                with _listening(address):
                    self.metrics_at = Address(*await self.health.start(*address))
        except BaseException:
            for proxy in started:
                await proxy.stop(0)
            raise
        self._tasks = [asyncio.create_task(self._look())]
        if self.cluster_topics is not None:
            self._tasks.append(asyncio.create_task(self.cluster_topics.run()))

    async def stop(self, drain_s: float | None = None) -> None:
        """Takes nothing new, delivers what is under way for at most ``drain_s`` (default: the settings'), and ends."""
        self._draining = True  # /readyz says so first, for as long as it lasts
        drain_s = self.settings.limits.drain_timeout_ms / 1000 if drain_s is None else drain_s
        await asyncio.gather(*(proxy.stop(drain_s) for proxy in self.proxies.values()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.health.stop()
        self.refusals.flush()

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
        return whole

    def unready(self) -> str | None:
        """Why clients cannot be served; None if they can."""
        if self._draining:
            return "draining"
        if not self._reachable and not any(proxy.ready for proxy in self.proxies.values()):
            return f"{self.settings.upstream.bootstrap} cannot be reached"
        return None

    @property
    def addresses(self) -> dict[str, Address]:
        """Where clients begin, by the listener's name."""
        return {name: Address(*proxy.bootstrap) for name, proxy in self.proxies.items()}

    async def _look(self) -> None:
        while True:
            self._ages.look(one for proxy in self.proxies.values() for one in proxy.connections)
            self.refusals.flush()
            if not any(proxy.ready for proxy in self.proxies.values()):
                await self._knock()
            await asyncio.sleep(LOOK_S)

    async def _knock(self) -> None:
        """A cluster that asks for credentials tells nobody its brokers, and is there all the same."""
        tls = None if self.upstream_tls is None else self.upstream_tls.context
        try:
            async with asyncio.timeout(self.settings.upstream.connect_timeout_ms / 1000):
                _, writer = await asyncio.open_connection(*self.settings.upstream.bootstrap, ssl=tls)
        except OSError:
            self._reachable = False
        else:
            self._reachable = True
            writer.close()


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


def _subject(certificate: object) -> str | None:
    return subject_of(certificate if isinstance(certificate, dict) else None)


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


def check_files(settings: Settings) -> None:
    """Whether all certificates, keys and secrets can be read. ConfigError with all that cannot."""
    problems: list[str] = []
    checks: list[tuple[str, Callable[[], object]]] = [
        (f"listeners[{i}].tls", partial(ListenerContext, one.tls))
        for i, one in enumerate(settings.listeners)
        if one.tls is not None
    ]
    if settings.upstream.tls is not None:
        checks.append(("upstream.tls", partial(UpstreamContext, settings.upstream.tls)))
    if settings.upstream.admin is not None and settings.upstream.admin.password is not None:
        checks.append(("upstream.admin.password", settings.upstream.admin.password.reveal))
    for key, check in checks:
        try:
            check()
        except ConfigError as error:
            problems += [f"{key}: {line}" for line in error.problems]
        except ValueError as error:
            problems.append(f"{key}: {error}")
    if problems:
        raise ConfigError(problems)
