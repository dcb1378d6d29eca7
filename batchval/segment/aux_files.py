"""Kafka's files next to a segment, a partition and a log folder: bytes in, parsed values out.

    .timeindex                timestamp:8 relative offset:4; zeros at the end are preallocated
    .txnindex                 version:2 producer id:8 first:8 last:8 and last stable offset:8
    .snapshot                 version:2 crc:4 count:4, then 46 bytes for each producer
    leader-epoch-checkpoint   text: 0, the count, then a line `epoch start-offset` for each epoch
    *-offset-checkpoint       text: 0, the count, then a line `topic partition offset` for each
    partition.metadata        text: `version: 0`, `topic_id: ...`

Sources: TimeIndex, TransactionIndex, ProducerStateManager, CheckpointFile and PartitionMetadataFile
of Kafka 4.4.0. No size or count that a file states buys memory.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

import numpy as np

from batchval.core.format.crc32c import crc32c
from batchval.errors import BatchvalError

__all__ = [
    "ABORTED_ENTRY",
    "TIME_ENTRY",
    "Aborted",
    "EpochStart",
    "Malformed",
    "TimeEntries",
    "check_producer_snapshot",
    "check_topic_id",
    "epoch_starts",
    "offsets_of",
    "time_entries",
    "transactions",
]

TIME_ENTRY = 12  # bytes
_ABORTED = struct.Struct(">hqqqq")
ABORTED_ENTRY = _ABORTED.size  # bytes
_SNAPSHOT = struct.Struct(">hIi")
_PRODUCER = 46  # bytes
_CRC_START = 6  # the checksum covers all bytes after itself
_TOPIC_ID = re.compile(r"topic_id: [0-9A-Za-z_-]{22}")


class Malformed(BatchvalError):
    """A file does not have the structure of its kind."""


class TimeEntries(NamedTuple):
    """Entries of a time index: up to an offset, no batch has a higher timestamp. Milliseconds."""

    timestamps: np.ndarray
    offsets: np.ndarray
    rest: int  # bytes after the last complete entry


class Aborted(NamedTuple):
    """An aborted transaction. ``last_offset``: of its abort marker."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class EpochStart(NamedTuple):
    """The first offset of a leader epoch."""

    epoch: int
    offset: int


def time_entries(data: bytes, base_offset: int) -> TimeEntries:
    """Return the entries of a .timeindex without the zeros at its end."""
    kind = np.dtype([("timestamp", ">i8"), ("offset", ">u4")])
    entries = np.frombuffer(data, kind, len(data) // TIME_ENTRY)
    used = np.flatnonzero((entries["timestamp"] != 0) | (entries["offset"] != 0))
    entries = entries[: int(used[-1]) + 1 if len(used) else 0]
    offsets = entries["offset"].astype("<i8") + base_offset
    return TimeEntries(entries["timestamp"].astype("<i8"), offsets, len(data) % TIME_ENTRY)


def transactions(data: bytes) -> list[Aborted]:
    """Return the entries of a .txnindex. Raises Malformed for one that is cut off."""
    if rest := len(data) % _ABORTED.size:
        raise Malformed(
            f"{len(data)} bytes: {rest} after the last complete entry of {_ABORTED.size}"
        )
    return [Aborted(*fields) for fields in _ABORTED.iter_unpack(data)]


def check_producer_snapshot(data: bytes) -> None:
    """Raise Malformed for a producer snapshot that a broker would not load."""
    if len(data) < _SNAPSHOT.size:
        raise Malformed(f"{len(data)} bytes: expected at least {_SNAPSHOT.size}")
    version, stored, count = _SNAPSHOT.unpack_from(data)
    if version != 1:
        raise Malformed(f"version is {version}: expected 1")
    computed = crc32c(memoryview(data)[_CRC_START:])
    if stored != computed:
        raise Malformed(f"stored crc {stored}, computed {computed}")
    expected = _SNAPSHOT.size + count * _PRODUCER
    if len(data) != expected:
        raise Malformed(f"{len(data)} bytes: expected {expected} for {count} producers")


def epoch_starts(data: bytes) -> list[EpochStart]:
    """Return the lines of a leader-epoch-checkpoint. Raises Malformed."""
    return [EpochStart(int(epoch), int(offset)) for epoch, offset in _lines(data, 2)]


def offsets_of(data: bytes) -> dict[tuple[str, int], int]:
    """Return the offset of each (topic, partition) of a checkpoint. Raises Malformed."""
    return {(topic, int(partition)): int(offset) for topic, partition, offset in _lines(data, 3)}


def _lines(data: bytes, words: int) -> list[list[str]]:
    if not data:
        return []  # as Kafka makes the file
    try:
        version, count, *lines = data.decode("utf-8").splitlines()
        if int(version) != 0:
            raise Malformed(f"version is {version}: expected 0")
        expected = int(count)
    except ValueError:
        raise Malformed(
            f"the first lines are {data[:40]!r}: expected a version and a count"
        ) from None
    if expected != len(lines):
        raise Malformed(f"{len(lines)} lines: expected {expected}, as the second line states")
    found = []
    for number, line in enumerate(lines, 3):
        fields = line.split()
        if len(fields) != words or not all(re.fullmatch(r"-?\d{1,19}", one) for one in fields[-2:]):
            raise Malformed(
                f"line {number} is {line[:80]!r}: expected {words} words, the last two numbers"
            )
        found.append(fields)
    return found


def check_topic_id(data: bytes) -> None:
    """Raise Malformed for a partition.metadata that a broker would not read."""
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) != 2 or lines[0] != "version: 0" or not _TOPIC_ID.fullmatch(lines[1]):
        raise Malformed(f"the file is {data[:80]!r}: expected `version: 0` and `topic_id: ...`")
