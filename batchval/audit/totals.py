"""Totals of an audit's outputs: of all, by topic, by hour, by both. Of summary/, errors/ and
segments/ alone.

A row of summary/ is a partition of a broker, an hour and a codec; counts add up. What a row does
not know (uncompressed bytes, where the audit was not deep) is null, and so is every sum that would
need it.
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
from batchval.audit.arrow_rows import UNREADABLE
from batchval.audit.hours import CODECS, HOUR_MS
from batchval.segment.findings import Level, State
from batchval.segment.trust import TrustCounts

__all__ = [
    "CODECS",
    "Codec",
    "Facts",
    "Totals",
    "gather",
    "hour_words",
    "is_finding",
    "is_note",
    "is_unreadable",
    "of_group",
    "of_tables",
    "rules_of",
]

HOUR_S = HOUR_MS // 1000
#: what a group's rows of all codecs add up to
_COUNTS = (
    *(
        "batches",
        "records",
        "bytes",
        "control_batches",
        "refused",
        "timestamp_outliers",
        "damaged_bytes",
    ),
    *("figures_by_claims", "claims_verified", "claims_lying"),
)


class Codec(NamedTuple):
    """The batches of one codec. ``uncompressed_bytes`` is None where their payloads were not
    opened.
    """

    batches: int
    records: int
    bytes: int
    uncompressed_bytes: int | None
    claims_batches: int
    claims_bytes: int


_OF_CODECS = [name for name in Codec._fields if name not in _COUNTS]


@dataclass
class Totals:
    """Totals of one group of rows."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    control_batches: int = 0
    refused: int = 0
    timestamp_outliers: int = 0
    damaged_bytes: int = 0
    figures_by_claims: int = 0
    claims_verified: int = 0
    claims_lying: int = 0
    partitions: int = 0
    codecs: dict[str, Codec] = field(default_factory=dict)
    rules: Counter[str] = field(default_factory=Counter)

    @property
    def trust(self) -> TrustCounts:
        """Return the batches that were taken by their claims."""
        return TrustCounts(self.figures_by_claims, self.claims_verified, self.claims_lying)

    @property
    def offset_anomalies(self) -> int:
        """Return the count of L2, L3 and L4: offsets and leader epochs."""
        return self.rules["L2"] + self.rules["L3"] + self.rules["L4"]

    @property
    def sequence_anomalies(self) -> int:
        """Return the count of L5: sequences of producers."""
        return self.rules["L5"]

    @property
    def findings(self) -> int:
        return self.rules.total()

    @property
    def ratio(self) -> float | None:
        """Return the compression ratio: uncompressed over stored bytes of the compressed batches.
        None: unknown.
        """
        packed = [codec for name, codec in self.codecs.items() if name != "none" and codec.bytes]
        if not packed or any(codec.uncompressed_bytes is None for codec in packed):
            return None
        return sum(codec.uncompressed_bytes or 0 for codec in packed) / sum(
            codec.bytes for codec in packed
        )

    @property
    def claims_share(self) -> float | None:
        """Return the share of bytes in batches that would pass by claims. None without bytes."""
        return (
            sum(codec.claims_bytes for codec in self.codecs.values()) / self.bytes
            if self.bytes
            else None
        )

    @property
    def cpu_kafka(self) -> float:
        """Return the CPU seconds of a broker's validation of all these batches, as it is today."""
        return sum(
            costs.cpu_seconds("kafka", name, c.batches, c.records, c.bytes)
            for name, c in self.codecs.items()
        )

    @property
    def cpu_saved(self) -> float:
        """Return the CPU seconds that a broker which honours claims would save on those that would
        pass by them.
        """
        return sum(saved(name, codec) for name, codec in self.codecs.items())


def saved(name: str, codec: Codec) -> float:
    """Return CPU seconds: Kafka's validation less the claims path, of the batches of this codec
    that would pass by claims.
    """
    if not codec.claims_batches or not codec.batches:
        return 0.0
    records = codec.records * codec.claims_batches / codec.batches
    sizes = codec.claims_batches, records, codec.claims_bytes
    return max(
        0.0, costs.cpu_seconds("kafka", name, *sizes) - costs.cpu_seconds("claims", name, *sizes)
    )


@dataclass
class Facts:
    """Figures of a report. Hours are seconds since 1970, None for batches without a timestamp.

    ``rules``     findings by topic, partition, hour and rule: a count each
    ``findings``  the first of them, as ``notes``
    """

    whole: Totals
    topics: dict[str, Totals]
    summary: pa.Table
    rules: pa.Table
    findings: pa.Table
    findings_count: int
    notes: pa.Table
    notes_count: int
    segments: int
    segment_bytes: int
    unreadable: list[tuple[str, str]]

    @functools.cached_property
    def hours(self) -> dict[int | None, Totals]:
        """Return the sums of each hour."""
        return {
            key[0]: totals for key, totals in of_group(self.summary, self.rules, ["hour"]).items()
        }

    @functools.cached_property
    def span(self) -> tuple[int, int] | None:
        """Return the first and the last timestamp in milliseconds; None where no batch has one."""
        first, last = (
            how(self.summary[name].cast(pa.int64())).as_py()
            for how, name in ((pc.min, "min_timestamp"), (pc.max, "max_timestamp"))
        )
        return None if first is None else (first, last)

    def topic_hours(self, topic: str) -> dict[int | None, Totals]:
        """Return the sums of each hour of a topic."""
        summary, rules = (
            table.filter(pc.equal(table["topic"], topic)) for table in (self.summary, self.rules)
        )
        return {key[0]: totals for key, totals in of_group(summary, rules, ["hour"]).items()}


def of_group(
    summary: pa.Table, rules: pa.Table, by: Sequence[str]
) -> dict[tuple[Any, ...], Totals]:
    """Return each group's sums, in the order of their keys, nulls last."""
    groups: dict[tuple[Any, ...], Totals] = {}
    keys = [*by, "codec"]
    sums = [
        (name, "sum", pc.ScalarAggregateOptions(skip_nulls=False))
        for name in (*_COUNTS, *_OF_CODECS)
    ]
    rows = summary.group_by(keys, use_threads=False).aggregate(sums).to_pylist()
    for row in sorted(rows, key=lambda row: (*CODECS, None).index(row["codec"])):
        _add(groups.setdefault(_key(row, by), Totals()), row)
    for row in (
        rules.group_by([*by, "rule"], use_threads=False).aggregate([("count", "sum")]).to_pylist()
    ):
        key = _key(row, by)
        if key not in groups:  # of an hour that has no row of its own
            key = tuple(
                None if name == "hour" else value for name, value in zip(by, key, strict=True)
            )
        groups.setdefault(key, Totals()).rules[row["rule"]] += row["count_sum"]
    return dict(
        sorted(groups.items(), key=lambda group: [(value is None, value) for value in group[0]])
    )


def _key(row: Mapping[str, Any], by: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in by)


def _add(totals: Totals, row: Mapping[str, Any]) -> None:
    for name in _COUNTS:
        setattr(totals, name, getattr(totals, name) + (row[f"{name}_sum"] or 0))
    if row["codec"] is not None and row["batches_sum"]:
        totals.codecs[row["codec"]] = Codec(*(row[f"{name}_sum"] for name in Codec._fields))


def rules_of(errors: pa.Table) -> pa.Table:
    """Return how many findings of each rule a topic, partition and hour has.

    ``errors``: findings alone.
    """
    names = ["topic", "partition", "hour", "rule"]
    hours = pc.divide(errors["max_timestamp"].cast(pa.int64()), HOUR_MS)
    keyed = errors.select(["topic", "partition", "rule"]).append_column(
        "hour", pc.multiply(hours, HOUR_S)
    )
    return (
        keyed.group_by(names, use_threads=False)
        .aggregate([([], "count_all")])
        .rename_columns([*names, "count"])
    )


def is_finding() -> pc.Expression:
    """Return the filter of errors/ for findings that are there."""
    return (pc.field("level") == Level.FINDING.value) & _is_there()


def is_unreadable() -> pc.Expression:
    """Return the filter of errors/ for files that could not be read."""
    return (pc.field("rule") == UNREADABLE) & _is_there()


def _is_there() -> pc.Expression:
    state = pc.field("state")
    return state.is_null() | (state != State.GONE.value)


def is_note() -> pc.Expression:
    """Return the filter of errors/ for notes."""
    return pc.field("level") == Level.NOTE.value


def of_tables(tables: Mapping[str, pa.Table], findings: int = 200) -> Facts:
    """Return the facts of the tables errors, summary and segments; with the first findings."""
    errors = tables["errors"]
    found, notes, lost = (errors.filter(one()) for one in (is_finding, is_note, is_unreadable))
    first = (found.slice(0, findings), found.num_rows), (notes.slice(0, findings), notes.num_rows)
    return gather(tables["summary"], rules_of(found), *first, tables["segments"], lost)


def gather(
    summary: pa.Table,
    rules: pa.Table,
    findings: tuple[pa.Table, int],
    notes: tuple[pa.Table, int],
    segments: pa.Table,
    unreadable: pa.Table,
) -> Facts:
    """Return the facts. ``findings`` and ``notes``: the first of them, and how many there are."""
    at = summary.column_names.index("hour")
    summary = summary.set_column(
        at, "hour", summary["hour"].cast(pa.timestamp("s", "UTC")).cast(pa.int64())
    )
    whole = of_group(summary, rules, []).get((), Totals())
    topics = {key[0]: totals for key, totals in of_group(summary, rules, ["topic"]).items()}
    for topic, _ in {pair for table in (summary, rules) for pair in _partitions(table)}:
        whole.partitions += 1
        topics[topic].partitions += 1
    return Facts(
        whole=whole,
        topics=topics,
        summary=summary,
        rules=rules,
        findings=findings[0],
        findings_count=findings[1],
        notes=notes[0],
        notes_count=notes[1],
        # the others are paths that could not be listed
        segments=len(segments) - segments["base_offset"].null_count,
        segment_bytes=pc.sum(segments["size"]).as_py() or 0,
        unreadable=list(
            zip(unreadable["file"].to_pylist(), unreadable["reason"].to_pylist(), strict=True)
        ),
    )


def _partitions(table: pa.Table) -> Iterator[tuple[str, int]]:
    keys = ["topic", "partition"]
    for row in table.group_by(keys, use_threads=False).aggregate([]).to_pylist():
        yield row["topic"], row["partition"]


def hour_words(hour: int | None, unit: str = "h") -> str:
    """Return ``2026-11-21 14:00``, or its day or month. A damaged timestamp may have any year."""
    if hour is None:
        return "no timestamp"
    words = str(np.datetime64(hour, "s").astype(f"datetime64[{unit}]"))
    return words.replace("T", " ") + ":00" if unit == "h" else words
