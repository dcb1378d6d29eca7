"""Counts of batches by hour, of one range of a segment or of many.

Counts are kept an hour: that of a batch is the hour of its max_timestamp (UTC), None where the batch
has none, is not believed (a wrong checksum), or lies behind the year 9999. Where a segment has batches of absurdly many
hours, those far from its last write count as None too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from batchval.core.columns import BatchColumns
from batchval.segment.store import SegmentInfo
from batchval.types import CompressionType

__all__ = [
    "BY_CODEC",
    "CODECS",
    "COUNTERS",
    "EXTREMES",
    "HOURS_OF_A_PARTITION",
    "HOURS_OF_A_SEGMENT",
    "HOUR_MS",
    "Hours",
    "hour_of",
    "hours_of",
    "last_write",
]

HOUR_MS = 3_600_000
_LAST_HOUR = 253_402_300_800_000 // HOUR_MS - 1  # of the year 9999
#: message.timestamp.after.max.ms of a broker that is not told otherwise
AHEAD_MS = 3_600_000

CODECS = tuple(codec.kafka_name for codec in CompressionType)
BY_CODEC = ("batches", "records", "bytes", "uncompressed_bytes", "claims_batches", "claims_bytes")
#: What is added up. ``refused``: batches that break a rule by themselves. ``timestamp_outliers``: more than an hour
#: ahead of the segment's last write. ``uncompressed_bytes``: where the payload was opened. ``claims``: compressed
#: batches that a broker or gate which honours claims could have let by without decompressing them.
COUNTERS = (
    *("batches", "records", "bytes", "control_batches", "refused", "timestamp_outliers"),
    *(f"{name}_{codec}" for codec in CODECS for name in BY_CODEC),
)
_AT = {name: i for i, name in enumerate(COUNTERS)}
#: Least or highest of an hour's believed batches.
EXTREMES = ("min_timestamp", "max_timestamp", "min_offset", "max_offset")
_NOTHING = np.array([np.iinfo("<i8").max, np.iinfo("<i8").min] * 2)
#: Hours that have rows of their own: three years and more of a segment, fifteen of a partition. 300 bytes each.
HOURS_OF_A_SEGMENT, HOURS_OF_A_PARTITION = 1 << 15, 1 << 17


def hour_of(max_timestamp: int) -> int | None:
    """Return the hour since 1970 of a time in milliseconds; None beyond the year 9999."""
    hour = max_timestamp // HOUR_MS
    return hour if 0 <= hour <= _LAST_HOUR else None


def last_write(segment: SegmentInfo) -> int:
    """In hours since 1970; 0 where it is not known."""
    return hour_of(segment.mtime_ns // 1_000_000) or 0


def hours_of(columns: BatchColumns) -> np.ndarray:
    """The same for all rows, -1 for None."""
    hours = columns["max_timestamp"] // HOUR_MS
    return np.asarray(np.where(columns["is_valid"] & (hours >= 0) & (hours <= _LAST_HOUR), hours, -1))


class Hours:
    """Counts by hour, a row each, by ascending hours; what has no hour is counted in the row of -1.

    Timestamps are whatever somebody wrote: with one at random in each batch, a segment would have millions of hours. Of
    more than ``most``, those nearest to ``near`` keep rows of their own, and the others are counted in the row of -1.
    A row that is kept has all that its hour ever had, so the order in which counts come makes no difference.
    """

    def __init__(self, near: int = 0, most: int = HOURS_OF_A_SEGMENT) -> None:
        self._near, self._most = near, most
        self.hours = np.empty(0, "<i8")
        self.counts = np.empty((0, len(COUNTERS)), "<i8")
        #: as EXTREMES says; where no batch is believed, the least is above the highest
        self.extremes = np.empty((0, len(EXTREMES)), "<i8")

    def total(self, name: str) -> int:
        return int(self.counts[:, _AT[name]].sum())

    def merge(self, other: Hours) -> None:
        self._add(other.hours, other.counts, other.extremes)

    def have_none(self) -> None:
        """Afterwards there is a row of -1."""
        self._add(np.array([-1]), np.zeros((1, len(COUNTERS)), "<i8"), _NOTHING[None])

    def add(self, columns: BatchColumns, segment: SegmentInfo) -> None:
        """The batches of one stretch."""
        if not len(columns):
            return
        hours = hours_of(columns)
        order = np.argsort(hours, kind="stable")
        begins = np.flatnonzero(np.diff(hours[order], prepend=-2))
        counts = np.zeros((len(begins), len(COUNTERS)), "<i8")
        for name, values in _counted(columns, segment):
            counts[:, _AT[name]] = np.add.reduceat(values[order], begins, dtype="<i8")
        extremes = np.empty((len(begins), len(EXTREMES)), "<i8")
        for i, name in enumerate(("max_timestamp", "max_timestamp", "base_offset", "last_offset")):
            values = np.where(columns["is_valid"], columns[name], _NOTHING[i])[order]
            extremes[:, i] = (np.maximum if i % 2 else np.minimum).reduceat(values, begins)
        self._add(hours[order[begins]], counts, extremes)

    def _add(self, hours: np.ndarray, counts: np.ndarray, extremes: np.ndarray) -> None:
        if not np.isin(hours, self.hours, assume_unique=True).all():
            self._make_room(np.union1d(self.hours, hours))
        at = np.searchsorted(self.hours, hours)
        self.counts[at] += counts
        self.extremes[at, ::2] = np.minimum(self.extremes[at, ::2], extremes[:, ::2])
        self.extremes[at, 1::2] = np.maximum(self.extremes[at, 1::2], extremes[:, 1::2])
        if np.count_nonzero(self.hours >= 0) > self._most:
            self._fold()

    def _make_room(self, hours: np.ndarray) -> None:
        """For hours that had no row."""
        at = np.searchsorted(hours, self.hours)
        counts, extremes = np.zeros((len(hours), len(COUNTERS)), "<i8"), np.tile(_NOTHING, (len(hours), 1))
        counts[at], extremes[at] = self.counts, self.extremes
        self.hours, self.counts, self.extremes = hours, counts, extremes

    def _fold(self) -> None:
        """What is too far away goes into the row of -1."""
        far = np.abs(self.hours - self._near)
        far[self.hours < 0] = -1
        order = np.argsort(far, kind="stable")
        most = self._most + int(self.hours[0] < 0)
        kept, others = np.sort(order[:most]), order[most:]
        counts, extremes = self.counts[others].sum(0), self.extremes[others]
        extremes[0, ::2], extremes[0, 1::2] = extremes[:, ::2].min(0), extremes[:, 1::2].max(0)
        self.hours, self.counts, self.extremes = self.hours[kept], self.counts[kept], self.extremes[kept]
        self._add(np.array([-1]), counts[None], extremes[:1])


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
