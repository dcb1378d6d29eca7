"""The transaction index (.txnindex) of a segment, compared with its abort markers (L10)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from batchval.segment.transactions import NONE, AbortedRange

__all__ = ["TransactionIndexFault", "check_transaction_index"]


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
