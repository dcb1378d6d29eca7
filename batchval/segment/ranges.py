"""Ranges of segments: what one task reads. A batch belongs to the range that it starts in, whatever its end.

Cuts are only proposals: by the segment's .index where that has entries, at fixed positions else.
The task finds out where the first batch of its range really starts (batchval.segment.judge).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from batchval.segment.reader import INDEX_ENTRY
from batchval.segment.store import SegmentInfo, Store, Unreadable, shown

__all__ = ["Range", "cut", "not_there"]


#: ranges of a segment: of Kafka's largest, 2 GiB, they are half a MiB each
MOST = 4096


class Range(NamedTuple):
    """The batches of a segment that start in [start, end)."""

    segment: SegmentInfo
    start: int
    end: int


def not_there(
    paths: Sequence[str], topics: Sequence[str] | None, listed: Iterable[SegmentInfo | Unreadable]
) -> Iterator[Unreadable]:
    """A topic that was asked for and is nowhere: its name may be misspelt, and no news of it is not good news."""
    found = {one.topic for one in listed if isinstance(one, SegmentInfo)}
    missed = [name for name in topics or () if not any(fnmatch.fnmatchcase(one, name) for one in found)]
    if missed and paths:
        store, path = Store.of(paths[0])
        yield Unreadable(shown(store.uri(path)), f"no topic of the name {', '.join(missed)}")


def cut(segment: SegmentInfo, split_bytes: int, store: Store) -> list[Range]:
    """A segment's ranges, in order, of about ``split_bytes`` each, at most MOST.

    An empty segment has one, so that it is seen. One that cannot be opened stays in one piece: one task says so, once.
    """
    size = segment.size
    split_bytes = max(split_bytes, -(-size // MOST))
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
    """Where the index says that batches start."""
    assert segment.index_uri is not None
    try:
        data = store.read_bytes(Store.of(segment.index_uri)[1])
    except OSError:
        return np.empty(0, "<i8")
    pairs = np.frombuffer(data, ">u4", len(data) // INDEX_ENTRY * 2).reshape(-1, 2)
    positions = pairs[:, 1].astype("<i8")
    return positions if (np.diff(positions) > 0).all() else np.unique(positions)


def _at_entries(places: list[int], positions: np.ndarray, size: int) -> list[int]:
    """Each place moved to the next entry, where there is one before the next place."""
    positions = positions[(positions > 0) & (positions < size)]
    moved = []
    for place, limit in zip(places, [*places[1:], size], strict=True):
        i = int(np.searchsorted(positions, place))
        moved.append(int(positions[i]) if i < len(positions) and positions[i] < limit else place)
    return moved
