"""Joins what ranges leave behind: partition by partition, the findings between batches, the tables, the manifest.

Ranges of a segment and segments of a partition are joined in the order of their offsets: a missing segment, an
overlap or a sequence that goes on wrongly is found wherever the cuts are. Which gaps compaction makes legal is known
when the whole partition is.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
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
    EXTREMES,
    FOUND,
    HOUR_MS,
    HOURS_OF_A_PARTITION,
    Found,
    Hours,
    RangeFindings,
    RangeResult,
    columns_of,
    hour_of,
    last_write,
)
from batchval.audit.store import SegmentInfo, Unreadable, folder_and_name, shown, text_of
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
_ANOMALIES = {
    "offset_anomalies": (Rule.L2, Rule.L3),
    "epoch_anomalies": (Rule.L4,),
    "sequence_anomalies": (Rule.L5,),
}


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
    partitions = list(_partitions(listed))
    sums = _empty_sums(partitions)
    entries: list[Entry] = []
    found: list[tuple[SegmentInfo, pa.Table]] = []
    for partition in partitions:
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
        folders.setdefault(folder_and_name(one.uri)[0], {}).setdefault(one.uri, one)
    for inside in folders.values():
        yield sorted(inside.values(), key=_base_of)


def _base_of(one: SegmentInfo | Unreadable) -> tuple[int, str]:
    if isinstance(one, SegmentInfo):
        return one.base_offset, one.uri
    name = SEGMENT_NAME.fullmatch(folder_and_name(one.uri)[1])
    return int(name[1]) if name else -1, one.uri


def _in_order(found: pa.Table) -> bool:
    """Findings of one range are; then millions of them need no second copy."""
    step = np.diff(found["position"].to_numpy())
    rules = np.diff(found["rule"].to_numpy())
    return not pc.any(found["in_index"]).as_py() and bool(((step > 0) | ((step == 0) & (rules >= 0))).all())


def _in_hours(found: pa.Table, hours: Hours) -> pa.Table:
    """Findings in the hours in which their batches were counted."""
    kept = pc.is_in(found["hour"], pa.array(hours.hours))
    if pc.all(pc.or_(kept, pc.is_null(found["hour"]))).as_py():
        return found
    place = found.column_names.index("hour")
    return found.set_column(place, "hour", pc.if_else(kept, found["hour"], pa.scalar(None, pa.int64())))


@dataclass
class _Sums:
    """Of one topic and partition, which may lie in several folders. ``rules``: findings by hour, -1 for none."""

    hours: Hours
    rules: dict[int, Counter[Rule]] = field(default_factory=lambda: defaultdict(Counter))
    damaged_bytes: int = 0

    def count(self, found: pa.Table) -> None:
        # Arrow's threads could still hold memory of Python's when the interpreter ends: that aborts
        groups = found.group_by(["hour", "rule"], use_threads=False).aggregate([([], "count_all")])
        for hour, number, count in zip(
            *(groups[name].to_pylist() for name in ("hour", "rule", "count_all")), strict=True
        ):
            self.rules[-1 if hour is None else hour][_NUMBERED[number]] += count


def _empty_sums(partitions: Iterable[Iterable[SegmentInfo | Unreadable]]) -> dict[tuple[str, int], _Sums]:
    newest: dict[tuple[str, int], int] = defaultdict(int)
    for one in chain.from_iterable(partitions):
        if isinstance(one, SegmentInfo):
            key = one.topic, one.partition
            newest[key] = max(newest[key], last_write(one))
    return {key: _Sums(Hours(hour, HOURS_OF_A_PARTITION)) for key, hour in sorted(newest.items())}


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
        results = sorted(self._results.pop(segment.uri, ()), key=lambda one: one.range.start)
        if known is not None:
            self._state = copied(known.continuity, compacted=self._compacted)
        entry = Entry(*segment[1:4], segment.size, segment.mtime_ns, shown(segment.uri))
        if known is not None:
            entry.batches, entry.records, entry.findings = known.batches, known.records, known.findings
            entry.thinned, entry.last = known.thinned, known.last
        audit.segments += 1
        audit.skipped += known is not None and not results
        hours = Hours(last_write(segment))
        for result in results:
            hours.merge(result.hours)
        sums.hours.merge(hours)
        lost = sum(size for result in results for _, size in result.lost)
        sums.damaged_bytes += lost
        here = self._findings(results)
        if here.num_rows:
            entry.findings += here.num_rows
            sums.count(_in_hours(here, hours))
            found.append((segment, _errors(segment, here)))
        entry.batches += hours.total("batches")
        entry.records += hours.total("records")
        audit.batches += hours.total("batches")
        audit.records += hours.total("records")
        audit.bytes += hours.total("bytes") + lost
        for result in results:
            entry.thinned |= result.thinned
            entry.last = result.last or entry.last
            for unreadable in result.unreadable:
                audit.unreadable.append(unreadable._replace(uri=shown(unreadable.uri)))
                own = unreadable.uri == segment.uri
                entry.unreadable = unreadable.reason if own else f".index: {unreadable.reason}"
        if entry.unreadable is None and (changed := _changed(segment, results)):
            audit.unreadable.append(Unreadable(shown(segment.uri), changed))
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
    "rule": [rule.id if rule else None for rule in _BY_NUMBER],
    "slug": [rule.slug if rule else None for rule in _BY_NUMBER],
    "error_code": [rule.error_code.name if rule and rule.error_code else None for rule in _BY_NUMBER],
}


@functools.cache
def _names(column: str) -> pa.Array:
    """Made when it is asked for: pyarrow's first array brings pandas with it, while workers wait for their ranges."""
    return pa.array(_NAMES[column], pa.string())


def _errors(segment: SegmentInfo, found: pa.Table) -> pa.Table:
    """Of one segment's findings, rows of errors/."""
    files = pa.array([text_of(shown(segment.uri)), text_of(shown(segment.index_uri or ""))])
    whose = dict(zip(("topic", "partition", "segment"), segment[1:4], strict=True))
    columns = [
        pa.repeat(pa.scalar(whose[one.name], one.type), found.num_rows)
        if one.name in whose
        else _names(one.name).take(found["rule"])
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
    """Column by column, for a whole cluster has millions of rows: hours in their order, none at the end."""
    for of_both in sums.values():
        if of_both.damaged_bytes or of_both.rules.keys() - of_both.hours.hours.tolist():
            of_both.hours.have_none()
    parts = [of_both.hours for of_both in sums.values()]
    if not parts:
        return SUMMARY.empty_table()
    which = np.repeat(np.arange(len(parts)), [len(part.hours) for part in parts])
    hours = np.concatenate([part.hours for part in parts])
    order = np.lexsort((np.where(hours < 0, np.iinfo("<i8").max, hours), which))
    which, hours = which[order], hours[order]
    none = hours < 0
    columns: dict[str, Any] = {
        "topic": pa.array([topic for topic, _ in sums], pa.string()).take(pa.array(which)),
        "partition": np.array([partition for _, partition in sums])[which],
        "hour": pa.array(hours * HOUR_MS, mask=none),
        "damaged_bytes": np.array([of_both.damaged_bytes for of_both in sums.values()])[which] * none,
    }
    for i, name in enumerate(COUNTERS):
        columns[name] = np.concatenate([part.counts[:, i] for part in parts])[order]
    if not options.deep:
        columns |= {f"uncompressed_bytes_{codec}": pa.nulls(len(hours), pa.int64()) for codec in CODECS[1:]}
    extremes = [np.concatenate([part.extremes[:, i] for part in parts])[order] for i in range(len(EXTREMES))]
    unknown = extremes[0] > extremes[1]
    columns |= {name: pa.array(values, mask=unknown) for name, values in zip(EXTREMES, extremes, strict=True)}
    columns |= _rules(sums, which, hours)
    return pa.Table.from_arrays([pa.array(columns[one.name]).cast(one.type) for one in SUMMARY], schema=SUMMARY)


def _rules(sums: dict[tuple[str, int], _Sums], which: np.ndarray, hours: np.ndarray) -> dict[str, Any]:
    """The columns of the summary that count findings."""
    ends = np.searchsorted(which, np.arange(len(sums)), "right").tolist()
    by_row: dict[int, Counter[Rule]] = defaultdict(Counter)
    for of_both, start, end in zip(sums.values(), [0, *ends], ends, strict=False):
        if of_both.rules:
            rows = dict(zip(hours[start:end].tolist(), range(start, end), strict=True))
            for hour, found in of_both.rules.items():
                by_row[rows.get(hour, end - 1)].update(found)  # an hour that has no row of its own: the last has it
    entries: list[list[tuple[str, int]]] = [[]] * len(hours)
    anomalies = {name: np.zeros(len(hours), "<i8") for name in _ANOMALIES}
    for row, found in by_row.items():
        entries[row] = [(rule.id, count) for rule, count in sorted(found.items(), key=lambda item: item[0].number)]
        for name, rules in _ANOMALIES.items():
            anomalies[name][row] = sum(found[rule] for rule in rules)
    return {**anomalies, "rules": pa.array(entries, SUMMARY.field("rules").type)}
