"""End-transaction markers, which the transaction coordinator writes.

A marker is a batch of magic 2 with the control bit and a producer id, never compressed. Its first
record is

    key    version:int16 type:int16 (0 abort, 1 commit)
    value  version:int16 coordinator_epoch:int32
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from batchval.core.batches.columns import BatchColumns
from batchval.core.format.layout import RECORDS

__all__ = ["ABORT", "COMMIT", "NO_MARKER", "UNREADABLE", "marker_kinds"]

ABORT, COMMIT = 0, 1
NO_MARKER, UNREADABLE = -1, -2
_MARKER_BATCH = 78  # a marker's whole batch, as every Kafka release up to 4.4 writes it
_MARKER_RECORD = np.arange(RECORDS, _MARKER_BATCH)
_LONGEST_MARKER = 1024  # bytes of records that are looked at
_VERSION_AND_TYPE = struct.Struct(">hh")
_VERSION = struct.Struct(">h")
_MARKER_VALUE_SIZE = 6

_Array = npt.NDArray[Any]


def marker_kinds(columns: BatchColumns, data: memoryview) -> _Array | None:
    """Return what each batch is as a marker: 0 abort, 1 commit, below 0 none. None: no marker is
    there.

    ``data`` holds the bytes that positions of ``columns`` count from.
    """
    control = columns["is_control_batch"]
    if not control.any():
        return None
    asked = control & columns["is_valid"] & (columns["producer_id"] >= 0)
    rows = np.flatnonzero(asked & (columns["records_count"] != 0))
    found = np.full(len(columns), NO_MARKER, "i1")
    if len(rows):
        found[rows] = _kinds(columns, rows, data)
    return found


def _kinds(columns: BatchColumns, rows: _Array, data: memoryview) -> _Array:
    """Return what the first records of control batches are: 0 and 1, -1 other kinds, -2 none."""
    read = np.frombuffer(data, np.uint8)
    positions = columns["position"][rows].astype("<i8")
    sizes = columns["size_in_bytes"][rows]
    is_plain = columns["compression_type"][rows] == 0
    found = np.full(len(rows), UNREADABLE, "i1")
    usual = is_plain & (sizes == _MARKER_BATCH) & (positions >= 0)
    usual = np.flatnonzero(usual & (positions <= len(read) - _MARKER_BATCH))
    record = read[positions[usual][:, None] + _MARKER_RECORD]
    # length 16, attributes, two deltas of one byte, a key of 4 bytes, a value of 6, no headers
    expected = (record[:, 0] == 32) & (record[:, 2] < 128) & (record[:, 3] < 128)
    expected &= (record[:, 4] == 8) & (record[:, 5] < 128) & (record[:, 7] == 0)
    expected &= (record[:, 8] <= 1) & (record[:, 9] == 12) & (record[:, 10] < 128)
    found[usual[expected]] = record[expected, 8]
    is_read = np.zeros(len(rows), bool)
    is_read[usual[expected]] = True
    for i in np.flatnonzero(~is_read & is_plain).tolist():
        start = int(positions[i])
        stop = start + min(int(sizes[i]), RECORDS + _LONGEST_MARKER)
        found[i] = _kind(bytes(data[start + RECORDS : stop]))
    return found


def _kind(record: bytes) -> int:
    """Return what a record of a control batch is, as EndTransactionMarker.deserialize reads it."""
    try:
        _, at = _varint(record, 0)
        _, at = _varint(record, at + 1)  # after the attributes
        _, at = _varint(record, at)
        size, at = _varint(record, at)
        version, kind = _VERSION_AND_TYPE.unpack_from(record, at)
        if size < _VERSION_AND_TYPE.size or version < 0:
            return UNREADABLE
        if kind not in (ABORT, COMMIT):
            return NO_MARKER
        value_size, at = _varint(record, at + size)
        (version,) = _VERSION.unpack_from(record, at)
    except (IndexError, ValueError, struct.error):
        return UNREADABLE
    if not _MARKER_VALUE_SIZE <= value_size <= len(record) - at or version < 0:
        return UNREADABLE
    return int(kind)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and where it ends. Raises IndexError or ValueError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("a varint of more than 10 bytes")
