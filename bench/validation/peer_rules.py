"""check with record rules, for worker.py and instructions.py. Each answer is checked before it is
counted.
"""

from __future__ import annotations

from batchval.core.record_batch_builder import RecordBatchBuilder
from batchval.core.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.record_rules import RecordRules, SchemaIds
from bench.validation import batches, peer_batchval
from bench.validation.peer_batchval import NOW_MS
from bench.validation.worker import Job

IDS = (7, 300)
HEADERS = (
    ("trace-id", b"0123456789abcdef"),
    ("source", b"edge-7"),
    ("content-type", b"application/avro"),
)
RULES = {
    "check_ids": RecordRules(
        SchemaIds(ids=frozenset(IDS)), max_key_bytes=100, max_value_bytes=10_000
    ),
    "check_headers": RecordRules(
        required_headers=("trace-id", "source"),
        forbidden_headers=("debug", "password"),
        max_headers=8,
    ),
}
VALIDATORS = {name: LogValidator(TopicPolicy(record_rules=rules)) for name, rules in RULES.items()}


def batch(codec: str, count: int, size: int, has_headers: bool) -> bytes:
    """Return the bench's records with a schema id in the first 5 bytes of each value."""
    builder = RecordBatchBuilder(limit=1 << 30, compression=codec)  # type: ignore[arg-type]
    for i, (timestamp, key, value) in enumerate(batches.records(count, size)):
        prefix = b"\0" + IDS[i % len(IDS)].to_bytes(4, "big")
        headers = HEADERS if has_headers else ()
        builder.append(key=key, value=prefix + value[5:], timestamp=timestamp, headers=headers)
    return bytes(builder.build())


def ruled(name: str, data: bytes) -> Job:
    """Check a batch that satisfies the rules, one call a batch."""
    check = VALIDATORS[name].check
    result = check(data, now_ms=NOW_MS)
    if not result.ok:
        raise AssertionError(f"refused by {result.rule}")
    names = {"check": check, "data": data, "now": NOW_MS}
    return Job("check(data, now_ms=now)", names, 1, {"records": result.records_count})


OPERATIONS = {
    "check": peer_batchval.check,
    "check_ids": lambda data: ruled("check_ids", data),
    "check_headers": lambda data: ruled("check_headers", data),
}
