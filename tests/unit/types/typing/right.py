"""Hold right uses of batchval for a type checker; checked by test_typing.py, never run."""

from array import array
from collections.abc import Iterator
from typing import Any, Literal, assert_type

import numpy as np
from numpy.typing import NDArray

import batchval
from batchval import (
    AppendOrigin,
    BatchColumns,
    BatchRow,
    CheckedRow,
    ClaimsPolicy,
    CompressionType,
    DecodedRecord,
    ErrorCode,
    LogValidator,
    RecordBatch,
    RecordValidationStats,
    RejectedBatch,
    Rule,
    TimestampType,
    TopicPolicy,
    ValidationResult,
    batches,
    record_columns,
    scan_batches,
)
from batchval.core.batches.batch import Batches
from batchval.core.batches.record_columns import RecordColumns, RecordRow

TopicPolicy(cleanup_policy="delete,compact", message_timestamp_type="LogAppendTime")
ClaimsPolicy("audit", 0.01)
policy = TopicPolicy(message_timestamp_before_max_ms=86_400_000, compression_type="zstd")
validator = LogValidator(
    policy, mode="strict", profile="produce", extras={"S1": "report"}, clock_ns=lambda: 0
)
LogValidator(extras={Rule.S1: "report"}, max_decompressed_bytes=8 << 20)
assert_type(validator.policy, TopicPolicy)
assert_type(validator.with_policy(policy), LogValidator)

for buffer in (b"", bytearray(), memoryview(b""), array("B"), np.zeros(3, "u1")):
    result = validator.check(buffer, now_ms=0, origin="CLIENT", produce_version=9)
    assert_type(result, ValidationResult)
    assert_type(
        validator.validate(buffer, now_ms=0, first_offset=1000, leader_epoch=7, in_place=False),
        ValidationResult,
    )
    assert_type(
        validator.check_ranges(buffer, [(0, 10)], policy, now_ms=0), BatchColumns[CheckedRow]
    )
    assert_type(
        validator.check_ranges(buffer, np.zeros((3, 2), "i8"), [policy] * 3, now_ms=0),
        BatchColumns[CheckedRow],
    )
    assert_type(validator.check_request(buffer, produce_version=9), ValidationResult)
    assert_type(validator.analyze(buffer, origin=AppendOrigin.REPLICATION), ValidationResult)
    assert_type(
        validator.validate_messages_and_assign_offsets(buffer, now_ms=0, to_magic=1),
        ValidationResult,
    )
    assert_type(scan_batches(buffer), BatchColumns[BatchRow])
    assert_type(batches(buffer), Batches)
    assert_type(record_columns(buffer, 0, check_crcs=False), RecordColumns)

assert_type(result.ok, bool)
assert_type(result.error_code.retriable, bool)
assert_type(result == validator.check(b"", now_ms=0), bool)
assert_type(result.error_code, ErrorCode)
assert_type(result.rule, Rule | None)
assert_type(result.reports, list[Rule])
assert_type(result.record_errors, list[tuple[int, str]])
assert_type(result.output, bytes | memoryview | None)
assert_type(result.next_offset, int | None)
assert_type(result.stats, RecordValidationStats | None)
assert_type(result.source, CompressionType)
try:
    result.raise_for_error()
except RejectedBatch as rejected:
    assert_type(rejected.result, ValidationResult)
except batchval.BatchvalError:
    pass

batch = RecordBatch(b"", position=0)
assert_type(batch.base_offset, int)
assert_type(batch.records_count, int | None)
assert_type(batch.compression_type, CompressionType | int)
assert_type(batch.timestamp_type, TimestampType)
assert_type(batch.all_key_is_null, bool | None)
for record in batch.records(max_decompressed_bytes=1 << 20):
    assert_type(record, DecodedRecord)
    assert_type(record.key, bytes | None)
    assert_type(record.headers, tuple[tuple[str, bytes | None], ...])

assert_type(len(batch), int)
assert_type(next(iter(batch)), DecodedRecord)
assert_type(batches(b"").tail, Literal["partial", "zeros", "size", "magic"] | None)

rows = record_columns(b"")
assert_type(rows["key_length"], NDArray[Any])
assert_type(rows[0], RecordRow)
assert_type(rows.value(0), bytes | None)

columns = scan_batches(b"", 0)
assert_type(columns[-1], BatchRow)
assert_type(columns[2:5], list[BatchRow])
for row in columns:
    assert_type(row, BatchRow)
    assert_type(row.compression_type, str | int)
assert_type(columns["base_offset"], NDArray[Any])
assert_type(len(columns), int)
assert_type(columns.end, int)
assert_type(columns.rows(), Iterator[dict[str, Any]])
assert_type(columns.result(0), ValidationResult)
assert_type(columns.reason_of(0), str)
assert_type(batchval.__version__, str)
