"""Joins what ranges leave behind: partition by partition, the findings between batches, the tables, the manifest.

Ranges of a segment and segments of a partition are joined in the order of their offsets: a missing segment, an
overlap or a sequence that goes on wrongly is found wherever the cuts are. Which gaps compaction makes legal is known
when the whole partition is.
"""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchval.audit.manifest import Entry, copied, to_table
from batchval.audit.outputs import ERRORS, SUMMARY
from batchval.audit.rows import UNREADABLE, Options
from batchval.audit.state import (
    CODECS,
    COUNTERS,
    FOUND,
    HOUR_MS,
    Found,
    Hours,
    RangeFindings,
    RangeResult,
    columns_of,
    hour_of,
)
from batchval.audit.store import SegmentInfo, Unreadable, text_of
from batchval.audit.work import is_compacted
from batchval.core.continuity import PRODUCERS, Continuity
from batchval.errors import ErrorCode
from batchval.rules import Rule
from batchval.segment.check import LEGAL_IF_COMPACTED
from batchval.segment.folders import SEGMENT_NAME

__all__ = ["Audit", "Finding", "reduce"]

#: segments of a partition whose state the manifest keeps whole
_KEPT = 2
_RULES = {rule.id: rule for rule in Rule}
_OFFSETS = frozenset({Rule.L2, Rule.L3})


class Finding(NamedTuple):
    """One rule that one place of one file breaks; ``segment`` is its base offset."""

    topic: str
    partition: int
    segment: int
    position: int
    offset: int | None
    rule: Rule
    reason: str
    file: str
    reported: bool = False


class Findings(Sequence[Finding]):
    """The rows of errors/ that break a rule. They stay columns, of which rows are made when they are asked for."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, i: int) -> Finding: ...

    @overload
    def __getitem__(self, i: slice) -> list[Finding]: ...

    def __getitem__(self, i: int | slice) -> Finding | list[Finding]:
        if isinstance(i, slice):
            return list(self._rows(self.table.take(pa.array(range(len(self))[i], pa.int64()))))
        return next(self._rows(self.table.slice(range(len(self))[i], 1)))

    def __iter__(self) -> Iterator[Finding]:
        return self._rows(self.table)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def rules(self) -> Counter[str]:
        counts = self.table["rule"].value_counts()
        return Counter({one["values"]: one["counts"] for one in counts.to_pylist()})

    @staticmethod
    def _rows(table: pa.Table) -> Iterator[Finding]:
        names = ("topic", "partition", "segment", "position", "offset", "rule", "reason", "file")
        for batch in table.select(names).to_batches(1 << 14):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield Finding._make((*row[:5], _RULES[row[5]], *row[6:], False))


@dataclass
class Audit:
    """All that was found. ``tables``: errors, summary and segments, as they are written."""

    findings: Findings = field(default_factory=lambda: Findings(ERRORS.empty_table()))
    unreadable: list[Unreadable] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    segments: int = 0
    skipped: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0

    def rules(self) -> Counter[str]:
        return self.findings.rules()


def reduce(
    listed: Iterable[SegmentInfo | Unreadable],
    results: Iterable[RangeResult],
    options: Options,
    known: dict[str, Entry] | None = None,
) -> Audit:
    """``listed``: all segments, read or not; ``known``: what an earlier audit left of those that it had read.

    A segment that is known and has no result is unchanged; one that has both was read from its known end on.
    """
    audit = Audit()
    by_segment: dict[str, list[RangeResult]] = defaultdict(list)
    for result in results:
        by_segment[result.range.segment.uri].append(result)
        audit.files += result.files
    sums: dict[tuple[str, int], _Sums] = defaultdict(_Sums)
    entries: list[Entry] = []
    found: list[tuple[SegmentInfo, pa.Table]] = []
    for partition in _partitions(listed):
        entries += _Partition(partition, by_segment, options, known or {}).reduced(audit, sums, found)
    found.sort(key=lambda one: (one[0].topic, one[0].partition, one[0].uri))
    audit.findings = Findings(pa.concat_tables([ERRORS.empty_table(), *(table for _, table in found)]))
    audit.unreadable = sorted(set(audit.unreadable))
    entries.sort(key=lambda one: (one.topic or "", one.partition or 0, one.base_offset or 0, one.file))
    audit.files.sort()
    audit.tables = {
        "errors": pa.concat_tables([audit.findings.table, _unreadable_table(audit.unreadable, entries)]),
        "summary": _summary_table(sums, options),
        "segments": to_table(entries, options),
    }
    return audit


def _partitions(listed: Iterable[SegmentInfo | Unreadable]) -> Iterator[list[SegmentInfo | Unreadable]]:
    """What lies in one folder, in the order of base offsets; each file once, however often it was named."""
    folders: dict[str, dict[str, SegmentInfo | Unreadable]] = {}
    for one in listed:
        folders.setdefault(posixpath.dirname(one.uri), {}).setdefault(one.uri, one)
    for inside in folders.values():
        yield sorted(inside.values(), key=_base_of)


def _base_of(one: SegmentInfo | Unreadable) -> tuple[int, str]:
    if isinstance(one, SegmentInfo):
        return one.base_offset, one.uri
    name = SEGMENT_NAME.fullmatch(posixpath.basename(one.uri))
    return int(name[1]) if name else -1, one.uri


def _in_order(found: pa.Table) -> bool:
    """Findings of one range are; then millions of them need no second copy."""
    step = np.diff(found["position"].to_numpy())
    rules = np.diff(found["rule"].to_numpy())
    return not pc.any(found["in_index"]).as_py() and bool(((step > 0) | ((step == 0) & (rules >= 0))).all())


@dataclass
class _Sums:
    """Of one topic and partition."""

    hours: Hours = field(default_factory=Hours)
    rules: dict[int | None, Counter[Rule]] = field(default_factory=lambda: defaultdict(Counter))
    damaged_bytes: int = 0

    def count(self, found: pa.Table) -> None:
        groups = found.group_by(["hour", "rule"]).aggregate([([], "count_all")])
        for hour, number, count in zip(
            *(groups[name].to_pylist() for name in ("hour", "rule", "count_all")), strict=True
        ):
            self.rules[hour][_NUMBERED[number]] += count


class _Partition:
    """One folder of segments."""

    def __init__(
        self,
        listed: Sequence[SegmentInfo | Unreadable],
        results: dict[str, list[RangeResult]],
        options: Options,
        known: dict[str, Entry],
    ) -> None:
        self._listed = listed
        self._results = results
        self._known = known
        segments = [one for one in listed if isinstance(one, SegmentInfo)]
        thinned = any(result.thinned for one in segments for result in results.get(one.uri, ()))
        thinned = thinned or any(known[one.uri].thinned for one in segments if one.uri in known)
        self._compacted = any(is_compacted(options, one) for one in segments)
        self._compacted |= thinned and options.cleanup_policy == "auto"
        self._state = Continuity(compacted=self._compacted)

    def reduced(
        self, audit: Audit, sums: dict[tuple[str, int], _Sums], found: list[tuple[SegmentInfo, pa.Table]]
    ) -> list[Entry]:
        entries = []
        for one in self._listed:
            if isinstance(one, Unreadable):
                self._state.damaged()
                audit.unreadable.append(one)
                base = _base_of(one)[0]
                entries.append(Entry(None, None, base if base >= 0 else None, None, None, one.uri, one.reason))
            else:
                entries.append(self._segment(one, audit, sums[one.topic, one.partition], found))
        for entry in entries[:-_KEPT]:
            entry.continuity.producers = np.empty(0, PRODUCERS)
        return entries

    def _segment(
        self, segment: SegmentInfo, audit: Audit, sums: _Sums, found: list[tuple[SegmentInfo, pa.Table]]
    ) -> Entry:
        known = self._known.get(segment.uri)
        results = sorted(self._results.get(segment.uri, ()), key=lambda one: one.range.start)
        if known is not None:
            self._state = copied(known.continuity, compacted=self._compacted)
        entry = Entry(*segment[1:4], segment.size, segment.mtime_ns, segment.uri)
        if known is not None:
            entry.batches, entry.records, entry.findings = known.batches, known.records, known.findings
            entry.thinned, entry.last = known.thinned, known.last
        audit.segments += 1
        audit.skipped += known is not None and not results
        here = self._findings(results)
        if here.num_rows:
            entry.findings += here.num_rows
            sums.count(here)
            found.append((segment, _errors(segment, here)))
        for result in results:
            sums.hours.merge(result.hours)
            sums.damaged_bytes += sum(size for _, size in result.lost)
            batches, records = result.hours.total("batches"), result.hours.total("records")
            entry.batches += batches
            entry.records += records
            audit.batches += batches
            audit.records += records
            audit.bytes += result.hours.total("bytes") + sum(size for _, size in result.lost)
            entry.thinned |= result.thinned
            entry.last = result.last or entry.last
            for unreadable in result.unreadable:
                audit.unreadable.append(unreadable)
                own = unreadable.uri == segment.uri
                entry.unreadable = unreadable.reason if own else f".index: {unreadable.reason}"
        if entry.unreadable is None and (changed := _changed(segment, results)):
            audit.unreadable.append(Unreadable(segment.uri, changed))
            entry.unreadable = changed
        entry.continuity = copied(self._state, compacted=False)
        return entry

    def _findings(self, results: Sequence[RangeResult]) -> pa.Table:
        """By FOUND: of the index first, then by position."""
        lost = [damage for result in results for damage in result.lost]
        tables = [FOUND.empty_table()]
        for result in results:
            tables += result.findings.tables()
            result.findings = RangeFindings()  # they may be many
            between = [
                Found(one.position, one.offset, one.rule, one.reason, hour_of(one.max_timestamp))
                for one in self._state.join(result.continuity)
            ]
            for miss in result.misses:
                if not any(position <= miss.position < position + size for position, size in lost):
                    between.append(Found(miss.position, miss.offset, Rule.L6, miss.reason, in_index=True))
            tables.append(pa.Table.from_batches([columns_of(between)]))
        table = pa.concat_tables(tables)
        if self._compacted:
            legal = pa.array([rule.number for rule in LEGAL_IF_COMPACTED], pa.int16())
            table = table.filter(pc.invert(pc.is_in(table["rule"], legal)))
        if _in_order(table):
            return table
        return table.sort_by([("in_index", "descending"), ("position", "ascending"), ("rule", "ascending")])


def _changed(segment: SegmentInfo, results: Sequence[RangeResult]) -> str | None:
    """Each range must begin where the one before ended, the last one at the segment's end or behind.

    Else the file has been cut off or rewritten between two reads. (Or ranges were entered at batches inside the value
    of one of more than 16 MiB, which SegmentReader.first_at may take for the walk.) What was read counts, but it is not
    all that was listed.
    """
    at = results[0].range.start if results else segment.size
    for result in results:
        if result.first is None:
            continue
        if result.first != at:
            return f"changed while it was read: the parts before and behind position {at} do not meet"
        at = result.end
    return f"became shorter while it was read: {segment.size} bytes, then {at}" if at < segment.size else None


# ---- tables --------------------------------------------------------------------------------------------------------


_NUMBERED = {rule.number: rule for rule in Rule}
_BY_NUMBER = [_NUMBERED.get(number) for number in range(max(_NUMBERED) + 1)]
_NAMES = {
    "rule": pa.array([rule.id if rule else None for rule in _BY_NUMBER]),
    "slug": pa.array([rule.slug if rule else None for rule in _BY_NUMBER]),
    "error_code": pa.array([rule.error_code.name if rule and rule.error_code else None for rule in _BY_NUMBER]),
}


def _errors(segment: SegmentInfo, found: pa.Table) -> pa.Table:
    """Of one segment's findings, rows of errors/."""
    files = pa.array([text_of(segment.uri), text_of(segment.index_uri or "")])
    whose = dict(zip(("topic", "partition", "segment"), segment[1:4], strict=True))
    columns = [
        pa.repeat(pa.scalar(whose[one.name], one.type), found.num_rows)
        if one.name in whose
        else _NAMES[one.name].take(found["rule"])
        if one.name in _NAMES
        else files.take(found["in_index"].cast(pa.int8()))
        if one.name == "file"
        else found[one.name]
        for one in ERRORS
    ]
    return pa.Table.from_arrays(columns, schema=ERRORS)


def _unreadable_table(lost: Sequence[Unreadable], entries: Sequence[Entry]) -> pa.Table:
    named = {entry.file: entry for entry in entries}
    whose = [named.get(one.uri) for one in lost]
    columns: dict[str, list[Any]] = {
        "topic": [entry and entry.topic for entry in whose],
        "partition": [entry and entry.partition for entry in whose],
        "segment": [entry and entry.base_offset for entry in whose],
        "rule": [UNREADABLE] * len(lost),
        "slug": ["unreadable"] * len(lost),
        "error_code": [ErrorCode.KAFKA_STORAGE_ERROR.name] * len(lost),
        "reason": [text_of(one.reason) for one in lost],
        "file": [text_of(one.uri) for one in lost],
    }
    nothing: list[Any] = [None] * len(lost)
    return pa.Table.from_arrays([pa.array(columns.get(one.name, nothing), one.type) for one in ERRORS], schema=ERRORS)


def _summary_table(sums: dict[tuple[str, int], _Sums], options: Options) -> pa.Table:
    rows = []
    for (topic, partition), of_both in sorted(sums.items()):
        hours: list[int | None] = sorted({*of_both.hours, *of_both.rules} - {None}, key=lambda hour: hour or 0)
        if of_both.damaged_bytes or None in {*of_both.hours, *of_both.rules}:
            hours.append(None)
        for hour in hours:
            row: dict[str, Any] = {"topic": topic, "partition": partition}
            row["hour"] = None if hour is None else hour * HOUR_MS
            row |= _counts(of_both.hours, hour, options.deep) | of_both.hours.extremes(hour)
            rules = of_both.rules.get(hour, Counter())
            row["offset_anomalies"] = sum(rules[rule] for rule in _OFFSETS)
            row["epoch_anomalies"] = rules[Rule.L4]
            row["sequence_anomalies"] = rules[Rule.L5]
            row["damaged_bytes"] = of_both.damaged_bytes if hour is None else 0
            row["rules"] = [(rule.id, count) for rule, count in sorted(rules.items(), key=lambda item: item[0].number)]
            rows.append(row)
    return pa.Table.from_pylist(rows, SUMMARY)


def _counts(hours: Hours, hour: int | None, deep: bool) -> dict[str, int | None]:
    counts: dict[str, int | None] = {**dict.fromkeys(COUNTERS, 0), **hours.counts(hour)}
    if not deep:
        counts |= {f"uncompressed_bytes_{codec}": None for codec in CODECS[1:]}
    return counts
