"""Metrics of the clients by Kafka's names, for --print-metrics.

    group:name:{client-id=perf-consumer, topic=t}

A name of Kafka's has what Kafka's documentation says of it, with one difference: averages and rates
are over the whole run. Kafka's are over its last 30 seconds or so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["Metrics", "Rebalances", "Windows", "average", "named"]

Metrics = dict[str, float | str]


def named(group: str, values: Mapping[str, float], client_id: str, **tags: object) -> Metrics:
    """Return the values under their full names. ``tags``: those after client-id."""
    shown = ", ".join(
        [f"client-id={client_id}", *(f"{tag}={value}" for tag, value in tags.items())]
    )
    return {f"{group}:{name}:{{{shown}}}": value for name, value in values.items()}


def average(total: float, count: float) -> float:
    """Return the average, or the rate where ``count`` is seconds; NaN without any, as Kafka's."""
    return total / count if count > 0 else math.nan


class Rebalances:
    """Rebalances of one consumer: from asking to join to being assigned."""

    def __init__(self) -> None:
        self._asked_ns: int | None = None
        self._total_ns = self._highest_ns = 0
        self._count = 0
        self._ended_ns: int | None = None

    def begin(self) -> None:
        """Note that one is under way; it may be known already."""
        if self._asked_ns is None:
            self._asked_ns = time.monotonic_ns()

    def end(self) -> None:
        """Note an assignment; without a rebalance it is not counted."""
        if self._asked_ns is None:
            return
        self._ended_ns = time.monotonic_ns()
        took = self._ended_ns - self._asked_ns
        self._total_ns += took
        self._highest_ns = max(self._highest_ns, took)
        self._count += 1
        self._asked_ns = None

    def ms(self) -> float:
        """Return the duration of all until now, the one under way included."""
        under_way = time.monotonic_ns() - self._asked_ns if self._asked_ns is not None else 0
        return (self._total_ns + under_way) / 1e6

    def metrics(self, client_id: str, assigned_partitions: int) -> Metrics:
        """Return those of the group."""
        ago = -1.0 if self._ended_ns is None else (time.monotonic_ns() - self._ended_ns) // 10**9
        values = {
            "assigned-partitions": assigned_partitions,
            "last-rebalance-seconds-ago": ago,
            "rebalance-latency-avg": average(self._total_ns / 1e6, self._count),
            "rebalance-latency-max": self._highest_ns / 1e6 if self._count else math.nan,
            "rebalance-latency-total": self._total_ns / 1e6,
            "rebalance-total": self._count,
        }
        return named("consumer-coordinator-metrics", values, client_id)


class Windows:
    """A value that librdkafka's statistics have for each window: count, sum and maximum of all."""

    def __init__(self) -> None:
        self.count = self.sum = self.highest = 0

    def add(self, window: Mapping[str, Any]) -> None:
        """Add what one statistics document has."""
        self.count += window["cnt"]
        self.sum += window["sum"]
        self.highest = max(self.highest, window["max"])

    @property
    def mean(self) -> float:
        return average(self.sum, self.count)

    @property
    def max(self) -> float:
        return self.highest if self.count else math.nan
