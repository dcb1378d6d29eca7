"""Offset indexes (.index) compared with the batches of a segment (L6)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from batchval.core.batches.columns import BatchColumns
from batchval.report.units import plural
from batchval.segment.reader import Damage, index_entries

__all__ = [
    "IndexLie",
    "Places",
    "covers",
    "index_entries",
    "index_lies",
    "index_out_of_order",
    "index_rest_reason",
]


class Places:
    """Positions of a segment's batches, to compare its index with."""

    def __init__(self) -> None:
        self._starts: list[np.ndarray] = [np.empty(0, "<i8")]
        self._offsets: list[np.ndarray] = [np.empty(0, "<i8")]
        self._first: list[np.ndarray] = [np.empty(0, "<i8")]
        self._last: list[np.ndarray] = [np.empty(0, "<i8")]
        self._stamps: list[np.ndarray] = [np.empty(0, "<i8")]
        self.damaged: list[Damage] = []

    def add(self, base: int, columns: BatchColumns) -> None:
        first = columns["base_offset"].copy()
        # a batch with a wrong checksum, or with its last offset alone (magic 0 and 1), proves
        # nothing about an entry's offset
        first[~columns["is_valid"] | (columns["magic"] < 2)] = -(2**63)
        self._starts.append(columns["position"] + base)
        self._offsets.append(first)
        known = columns["is_valid"] & (columns["magic"] >= 2)
        self._first.append(columns["base_offset"][known])
        self._last.append(columns["last_offset"][known])
        self._stamps.append(columns["max_timestamp"][known])

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate(self._starts), np.concatenate(self._offsets)

    def timestamps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return base offsets, last offsets and max timestamps of the batches that are believed."""
        return np.concatenate(self._first), np.concatenate(self._last), np.concatenate(self._stamps)

    def lost(self, position: int) -> bool:
        return covers(self.damaged, position)


def covers(spans: Sequence[tuple[Any, ...]], position: int) -> bool:
    """Return whether a position lies in one of the spans (position, size, ...), which ascend."""
    at = bisect_right(spans, position, key=itemgetter(0)) - 1
    return at >= 0 and bool(position < spans[at][0] + spans[at][1])


class IndexLie(NamedTuple):
    """A wrong entry of an index; where it points at no batch, one may have been there that
    was damaged.
    """

    position: int
    offset: int
    reason: str
    names_a_batch: bool


def index_lies(
    offsets: np.ndarray, positions: np.ndarray, starts: np.ndarray, bases: np.ndarray
) -> Iterator[IndexLie]:
    """Yield the entries that break L6: an entry must point at the start of a batch that does not
    begin after the entry's offset.

    ``offsets``, ``positions``: the entries'. ``starts``: where batches start, ascending; ``bases``:
    their base offsets, the least int64 where that is not known.
    """
    rows = np.searchsorted(starts, positions)
    found = rows < len(starts)
    rows[~found] = 0
    if len(starts):
        found &= starts[rows] == positions
        is_late = found & (bases[rows] > offsets)
    else:
        is_late = found
    for i in np.flatnonzero(is_late | ~found):
        offset, position = int(offsets[i]), int(positions[i])
        reason = f"offset {offset}: no batch starts at position {position}"
        if found[i]:
            reason = f"offset {offset}: the batch at position {position} begins at {bases[rows[i]]}"
        yield IndexLie(position, offset, reason, names_a_batch=bool(found[i]))


def index_out_of_order(offsets: np.ndarray, positions: np.ndarray) -> Iterator[IndexLie]:
    """Yield the entries of a whole index that are not above the one before."""
    for i in (np.flatnonzero((np.diff(offsets) <= 0) | (np.diff(positions) <= 0)) + 1).tolist():
        before, entry = (f"(offset {offsets[j]}, position {positions[j]})" for j in (i - 1, i))
        reason = f"entry {i} {entry} is not above the one before {before}"
        yield IndexLie(int(positions[i]), int(offsets[i]), reason, names_a_batch=True)


def index_rest_reason(rest: int) -> str:
    return f"{plural(rest, 'byte')} after the last complete entry"
