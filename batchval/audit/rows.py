"""Rows of batches: Arrow, for every engine.

A row is a batch (the columns of scan_batches, then what the check says), or bytes that are none (``magic`` is null), or
a file that cannot be read (``position`` is null, rule ``UNREADABLE``). Rows depend on the file's bytes and the options
alone: not on clocks, engines or on how a segment was split.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from batchval.core.columns import NO_DELETE_HORIZON, SCHEMA_VERSION, BatchColumns
from batchval.core.result import CLAIMS, PATHS
from batchval.errors import ErrorCode
from batchval.rules import by_number
from batchval.segment.findings import damage_reason
from batchval.segment.judge import Block, blocks
from batchval.segment.options import Options
from batchval.segment.ranges import Range
from batchval.segment.reader import Damage
from batchval.segment.store import SegmentInfo, one_line
from batchval.types import CompressionType, TimestampType

__all__ = [
    "ROW_SCHEMA",
    "UNREADABLE",
    "damaged_row",
    "read_range",
    "rows_of",
    "to_rows",
    "unreadable_row",
]

#: ``rule`` of the one row of a file that cannot be read
UNREADABLE = "UNREADABLE"

#: Rows of every engine. Rules by their ids (``14``, ``S7``, ``L1``), null where nothing is wrong; -1 is Kafka's own
#: "none" (timestamps, producers, sequences). What a run without ``deep`` does not find out is null.
ROW_SCHEMA = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("segment", pa.int64()),
        ("position", pa.int64()),
        ("size_in_bytes", pa.int64()),
        ("magic", pa.int8()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("records_count", pa.int32()),
        ("partition_leader_epoch", pa.int32()),
        ("compression_type", pa.string()),
        ("timestamp_type", pa.string()),
        ("base_timestamp", pa.int64()),
        ("max_timestamp", pa.int64()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("base_sequence", pa.int32()),
        ("last_sequence", pa.int32()),
        ("is_transactional", pa.bool_()),
        ("is_control_batch", pa.bool_()),
        ("delete_horizon_ms", pa.int64()),
        ("attributes", pa.int16()),
        ("last_offset_delta", pa.int32()),
        ("crc", pa.int64()),
        ("is_valid", pa.bool_()),
        ("rule", pa.string()),
        ("error_code", pa.int16()),
        ("reason", pa.string()),
        ("path", pa.string()),
        ("uncompressed_size", pa.int64()),
        ("batch_min_timestamp", pa.int64()),
        ("records_number", pa.int32()),
        ("null_keys", pa.int8()),
        ("claims_honest", pa.bool_()),
    ],
    {"schema_version": str(SCHEMA_VERSION)},
)


def read_range(part: Range, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. What cannot be read is a row that says so."""
    try:
        for block in blocks(part, options):
            yield rows_of(block, part.segment, options)
    except OSError as error:
        yield unreadable_row(part.segment, one_line(error), options)


def rows_of(block: Block, segment: SegmentInfo, options: Options) -> pa.RecordBatch:
    """Return the rows of a block that the options want."""
    if block.damage is not None:
        return damaged_row(segment, block.damage, block.file_size, options)
    assert block.columns is not None
    return to_rows(block.columns, segment, block.position, options)


# ---- columns to rows -----------------------------------------------------------------------------------------------

_AS_THEY_ARE = (
    *("magic", "base_offset", "last_offset", "records_count", "partition_leader_epoch", "base_timestamp"),
    *("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "last_sequence", "is_transactional"),
    *("is_control_batch", "attributes", "last_offset_delta", "is_valid", "error_code"),
)
# no arrays yet: the first one that pyarrow makes brings pandas with it, and whoever only lists and cuts needs neither
_CODECS = (*(c.kafka_name for c in CompressionType), "5", "6", "7")
_TIMESTAMP_TYPES = tuple(TimestampType(number).kafka_name for number in (-1, 0, 1))
_HONEST, _LYING = CLAIMS.index("honest"), CLAIMS.index("lying")
_RULES = tuple(rule.id if (rule := by_number(number)) else None for number in builtins.range(128))


@functools.cache
def _array(names: tuple[str | None, ...]) -> pa.Array:
    return pa.array(names, pa.string())


def _picked(names: tuple[str | None, ...], numbers: np.ndarray) -> pa.Array:
    return _array(names).take(pa.array(numbers))


def to_rows(
    columns: BatchColumns, segment: SegmentInfo, position: int, options: Options, keep: np.ndarray | None = None
) -> pa.RecordBatch:
    """Checked columns as rows of ROW_SCHEMA; no Python object a row but the reasons of what is refused.

    ``position``: where the columns' positions count from. The options' ``rows`` say which are wanted, ``keep`` (numbers
    of rows) overrides them.
    """
    rules = columns["rule"]
    if keep is None and options.rows != "all":
        keep = np.flatnonzero(rules) if options.rows == "bad" else np.empty(0, "<i8")
    count = len(columns) if keep is None else len(keep)
    if not count:
        return _NO_ROWS

    def column(name: str) -> np.ndarray:
        return columns[name] if keep is None else columns[name][keep]

    arrays = _same(segment, count)
    arrays["position"] = pa.array(column("position") + position)
    arrays["size_in_bytes"] = pa.array(column("size_in_bytes").astype("<i8"))
    for name in _AS_THEY_ARE:
        arrays[name] = pa.array(column(name))
    arrays["compression_type"] = _picked(_CODECS, column("compression_type"))
    arrays["timestamp_type"] = _picked(_TIMESTAMP_TYPES, column("timestamp_type") + 1)
    horizon = column("delete_horizon_ms")
    arrays["delete_horizon_ms"] = pa.array(horizon, mask=horizon == NO_DELETE_HORIZON)
    arrays["crc"] = pa.array(column("crc").astype("<i8"))
    arrays["rule"] = _picked(_RULES, column("rule"))
    arrays["path"] = _picked(tuple(PATHS), column("path"))
    sizes = column("uncompressed_size")
    arrays["uncompressed_size"] = pa.array(sizes, mask=sizes < 0)
    if options.accept_claims_header:
        none = column("null_keys") < 0
        for name in ("batch_min_timestamp", "records_number", "null_keys"):
            arrays[name] = pa.array(column(name), mask=none)
        claims = column("claims")
        arrays["claims_honest"] = pa.array(claims == _HONEST, mask=(claims != _HONEST) & (claims != _LYING))
    bad = np.flatnonzero(column("rule"))
    if len(bad):
        reasons: list[str | None] = [None] * count
        for i in bad.tolist():
            reasons[i] = columns.reason_of(i if keep is None else int(keep[i]))
        arrays["reason"] = pa.array(reasons, pa.string())
    return _batch(arrays, count)


def _same(segment: SegmentInfo, count: int) -> dict[str, pa.Array]:
    """The columns that are the same in all rows of a segment."""
    return {
        "schema_version": _repeated(SCHEMA_VERSION, pa.int32(), count),
        "topic": pa.repeat(pa.scalar(segment.topic, pa.string()), count),
        "partition": _repeated(segment.partition, pa.int32(), count),
        "segment": _repeated(segment.base_offset, pa.int64(), count),
    }


def _repeated(value: int, kind: Any, count: int) -> pa.Array:
    return pa.array(np.full(count, value, kind.to_pandas_dtype()))


def _batch(arrays: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """Columns that nobody has filled are null."""
    return pa.RecordBatch.from_arrays(
        [arrays[f.name] if f.name in arrays else pa.nulls(count, f.type) for f in ROW_SCHEMA], schema=ROW_SCHEMA
    )


_NO_ROWS = _batch({}, 0)


def damaged_row(segment: SegmentInfo, damage: Damage, size: int, options: Options) -> pa.RecordBatch:
    """Bytes that are no batch, as a row."""
    if options.rows == "none":
        return _NO_ROWS
    rule, reason = damage_reason(damage, size)
    arrays = _same(segment, 1)
    arrays["position"] = pa.array([damage.position], pa.int64())
    arrays["size_in_bytes"] = pa.array([damage.size], pa.int64())
    arrays["is_valid"] = pa.array([False])
    arrays["rule"] = pa.array([rule.id])
    arrays["error_code"] = pa.array([int(rule.error_code or 0)], pa.int16())
    arrays["reason"] = pa.array([reason])
    return _batch(arrays, 1)


def unreadable_row(segment: SegmentInfo, reason: str, options: Options) -> pa.RecordBatch:
    """A file that cannot be read, or not any more, as a row: it has no position."""
    if options.rows == "none":
        return _NO_ROWS
    arrays = _same(segment, 1)
    arrays["is_valid"] = pa.array([False])
    arrays["rule"] = pa.array([UNREADABLE])
    arrays["error_code"] = pa.array([int(ErrorCode.KAFKA_STORAGE_ERROR)], pa.int16())
    arrays["reason"] = pa.array([reason])
    return _batch(arrays, 1)
