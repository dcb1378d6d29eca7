"""Joins what ranges leave behind: partition by partition, the findings between batches, the tables, the manifest.

Ranges of a segment and segments of a partition are joined in the order of their offsets: a missing segment, an
overlap or a sequence that goes on wrongly is found wherever the cuts are. Which gaps compaction makes legal is known
when the whole partition is.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from batchval.audit.manifest import Entry, copied, to_table
from batchval.audit.outputs import ERRORS, SUMMARY
from batchval.audit.rows import UNREADABLE, Options
from batchval.audit.state import CODECS, COUNTERS, HOUR_MS, Found, Hours, RangeResult, hour_of
from batchval.audit.store import SegmentInfo, Unreadable, text_of
from batchval.audit.work import is_compacted
from batchval.core.continuity import PRODUCERS, Continuity
from batchval.errors import ErrorCode
from batchval.rules import Rule
from batchval.segment.check import LEGAL_IF_COMPACTED

__all__ = ["Audit", "Finding", "reduce"]

_SEGMENT = re.compile(r"(\d{20})\.log")
#: segments of a partition whose state the manifest keeps whole
_KEPT = 2
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
    hour: int | None = None
    reported: bool = False


@dataclass
class Audit:
    """All that was found. ``tables``: errors, summary and segments, as they are written."""

    findings: list[Finding] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    segments: int = 0
    skipped: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0

    def rules(self) -> Counter[str]:
        return Counter(finding.rule.id for finding in self.findings)


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
    for partition in _partitions(listed):
        entries += _Partition(partition, by_segment, options, known or {}).reduced(audit, sums)
    audit.findings.sort(key=lambda one: (one.topic, one.partition, one.file, one.position, one.rule.number))
    audit.unreadable = sorted(set(audit.unreadable))
    entries.sort(key=lambda one: (one.topic or "", one.partition or 0, one.base_offset or 0, one.file))
    audit.files.sort()
    audit.tables = {
        "errors": _errors_table(audit, entries),
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
    name = _SEGMENT.fullmatch(posixpath.basename(one.uri))
    return int(name[1]) if name else -1, one.uri


@dataclass
class _Sums:
    """Of one topic and partition."""

    hours: Hours = field(default_factory=Hours)
    rules: dict[int | None, Counter[Rule]] = field(default_factory=lambda: defaultdict(Counter))
    damaged_bytes: int = 0


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

    def reduced(self, audit: Audit, sums: dict[tuple[str, int], _Sums]) -> list[Entry]:
        entries = []
        for one in self._listed:
            if isinstance(one, Unreadable):
                self._state.damaged()
                audit.unreadable.append(one)
                base = _base_of(one)[0]
                entries.append(Entry(None, None, base if base >= 0 else None, None, None, one.uri, one.reason))
            else:
                entries.append(self._segment(one, audit, sums[one.topic, one.partition]))
        for entry in entries[:-_KEPT]:
            entry.continuity.producers = np.empty(0, PRODUCERS)
        return entries

    def _segment(self, segment: SegmentInfo, audit: Audit, sums: _Sums) -> Entry:
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
        for finding in self._findings(segment, results):
            audit.findings.append(finding)
            sums.rules[finding.hour][finding.rule] += 1
            entry.findings += 1
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
        entry.continuity = copied(self._state, compacted=False)
        return entry

    def _findings(self, segment: SegmentInfo, results: Sequence[RangeResult]) -> Iterator[Finding]:
        lost = [damage for result in results for damage in result.lost]
        for result in results:
            found = list(result.findings)
            for joint in self._state.join(result.continuity):
                hour = hour_of(joint.max_timestamp)
                found.append(Found(joint.position, joint.offset, joint.rule, joint.reason, hour))
            for miss in result.misses:
                if not any(position <= miss.position < position + size for position, size in lost):
                    found.append(Found(miss.position, miss.offset, Rule.L6, miss.reason, in_index=True))
            for one in found:
                if not (self._compacted and one.rule in LEGAL_IF_COMPACTED):
                    file = segment.index_uri if one.in_index else segment.uri
                    yield Finding(*segment[1:4], one.position, one.offset, one.rule, one.reason, file or "", one.hour)


# ---- tables --------------------------------------------------------------------------------------------------------


def _errors_table(audit: Audit, entries: Sequence[Entry]) -> pa.Table:
    found, lost = audit.findings, audit.unreadable
    nothing: list[Any] = [None] * len(lost)
    named = {entry.file: entry for entry in entries}
    whose = [named.get(one.uri) for one in lost]
    codes = {rule: rule.error_code.name if rule.error_code else None for rule in Rule}
    slugs = {rule: rule.slug for rule in Rule}
    columns = {
        "topic": [one.topic for one in found] + [entry and entry.topic for entry in whose],
        "partition": [one.partition for one in found] + [entry and entry.partition for entry in whose],
        "segment": [one.segment for one in found] + [entry and entry.base_offset for entry in whose],
        "position": [one.position for one in found] + nothing,
        "offset": [one.offset for one in found] + nothing,
        "rule": [one.rule.id for one in found] + [UNREADABLE] * len(lost),
        "slug": [slugs[one.rule] for one in found] + ["unreadable"] * len(lost),
        "error_code": [codes[one.rule] for one in found] + [ErrorCode.KAFKA_STORAGE_ERROR.name] * len(lost),
        "reason": [one.reason for one in found] + [text_of(one.reason) for one in lost],
        "file": [text_of(one.file) for one in found] + [text_of(one.uri) for one in lost],
    }
    return pa.Table.from_arrays([pa.array(columns[one.name], one.type) for one in ERRORS], schema=ERRORS)


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
