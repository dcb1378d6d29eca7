"""Joins the results of ranges into the tables of an audit: errors, summary and segments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from batchval.audit.hours import (
    CODECS,
    COUNTERS,
    EXTREMES,
    HOUR_MS,
    HOURS_OF_A_PARTITION,
    Hours,
    hour_of,
    last_write,
)
from batchval.audit.manifest import to_table
from batchval.audit.outputs import ERRORS, SUMMARY
from batchval.audit.rows import UNREADABLE
from batchval.errors import ErrorCode
from batchval.rules import Rule
from batchval.segment.findings import Finding, Level, State
from batchval.segment.judge import RangeResult
from batchval.segment.options import Options
from batchval.segment.partition import Entry, Joined, Part
from batchval.segment.run import Engine, Work, moved_meanwhile, settled
from batchval.segment.store import Unreadable, text_of

__all__ = ["Audit", "reduce"]

_ANOMALIES = {
    "offset_anomalies": (Rule.L2, Rule.L3),
    "epoch_anomalies": (Rule.L4,),
    "sequence_anomalies": (Rule.L5,),
}


@dataclass
class Audit:
    """All that was found. ``tables``: errors, summary and segments, as they are written.

    ``notes``  what is uncertain, or healthy but worth a line
    ``moved``  segments that a broker deleted or replaced while the audit ran
    ``unsettled``  files that changed each time they were read
    """

    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    unsettled: list[Unreadable] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    segments: int = 0
    skipped: int = 0
    moved: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0

    def rules(self) -> Counter[str]:
        """Return how many findings each rule has."""
        return Counter(finding.rule.id for finding in self.findings)


def reduce(work: Work, results: Iterable[RangeResult], options: Options, engine: Engine) -> Audit:
    """Join the results of the work's ranges; ``engine`` reads again what changed meanwhile."""
    audit = Audit()
    partitions = settled(work, results, options, engine)
    sums = _empty_sums(partitions)
    entries: list[Entry] = []
    for joined in partitions:
        audit.unreadable += joined.unreadable
        audit.unsettled += joined.unsettled
        entries += joined.entries
        for part in joined.parts:
            _take(audit, part, sums[part.segment.topic, part.segment.partition], part.segment.uri in work.known)
    audit.moved = moved_meanwhile(work, partitions)
    audit.unreadable = sorted(set(audit.unreadable))
    entries.sort(key=lambda one: (one.topic or "", one.partition or 0, one.base_offset or 0, one.file))
    audit.files.sort()
    for found in (audit.findings, audit.notes):
        found.sort(key=lambda one: (one.topic, one.partition, one.segment, one.file))
    audit.tables = {
        "errors": _errors(audit, entries, work.now_ms),
        "summary": _summary_table(sums, options),
        "segments": to_table(entries, options),
    }
    return audit


def _take(audit: Audit, part: Part, sums: _Sums, known: bool) -> None:
    audit.segments += 1
    audit.skipped += known and not part.results
    hours = Hours(last_write(part.segment))
    for result in part.results:
        hours.merge(result.hours)
        audit.files += result.files
        audit.batches += result.batches
        audit.records += result.records
        audit.bytes += result.bytes
        sums.damaged_bytes += sum(size for _, size in result.lost)
    sums.hours.merge(hours)
    kept = set(hours.hours.tolist())
    for finding in part.findings:
        if finding.level is Level.FINDING:
            audit.findings.append(finding)
            hour = None if finding.max_timestamp is None else hour_of(finding.max_timestamp)
            sums.rules[hour if hour in kept else -1][finding.rule] += 1
        else:
            audit.notes.append(finding)


@dataclass
class _Sums:
    """Of one topic and partition, which may lie in several folders. ``rules``: findings by hour, -1 for none."""

    hours: Hours
    rules: dict[int | None, Counter[Rule]] = field(default_factory=lambda: defaultdict(Counter))
    damaged_bytes: int = 0


def _empty_sums(partitions: Iterable[Joined]) -> dict[tuple[str, int], _Sums]:
    newest: dict[tuple[str, int], int] = defaultdict(int)
    for joined in partitions:
        for part in joined.parts:
            key = part.segment.topic, part.segment.partition
            newest[key] = max(newest[key], last_write(part.segment))
    return {key: _Sums(Hours(hour, HOURS_OF_A_PARTITION)) for key, hour in sorted(newest.items())}


# ---- tables --------------------------------------------------------------------------------------


def _errors(audit: Audit, entries: Sequence[Entry], now_ms: int) -> pa.Table:
    seen = {"state": State.NEW.value, "first_seen": now_ms}
    rows = [_row(finding) | seen for finding in (*audit.findings, *audit.notes)]
    named = {entry.file: entry for entry in entries}
    for lost in sorted((*audit.unreadable, *audit.unsettled)):
        entry = named.get(lost.uri)
        rows.append(
            {
                "topic": entry and entry.topic,
                "partition": entry and entry.partition,
                "segment": entry and entry.base_offset,
                "rule": UNREADABLE,
                "slug": "unreadable",
                **_error(ErrorCode.KAFKA_STORAGE_ERROR),
                "reason": text_of(lost.reason),
                "file": text_of(lost.uri),
                "level": "unreadable",
                "follows": 0,
                **seen,
            }
        )
    return pa.Table.from_pylist(rows, ERRORS)


def _row(finding: Finding) -> dict[str, Any]:
    row = {name: getattr(finding, name) for name in ERRORS.names if hasattr(finding, name)}
    return row | {
        "rule": finding.rule.id,
        "slug": finding.rule.slug,
        **_error(finding.rule.error_code),
        "reason": text_of(finding.reason),
        "file": text_of(finding.file),
        "level": finding.level.value,
    }


def _error(code: ErrorCode | None) -> dict[str, Any]:
    return {"error_code": code and int(code), "error_name": code and code.name}


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
