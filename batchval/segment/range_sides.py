"""Kafka's files next to a segment, checked by the range that they describe (L6, L9 to L14).

.index, .timeindex   each range checks the entries that point into it; the first one checks their
                     order
all others           checked whole by the first range of the segment
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from batchval.rules import Rule
from batchval.segment.file_names import LEADER_EPOCHS
from batchval.segment.findings import Found, Level
from batchval.segment.index import (
    Places,
    index_entries,
    index_lies,
    index_out_of_order,
    index_rest_reason,
)
from batchval.segment.reader import INDEX_ENTRY
from batchval.segment.side_checks import (
    check_small_file,
    check_time_entries,
    check_time_order,
    check_transactions,
    first_of,
)
from batchval.segment.side_files import TIME_ENTRY, Malformed, epoch_starts, time_entries
from batchval.segment.side_files import transactions as parse_transactions
from batchval.segment.store import SegmentInfo, Store, Unreadable, one_line, sibling

if TYPE_CHECKING:
    from batchval.segment.range_check import RangeResult

__all__ = ["check_sides", "read_sides"]

#: index entries that match nothing which a range lists; the others are counted
_MOST_MISSES = 1000


def read_sides(result: RangeResult) -> dict[str, bytes]:
    """Return the files next to the segment by name: indexes, and to its first range the others."""
    segment = result.range.segment
    found = {}
    for side in segment.sides:
        if result.range.start and not side.name.endswith((".index", ".timeindex")):
            continue
        uri = sibling(segment.uri, side.name)
        store, path = Store.of(uri)
        try:
            found[side.name] = store.read_bytes(path)
        except FileNotFoundError:
            continue  # gone with its segment, which is opened next
        except OSError as error:
            if result.range.start == 0:
                result.unreadable.append(Unreadable(uri, one_line(error)))
    return found


def check_sides(result: RangeResult, places: Places, sides: dict[str, bytes]) -> None:
    """Add the findings of these files to a result whose range has been read. ``places``: where its
    batches are.
    """
    segment = result.range.segment
    for name, data in sides.items():
        if name.endswith(".index"):
            _check_index(result, places, data)
        elif name.endswith(".timeindex"):
            _check_time_index(result, places, data)
        elif name.endswith(".txnindex"):
            damaged = list(check_transactions(data, segment.base_offset))
            result.findings.add(*damaged)
            result.aborted = [] if damaged else parse_transactions(data)
        else:
            result.findings.add(*check_small_file(name, data))
        if name == LEADER_EPOCHS:
            with contextlib.suppress(Malformed):
                result.starts = epoch_starts(data)


def _check_time_index(result: RangeResult, places: Places, data: bytes) -> None:
    """Check L9: the order of all entries in the first range, and each entry in the range of its
    batch.
    """
    segment = result.range.segment
    entries = time_entries(data, segment.base_offset)
    is_open = _is_open(segment, data, TIME_ENTRY, len(entries.offsets))
    if result.range.start == 0:
        result.time_end = int(entries.timestamps[-1]) if len(entries.timestamps) else -1
        order = list(check_time_order(entries, len(data), is_last=segment.is_last))
        result.findings.add(*(_left_over(one) if is_open else one for one in order))
        if order:
            return
    bases, last, stamps = places.timestamps()
    if len(last) and (np.diff(last) > 0).all():
        found = first_of(list(check_time_entries(entries, bases, last, stamps)))
        result.time_misses += [_left_over(one) if is_open else one for one in found]


def _is_open(segment: SegmentInfo, data: bytes, entry: int, used: int) -> bool:
    """Return whether an index has space after its entries, as that of the segment that a broker
    writes."""
    return segment.is_last and len(data) // entry > used


def _left_over(found: Found) -> Found:
    """Return a note. A follower that truncates its log forgets the entries of its open indexes, but
    AbstractIndex.truncateToEntries0 leaves their bytes there until others take their place."""
    reason = f"{found.reason}; legal in an open index after the log was truncated"
    return found._replace(level=Level.NOTE, reason=reason)


def _size_now(segment: SegmentInfo) -> int:
    """Return the size of a file after its index was read: a broker may have written to both since
    the listing."""
    if not segment.is_last:
        return segment.size
    store, path = Store.of(segment.uri)
    try:
        return max(store.size(path), segment.size)
    except OSError:
        return segment.size


def _check_index(result: RangeResult, places: Places, data: bytes) -> None:
    """Check L6 of the entries that point into this range; the last range has those that point to
    the end or beyond.
    """
    segment, start, end = result.range
    is_end = end >= segment.size
    offsets, positions = index_entries(data, segment.base_offset)
    is_open = _is_open(segment, data, INDEX_ENTRY, len(offsets))
    if segment.is_last and len(positions) and not positions[-1]:
        offsets, positions = offsets[:-1], positions[:-1]  # a broker is writing it
    if start == 0:
        for lie in index_out_of_order(offsets, positions):
            found = Found(lie.position, lie.offset, Rule.L6, lie.reason, side=".index")
            result.findings.add(_left_over(found) if is_open else found)
    here = (positions >= start) & ((positions < end) | is_end)
    here &= (positions < segment.size) | (positions >= _size_now(segment))
    for lie in index_lies(offsets[here], positions[here], *places.arrays()):
        found = Found(lie.position, lie.offset, Rule.L6, lie.reason, side=".index")
        if is_open and not places.lost(lie.position):
            result.findings.add(_left_over(found))
        elif lie.names_a_batch:
            result.findings.add(found)
        elif not places.lost(lie.position):
            result.misses.append(lie)
            if len(result.misses) == _MOST_MISSES:
                break
    rest = len(data) % INDEX_ENTRY
    if rest and is_end:
        found = Found(len(data) - rest, None, Rule.L6, index_rest_reason(rest), side=".index")
        result.findings.add(found)
