"""Join the results of ranges into the tables of an audit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from batchval.audit.arrow_rows import END_OF_TIME_MS, UNREADABLE
from batchval.audit.finding_states import Scope, compared
from batchval.audit.hours import (
    CODECS,
    EXTREMES,
    HOUR_MS,
    HOURS_OF_A_PARTITION,
    HOURS_OF_A_SEGMENT,
    NO_COUNTS,
    NONE,
    SUMS,
    joined,
    last_write,
    unpacked,
    within,
)
from batchval.audit.manifest import to_table
from batchval.audit.outputs import ERRORS, SUMMARY, TRANSACTIONS
from batchval.errors import ErrorCode
from batchval.segment.findings import Finding, Level, State
from batchval.segment.manifest_entry import Entry, is_whole, log_results
from batchval.segment.options import Options
from batchval.segment.partition import Joined, Part
from batchval.segment.range_check import RangeResult
from batchval.segment.replicas import compare_replicas
from batchval.segment.segment_run import Engine, Work, moved_meanwhile, settled
from batchval.segment.store import Unreadable, text_of
from batchval.segment.trust import TrustCounts

__all__ = ["Audit", "reduce"]


@dataclass
class Audit:
    """The results of an audit. ``tables``: errors, summary, segments and transactions, as they are
    written, and runs after audit_run.audit.

    ``findings``  new and open ones
    ``gone``   findings of the earlier audit that are no longer there
    ``notes``  what is uncertain, or healthy but worth a line
    ``transactions``  rows of partitions and their open transactions
    ``files``  where the rows are: file, first row there, rows
    ``skipped``  segments of which the log was not read; ``grown``: of which only its end was read
    ``reread``  segments that were read again because of their age
    ``trust``  batches that were taken by their claims
    ``moved``  segments that a broker deleted or replaced while the audit ran
    ``unsettled``  files that changed each time they were read
    """

    findings: list[Finding] = field(default_factory=list)
    gone: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    unsettled: list[Unreadable] = field(default_factory=list)
    files: list[tuple[str, int, int]] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    segments: int = 0
    skipped: int = 0
    grown: int = 0
    reread: int = 0
    moved: int = 0
    transactions: list[dict[str, Any]] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    bytes: int = 0
    trust: TrustCounts = field(default_factory=TrustCounts)

    def states(self) -> dict[str, int]:
        """Return how many findings are new, open and gone."""
        found = Counter(finding.state for finding in (*self.findings, *self.gone))
        return {state.value: found[state] for state in State}

    def rules(self) -> Counter[str]:
        """Return how many findings each rule has."""
        return Counter(finding.rule.id for finding in self.findings)


def reduce(
    work: Work,
    results: Iterable[RangeResult],
    options: Options,
    engine: Engine,
    progress: Callable[[int], None] = lambda done: None,
) -> Audit:
    """Join the results of the work's ranges; ``engine`` reads again what changed meanwhile.

    ``progress`` gets bytes of replicas as they are compared.
    """
    audit = Audit()
    partitions = settled(work, results, options, engine)
    if options.replicas:
        compare_replicas(partitions, options, progress)
    entries: list[Entry] = []
    for partition in partitions:
        audit.unreadable += partition.unreadable
        audit.unsettled += partition.unsettled
        audit.transactions += partition.transaction_rows
        entries += partition.entries
        for part in partition.parts:
            _take(audit, part, work)
    _compare(audit, work, options, partitions)
    audit.reread = len(work.reread)
    audit.moved = moved_meanwhile(work, partitions)
    audit.unreadable = sorted(set(audit.unreadable))
    entries.sort(
        key=lambda one: (one.topic or "", one.partition or 0, one.base_offset or 0, one.file)
    )
    audit.files.sort()
    for found in (audit.findings, audit.gone, audit.notes):
        found.sort(key=lambda one: (one.topic, one.partition, one.segment, one.file, one.position))
    audit.tables = {
        "errors": _errors(audit, entries, work),
        "summary": _summary([part for partition in partitions for part in partition.parts]),
        "segments": to_table(entries, options),
        "transactions": _transactions(audit.transactions),
    }
    return audit


def _take(audit: Audit, part: Part, work: Work) -> None:
    read = log_results(part.segment, part.results)
    audit.segments += 1
    if is_whole(part.segment, part.results):
        part.entry.read_at = work.now_ms
    elif part.segment.uri in work.known:
        audit.grown += bool(read)
        audit.skipped += not read
    part.entry.findings = sum(one.level is Level.FINDING for one in part.findings)
    for result in part.results:
        audit.files += result.files
        audit.batches += result.batches
        audit.records += result.records
        audit.bytes += result.bytes
        audit.trust.add(result.trust)
    for finding in part.findings:
        (audit.findings if finding.level is Level.FINDING else audit.notes).append(finding)


def _compare(audit: Audit, work: Work, options: Options, partitions: Sequence[Joined]) -> None:
    """Set the states of the findings."""
    earlier = work.since.findings if work.since is not None else ()
    keys: dict[bool, set[tuple[str, int]]] = {True: set(), False: set()}
    for partition in partitions:
        is_unsure = bool(partition.unreadable or partition.moved)
        keys[is_unsure] |= {
            (part.segment.topic, part.segment.partition) for part in partition.parts
        }
    scope = Scope(work.paths, options, keys[True] | keys[False], keys[True], audit.unreadable)
    there, audit.gone = compared([*audit.findings, *audit.notes], earlier, scope, work.now_ms)
    audit.findings = [one for one in there if one.level is Level.FINDING]
    audit.notes = [one for one in there if one.level is not Level.FINDING]


# ---- tables --------------------------------------------------------------------------------------


def _errors(audit: Audit, entries: Sequence[Entry], work: Work) -> pa.Table:
    rows = [_row(finding) for finding in (*audit.findings, *audit.gone, *audit.notes)]
    earlier = work.since.unreadable if work.since is not None else {}
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
                "state": (State.OPEN if text_of(lost.uri) in earlier else State.NEW).value,
                "first_seen": earlier.get(text_of(lost.uri), work.now_ms),
            }
        )
    return pa.Table.from_pylist(rows, ERRORS)


def _transactions(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return a row for each partition, with its open transactions in it."""
    opened: dict[str, list[dict[str, Any]]] = defaultdict(list)
    partitions = []
    for row in rows:
        if row["type"] == "transaction":
            times = {name: _time(row[name]) for name in ("first_timestamp", "last_timestamp")}
            opened[row["folder"]].append(row | times)
        else:
            partitions.append(row)
    partitions.sort(key=lambda row: (row["topic"], row["partition"], row["folder"]))
    whole = [row | {"open_transactions": opened[row["folder"]]} for row in partitions]
    return pa.Table.from_pylist(whole, TRANSACTIONS)


def _time(stamp: int | None) -> int | None:
    """Return milliseconds that a table can hold; None for others."""
    return stamp if stamp is not None and 0 <= stamp < END_OF_TIME_MS else None


def _row(finding: Finding) -> dict[str, Any]:
    row = {name: getattr(finding, name) for name in ERRORS.names if hasattr(finding, name)}
    stamp = finding.max_timestamp
    return row | {
        "max_timestamp": _time(stamp),
        "rule": finding.rule.id,
        "slug": finding.rule.slug,
        **_error(finding.rule.error_code),
        "reason": text_of(finding.reason),
        "file": text_of(finding.file),
        "level": finding.level.value,
        "state": finding.state.value,
    }


def _error(code: ErrorCode | None) -> dict[str, Any]:
    return {"error_code": code and int(code), "error_name": code and code.name}


def _summary(parts: Sequence[Part]) -> pa.Table:
    """Return the summary: hours in their order, none at the end."""
    whose: dict[_Whose, list[Part]] = defaultdict(list)
    for part in parts:
        segment = part.segment
        whose[
            _Whose(segment.cluster or "", segment.broker or "", segment.topic, segment.partition)
        ].append(part)
    keys = sorted(whose)
    tables = [_of_partition(whose[key]) for key in keys]
    if not any(map(len, tables)):
        return SUMMARY.empty_table()
    numbers = np.repeat(np.arange(len(keys)), list(map(len, tables)))
    table = pa.concat_tables(tables).append_column("whose", pa.array(numbers))
    return _in_order(joined([table], ("whose", "hour", "codec")), keys)


class _Whose(NamedTuple):
    """A partition of a broker; empty where no meta.properties names it."""

    cluster: str
    broker: str
    topic: str
    partition: int


def _of_partition(parts: Sequence[Part]) -> pa.Table:
    """Return counts of at most HOURS_OF_A_PARTITION hours."""
    tables = [NO_COUNTS, *(table for part in parts for table in _of_segment(part))]
    if sum(map(len, tables)) <= HOURS_OF_A_PARTITION:
        return pa.concat_tables(tables).combine_chunks()
    return within(
        joined(tables), max(last_write(part.segment) for part in parts), HOURS_OF_A_PARTITION
    )


def _of_segment(part: Part) -> list[pa.Table]:
    tables = [unpacked(result.hours) for result in part.results if result.hours is not None]
    if sum(map(len, tables)) <= HOURS_OF_A_SEGMENT:
        return tables
    return [within(joined(tables), last_write(part.segment), HOURS_OF_A_SEGMENT)]


def _in_order(table: pa.Table, keys: Sequence[_Whose]) -> pa.Table:
    """Return counts as rows of the summary."""
    whose, hours, codecs = (table[name].to_numpy() for name in ("whose", "hour", "codec"))
    last = np.iinfo("<i8").max
    order = np.lexsort(
        [np.where(codecs == NONE, last, codecs), np.where(hours == NONE, last, hours), whose]
    )
    table, whose, hours, codecs = (
        table.take(pa.array(order)),
        whose[order],
        hours[order],
        codecs[order],
    )
    columns: dict[str, Any] = {
        name: pa.array([getattr(key, name) or None for key in keys]).take(pa.array(whose))
        for name in ("cluster", "broker", "topic")
    }
    columns["partition"] = pa.array([key.partition for key in keys]).take(pa.array(whose))
    columns["hour"] = pa.array(hours * HOUR_MS, mask=hours == NONE)
    columns["codec"] = pa.array(CODECS).take(pa.array(codecs, mask=codecs == NONE))
    columns |= {name: table[name] for name in (*SUMS, *EXTREMES)}
    return pa.Table.from_arrays(
        [columns[one.name].cast(one.type) for one in SUMMARY], schema=SUMMARY
    )
