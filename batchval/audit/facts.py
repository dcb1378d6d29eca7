"""What an audit's outputs add up to: of all, by topic, by hour, by both. Of summary/, errors/ and segments/ alone.

A row of summary/ is a topic, a partition and an hour; counts add up. What a row does not know (uncompressed bytes,
where the audit was not deep) is null, and so is every sum that would need it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchval.audit import costs
from batchval.audit.hours import BY_CODEC, CODECS
from batchval.audit.rows import UNREADABLE
from batchval.segment.findings import Level, State

__all__ = [
    "CODECS",
    "Codec",
    "Facts",
    "Totals",
    "gather",
    "hour_words",
    "is_finding",
    "is_unreadable",
    "of_group",
    "of_tables",
]

_COUNTS = ("batches", "records", "bytes", "control_batches", "refused")
_ANOMALIES = ("offset_anomalies", "epoch_anomalies", "sequence_anomalies", "timestamp_outliers", "damaged_bytes")


class Codec(NamedTuple):
    """The batches of one codec. ``uncompressed_bytes`` is None where their payloads were not opened."""

    batches: int
    records: int
    bytes: int
    uncompressed_bytes: int | None
    claims_batches: int
    claims_bytes: int


@dataclass
class Totals:
    """What one group of rows adds up to."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    control_batches: int = 0
    refused: int = 0
    offset_anomalies: int = 0
    epoch_anomalies: int = 0
    sequence_anomalies: int = 0
    timestamp_outliers: int = 0
    damaged_bytes: int = 0
    partitions: int = 0
    codecs: dict[str, Codec] = field(default_factory=dict)
    rules: Counter[str] = field(default_factory=Counter)

    @property
    def findings(self) -> int:
        return self.rules.total()

    @property
    def ratio(self) -> float | None:
        """Uncompressed bytes of the compressed batches' records, over those batches as stored. None: not known."""
        packed = [codec for name, codec in self.codecs.items() if name != "none" and codec.bytes]
        if not packed or any(codec.uncompressed_bytes is None for codec in packed):
            return None
        return sum(codec.uncompressed_bytes or 0 for codec in packed) / sum(codec.bytes for codec in packed)

    @property
    def claims_share(self) -> float | None:
        """Of the bytes, those of batches that would pass by claims. None where there are no bytes."""
        return sum(codec.claims_bytes for codec in self.codecs.values()) / self.bytes if self.bytes else None

    @property
    def cpu_kafka(self) -> float:
        """CPU-s of a broker's validation of all these batches, as it is today."""
        return sum(costs.cpu_seconds("kafka", name, c.batches, c.records, c.bytes) for name, c in self.codecs.items())

    @property
    def cpu_saved(self) -> float:
        """CPU-s that a broker which honours claims would not spend on those that would pass by them."""
        return sum(saved(name, codec) for name, codec in self.codecs.items())


def saved(name: str, codec: Codec) -> float:
    """CPU-s: Kafka's validation less the claims path, of the batches of this codec that would pass by claims."""
    if not codec.claims_batches or not codec.batches:
        return 0.0
    records = codec.records * codec.claims_batches / codec.batches
    sizes = codec.claims_batches, records, codec.claims_bytes
    return max(0.0, costs.cpu_seconds("kafka", name, *sizes) - costs.cpu_seconds("claims", name, *sizes))


@dataclass
class Facts:
    """All that a report says. Hours are seconds since 1970, None for batches without a timestamp."""

    whole: Totals
    topics: dict[str, Totals]
    summary: pa.Table
    findings: pa.Table  # the first of them
    findings_count: int
    segments: int
    segment_bytes: int
    unreadable: list[tuple[str, str]]

    @functools.cached_property
    def hours(self) -> dict[int | None, Totals]:
        """Made when it is asked for: a terminal's summary does not."""
        return {key[0]: totals for key, totals in of_group(self.summary, ["hour"])}

    def topic_hours(self, topic: str) -> dict[int | None, Totals]:
        rows = self.summary.filter(pc.equal(self.summary["topic"], topic))
        return {key[0]: totals for key, totals in of_group(rows, ["hour"])}


def of_group(summary: pa.Table, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Totals]]:
    """Each group's key and sums, in the order of the keys, nulls last."""
    known = [name for name in _count_columns() if name in summary.column_names]
    sums = [(name, "sum", pc.ScalarAggregateOptions(skip_nulls=False)) for name in known]
    keyed = _with_zeros(summary.select(list(dict.fromkeys([*by, "partition", *known]))))
    if "hour" in by:
        keyed = keyed.set_column(keyed.column_names.index("hour"), "hour", _hour_seconds(keyed["hour"]))
    if by:
        sums.append(("partition", "count_distinct", pc.CountOptions()))
        groups = keyed.group_by(list(by), use_threads=False).aggregate(sums)
        grouped = groups.sort_by([(name, "ascending") for name in by])
    else:  # a group of no key is not to be had
        whole = {f"{name}_sum": pc.sum(keyed[name], skip_nulls=False, min_count=0).as_py() for name in known}
        grouped = pa.table({name: [value] for name, value in whole.items()})
    rules = _rules(summary, by)
    for row in grouped.to_pylist():
        key = tuple(row[name] for name in by)
        totals = _totals(row)
        totals.rules = rules.get(key, Counter())
        yield key, totals


def _count_columns() -> Iterator[str]:
    yield from _COUNTS
    yield from _ANOMALIES
    for codec in CODECS:
        for name in BY_CODEC:
            yield f"{name}_{codec}"


def _with_zeros(table: pa.Table) -> pa.Table:
    """A codec that a row has no batch of has 0 uncompressed bytes there: null would say that they are not known."""
    for codec in CODECS:
        name = f"uncompressed_bytes_{codec}"
        if name in table.column_names:
            none = pc.equal(table[f"batches_{codec}"], 0)
            column = pc.if_else(none, pa.scalar(0, pa.int64()), table[name])
            table = table.set_column(table.column_names.index(name), name, column)
    return table


def _totals(row: Mapping[str, Any]) -> Totals:
    totals = Totals(partitions=row.get("partition_count_distinct", 0))
    for name in (*_COUNTS, *_ANOMALIES):
        setattr(totals, name, row.get(f"{name}_sum") or 0)
    for codec in CODECS:
        found = {name: row.get(f"{name}_{codec}_sum") for name in BY_CODEC}
        uncompressed = found.pop("uncompressed_bytes")
        if found["batches"]:
            counts = {name: value or 0 for name, value in found.items()}
            totals.codecs[codec] = Codec(uncompressed_bytes=uncompressed, **counts)
    return totals


def _hour_seconds(hours: pa.ChunkedArray) -> pa.ChunkedArray:
    return hours.cast(pa.timestamp("s")).cast(pa.int64())


def _rules(summary: pa.Table, by: Sequence[str]) -> dict[tuple[Any, ...], Counter[str]]:
    """The map column, entry by entry, added up."""
    found: dict[tuple[Any, ...], Counter[str]] = {}
    if "rules" not in summary.column_names:
        return found
    summary = summary.filter(pc.is_valid(summary["rules"])).combine_chunks()
    for chunk in summary.select([*by, "rules"]).to_batches():
        maps = chunk.column("rules")
        lengths = np.diff(maps.offsets.to_numpy())
        rows = np.repeat(np.arange(len(maps)), lengths)
        if not len(rows):
            continue
        start, end = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
        entries = pa.table(
            [chunk.column(name).take(pa.array(rows)) for name in by]
            + [maps.keys.slice(start, end - start), maps.items.slice(start, end - start)],
            [*by, "rule", "count"],
        )
        if "hour" in by:
            entries = entries.set_column(by.index("hour"), "hour", _hour_seconds(entries["hour"]))
        for row in entries.group_by([*by, "rule"]).aggregate([("count", "sum")]).to_pylist():
            key = tuple(row[name] for name in by)
            found.setdefault(key, Counter())[row["rule"]] += row["count_sum"]
    return found


def is_finding() -> pc.Expression:
    """Return the filter of errors/ for findings that are there. Audits before 0.3 wrote no level."""
    level, rule = pc.field("level"), pc.field("rule")
    return (level.is_null() | (level == Level.FINDING.value)) & (rule != UNREADABLE) & _is_there()


def is_unreadable() -> pc.Expression:
    """Return the filter of errors/ for files that could not be read."""
    return (pc.field("rule") == UNREADABLE) & _is_there()


def _is_there() -> pc.Expression:
    state = pc.field("state")
    return state.is_null() | (state != State.GONE.value)


def of_tables(tables: Mapping[str, pa.Table], findings: int = 200) -> Facts:
    """Of an audit's tables: errors, summary and segments; with the first findings."""
    errors = tables["errors"]
    lost = errors.filter(is_unreadable())
    found = errors.filter(is_finding())
    return gather(tables["summary"], found.slice(0, findings), found.num_rows, tables["segments"], lost)


def gather(
    summary: pa.Table, findings: pa.Table, findings_count: int, segments: pa.Table, unreadable: pa.Table | None = None
) -> Facts:
    """``findings`` may be the first of many; the count is of all. ``unreadable``: the rows of errors/ that say so."""
    lost = unreadable if unreadable is not None else findings.slice(0, 0)
    (whole,) = (totals for _, totals in of_group(summary, []))
    keys = summary.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
    whole.partitions = keys.num_rows
    return Facts(
        whole=whole,
        topics={key[0]: totals for key, totals in of_group(summary, ["topic"])},
        summary=summary,
        findings=findings,
        findings_count=findings_count,
        segments=len(segments) - segments["base_offset"].null_count,  # the others are paths that could not be listed
        segment_bytes=pc.sum(segments["size"]).as_py() or 0,
        unreadable=list(zip(lost["file"].to_pylist(), lost["reason"].to_pylist(), strict=True)),
    )


def hour_words(hour: int | None, unit: str = "h") -> str:
    """``2026-11-21 14:00``, or the day or the month of it; any year, as a damaged timestamp may say any."""
    if hour is None:
        return "no timestamp"
    words = str(np.datetime64(hour, "s").astype(f"datetime64[{unit}]"))
    return words.replace("T", " ") + ":00" if unit == "h" else words
