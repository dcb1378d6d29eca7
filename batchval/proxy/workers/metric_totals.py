"""Metrics of several workers as those of one gate.

Counters and histograms are sums, and what a worker counted before it ended stays in them: they
never go down. Gauges are those of the workers that run, put together as ``Family.across`` says.

Labels over several workers: each has bounded its own topics and nodes, but not the same ones.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from batchval.proxy.settings.config import Metrics
from batchval.proxy.watch.metrics import OTHER, Family
from batchval.proxy.watch.traffic import BOOTSTRAP

__all__ = ["BoundedLabels", "Totals", "added", "packed", "unpacked"]

#: What the parent counts itself, exactly: that of workers is left out.
OF_PARENT: Final = frozenset(
    {
        "clients",
        "clients_evicted",
        "clients_old",
        "connections",
        "connections_open",
        "observed_file_failures",
        "ready",
    }
)
#: Samples that are pickled in one call, during which the event loop waits.
SAMPLES_A_PIECE: Final = 250

Key = tuple[int, int]
"""Which process of which worker: (worker, how often it was started)."""


def packed(families: Iterable[Family]) -> bytes:
    """Return families as bytes. For a thread: it lets the event loop in between."""
    return pickle.dumps([pickle.dumps(piece) for family in families for piece in _pieces(family)])


def _pieces(family: Family) -> Iterator[Family]:
    samples = iter(family.samples)
    first = True
    while (part := list(islice(samples, SAMPLES_A_PIECE))) or first:
        first = False
        yield family._replace(samples=part)


def unpacked(content: bytes) -> list[Family]:
    """Return the families of ``packed``. For a thread."""
    return [pickle.loads(piece) for piece in pickle.loads(content)]


def added(several: Iterable[Iterable[Family]]) -> list[Family]:
    """Return the values of several processes as those of one; families keep their order."""
    families: dict[str, Family] = {}
    values: dict[str, dict[tuple[str, ...], Any]] = {}
    for process in several:
        for family in process:
            families.setdefault(family.name, family)
            found = values.setdefault(family.name, {})
            for labels, value in family.samples:
                key = tuple(labels)
                found[key] = _together(family, found[key], value) if key in found else value
    return [
        family._replace(samples=list(values[name].items())) for name, family in families.items()
    ]


def _together(family: Family, one: Any, other: Any) -> Any:
    if family.kind == "histogram":
        (counts, total), (more, more_total) = one, other
        return [a + b for a, b in zip(counts, more, strict=True)], total + more_total
    if family.kind == "gauge" and family.across != "sum":
        return max(one, other) if family.across == "max" else min(one, other)
    return one + other


class Totals:
    """The metrics of the whole gate. For any thread.

    ``metrics``  returns the settings that bound the labels
    """

    def __init__(self, metrics: Callable[[], Metrics] = Metrics) -> None:
        self._labels = BoundedLabels(metrics)
        self._lock = threading.Lock()
        self._last: dict[Key, tuple[int, list[Family]]] = {}
        self._ended: list[Family] = []
        self._ended_starts: dict[int, int] = {}

    def merged(
        self,
        own: Iterable[Family],
        answers: Mapping[Key, bytes],
        ended: Mapping[int, int],
        asked: int,
    ) -> list[Family]:
        """Return the metrics. Calls may come later than others that were prepared after them.

        ``own``      of the parent
        ``answers``  of the workers that have answered; the others have their last values. Those of
                     a process whose end has been counted are ignored
        ``ended``    worker -> how many of its processes have ended
        ``asked``    a number that is higher for answers to later questions: older ones do not
                     replace them
        """
        with self._lock:
            for key, content in answers.items():
                if not self._has_ended(key) and self._is_newer(key, asked):
                    counted = [one for one in unpacked(content) if one.name not in OF_PARENT]
                    self._last[key] = asked, [self._labels.of(one) for one in counted]
            for worker, start in ended.items():
                self._ended_starts[worker] = max(start, self._ended_starts.get(worker, 0))
            for key in list(filter(self._has_ended, self._last)):
                counted = [one for one in self._last.pop(key)[1] if one.kind != "gauge"]
                self._ended = added((self._ended, counted))
            return added((own, self._ended, *(families for _, families in self._last.values())))

    def _is_newer(self, key: Key, asked: int) -> bool:
        return key not in self._last or self._last[key][0] < asked

    def _has_ended(self, key: Key) -> bool:
        worker, start = key
        return start <= self._ended_starts.get(worker, 0)


#: Values that do not count, by label.
_ALWAYS: Final[dict[str, Collection[str]]] = {"topic": {OTHER}, "node": {OTHER, BOOTSTRAP}}


class BoundedLabels:
    """A limit on the topics and nodes that have their own label, as the settings set it.

    Those that came first have one; the others become ``(other)``. For one thread at a time.
    """

    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        self._metrics = metrics
        self._own: dict[str, set[str]] = {label: set() for label in _ALWAYS}

    def of(self, family: Family) -> Family:
        """Return a family whose labels are bounded; a sample may come twice then."""
        for at, label in enumerate(family.labels):
            if label in _ALWAYS:
                samples = list(self._bounded(family, at))
                family = family._replace(samples=samples)
        return family

    def _bounded(self, family: Family, at: int) -> Iterator[tuple[Sequence[str], Any]]:
        label, metrics = family.labels[at], self._metrics()
        most = metrics.topics if label == "topic" else metrics.nodes
        own, always = self._own[label], _ALWAYS[label]
        for values, number in family.samples:
            value = values[at]
            if value in own or value in always:
                yield values, number
            elif len(own) < most:
                own.add(value)
                yield values, number
            else:
                yield (*values[:at], OTHER, *values[at + 1 :]), number
