"""Kafka's other files compared with the log that they describe: rules L9 to L14.

Every check holds on a healthy log that is being written, cleaned or deleted: the files of a segment
are read before the segment, the checkpoints of a log folder before the listing. One file has at
most one finding, at the first place that differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from batchval.report.units import plural
from batchval.rules import Rule
from batchval.segment.aux_files import (
    ABORTED_ENTRY,
    TIME_ENTRY,
    EpochStart,
    Malformed,
    TimeEntries,
    check_producer_snapshot,
    check_topic_id,
    epoch_starts,
    transactions,
)
from batchval.segment.file_names import LEADER_EPOCHS, PARTITION_METADATA
from batchval.segment.findings import Found

__all__ = [
    "EpochChange",
    "check_epochs",
    "check_small_file",
    "check_time_entries",
    "check_time_order",
    "check_transactions",
    "first_of",
]


class EpochChange(NamedTuple):
    """The first batch of a segment with another leader epoch than the batch before."""

    epoch: int
    offset: int


def first_of(found: Sequence[Found]) -> Iterator[Found]:
    """Yield the first finding, with how many follow."""
    if found:
        yield found[0]._replace(follows=len(found) - 1 + sum(one.follows for one in found))


# ---- the time index ------------------------------------------------------------------------------


def check_time_order(entries: TimeEntries, size: int, *, is_last: bool) -> Iterator[Found]:
    """Yield the findings of a whole .timeindex by itself.

    ``is_last``: a broker may be writing the last entry.
    """
    stamps, offsets, rest = entries
    if is_last:
        stamps, offsets = stamps[:-1], offsets[:-1]
    bad = np.flatnonzero((stamps[1:] <= stamps[:-1]) | (offsets[1:] < offsets[:-1])) + 1
    if len(bad):
        at = int(bad[0])
        reason = (
            f"entry {at} (timestamp {stamps[at]}, offset {offsets[at]}) is not above the one "
            f"before (timestamp {stamps[at - 1]}, offset {offsets[at - 1]})"
        )
        follows = len(bad) - 1
        yield Found(
            at * TIME_ENTRY, int(offsets[at]), Rule.L9, reason, side=".timeindex", follows=follows
        )
    elif rest:
        reason = f"{plural(rest, 'byte')} after the last complete entry"
        yield Found(size - rest, None, Rule.L9, reason, side=".timeindex")


def check_time_entries(
    entries: TimeEntries, bases: np.ndarray, last_offsets: np.ndarray, max_timestamps: np.ndarray
) -> Iterator[Found]:
    """Yield the entries whose offset lies in one of these batches, with another timestamp.

    The batches ascend. An entry whose offset lies in none of them belongs to another range.
    """
    rows = np.searchsorted(last_offsets, entries.offsets)
    inside = rows < len(last_offsets)
    rows[~inside] = 0
    inside &= bases[rows] <= entries.offsets
    stated = max_timestamps[rows]
    for i in np.flatnonzero(inside & (stated != entries.timestamps)).tolist():
        offset, stamp = int(entries.offsets[i]), int(entries.timestamps[i])
        reason = f"offset {offset}: timestamp {stamp}, but its batch has max_timestamp {stated[i]}"
        yield Found(i * TIME_ENTRY, offset, Rule.L9, reason, side=".timeindex")


# ---- aborted transactions ------------------------------------------------------------------------


def check_transactions(data: bytes, base: int) -> Iterator[Found]:
    """Yield the findings of a .txnindex by itself."""
    try:
        entries = transactions(data)
    except Malformed as error:
        yield Found(len(data), None, Rule.L10, str(error), side=".txnindex")
        return
    found = []
    before = -1
    for number, one in enumerate(entries):
        why = None
        if one.version != 0:
            why = f"version is {one.version}: expected 0"
        elif not 0 <= one.first_offset <= one.last_offset:
            why = f"first offset {one.first_offset}, but last offset {one.last_offset}"
        elif one.last_offset < base:
            why = f"last offset {one.last_offset} is below the segment's base offset {base}"
        elif one.last_offset <= before:
            why = f"last offset {one.last_offset} is not above the one before, {before}"
        elif one.producer_id < 0:
            why = f"producer id is {one.producer_id}: expected 0 or more"
        if why:
            place = number * ABORTED_ENTRY, one.first_offset
            found.append(Found(*place, Rule.L10, f"entry {number}: {why}", side=".txnindex"))
        before = max(before, one.last_offset)
    yield from first_of(found)


# ---- small files ---------------------------------------------------------------------------------

_SMALL: dict[str, tuple[Rule, Callable[[bytes], object]]] = {
    ".snapshot": (Rule.L11, check_producer_snapshot),
    LEADER_EPOCHS: (Rule.L12, epoch_starts),
    PARTITION_METADATA: (Rule.L14, check_topic_id),
}


def check_small_file(name: str, data: bytes) -> Iterator[Found]:
    """Yield the finding of a file that a broker reads as a whole; nothing for other files."""
    for ending, (rule, check) in _SMALL.items():
        if name.endswith(ending):
            try:
                check(data)
            except Malformed as error:
                yield Found(0, None, rule, str(error), side=name)


def check_epochs(
    starts: Sequence[EpochStart], seen: Sequence[EpochChange], end: int, *, compacted: bool
) -> Iterator[Found]:
    """Yield the first line of a leader-epoch-checkpoint that contradicts the batches.

    ``seen``: where epochs change along the log, the first batch included. ``end``: the offset after
    the last batch. The first batch of an epoch may have been deleted or compacted away.
    """
    found = []
    side = LEADER_EPOCHS
    for number, (before, one) in enumerate(itertools.pairwise(starts), 1):
        if one.epoch <= before.epoch or one.offset < before.offset:
            reason = f"epoch {one.epoch} from {one.offset} follows epoch {before.epoch} from {before.offset}"
            found.append(Found(number, one.offset, Rule.L12, reason, side=side))
    if not found:
        named = {one.epoch: one.offset for one in starts}
        below = starts[0].offset if starts else 0
        for number, change in enumerate(seen):
            if change.offset < below:  # below the log start, which DeleteRecords may have raised
                continue
            if change.epoch not in named:
                reason = f"epoch {change.epoch} of the batch at offset {change.offset} is not in the file"
                found.append(Found(0, change.offset, Rule.L12, reason, side=side))
            elif named[change.epoch] > change.offset or (
                number and not compacted and named[change.epoch] < change.offset
            ):
                reason = (
                    f"epoch {change.epoch} starts at {named[change.epoch]}, "
                    f"but its first batch is at offset {change.offset}"
                )
                found.append(Found(0, change.offset, Rule.L12, reason, side=side))
    if not found and starts and starts[-1].offset > end:
        reason = (
            f"epoch {starts[-1].epoch} starts at {starts[-1].offset}, but the log ends at {end}"
        )
        found.append(Found(0, starts[-1].offset, Rule.L12, reason, side=side))
    yield from first_of(found)
