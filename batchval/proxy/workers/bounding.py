"""Labels over several workers: each has bounded its own topics and nodes, but not the same ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from batchval.proxy.settings.config import Metrics
from batchval.proxy.watch.metrics import OTHER, Family
from batchval.proxy.watch.traffic import BOOTSTRAP

__all__ = ["BoundedLabels"]

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
