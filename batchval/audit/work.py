"""One range of one segment in; its files, and one small result that others can be joined to, out.

Spark's tasks, local processes and a plain loop call the same function, so their rows and findings are the same. What
spans ranges (offsets, epochs, sequences, the index) is left to batchval.audit.reduce.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from batchval.audit.outputs import BatchFiles, not_written
from batchval.audit.rows import Block, Options, read_range
from batchval.audit.segments import Range
from batchval.audit.state import Found, Hours, Last, RangeResult, hour_of, last_write
from batchval.audit.store import SegmentInfo, Store, Unreadable, one_line
from batchval.core.columns import BatchColumns
from batchval.core.continuity import Continuity
from batchval.rules import Rule, by_number
from batchval.segment.check import Places, damage_reason, index_lies, index_rest_reason, thinned
from batchval.segment.reader import INDEX_ENTRY, Damage, index_entries

__all__ = ["RangeResult", "is_compacted", "work"]


def is_compacted(options: Options, segment: SegmentInfo) -> bool:
    """By what is known before a batch is read. (``auto``: a thinned batch shows it too, but later.)"""
    if options.cleanup_policy == "auto":
        return bool(segment.cleaned)
    return "compact" in options.cleanup_policy


def work(range: Range, options: Options, out: str | None) -> RangeResult:
    """Reads a range; writes its rows below ``out``/batches, where the options want rows.

    What storage and bytes do is in the result, OSError is raised for what cannot be written alone.
    """
    writes = out is not None and options.rows != "none"
    result = RangeResult(range, end=range.start)
    result.continuity = Continuity(compacted=is_compacted(options, range.segment))
    result.hours = Hours(last_write(range.segment))
    files = BatchFiles(out, range) if out is not None and writes else None
    places = Places()
    try:
        for block in read_range(range, options if writes else replace(options, rows="none")):
            if files is not None and block.unreadable is None:
                files.add(block.rows)
            _take(result, places, block)
        if files is not None:
            result.files = files.close()
    except BaseException as error:
        if files is not None:
            files.abort()
        if isinstance(error, OSError) and out is not None:
            raise not_written(out, error) from error
        raise
    if not result.unreadable:
        _ask_index(result, places)
    return result


def _take(result: RangeResult, places: Places, block: Block) -> None:
    segment = result.range.segment
    if block.unreadable is not None:
        result.unreadable.append(Unreadable(segment.uri, block.unreadable))
        result.continuity.damaged()
        return
    if result.first is None:
        result.first = block.position
    if block.damage is not None:
        places.damaged.append(block.damage)
        result.lost.append((block.position, block.damage.size))
        result.end = block.position + block.damage.size
        result.continuity.damaged()
        result.findings.add(_of_damage(block.damage, segment))
    elif block.columns is not None and len(block.columns):
        _take_batches(result, places, block.columns, block.position)


def _of_damage(damage: Damage, segment: SegmentInfo) -> Found:
    rule, reason = damage_reason(damage, segment.size)
    return Found(damage.position, None, rule, reason)


def _take_batches(result: RangeResult, places: Places, columns: BatchColumns, base: int) -> None:
    positions = columns["position"]
    result.end = base + int(positions[-1]) + int(columns["size_in_bytes"][-1])
    found = []
    for row in np.flatnonzero(columns["rule"]).tolist():
        rule = by_number(int(columns["rule"][row]))
        assert rule is not None
        hour = hour_of(int(columns["max_timestamp"][row])) if columns["is_valid"][row] else None
        place = base + int(positions[row]), int(columns["base_offset"][row])
        found.append(Found(*place, rule, columns.reason_of(row), hour))
    for one in result.continuity.feed(columns, base):
        found.append(Found(one.position, one.offset, one.rule, one.reason, hour_of(one.max_timestamp)))
    result.findings.add(*sorted(found, key=lambda one: (one.position, one.rule.number)))
    result.hours.add(columns, result.range.segment)
    result.thinned = result.thinned or thinned(columns)
    places.add(base, columns)
    believed = np.flatnonzero(columns["is_valid"])
    if len(believed):
        row = int(believed[-1])
        result.last = Last(base + int(positions[row]), int(columns["size_in_bytes"][row]), int(columns["crc"][row]))


def _ask_index(result: RangeResult, places: Places) -> None:
    """L6, of the entries that point into this range; the last range has those too that point behind the segment."""
    segment, start, end = result.range
    if segment.index_uri is None:
        return
    store, path = Store.of(segment.index_uri)
    try:
        data = store.read_bytes(path)
    except OSError as error:
        if start == 0:
            result.unreadable.append(Unreadable(segment.index_uri, one_line(error)))
        return
    is_last = end >= segment.size
    offsets, positions = index_entries(data, segment.base_offset)
    here = (positions >= start) & ((positions < end) | is_last)
    for lie in index_lies(offsets[here], positions[here], *places.arrays()):
        if lie.names_a_batch:
            result.findings.add(Found(lie.position, lie.offset, Rule.L6, lie.reason, in_index=True))
        elif not places.lost(lie.position):
            result.misses.append(lie)
    rest = len(data) % INDEX_ENTRY
    if rest and is_last:
        found = Found(len(data) - rest, None, Rule.L6, index_rest_reason(rest), in_index=True)
        result.findings.add(found)
