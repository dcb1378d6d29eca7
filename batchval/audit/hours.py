"""Counts of batches by hour and codec: of one range of a segment, or of many.

The hour of a batch is that of its max_timestamp (UTC); NONE where it has no timestamp, a wrong
checksum, or a year after 9999. Where a segment has batches of absurdly many hours, those far from
its last write count as NONE too.

Counts are Arrow tables with the columns of COUNTS. ``joined`` adds them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from batchval.audit.arrow_rows import END_OF_TIME_MS
from batchval.core.batches.columns import BatchColumns
from batchval.segment.options import Options
from batchval.segment.store import SegmentInfo
from batchval.segment.trust import by_row
from batchval.types import CompressionType

__all__ = [
    "CODECS",
    "EXTREMES",
    "HOURS_OF_A_PARTITION",
    "HOURS_OF_A_SEGMENT",
    "HOUR_MS",
    "NONE",
    "NO_COUNTS",
    "SUMS",
    "Counts",
    "hour_of",
    "joined",
    "last_write",
    "unpacked",
    "within",
]

HOUR_MS = 3_600_000
#: message.timestamp.after.max.ms of a broker with Kafka's defaults
AHEAD_MS = 3_600_000
#: in ``hour`` and ``codec``: batches without one, and bytes in no batch
NONE = -1

CODECS = tuple(codec.kafka_name for codec in CompressionType)
#: What is added up:
#:
#: ``uncompressed_bytes``  where payloads were opened or taken by their claims, else null
#: ``claims_batches``, ``claims_bytes``  of sound compressed batches that a broker or gate which
#:                         honours claims could accept without decompressing them
#: ``refused``             batches that break a rule by themselves
#: ``timestamp_outliers``  more than an hour ahead of the segment's last write
#: ``damaged_bytes``       in no batch
#: ``figures_by_claims``   batches taken by their claims (batchval.segment.trust)
#: ``claims_verified``     those that the sample drew
#: ``claims_lying``        of these, those whose claims lie
SUMS = (
    *("batches", "records", "bytes", "uncompressed_bytes", "claims_batches", "claims_bytes"),
    *("control_batches", "refused", "timestamp_outliers", "damaged_bytes"),
    *("figures_by_claims", "claims_verified", "claims_lying"),
)
#: Least or highest of the batches with a right checksum; null without one.
EXTREMES = {
    "min_timestamp": "min",
    "max_timestamp": "max",
    "min_offset": "min",
    "max_offset": "max",
}
_KEYS = ("hour", "codec")
_SCHEMA = pa.schema([(name, pa.int64()) for name in (*_KEYS, *SUMS, *EXTREMES)])
NO_COUNTS = _SCHEMA.empty_table()
#: Hours that have rows of their own: three years and more of a segment, fifteen of a partition.
HOURS_OF_A_SEGMENT, HOURS_OF_A_PARTITION = 1 << 15, 1 << 17
#: batches that a range holds before it adds them up: a group-by has a cost of its own
_HELD = 1 << 16


def hour_of(max_timestamp: int) -> int | None:
    """Return the hour since 1970 of a time in milliseconds; None beyond the year 9999."""
    return max_timestamp // HOUR_MS if 0 <= max_timestamp < END_OF_TIME_MS else None


def last_write(segment: SegmentInfo) -> int:
    """Return the hour of a segment's last write; 0 where it is not known."""
    return hour_of(segment.mtime_ns // 1_000_000) or 0


class Counts:
    """Counts of the batches of one range."""

    def __init__(self, segment: SegmentInfo, options: Options) -> None:
        self._segment, self._is_deep = segment, options.deep
        self._held: list[pa.Table] = []
        self._damaged = 0

    def add(self, columns: BatchColumns) -> None:
        """Count the batches of a stretch."""
        if len(columns):
            self._held.append(_counted(columns, self._segment, self._is_deep))
            if sum(map(len, self._held)) > _HELD:
                self._held = [self._bounded()]

    def add_damage(self, size: int) -> None:
        """Count bytes outside of batches."""
        self._damaged += size

    def table(self) -> pa.Table | None:
        """Return all counts; None where there are none."""
        if self._damaged:
            self._held.append(_of_damage(self._damaged))
        return self._bounded() if self._held else None

    def packed(self) -> bytes | None:
        """Return all counts as bytes, which take less memory than a table; None without any."""
        table = self.table()
        return (
            None
            if table is None
            else table.combine_chunks().to_batches()[0].serialize().to_pybytes()
        )

    def _bounded(self) -> pa.Table:
        return within(
            _added(pa.concat_tables(self._held), _KEYS),
            last_write(self._segment),
            HOURS_OF_A_SEGMENT,
        )


def unpacked(data: bytes) -> pa.Table:
    """Return the table of packed counts."""
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(data), _SCHEMA)])


def joined(tables: Sequence[pa.Table], keys: Sequence[str] = _KEYS) -> pa.Table:
    """Add tables up: one row for each value of the keys."""
    return _added(pa.concat_tables(tables), keys)


def within(table: pa.Table, near: int, most: int) -> pa.Table:
    """Return counts of at most so many hours: those nearest to ``near``. The others become NONE.

    Timestamps are whatever a client wrote: with one at random in each batch, a segment would have
    millions of hours. A row that is kept has all that its hour ever had, so the order in which
    counts come makes no difference.
    """
    if len(table) <= most:
        return table
    hours = table["hour"].to_numpy()
    known = np.unique(hours[hours != NONE])
    if len(known) <= most:
        return table
    kept = known[np.argsort(np.abs(known - near), kind="stable")[:most]]
    hours = np.where(np.isin(hours, kept), hours, NONE)
    return _added(
        table.set_column(table.column_names.index("hour"), "hour", pa.array(hours)), _KEYS
    )


def _added(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    import pyarrow.compute as pc

    # a sum is unknown where one of its values is
    sums = [(name, "sum", pc.ScalarAggregateOptions(skip_nulls=False)) for name in SUMS]
    extremes = [(name, how, pc.ScalarAggregateOptions()) for name, how in EXTREMES.items()]
    grouped = table.group_by(list(keys), use_threads=False).aggregate([*sums, *extremes])
    return grouped.rename_columns([*keys, *SUMS, *EXTREMES])


def _of_damage(size: int) -> pa.Table:
    values: dict[str, int | None] = (
        dict.fromkeys(_KEYS, NONE) | dict.fromkeys(SUMS, 0) | dict.fromkeys(EXTREMES)
    )
    values |= {"uncompressed_bytes": None, "damaged_bytes": size}
    return pa.table({name: [value] for name, value in values.items()}, _SCHEMA)


def _counted(columns: BatchColumns, segment: SegmentInfo, is_deep: bool) -> pa.Table:
    """Return what each batch adds, a row each."""
    valid, codec, stamps = (
        columns["is_valid"],
        columns["compression_type"],
        columns["max_timestamp"],
    )
    sizes = columns["size_in_bytes"].astype("<i8")
    has_time = valid & (stamps >= 0) & (stamps < END_OF_TIME_MS)
    claims = _would_pass_by_claims(columns) & (codec != 0) & (columns["magic"] >= 2)
    whole = partial(pa.array, type=pa.int64())
    by_claims, verified, lying = by_row(columns)
    ahead = (
        segment.mtime_ns // 1_000_000 + AHEAD_MS if segment.mtime_ns > 0 else np.iinfo("<i8").max
    )
    values = {
        "hour": pa.array(np.where(has_time, stamps // HOUR_MS, NONE)),
        "codec": whole(np.where(valid & (codec < len(CODECS)), codec, NONE)),
        "batches": whole(np.ones(len(columns), "<i8")),
        # -1 where magic 0 or 1 does not say
        "records": whole(np.where(valid, np.maximum(columns["records_count"], 0), 0)),
        "bytes": whole(sizes),
        "uncompressed_bytes": _uncompressed(columns, sizes, is_deep),
        "claims_batches": whole(claims.astype("<i8")),
        "claims_bytes": whole(np.where(claims, sizes, 0)),
        "control_batches": whole((valid & columns["is_control_batch"]).astype("<i8")),
        "refused": whole((columns["rule"] != 0).astype("<i8")),
        "timestamp_outliers": whole((valid & (stamps > ahead)).astype("<i8")),
        "damaged_bytes": whole(np.zeros(len(columns), "<i8")),
        "figures_by_claims": whole(by_claims.astype("<i8")),
        "claims_verified": whole(verified.astype("<i8")),
        "claims_lying": whole(lying.astype("<i8")),
        "min_timestamp": pa.array(stamps, mask=~has_time),
        "max_timestamp": pa.array(stamps, mask=~has_time),
        "min_offset": pa.array(columns["base_offset"], mask=~valid),
        "max_offset": pa.array(columns["last_offset"], mask=~valid),
    }
    return pa.table(values)


def _uncompressed(columns: BatchColumns, sizes: np.ndarray, is_deep: bool) -> pa.Array:
    """Return the uncompressed sizes; null where batches are compressed, were not opened and were
    not taken by their claims.
    """
    codec = columns["compression_type"]
    found = columns["uncompressed_size"]
    opened = np.maximum(found, 0)
    closed = (codec != 0) & (found < 0) & (not is_deep)
    unknown = ~columns["is_valid"] | (codec >= len(CODECS)) | closed
    return pa.array(np.where(codec == 0, sizes, opened), mask=unknown)


def _would_pass_by_claims(columns: BatchColumns) -> np.ndarray:
    """Return which are clients' batches as they were sent, and sound: honest claims settle them."""
    sent_whole = (
        columns["records_count"].astype("<i8") == columns["last_offset_delta"].astype("<i8") + 1
    )
    create_time = columns["timestamp_type"] == 0
    stamped = (columns["base_timestamp"] >= 0) & (columns["max_timestamp"] >= 0)
    sound = columns["is_valid"] & (columns["rule"] == 0)
    return np.asarray(sound & ~columns["is_control_batch"] & sent_whole & create_time & stamped)
