"""Ranges of segments, and tasks of ranges. A batch belongs to the range where it starts.

Cuts are only proposals: by the segment's .index where that has entries, at fixed positions else.
The task finds out where the first batch of its range really starts (batchval.segment.range_check).
A task is what a process or one of Spark's tasks reads at a time: small ranges share one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from batchval.segment.reader import INDEX_ENTRY
from batchval.segment.store import SegmentInfo, Store, Unreadable, shown

__all__ = ["Range", "Task", "cut", "not_there", "pack", "together"]

T = TypeVar("T")

#: ranges of a segment: of Kafka's largest, 2 GiB, they are half a MiB each
MAX_RANGES = 4096
#: bytes that a range counts as at least: to open its files costs as much
OPENING = 1 << 20
#: a task has as many bytes as make this number of tasks
TASKS = 64
#: ... but at least so many: a task of Spark costs 10 ms of CPU, and each writes files of its own
MIN_RANGE_BYTES = 32 << 20


class Range(NamedTuple):
    """The batches of a segment that start in [start, end)."""

    segment: SegmentInfo
    start: int
    end: int


#: ranges that are read one after the other, of which an audit writes files together
Task: TypeAlias = "tuple[Range, ...]"


def pack(ranges: Iterable[Range], split_bytes: int) -> list[Task]:
    """Return ranges in tasks of about ``split_bytes`` or less, the largest first.

    Ranges of one topic with near offsets are neighbours: partitions that are written alike have
    these at one time, so that a task writes files of few hours. The same ranges make the same
    tasks, in whatever order they come.
    """
    weighed = [(max(one.end - one.start, OPENING), one) for one in sorted(ranges, key=_near)]
    return [tuple(task) for task in together(weighed, split_bytes)]


def together(weighed: Sequence[tuple[int, T]], split_bytes: int) -> list[list[T]]:
    """Return what each task reads, the largest first; in a task in this order.

    ``weighed``: bytes, and what has them.
    """
    most = min(split_bytes, max(MIN_RANGE_BYTES, sum(weight for weight, _ in weighed) // TASKS))
    found = [(weight, [one]) for weight, one in weighed if 2 * weight > most]
    free = 0
    for weight, one in weighed:
        if 2 * weight > most:
            continue
        if weight > free:
            found.append((0, []))
            free = most
        free -= weight
        found[-1][1].append(one)
        found[-1] = most - free, found[-1][1]
    return [task for _, task in sorted(found, key=lambda pair: -pair[0])]


def _near(part: Range) -> tuple[str, int, int, str, int]:
    segment = part.segment
    return segment.topic, segment.base_offset, segment.partition, segment.uri, part.start


def not_there(
    paths: Sequence[str], topics: Sequence[str] | None, listed: Iterable[SegmentInfo | Unreadable]
) -> Iterator[Unreadable]:
    """Yield the requested topics that were not found: a misspelt name must not look like a topic
    without findings.
    """
    found = {one.topic for one in listed if isinstance(one, SegmentInfo)}
    missed = [
        name for name in topics or () if not any(fnmatch.fnmatchcase(one, name) for one in found)
    ]
    if missed and paths:
        store, path = Store.of(paths[0])
        yield Unreadable(shown(store.uri(path)), f"topic not found: {', '.join(missed)}")


def cut(segment: SegmentInfo, split_bytes: int, store: Store) -> list[Range]:
    """Return a segment's ranges, in order, of about ``split_bytes`` each, at most MAX_RANGES.

    An empty segment has one, so that it is seen. One that cannot be opened stays in one piece: one
    task says so, once.
    """
    size = segment.size
    split_bytes = max(split_bytes, -(-size // MAX_RANGES))
    places = list(range(split_bytes, size, split_bytes))
    if places:
        try:
            store.open(Store.of(segment.uri)[1]).source.close()
        except OSError:
            places = []
    if places and segment.index_uri is not None:
        places = _at_entries(places, _positions(segment, store), size)
    starts = [0, *places]
    return [Range(segment, a, b) for a, b in zip(starts, [*places, size], strict=True)]


def _positions(segment: SegmentInfo, store: Store) -> np.ndarray:
    """Return where the index says that batches start."""
    assert segment.index_uri is not None
    try:
        data = store.read_bytes(Store.of(segment.index_uri)[1])
    except OSError:
        return np.empty(0, "<i8")
    pairs = np.frombuffer(data, ">u4", len(data) // INDEX_ENTRY * 2).reshape(-1, 2)
    positions = pairs[:, 1].astype("<i8")
    return positions if (np.diff(positions) > 0).all() else np.unique(positions)


def _at_entries(places: list[int], positions: np.ndarray, size: int) -> list[int]:
    """Return each place moved to the next entry, if there is one before the next place."""
    positions = positions[(positions > 0) & (positions < size)]
    moved = []
    for place, limit in zip(places, [*places[1:], size], strict=True):
        i = int(np.searchsorted(positions, place))
        moved.append(int(positions[i]) if i < len(positions) and positions[i] < limit else place)
    return moved
