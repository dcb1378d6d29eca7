"""The pages of one gate: /metrics, /clients, and the metrics for a collector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from batchval.optional import MissingExtraError
from batchval.proxy.life.configured_parts import named
from batchval.proxy.session.session import Session
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.watch.audit_log import lines_left_out
from batchval.proxy.watch.clients import Asked, page_of
from batchval.proxy.watch.metrics import Family, of_clients, single

if TYPE_CHECKING:
    from batchval.proxy.life.gate import Gate
    from batchval.proxy.watch.otlp_export import OtlpExport

__all__ = ["Ages", "Pages"]

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
