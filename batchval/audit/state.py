"""What one range of a segment leaves behind: small, picklable, and enough to judge the partition as a whole.

Counts are kept an hour: that of a batch is the hour of its max_timestamp (UTC), None where the batch
has none, is not believed (a wrong checksum), or lies behind the year 9999.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from batchval.audit.segments import Range
from batchval.audit.store import SegmentInfo, Unreadable
from batchval.core.columns import BatchColumns
from batchval.core.continuity import Continuity
from batchval.rules import Rule
from batchval.segment.check import IndexLie
from batchval.types import CompressionType

__all__ = [
    "CODECS",
    "COUNTERS",
    "EXTREMES",
    "FOUND",
    "HOUR_MS",
    "Found",
    "Hours",
    "Last",
    "RangeFindings",
    "RangeResult",
    "columns_of",
    "hour_of",
    "hours_of",
]

HOUR_MS = 3_600_000
_LAST_HOUR = 253_402_300_800_000 // HOUR_MS - 1  # of the year 9999
#: message.timestamp.after.max.ms of a broker that is not told otherwise
AHEAD_MS = 3_600_000

CODECS = tuple(codec.kafka_name for codec in CompressionType)
_BY_CODEC = ("batches", "records", "bytes", "uncompressed_bytes", "claims_batches", "claims_bytes")
#: What is added up. ``refused``: batches that break a rule by themselves. ``timestamp_outliers``: more than an hour
#: ahead of the segment's last write. ``uncompressed_bytes``: where the payload was opened. ``claims``: compressed
#: batches that a broker or gate which honours claims could have let by without decompressing them.
COUNTERS = (
    *("batches", "records", "bytes", "control_batches", "refused", "timestamp_outliers"),
    *(f"{name}_{codec}" for codec in CODECS for name in _BY_CODEC),
)
_AT = {name: i for i, name in enumerate(COUNTERS)}
#: Least or highest of an hour's believed batches.
EXTREMES = ("min_timestamp", "max_timestamp", "min_offset", "max_offset")


class Found(NamedTuple):
    """One rule that one place of one segment breaks; ``in_index``: of its index. ``offset``, ``hour``: as known."""

    position: int
    offset: int | None
    rule: Rule
    reason: str
    hour: int | None = None
    in_index: bool = False


#: Findings as columns: a range in which nothing is right has millions. ``rule`` is its number.
FOUND = pa.schema(
    [
        *(("position", pa.int64()), ("offset", pa.int64()), ("rule", pa.int16()), ("reason", pa.string())),
        *(("hour", pa.int64()), ("in_index", pa.bool_())),
    ]
)
_HELD = 1 << 14


class RangeFindings:
    """Findings in the order in which they were added. What is many is put away compressed, some ten bytes each."""

    def __init__(self) -> None:
        self._held: list[Found] = []
        self._packed: list[bytes] = []

    def add(self, *found: Found) -> None:
        self._held += found
        if len(self._held) >= _HELD:
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            with pa.BufferOutputStream() as stream, pa.ipc.new_stream(stream, FOUND, options=options) as writer:
                writer.write_batch(columns_of(self._held))
            self._packed.append(stream.getvalue().to_pybytes())
            self._held.clear()

    def tables(self) -> Iterator[pa.Table]:
        for packed in self._packed:
            with pa.ipc.open_stream(packed) as stream:
                yield stream.read_all()
        if self._held:
            yield pa.Table.from_batches([columns_of(self._held)])


def columns_of(found: Sequence[Found]) -> pa.RecordBatch:
    """By FOUND."""
    columns = list(zip(*found, strict=True)) if found else [()] * len(FOUND)
    columns[2] = tuple(rule.number for rule in columns[2])
    return pa.RecordBatch.from_arrays(
        [pa.array(column, one.type) for column, one in zip(columns, FOUND, strict=True)], schema=FOUND
    )


class Last(NamedTuple):
    """The last batch that was believed: by it a later run knows that a segment has only grown."""

    position: int
    size: int
    crc: int


def hour_of(max_timestamp: int) -> int | None:
    """Hours since 1970."""
    hour = max_timestamp // HOUR_MS
    return hour if 0 <= hour <= _LAST_HOUR else None


def hours_of(columns: BatchColumns) -> np.ndarray:
    """The same for all rows, -1 for None."""
    hours = columns["max_timestamp"] // HOUR_MS
    return np.asarray(np.where(columns["is_valid"] & (hours >= 0) & (hours <= _LAST_HOUR), hours, -1))


class Hours:
    """Counts by hour."""

    def __init__(self) -> None:
        self._counts: dict[int, np.ndarray] = {}
        self._extremes: dict[int, tuple[int, int, int, int]] = {}

    def __iter__(self) -> Iterator[int | None]:
        return (None if hour < 0 else hour for hour in sorted(self._counts))

    def counts(self, hour: int | None) -> dict[str, int]:
        counts = self._counts.get(-1 if hour is None else hour)
        return dict(zip(COUNTERS, [0] * len(COUNTERS) if counts is None else counts.tolist(), strict=True))

    def extremes(self, hour: int | None) -> dict[str, int | None]:
        found = self._extremes.get(-1 if hour is None else hour)
        return dict(zip(EXTREMES, found or (None,) * len(EXTREMES), strict=True))

    def total(self, name: str) -> int:
        return sum(int(counts[_AT[name]]) for counts in self._counts.values())

    def merge(self, other: Hours) -> None:
        for hour, counts in other._counts.items():
            self._add(hour, counts, other._extremes.get(hour))

    def add(self, columns: BatchColumns, segment: SegmentInfo) -> None:
        """The batches of one stretch."""
        if not len(columns):
            return
        hours = hours_of(columns)
        order = np.argsort(hours, kind="stable")
        begins = np.flatnonzero(np.diff(hours[order], prepend=-2))
        sums = np.zeros((len(begins), len(COUNTERS)), "<i8")
        for name, values in _counted(columns, segment):
            sums[:, _AT[name]] = np.add.reduceat(values[order], begins, dtype="<i8")
        believed = columns["is_valid"][order]
        for begin, end, counts in zip(begins.tolist(), [*begins[1:].tolist(), len(order)], sums, strict=True):
            rows = order[begin:end][believed[begin:end]]
            self._add(int(hours[order[begin]]), counts, _extremes(columns, rows))

    def _add(self, hour: int, counts: np.ndarray, extremes: tuple[int, int, int, int] | None) -> None:
        self._counts[hour] = self._counts[hour] + counts if hour in self._counts else counts
        known = self._extremes.get(hour)
        if extremes is not None and known is not None:
            a, b = known, extremes
            extremes = min(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), max(a[3], b[3])
        if extremes is not None:
            self._extremes[hour] = extremes


def _extremes(columns: BatchColumns, rows: np.ndarray) -> tuple[int, int, int, int] | None:
    if not len(rows):
        return None
    timestamps, first, last = columns["max_timestamp"][rows], columns["base_offset"][rows], columns["last_offset"][rows]
    return int(timestamps.min()), int(timestamps.max()), int(first.min()), int(last.max())


def _counted(columns: BatchColumns, segment: SegmentInfo) -> Iterator[tuple[str, np.ndarray]]:
    """What each batch adds to a counter; counters that nothing is added to are left out."""
    valid, codec = columns["is_valid"], columns["compression_type"]
    sizes = columns["size_in_bytes"].astype("<i8")
    records = np.where(valid, np.maximum(columns["records_count"], 0), 0)  # -1 where magic 0 or 1 does not say
    yield "batches", np.ones(len(columns), "<i8")
    yield "records", records
    yield "bytes", sizes
    yield "control_batches", valid & columns["is_control_batch"]
    yield "refused", columns["rule"] != 0
    if segment.mtime_ns > 0:
        yield "timestamp_outliers", valid & (columns["max_timestamp"] > segment.mtime_ns // 1_000_000 + AHEAD_MS)
    claims = _would_pass_by_claims(columns) & (codec != 0) & (columns["magic"] >= 2)
    for number, name in enumerate(CODECS):
        of_codec = valid & (codec == number)
        if of_codec.any():
            yield f"batches_{name}", of_codec
            yield f"records_{name}", np.where(of_codec, records, 0)
            yield f"bytes_{name}", np.where(of_codec, sizes, 0)
            yield f"uncompressed_bytes_{name}", np.where(of_codec, _uncompressed(columns) if number else sizes, 0)
            yield f"claims_batches_{name}", of_codec & claims
            yield f"claims_bytes_{name}", np.where(of_codec & claims, sizes, 0)


def _uncompressed(columns: BatchColumns) -> np.ndarray:
    try:
        return np.asarray(np.maximum(columns["uncompressed_size"], 0))
    except KeyError:
        return np.zeros(len(columns), "<i8")


def _would_pass_by_claims(columns: BatchColumns) -> np.ndarray:
    """Clients' batches as they were sent, in which nothing is wrong and for which honest claims settle everything."""
    sent_whole = columns["records_count"].astype("<i8") == columns["last_offset_delta"].astype("<i8") + 1
    create_time = columns["timestamp_type"] == 0
    stamped = (columns["base_timestamp"] >= 0) & (columns["max_timestamp"] >= 0)
    sound = columns["is_valid"] & (columns["rule"] == 0)
    return np.asarray(sound & ~columns["is_control_batch"] & sent_whole & create_time & stamped)


@dataclass
class RangeResult:
    """``first``: where the range's first batch or damage starts (None: none does), ``end``: where its last one ends.

    ``findings`` are those that the range shows by itself; ``misses`` are index entries that name no batch of it, lies
    unless damage covers the place. ``unreadable``: of the segment, or of its index.
    """

    range: Range
    first: int | None = None
    end: int = 0
    continuity: Continuity = field(default_factory=Continuity)
    findings: RangeFindings = field(default_factory=RangeFindings)
    lost: list[tuple[int, int]] = field(default_factory=list)  # damage: position, size
    misses: list[IndexLie] = field(default_factory=list)
    hours: Hours = field(default_factory=Hours)
    last: Last | None = None
    thinned: bool = False
    unreadable: list[Unreadable] = field(default_factory=list)
    files: tuple[str, ...] = ()
