"""Mistakes that a type checker must find: mypy's complaints are exactly the words after E."""

from batchval import (
    ClaimsPolicy,
    ErrorCode,
    LogValidator,
    RecordBatch,
    TopicPolicy,
    ValidationResult,
    scan_batches,
)

LogValidator(mode="loose")  # E: arg-type
LogValidator(profile="gate")  # E: arg-type
LogValidator(TopicPolicy(), "kafka")  # E: call-arg
LogValidator({"max.message.bytes": 1})  # E: arg-type
LogValidator(extras=["S1"])  # E: arg-type
TopicPolicy(max_message_size=1)  # E: call-arg
TopicPolicy(max_message_bytes="1")  # E: arg-type
TopicPolicy(compression_type="brotli")  # E: arg-type
TopicPolicy(compression_type="none")  # E: arg-type
TopicPolicy(cleanup_policy="dlete")  # E: arg-type
TopicPolicy(message_timestamp_type="Create")  # E: arg-type
ClaimsPolicy("audt")  # E: arg-type

validator = LogValidator()
validator.check("text", now_ms=0)  # E: arg-type
validator.check(b"", 0)  # E: call-arg
validator.check(b"", now=0)  # E: call-arg
validator.check(b"", now_ms=0, origin="BROKER")  # E: arg-type
validator.check(b"", now_ms=0, origin=3)  # E: arg-type
validator.check(b"", now_ms=0.5)  # E: arg-type
validator.check(b"", now_ms=0, produce_version="9")  # E: arg-type
validator.check(b"", now_ms=0, in_place=True)  # E: call-arg
validator.validate_messages_and_assign_offsets(b"", now_ms=0, source="lz5")  # E: arg-type
print(ErrorCode.NONE.retryable)  # E: attr-defined
validator.check_ranges(b"", [0, 10], now_ms=0)  # E: list-item
validator.mode = "kafka"  # E: misc
scan_batches(None)  # E: arg-type
scan_batches(b"")[1.5]  # E: call-overload

result: ValidationResult = validator.check(b"", now_ms=0)
result.ok = True  # E: misc
print(result.errorcode)  # E: attr-defined
len(result.output)  # E: arg-type
print(result.rule.slug)  # E: union-attr

batch = RecordBatch()  # E: call-arg
batch.records(1000)  # E: call-arg
print(batch.baseOffset)  # E: attr-defined


class Mine(LogValidator):  # E: misc
    pass
