"""Rows of batches: Arrow, for every engine.

A row is a batch (the columns of scan_batches, then the verdict on it), bytes in no batch (``magic``
is null), or a file that cannot be read (``position`` is null, rule ``UNREADABLE``). Rows depend on
the file's bytes and the options alone: not on clocks, engines or on how a segment was split. Only
the columns that the options name are built.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from batchval.core.batches.columns import NO_DELETE_HORIZON, BatchColumns
from batchval.core.batches.result import CLAIMS, FIGURES, PATHS
from batchval.errors import BatchvalError, ErrorCode
from batchval.rules import by_number
from batchval.segment.findings import damage_reason
from batchval.segment.options import Options
from batchval.segment.range_check import Block, blocks
from batchval.segment.ranges import Range
from batchval.segment.reader import Damage
from batchval.segment.store import SegmentInfo, one_line, shown, text_of
from batchval.types import CompressionType, TimestampType

__all__ = [
    "DEFAULT_COLUMNS",
    "END_OF_TIME_MS",
    "ROW_SCHEMA",
    "TABLES_VERSION",
    "TIME",
    "UNREADABLE",
    "column_names",
    "damaged_rows",
    "read_range",
    "row_schema",
    "rows_of",
    "to_rows",
    "unreadable_row",
]

#: ``schema_version`` of rows and of an audit's tables. 2: without ``figures``
TABLES_VERSION = 3
#: ``rule`` of the one row of a file that cannot be read
UNREADABLE = "UNREADABLE"
#: Kafka's timestamps. Outside of the years 1970 to 9999, which every reader of Parquet knows, they
#: are null.
TIME = pa.timestamp("ms", "UTC")
END_OF_TIME_MS = 253_402_300_800_000

#: All columns of rows. Rules by their ids (``14``, ``S7``, ``L1``), null where nothing is wrong. Of
#: producers, epochs and sequences -1 is Kafka's own "none". What a run without ``deep`` does not
#: find out is null.
ROW_SCHEMA = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("cluster", pa.string()),
        ("broker", pa.string()),
        ("file", pa.string()),
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
        ("base_timestamp", TIME),
        ("max_timestamp", TIME),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("base_sequence", pa.int32()),
        ("last_sequence", pa.int32()),
        ("is_transactional", pa.bool_()),
        ("is_control_batch", pa.bool_()),
        ("delete_horizon_ms", TIME),
        ("attributes", pa.int16()),
        ("last_offset_delta", pa.int32()),
        ("crc", pa.int64()),
        ("is_valid", pa.bool_()),
        ("rule", pa.string()),
        ("error_code", pa.int16()),
        ("error_name", pa.string()),
        ("reason", pa.string()),
        ("validation_path", pa.string()),
        ("uncompressed_size", pa.int64()),
        ("batch_min_timestamp", TIME),
        ("records_number", pa.int32()),
        ("null_keys", pa.int8()),
        ("claims_honest", pa.bool_()),
        ("max_record_bytes", pa.int32()),
        ("figures", pa.string()),
    ],
    {"schema_version": str(TABLES_VERSION)},
)
#: Strings are the dearest: in Spark (local[1], 143,153 batches) the broker costs a row 0.2 us, the
#: file's path 0.6 us, and all columns together 0.8 us more than these.
DEFAULT_COLUMNS = (
    *(
        "topic",
        "partition",
        "broker",
        "segment",
        "position",
        "size_in_bytes",
        "base_offset",
        "last_offset",
    ),
    *(
        "records_count",
        "partition_leader_epoch",
        "compression_type",
        "max_timestamp",
        "producer_id",
    ),
    *("producer_epoch", "base_sequence", "is_transactional", "is_control_batch", "rule", "reason"),
)
_SETS = {"default": DEFAULT_COLUMNS, "all": tuple(ROW_SCHEMA.names)}


def column_names(words: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that an option names: ``default``, ``all`` or names.

    BatchvalError for an unknown one.
    """
    names = dict.fromkeys(name for word in words for name in _SETS.get(word, (word,)))
    for name in names:
        if name not in _SETS["all"]:
            raise BatchvalError(
                f"unknown column {name!r}: expected default, all or {', '.join(ROW_SCHEMA.names)}"
            )
    if not names:
        raise BatchvalError(
            "no column is named: expected default, all or a comma-separated list of names"
        )
    return tuple(names)


@functools.cache
def row_schema(words: tuple[str, ...]) -> pa.Schema:
    """Return the schema of rows that have the columns of an option (``column_names``)."""
    return pa.schema([ROW_SCHEMA.field(name) for name in column_names(words)], ROW_SCHEMA.metadata)


def read_range(part: Range, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. What cannot be read is a row that says so."""
    try:
        for block in blocks(part, options):
            yield rows_of(block, part.segment, options)
    except OSError as error:
        yield unreadable_row(part.segment, one_line(error), options)


def rows_of(block: Block, segment: SegmentInfo, options: Options) -> pa.RecordBatch:
    """Return the rows of a block that the options want."""
    keep = _wanted(block.columns, options)
    rows = to_rows(block.columns, segment, block.position, options, keep)
    if not block.damages or options.rows == "none":
        return rows
    lost = damaged_rows(segment, block.damages, block.file_size, options)
    if not rows.num_rows:
        return lost
    batches = block.columns["position"] + block.position
    places = [batches if keep is None else batches[keep], [one.position for one in block.damages]]
    both = pa.Table.from_batches([rows, lost]).take(pa.array(np.argsort(np.concatenate(places))))
    return both.combine_chunks().to_batches()[0]


def _wanted(columns: BatchColumns, options: Options) -> np.ndarray | None:
    """Return the numbers of the rows that the options want; None for all."""
    if options.rows == "all":
        return None
    return np.flatnonzero(columns["rule"]) if options.rows == "bad" else np.empty(0, "<i8")


# ---- columns to rows -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """The checked columns of which rows are made.

    ``keep``: numbers of the rows that are wanted, None for all.
    """

    columns: BatchColumns
    segment: SegmentInfo
    position: int
    keep: np.ndarray | None
    reads_claims: bool

    @property
    def count(self) -> int:
        return len(self.columns) if self.keep is None else len(self.keep)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name] if self.keep is None else self.columns[name][self.keep]


# no arrays yet: the first one that pyarrow makes imports pandas, and listing and cutting need
# neither
_CODECS = (*(c.kafka_name for c in CompressionType), "5", "6", "7")
_TIMESTAMP_TYPES = tuple(TimestampType(number).kafka_name for number in (-1, 0, 1))
_HONEST, _LYING = CLAIMS.index("honest"), CLAIMS.index("lying")
_RULES = tuple(rule.id if (rule := by_number(number)) else None for number in builtins.range(128))


@functools.cache
def _array(names: tuple[str | None, ...]) -> pa.Array:
    return pa.array(names, pa.string())


def _picked(names: tuple[str | None, ...], numbers: np.ndarray) -> pa.Array:
    return _array(names).take(pa.array(numbers))


def _masked(values: np.ndarray, unknown: np.ndarray, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, kind, mask=unknown) if unknown.any() else pa.array(values, kind)


def _times(values: np.ndarray, unknown: np.ndarray | None = None) -> pa.Array:
    outside = (values < 0) | (values >= END_OF_TIME_MS)
    return _masked(values, outside if unknown is None else outside | unknown, pa.int64()).view(TIME)


def _error_names(rows: _Rows) -> pa.Array:
    codes = rows["error_code"]
    if not codes.any():
        return pa.nulls(rows.count, pa.string())
    return pa.array(
        [ErrorCode(code).name if code else None for code in codes.tolist()], pa.string()
    )


def _reasons(rows: _Rows) -> pa.Array:
    bad = np.flatnonzero(rows["rule"])
    if not len(bad):
        return pa.nulls(rows.count, pa.string())
    reasons: list[str | None] = [None] * rows.count
    for i in bad.tolist():
        reasons[i] = rows.columns.reason_of(i if rows.keep is None else int(rows.keep[i]))
    return pa.array(reasons, pa.string())


def _claims_honest(rows: _Rows) -> pa.Array:
    claims = rows["claims"]
    return pa.array(claims == _HONEST, mask=(claims != _HONEST) & (claims != _LYING))


#: how a column is made of the checked columns, where it is not one of them as it is
_MADE: Mapping[str, Callable[[_Rows], pa.Array]] = {
    "position": lambda rows: pa.array(rows["position"] + rows.position),
    "compression_type": lambda rows: _picked(_CODECS, rows["compression_type"]),
    "timestamp_type": lambda rows: _picked(_TIMESTAMP_TYPES, rows["timestamp_type"] + 1),
    "base_timestamp": lambda rows: _times(rows["base_timestamp"]),
    "max_timestamp": lambda rows: _times(rows["max_timestamp"]),
    "delete_horizon_ms": lambda rows: _times(
        rows["delete_horizon_ms"], rows["delete_horizon_ms"] == NO_DELETE_HORIZON
    ),
    "rule": lambda rows: _picked(_RULES, rows["rule"]),
    "error_code": lambda rows: _masked(rows["error_code"], rows["error_code"] == 0),
    "error_name": _error_names,
    "reason": _reasons,
    "validation_path": lambda rows: _picked(tuple(PATHS), rows["path"]),
    "uncompressed_size": lambda rows: _masked(
        rows["uncompressed_size"], rows["uncompressed_size"] < 0
    ),
    "max_record_bytes": lambda rows: _masked(
        rows["max_record_bytes"], rows["max_record_bytes"] < 0
    ),
    "figures": lambda rows: _picked(tuple(FIGURES), rows["figures"]),
}
#: those of claims, null where a run does not read them
_OF_CLAIMS: Mapping[str, Callable[[_Rows], pa.Array]] = {
    "batch_min_timestamp": lambda rows: _times(rows["batch_min_timestamp"], rows["null_keys"] < 0),
    "records_number": lambda rows: _masked(rows["records_number"], rows["null_keys"] < 0),
    "null_keys": lambda rows: _masked(rows["null_keys"], rows["null_keys"] < 0),
    "claims_honest": _claims_honest,
}


def to_rows(
    columns: BatchColumns,
    segment: SegmentInfo,
    position: int,
    options: Options,
    keep: np.ndarray | None = None,
) -> pa.RecordBatch:
    """Return checked columns as rows with the columns of the options.

    ``position``: where the columns' positions count from. The options' ``rows`` say which are
    wanted, ``keep`` (numbers of rows) overrides them.
    """
    schema = row_schema(options.columns)
    if keep is None:
        keep = _wanted(columns, options)
    reads_claims = options.accept_claims_header or options.trust_claims is not None
    rows = _Rows(columns, segment, position, keep, reads_claims)
    if not rows.count:
        return _no_rows(schema)
    same = _of_segment(segment)
    return pa.RecordBatch.from_arrays(
        [_column(field, rows, same) for field in schema], schema=schema
    )


def _column(field: pa.Field, rows: _Rows, same: Mapping[str, Any]) -> pa.Array:
    if field.name in same:
        value = same[field.name]
        scalar = pa.scalar(value, field.type)
        return (
            pa.repeat(scalar, rows.count) if scalar.is_valid else pa.nulls(rows.count, field.type)
        )
    if field.name in _OF_CLAIMS:
        return (
            _OF_CLAIMS[field.name](rows) if rows.reads_claims else pa.nulls(rows.count, field.type)
        )
    if field.name in _MADE:
        return _MADE[field.name](rows)
    return pa.array(rows[field.name], field.type)


def _of_segment(segment: SegmentInfo) -> dict[str, Any]:
    """Return the values that are the same in all rows of a segment."""
    return {
        "schema_version": TABLES_VERSION,
        "cluster": segment.cluster,
        "broker": segment.broker,
        "file": text_of(shown(segment.uri)) or None,
        "topic": segment.topic,
        "partition": segment.partition,
        "segment": segment.base_offset,
    }


@functools.cache
def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def damaged_rows(
    segment: SegmentInfo, damages: Sequence[Damage], size: int, options: Options
) -> pa.RecordBatch:
    """Return bytes in no batch as rows, one for each damage."""
    causes = [damage_reason(one, size) for one in damages]
    codes = [rule.error_code for rule, _ in causes]
    values: dict[str, list[Any]] = {
        "position": [one.position for one in damages],
        "size_in_bytes": [one.size for one in damages],
        "rule": [rule.id for rule, _ in causes],
        "reason": [reason for _, reason in causes],
    }
    return _other_rows(segment, options, values, codes)


def unreadable_row(segment: SegmentInfo, reason: str, options: Options) -> pa.RecordBatch:
    """Return a file that cannot be read, or not any more, as a row without a position."""
    values = {"rule": [UNREADABLE], "reason": [reason]}
    return _other_rows(segment, options, values, [ErrorCode.KAFKA_STORAGE_ERROR])


def _other_rows(
    segment: SegmentInfo,
    options: Options,
    values: Mapping[str, list[Any]],
    errors: Sequence[ErrorCode | None],
) -> pa.RecordBatch:
    """Return rows of something else than batches. Columns without a value are null."""
    schema = row_schema(options.columns)
    if options.rows == "none":
        return _no_rows(schema)
    count = len(errors)
    found: dict[str, list[Any]] = {
        "error_code": [int(one) if one else None for one in errors],
        "error_name": [one.name if one else None for one in errors],
        **values,
    }
    same = _of_segment(segment) | {"is_valid": False}
    arrays = [
        pa.array(found.get(field.name) or [same.get(field.name)] * count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
