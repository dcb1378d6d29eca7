"""What the gate counts, as Prometheus reads it.

The data path counts in plain integers and small dicts (a dataclass). They are read when somebody asks: a request pays
for an addition and no more. Labels come from closed sets: rules, reasons, policies. The one that clients
could choose, the topic, is bounded: so many get a name, all others share ``(other)``.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from batchval.ledger import ClaimsCounts, ClaimsLedger
from batchval.protocol.apis import APIS
from batchval.proxy.refusals import AnyRefusal

__all__ = ["CONTENT_TYPE", "OTHER", "GateMetrics", "TopicCounts"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OTHER: Final = "(other)"

_PREFIX = "batchval_gate"
#: label of each dict of Counters
_LABELS = {
    "connections_closed": "reason",
    "partitions_refused": "rule",
    "partitions_reported": "extra",
    "requests_by_api": "api",
    "answers_throttled": "api",
    "throttle_time_ms": "api",
    "batches_by_path": "path",
}
_MOST_LABELS = 200

_HELP = {
    "connections_total": "Client connections taken.",
    "connections_open": "Client connections now.",
    "connections_refused_total": "Connections closed at once: over max_connections.",
    "connections_closed": "Connections that the gate ended, by reason.",
    "upstream_failures_total": "Connections to brokers that could not be made.",
    "requests_total": "Requests from clients.",
    "request_bytes_total": "Bytes of requests from clients.",
    "answers_total": "Answers from brokers.",
    "answer_bytes_total": "Bytes of answers from brokers.",
    "answers_throttled": "Produce and Fetch answers that told a client to wait (quotas), by API.",
    "throttle_time_ms": "How long they told clients to wait, in milliseconds, by API.",
    "produce_requests_total": "Produce requests.",
    "produce_partitions_total": "Partitions of produce requests: batches judged.",
    "partitions_refused": "Batches that broke a rule, by the first one (observe: forwarded all the same).",
    "partitions_reported": "Batches accepted in which an extra found something.",
    "requests_by_api": "Requests from clients, by API.",
    "batches_by_path": "Batches accepted, by the path that the verdict took.",
    "requests_answered_here_total": "Produce requests of which no broker saw anything.",
    "requests_rewritten_total": "Produce requests written anew: without refused partitions, with or without claims.",
    "judged_in_threads_total": "Produce requests judged off the loop: much to decompress.",
    "claims_tags_dropped_total": "Produce requests whose tags were taken off.",
    "claims_tags_added_total": "Batches that were given claims.",
    "bytes_held": "Bytes of requests and answers that wait here.",
    "reading_paused_total": "How often a client was not read for a while.",
}

_CLAIMS_HELP = {
    "batches": "Batches with claims that were to be read.",
    "sampled": "Of these, checked because the draw fell on them.",
    "trusted": "Accepted on their claims, nothing decompressed.",
    "honest": "Checked, and true.",
    "lying": "Checked, and not true, or the batch decompresses to more than the limit.",
    "unjudged": "Refused before their records were walked to the end.",
    "unbound": "With a tag that is none, or another batch's.",
    "demotions": "How often a lie ended a sender's credit.",
}


class TopicCounts:
    """Refusals by topic and rule, for the first ``most`` topics."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._counts: dict[tuple[str, str], int] = {}
        self._topics: set[str] = set()

    def __call__(self, refusal: AnyRefusal) -> None:
        if not refusal.rule:
            return
        topic = refusal.topic or OTHER
        if topic not in self._topics:
            if len(self._topics) >= self.most:
                topic = OTHER
            else:
                self._topics.add(topic)
        key = topic, refusal.rule
        self._counts[key] = self._counts.get(key, 0) + 1

    def items(self) -> Iterable[tuple[tuple[str, str], int]]:
        """((topic, rule), count)."""
        return list(self._counts.items())


class GateMetrics(Collector):
    """All that /metrics answers. ``watch`` adds what is only known by asking."""

    def __init__(self, counters: Any, *, mode: str, version: str, topics: int = 100) -> None:
        self.counters = counters
        self.topics = TopicCounts(topics)
        self.registry = CollectorRegistry(auto_describe=False)
        self._facts = {"mode": mode, "version": version, "python": platform.python_version()}
        self._ledgers: list[ClaimsLedger] = []
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []
        self._counts: list[tuple[str, str, Callable[[], float]]] = []
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def add_ledger(self, ledger: ClaimsLedger | None) -> None:
        """Whose counts are to be shown; those of several are summed."""
        if ledger is not None and ledger not in self._ledgers:
            self._ledgers.append(ledger)

    def watch(self, name: str, text: str, ask: Callable[[], float]) -> None:
        """A value that goes up and down."""
        self._gauges.append((name, text, ask))

    def count(self, name: str, text: str, ask: Callable[[], float]) -> None:
        """A value that only grows; ``name`` without ``_total``."""
        self._counts.append((name, text, ask))

    def text(self) -> bytes:
        """The answer to /metrics."""
        return generate_latest(self.registry)

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
        yield InfoMetricFamily(_PREFIX, "What runs.", value=self._facts)
        for name in _names(self.counters):
            value = getattr(self.counters, name)
            text = _HELP.get(name, name.replace("_", " "))
            if isinstance(value, dict):
                yield _by_label(name, text, value)
            elif name.endswith("_total"):
                yield CounterMetricFamily(f"{_PREFIX}_{name.removesuffix('_total')}", text, value=value)
            else:
                yield GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=value)
        refused = CounterMetricFamily(
            f"{_PREFIX}_refusals", "Batches that broke a rule, by topic and rule.", labels=("topic", "rule")
        )
        for key, count in self.topics.items():
            refused.add_metric(key, count)
        yield refused
        yield from self._claims()
        for name, text, ask in self._counts:
            yield CounterMetricFamily(f"{_PREFIX}_{name}", text, value=ask())
        for name, text, ask in self._gauges:
            yield GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=ask())

    def _claims(self) -> Iterable[Metric]:
        counts: Sequence[ClaimsCounts] = [ledger.counts() for ledger in self._ledgers]
        for name in ClaimsCounts._fields:
            total = sum(getattr(one, name) for one in counts)
            yield CounterMetricFamily(f"{_PREFIX}_claims_{name}", _CLAIMS_HELP[name], value=total)
        senders = sum(len(ledger.senders()) for ledger in self._ledgers)
        yield GaugeMetricFamily(f"{_PREFIX}_claims_senders", "Senders of claims that are remembered.", value=senders)


def _names(counters: Any) -> list[str]:
    return [field.name for field in fields(counters)]


def _word(name: str, label: Any) -> str:
    if _LABELS.get(name) == "api" and label in APIS:
        return APIS[label].name
    return str(label)


def _by_label(name: str, text: str, values: dict[Any, int]) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=(_LABELS.get(name, "kind"),))
    rest = 0
    for n, (label, count) in enumerate(list(values.items())):
        if n < _MOST_LABELS:
            family.add_metric((_word(name, label),), count)
        else:
            rest += count
    if rest:
        family.add_metric((OTHER,), rest)
    return family
