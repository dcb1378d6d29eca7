"""Indexes of a segment: offsets (.index) compared with its batches (L6), and the transaction index
(.txnindex) with its abort markers (L10).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from batchval.core.batches.columns import BatchColumns
from batchval.report.units import plural
from batchval.segment.reader import Damage, index_entries
from batchval.segment.transactions import NONE, AbortedRange

__all__ = [
    "IndexLie",
    "Places",
    "TransactionIndexFault",
    "check_transaction_index",
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


class TransactionIndexFault(NamedTuple):
    """The fault of one .txnindex: the first difference, and how many there are.

    kind: ``missing`` (read_committed consumers get aborted records), ``extra`` or ``differs``.
    position: the marker's position in the segment; -1 for an entry without a marker.
    """

    segment: int
    kind: str
    producer_id: int
    first_offset: int
    last_offset: int
    position: int
    differences: int
    is_certain: bool
    rule: str
    reason: str


def check_transaction_index(
    aborted: Iterable[AbortedRange],
    entries: Iterable[tuple[int, int, int, int]] | None,
    *,
    segment: int,
    log_start: int = 0,
    end: int | None = None,
    certain_from: int = NONE,
    is_cleaned: bool = False,
) -> list[TransactionIndexFault]:
    """Compare one segment's .txnindex with its abort markers. Return no fault, or one for all.

    Args:
        aborted: ``Transactions.aborted(segment)``.
        entries: producer id, first offset, last offset and last stable offset of each entry; None
            without a file. Kafka creates it when the segment gets its first entry.
        segment: the base offset in the file's name.
        log_start: the log start offset; at least the base offset of the first segment.
        end: the offset after the last batch that was read. Entries from there on are ignored.
        certain_from: ``Transactions.certain_from`` after the segment, or after the whole log.
        is_cleaned: the cleaner may have rewritten the segment. It keeps an entry as it was while
            it finds a batch of the transaction, and removes the batch itself. So only what no
            cleaning explains is reported, as uncertain.
    """
    found: list[TransactionIndexFault] = []

    def add(kind: str, fields: tuple[int, ...], position: int, certain: bool, reason: str) -> None:
        certain = certain and not is_cleaned
        place = (int(fields[0]), int(fields[1]), int(fields[2]), position)
        found.append(TransactionIndexFault(segment, kind, *place, 1, certain, "L10", reason))

    markers = {one.last_offset: one for one in aborted}
    seen: set[int] = set()
    for entry in entries or ():
        last = entry[2]
        if last < log_start or (end is not None and last >= end):
            continue
        if last not in markers:
            where = f"no abort marker is at offset {last}"
            add("extra", entry, NONE, last >= certain_from, f"{where}, but the index has an entry")
        elif last in seen:
            add("extra", entry, markers[last].position, True, f"two entries for offset {last}")
        else:
            _compare(markers[last], entry, log_start, is_cleaned, add)
        seen.add(last)
    lacks = "does not exist" if entries is None else "has no entry"
    for one in markers.values():
        if one.first_offset == NONE or one.last_offset < log_start or one.last_offset in seen:
            continue
        reason = (
            f"producer id {one.producer_id} aborted offsets {one.first_offset} to "
            f"{one.last_offset}, but the index {lacks}"
        )
        certain = one.first_offset >= max(log_start, one.certain_from)
        add("missing", one, one.position, certain, reason)
    if not found:
        return []
    found.sort(key=lambda fault: (not fault.is_certain, fault.last_offset))
    return [found[0]._replace(differences=len(found))]


def _compare(
    one: AbortedRange,
    entry: tuple[int, int, int, int],
    log_start: int,
    is_cleaned: bool,
    add: Any,
) -> None:
    """Report the first field of an entry that its marker contradicts."""
    producer_id, first_offset, _, last_stable_offset = entry
    floor = max(log_start, one.certain_from)  # below it, batches may be unknown
    differs = f"the entry of the abort marker at offset {one.last_offset} has"
    if producer_id != one.producer_id:
        reason = f"{differs} producer id {producer_id}, the marker has {one.producer_id}"
        add("differs", entry, one.position, True, reason)
        return
    begins_below = first_offset < floor or (is_cleaned and one.first_offset == NONE)
    is_earlier = one.first_offset == NONE or first_offset < one.first_offset
    if first_offset != one.first_offset and not (is_earlier and (begins_below or is_cleaned)):
        has = f"first offset {one.first_offset}" if one.first_offset >= 0 else "no batch"
        reason = f"{differs} first offset {first_offset}, the log has {has}"
        certain = one.first_offset >= floor or one.first_offset == NONE
        add("differs", entry, one.position, certain, reason)
        return
    legal = {one.last_stable_offset}
    if one.last_stable_offset > one.last_offset:
        legal.add(one.next_first_offset)
    if is_cleaned or last_stable_offset in legal or 0 <= last_stable_offset < floor:
        return
    implied = one.last_stable_offset
    reason = f"{differs} last stable offset {last_stable_offset}, the log implies {implied}"
    add("differs", entry, one.position, one.last_stable_offset >= floor, reason)
