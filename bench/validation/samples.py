"""Select the samples that count, and return their middle and their spread.

A virtual core has two speeds, so samples of ours, and of every one-threaded peer, count if the
probe with them shows the fast one. Kafka runs threads of its own on several cores and has no
probe: its best iteration is taken against our median, which is the cautious side. Medians of
everything stand next to it.

A verdict is computed, never written: ``met``, ``missed``, or ``noise`` where a figure fails its
target by no more than it moves from round to round.
"""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

FAST_WITHIN = 1.2
LEAST_FAST = 5


class Time(NamedTuple):
    """Nanoseconds a batch."""

    # median of the samples in the fast state; where there is none, of all, each shortened as its
    # probe says
    fast: float
    low: float  # their 10th percentile
    high: float  # and 90th
    median: float  # of all samples
    by_round: tuple[
        float | None, ...
    ]  # median of each round's fast samples, None where it has none
    all_slow: bool  # no sample was in the fast state


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def of_samples(rounds: list[dict[str, Any]], best_probe: float) -> Time | None:
    rounds = [answer for answer in rounds if answer.get("ns")]
    if not rounds:
        return None
    pairs = [
        [
            (ns, probe)
            for ns, probe in zip(
                a["ns"], a.get("probe") or [best_probe] * len(a["ns"]), strict=True
            )
        ]
        for a in rounds
    ]
    every = [pair for one in pairs for pair in one]
    limit = best_probe * FAST_WITHIN
    all_slow = sum(probe <= limit for _, probe in every) < min(LEAST_FAST, len(every))
    if all_slow:
        pairs = [[(ns * best_probe / probe, best_probe) for ns, probe in one] for one in pairs]
    by_round = [[ns for ns, probe in one if probe <= limit] for one in pairs]
    fast = [ns for one in by_round for ns in one]
    return Time(
        statistics.median(fast),
        percentile(fast, 0.1),
        percentile(fast, 0.9),
        statistics.median(ns for ns, _ in every),
        tuple(statistics.median(one) if one else None for one in by_round),
        all_slow,
    )


class KafkaTime(NamedTuple):
    """Nanoseconds a batch, wall, by JMH iterations."""

    best: float
    median: float
    worst: float
    by_round: tuple[float | None, ...]  # best iteration of each
    bytes: float | None


def of_iterations(rounds: list[dict[str, Any]]) -> KafkaTime | None:
    rounds = [answer for answer in rounds if answer.get("ns")]
    if not rounds:
        return None
    every = [ns for answer in rounds for ns in answer["ns"]]
    best = [min(answer["ns"]) for answer in rounds]
    return KafkaTime(
        min(best), statistics.median(every), max(every), tuple(best), rounds[-1].get("bytes")
    )
