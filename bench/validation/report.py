"""Rows and times of a run of peers in turns: which samples count, their middle and their spread.

A virtual core has two speeds, so samples of ours, and of every one-threaded peer, count if the
probe with them shows the fast one. Kafka runs threads of its own on several cores and has no
probe: its best iteration is compared with our median, which is the cautious side. Medians of
everything stand next to it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bench import runs
from bench.validation import cells

FAST_WITHIN = 1.2  # of the best probe of the run
MIN_FAST_PROBES = 5
OBTAINING = ("malloc", "calloc", "memalign", "mmap")
SLOW = "no sample in the core's fast state"

SLOW_PATH = "slow path vs Kafka, {} × {} B"
ONE_CALL = "vs Kafka, 1 × 100 B, one Python call a batch"
MANY = "vs Kafka, 1 × 100 B, 100 a call"
OTHERS = "vs Kafka, every other cell"
PACKAGES, MAGIC_1 = "provider packages vs Kafka (no target)", "magic 1 vs Kafka (no target)"
SMALL = "180-byte batches, 100 a call, ns"
CALLS = "allocator calls a batch beyond the result"

Raw = dict[str, dict[str, list[dict[str, Any]]]]
Row = dict[str, Any]


class Time(NamedTuple):
    """Nanoseconds a batch.

    ``fast`` is the median of the samples in the fast state; where there is none, of all, each
    shortened as its probe says. ``by_round`` has the median of each round's fast samples, or None.
    """

    fast: float
    median: float  # of all samples
    by_round: tuple[float | None, ...]
    all_slow: bool = False


def of_samples(rounds: Sequence[dict[str, Any]], best_probe: float) -> Time | None:
    """Return the time of a one-threaded peer's answers; None without samples."""
    pairs = [
        list(zip(a["ns"], a.get("probe") or [best_probe] * len(a["ns"]), strict=True))
        for a in rounds
        if a.get("ns")
    ]
    every = [pair for one in pairs for pair in one]
    if not every:
        return None
    limit = best_probe * FAST_WITHIN
    all_slow = sum(probe <= limit for _, probe in every) < min(MIN_FAST_PROBES, len(every))
    if all_slow:
        pairs = [[(ns * best_probe / probe, best_probe) for ns, probe in one] for one in pairs]
    by_round = [[ns for ns, probe in one if probe <= limit] for one in pairs]
    return Time(
        statistics.median(ns for one in by_round for ns in one),
        statistics.median(ns for ns, _ in every),
        tuple(statistics.median(one) if one else None for one in by_round),
        all_slow,
    )


def of_iterations(rounds: Sequence[dict[str, Any]]) -> Time | None:
    """Return the time of Kafka's answers: ``fast`` is its best iteration, of each round too."""
    times = [answer["ns"] for answer in rounds if answer.get("ns")]
    if not times:
        return None
    best = [min(one) for one in times]
    return Time(min(best), statistics.median(ns for one in times for ns in one), tuple(best))


def name_of(cell: cells.Cell) -> str:
    """Return codec, records and size of a value, as rows are named."""
    return f"{cell.codec} {cell.records} × {cell.value_size} B"


def beyond_result(
    group: str, name: str, alone: dict[str, Any], kept: dict[str, Any], bare: dict[str, Any]
) -> Iterator[Row]:
    """Count the allocator calls that an operation makes besides those of its result."""
    if all("per_call" in answer for answer in (alone, kept, bare)):
        # keeping results makes a list grow, by realloc; of these the bare call must make none
        value = bare["per_call"]["realloc"]
        value += sum(kept["per_call"][call] - alone["per_call"][call] for call in OBTAINING)
        yield {"group": group, "name": name, "value": round(value, 3)}


class Reader:
    """The raw answers of one run."""

    def __init__(self, raw: Raw, best_probe: float, allocations: dict[str, Any]) -> None:
        self.raw, self.best_probe, self.allocations = raw, best_probe, allocations

    def time(self, cell: str, what: str) -> Time | None:
        """Return the time of an operation, or of Kafka."""
        answers = self.raw.get(cell, {}).get(what, [])
        if what.partition(" ")[0] == "kafka":
            return of_iterations(answers)
        return of_samples(answers, self.best_probe)

    def over_kafka(
        self, group: str, cell: cells.Cell, what: str, kafka: str = "kafka"
    ) -> Iterator[Row]:
        """Yield Kafka's best iteration over our median, where both were measured."""
        ours, other = self.time(cell.name, what), self.time(cell.name, kafka)
        if ours and other:
            # without a fast sample ours is taken as it is: nothing says that Kafka's cores were fast
            middle = ours.median if ours.all_slow else ours.fast
            spread = runs.spread(runs.ratios(other.by_round, ours.by_round))
            yield self._row(group, cell, middle, other.fast) | {
                "value": other.fast / middle,
                "median_value": other.median / ours.median,
                "spread": spread,
                "note": SLOW if ours.all_slow else "",
            }

    def over(self, group: str, cell: cells.Cell, what: str, other: str) -> Iterator[Row]:
        """Yield our time over another's, both with one thread."""
        ours, peer = self.time(cell.name, what), self.time(cell.name, other)
        if ours and peer:
            is_slow = ours.all_slow or peer.all_slow
            spread = runs.spread(runs.ratios(ours.by_round, peer.by_round))
            yield self._row(group, cell, ours.fast, peer.fast) | {
                "value": ours.fast / peer.fast,
                "median_value": ours.median / peer.median,
                "spread": max(spread, FAST_WITHIN - 1) if is_slow else spread,
                "note": SLOW if is_slow else "",
            }

    def _row(self, group: str, cell: cells.Cell, ours: float, other: float) -> Row:
        return {"group": group, "name": name_of(cell), "ours_ns": ours, "peer_ns": other}

    def times(self) -> dict[str, dict[str, Any]]:
        """Return the times of all operations by cell, with allocator calls where counted."""
        found: dict[str, dict[str, Any]] = {}
        for cell, answers in self.raw.items():
            for what, rounds in answers.items():
                if (time := self.time(cell, what)) is None:
                    continue
                made = {"us": time.fast / 1e3}
                if what.partition(" ")[0] == "kafka":
                    made = {"us": time.median / 1e3, "best_us": time.fast / 1e3}
                    made["bytes"] = rounds[-1].get("bytes")
                counted = self.allocations.get(cell, {}).get(what, {})
                if "allocations" in counted:
                    made["allocations"] = counted["allocations"] / counted["batches"]
                found.setdefault(cell, {})[what] = made
        return found


def validation_rows(reader: Reader) -> Iterator[Row]:
    """Yield the rows of the page of validation."""
    for shape in ((100, 1000), (100, 100)):
        for codec in cells.CODECS:
            cell = cells.Cell(2, codec, *shape)
            yield from reader.over_kafka(SLOW_PATH.format(*shape), cell, "native check_ranges")
    for group, what in ((ONE_CALL, "native check"), (MANY, "native check_ranges")):
        for codec in cells.CODECS:
            yield from reader.over_kafka(group, cells.Cell(2, codec, 1, 100), what)
    for cell in cells.cells(2):
        if (cell.records, cell.value_size) not in cells.SHAPES:
            yield from reader.over_kafka(OTHERS, cell, "native check_ranges")
    for name, what in (
        ("header and CRC (scan_batches)", "native scan_batches"),
        ("walked (check_ranges)", "native check_ranges"),
    ):
        if time := reader.time(cells.Cell(2, "none", 1, 100).name, what):
            note = SLOW if time.all_slow else ""
            yield {"group": SMALL, "name": name, "value": time.fast, "note": note}
    yield from allocation_rows(reader.allocations)
    for cell in cells.cells(2):
        if (cell.records, cell.value_size) in cells.SHAPES:
            yield from reader.over_kafka(PACKAGES, cell, "packages check_ranges")
    for cell in cells.cells(1):
        yield from reader.over_kafka(MAGIC_1, cell, "native validate_messages")


def allocation_rows(allocations: dict[str, Any]) -> Iterator[Row]:
    """Yield the allocator calls of check and check_ranges besides those of their results."""
    every = [a["native check_ranges"] for a in allocations.values() if "native check_ranges" in a]
    least = min((one["allocations"] for one in every if "allocations" in one), default=0.0)
    for name, answers in allocations.items():
        cell = name.removeprefix("v2-")
        three = [answers.get(f"native {w}", {}) for w in ("result_alone", "check_kept", "check")]
        yield from beyond_result(CALLS, f"check, {cell}", *three)
        many = answers.get("native check_ranges", {})
        if "allocations" in many:
            # the columns are the result: what a batch adds is what this call makes more than the
            # cheapest one does
            value = round((many["allocations"] - least) / many["batches"], 3)
            yield {"group": CALLS, "name": f"check_ranges, {cell}", "value": value}


def rounded(value: Any) -> Any:
    """Round to four significant digits: recorded figures are not more exact, and stay small."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value
