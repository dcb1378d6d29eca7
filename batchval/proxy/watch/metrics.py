"""The counts of the gate in Prometheus's format.

    counters ── snapshot, on the event loop ──▶ families ── format, in a thread ──▶ text of /metrics

The data path counts in plain integers and small dicts (``settings.options.Counters``, where each is
declared with its text and label), so a request pays for an addition only. Labels come from closed
sets: rules, reasons, policies. The topic, which clients could choose, is bounded: topics that the
cluster or the settings know get a label, up to a number of them; all others share ``(other)``.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from itertools import accumulate, islice
from typing import Any, Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from batchval.ledger import ClaimsCounts, ClaimsLedger
from batchval.proxy.kit.topics import is_topic_name
from batchval.proxy.settings.config import Metrics
from batchval.proxy.settings.options import Refusal
from batchval.proxy.watch.clients import ClientTable, api_name
from batchval.proxy.watch.observed_batches import OTHER
from batchval.proxy.watch.request_latency import BOUNDS_S

__all__ = [
    "BOUNDS_S",
    "CONTENT_TYPE",
    "OTHER",
    "PREFIX",
    "Family",
    "GateMetrics",
    "TopicCounts",
    "of_clients",
    "single",
]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

PREFIX: Final = "batchval_gate"
_MAX_LABELS = 200

_CLAIMS_HELP = {
    "batches": "Batches whose claims were read.",
    "sampled": "Of these, drawn at random and checked.",
    "trusted": "Accepted on their claims, nothing decompressed.",
    "honest": "Checked and found true.",
    "lying": "Checked and found false, or the batch decompresses to more than the limit.",
    "unjudged": "Refused before all their records were read.",
    "unbound": "With a malformed tag, or a tag of another batch.",
    "demotions": "Times that false claims ended the trust in a sender.",
}


class TopicCounts:
    """Batches that broke a rule by topic, rule and outcome, for the first ``most`` topics for which
    ``is_known`` is true.

    All others count as ``(other)``: names that Kafka does not allow, names that clients invented.
    """

    MAX_KEYS = 20_000

    def __init__(self, most: int, is_known: Callable[[str], bool]) -> None:
        self.most = most
        self.is_known = is_known
        self._counts: dict[tuple[str, str, str], int] = {}
        self._topics: set[str] = set()

    def __call__(self, refusal: Refusal) -> None:
        if not refusal.rule:
            return
        outcome = "refused" if refusal.enforced else "observed"
        key = self._label(refusal.topic), refusal.rule, outcome
        if key not in self._counts and len(self._counts) >= self.MAX_KEYS:
            key = OTHER, refusal.rule, outcome
        self._counts[key] = self._counts.get(key, 0) + refusal.batches

    def _label(self, topic: str | None) -> str:
        if topic is None:
            return OTHER
        if topic in self._topics:
            return topic
        if len(self._topics) >= self.most or not is_topic_name(topic) or not self.is_known(topic):
            return OTHER
        self._topics.add(topic)
        return topic

    def items(self) -> list[tuple[tuple[str, str, str], int]]:
        """Return ((topic, rule, outcome), count) of all."""
        return list(self._counts.items())


Across = Literal["sum", "max", "min"]


class Family(NamedTuple):
    """One metric and its values at one moment. ``name`` has no prefix and no ``_total``.

    ``samples``  (label values, number); of a histogram (label values, (counts, seconds)) with the
                 number in each bucket of BOUNDS_S and in the one above, not cumulative
    ``across``   how the values of several workers become one
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    text: str
    labels: tuple[str, ...]
    samples: Iterable[tuple[Sequence[str], Any]]
    across: Across = "sum"


def single(
    kind: Literal["counter", "gauge"], name: str, text: str, value: float, across: Across = "sum"
) -> Family:
    """Return a metric of one value, without labels."""
    return Family(kind, name, text, (), [((), value)], across)


class GateMetrics:
    """The content of /metrics. ``add`` shows what is known only by asking."""

    def __init__(
        self,
        counters: Any,
        *,
        mode: str,
        version: str,
        topics: int = Metrics().topics,
        is_known: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.counters = counters
        self.topics = TopicCounts(topics, is_known)
        self._fields = fields(counters)
        self._version = version
        self.name_mode(mode)
        # of the process: they read /proc, so they are asked in the thread
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        self._ledgers: list[ClaimsLedger] = []
        self._sources: list[Callable[[], Iterable[Family]]] = []

    def name_mode(self, mode: str) -> None:
        """Show this mode of the gate."""
        value = {"mode": mode, "version": self._version, "python": platform.python_version()}
        self._info = InfoMetricFamily(PREFIX, "What runs.", value=value)

    def add_ledger(self, ledger: ClaimsLedger | None) -> None:
        """Show the counts of a ledger; those of several are summed."""
        if ledger is not None and ledger not in self._ledgers:
            self._ledgers.append(ledger)

    def add(self, source: Callable[[], Iterable[Family]]) -> None:
        """Show the families of a source, which is called on the event loop."""
        self._sources.append(source)

    def page(self) -> Callable[[], bytes]:
        """Take the values, on the event loop. What is returned makes the text, in any thread."""
        return partial(self.format, self.families())

    def families(self) -> list[Family]:
        """Take the values, on the event loop."""
        return list(self._families())

    def format(self, families: Iterable[Family], process: Iterable[Metric] | None = None) -> bytes:
        """Return the text of families, and of ``process``: by default this process' own values."""
        process = self._process.collect() if process is None else process
        return generate_latest(_Page([self._info, *map(_metric, families), *process]))

    def _families(self) -> Iterator[Family]:
        for field in self._fields:
            name, value = field.name, getattr(self.counters, field.name)
            text = field.metadata.get("text", name.replace("_", " "))
            if isinstance(value, dict):
                yield _by_label(name, text, field.metadata.get("label", "kind"), value)
            else:
                kind: Literal["counter", "gauge"] = (
                    "counter" if name.endswith("_total") else "gauge"
                )
                yield single(kind, name.removesuffix("_total"), text, value)
        text = "Batches that broke a rule, by topic, rule and outcome: refused, or observed (forwarded)."
        labels = ("topic", "rule", "outcome")
        yield Family("counter", "broken_rules", text, labels, self.topics.items())
        yield from self._claims()
        for source in self._sources:
            yield from source()

    def _claims(self) -> Iterator[Family]:
        counts: Sequence[ClaimsCounts] = [ledger.counts() for ledger in self._ledgers]
        for name in ClaimsCounts._fields:
            total = sum(getattr(one, name) for one in counts)
            yield single("counter", f"claims_{name}", _CLAIMS_HELP[name], total)
        senders = sum(len(ledger.senders()) for ledger in self._ledgers)
        text = "Senders of claims that are remembered."
        yield single("gauge", "claims_senders", text, senders)


class _Page(Collector):
    """A registry for generate_latest with metrics that were collected before."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _metric(family: Family) -> Metric:
    if family.kind == "histogram":
        return _histogram(family)
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(f"{PREFIX}_{family.name}", family.text, labels=family.labels)
    for labels, value in family.samples:
        metric.add_metric(labels, value)
    return metric


def _histogram(family: Family) -> Metric:
    metric = HistogramMetricFamily(f"{PREFIX}_{family.name}", family.text, labels=family.labels)
    words = [*map(floatToGoString, BOUNDS_S), "+Inf"]
    for labels, (counts, total) in family.samples:
        metric.add_metric(labels, list(zip(words, accumulate(counts), strict=True)), total)
    return metric


def of_clients(clients: ClientTable) -> Iterator[Family]:
    """Yield what the table of clients shows. Old ones are counted in the thread."""
    yield single("gauge", "clients", "Clients that are remembered.", len(clients))
    text = "Clients that were forgotten because too many others came."
    yield single("counter", "clients_evicted", text, clients.evicted_total)
    text = "Clients of the last 24 hours that Kafka 4 turns away, by the name of their software."
    yield Family("gauge", "clients_old", text, ("software",), clients.recent_old())


def _by_label(name: str, text: str, label: str, values: dict[Any, float]) -> Family:
    values = values.copy()  # a thread may add to it
    first = list(islice(values.items(), _MAX_LABELS))
    word = api_name if label == "api" else str
    samples = [((word(key),), count) for key, count in first]
    rest = sum(values.values()) - sum(count for _, count in first)
    if rest:
        samples.append(((OTHER,), rest))
    return Family("counter", name, text, (label,), samples)
