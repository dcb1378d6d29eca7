"""Claims as operations for bench/validation/worker.py. Every answer is checked before it is timed.

The four ways of validating the same records:

    claims, claims_header   header, CRC and 13 bytes of claims; carried in a tag, or in a header of magic 3
    check                   shallow where the batch is compressed: unpacked, records walked
                            full where it is not: every field of every record
    validate_messages       magic 1: the wrapper unpacked, every message read
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from batchval.core import claims
from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.validator import LogValidator
from batchval.policy import TopicPolicy
from bench.validation import peer_batchval
from bench.validation.peer_batchval import COPIES, FREELIST, LARGE_COPIES, NOW_MS, SMALL
from bench.validation.worker import Job

CRC_AT, ATTRIBUTES_AT = 17, 21

validator = LogValidator()
of_headers = LogValidator(TopicPolicy(accept_claims_header=True))
check = peer_batchval.check


def crc_of(batch: bytes) -> int:
    return int.from_bytes(batch[CRC_AT:ATTRIBUTES_AT], "big")


def tag_of(batch: bytes) -> bytes:
    true = claims.compute(batch)
    if true is None:
        raise AssertionError("no claim would be true")
    return claims.to_tag(true, crc_of(batch))


def by_claims(validator: LogValidator, data: bytes, call: tuple[bytes | None, str]) -> int:
    result = validator.check(data, now_ms=NOW_MS, claims=call)  # type: ignore[arg-type]
    if (result.path, result.claims) != ("claims", "trusted"):
        raise AssertionError(f"validated by {result.path}, claims {result.claims}, {result.rule}")
    return result.records_count


def by_tag(data: bytes) -> Job:
    """Validate a batch with claims in a tag, one call a batch."""
    call = (tag_of(data), "trust")
    names = {"check": validator.check, "data": data, "now": NOW_MS, "claims": call}
    return Job(
        "check(data, now_ms=now, claims=claims)",
        names,
        1,
        {"records": by_claims(validator, data, call)},
    )


def by_header(data: bytes) -> Job:
    """Validate the same batch as one of magic 3."""
    data, call = claims.attach(data), (None, "trust")
    names = {"check": of_headers.check, "data": data, "now": NOW_MS, "claims": call}
    return Job(
        "check(data, now_ms=now, claims=claims)",
        names,
        1,
        {"records": by_claims(of_headers, data, call)},
    )


def ranges_of(validator: LogValidator, data: bytes, call: Any) -> Job:
    """Check ranges as peer_batchval's scan does: 100 batches a call, or 16 large ones."""
    n = len(data)
    copies = COPIES if n <= SMALL else LARGE_COPIES
    buffer = data * copies
    ranges = numpy.array([(n * i, n) for i in range(copies)], numpy.int64)
    if isinstance(call, list):
        call = call[:copies]
    columns = validator.check_ranges(buffer, ranges, now_ms=NOW_MS, claims=call)
    if {(row["path"], row["claims"]) for row in columns.rows()} != {("claims", "trusted")}:
        raise AssertionError("not settled by claims")
    names = {
        "check_ranges": validator.check_ranges,
        "buffer": buffer,
        "ranges": ranges,
        "now": NOW_MS,
        "claims": call,
    }
    statement = "check_ranges(buffer, ranges, now_ms=now, claims=claims)"
    return Job(statement, names, copies, {"records": int(columns["records_count"][0])})


def ranges_by_tag(data: bytes) -> Job:
    return ranges_of(validator, data, [(tag_of(data), "trust")] * COPIES)


def ranges_by_header(data: bytes) -> Job:
    return ranges_of(of_headers, claims.attach(data), (None, "trust"))


def header_and_crc(data: bytes) -> Job:
    """Check a batch's header and CRC in one Python call."""
    if not RecordBatch(data).is_valid:
        raise AssertionError("wrong CRC")
    return Job("RecordBatch(data).is_valid", {"RecordBatch": RecordBatch, "data": data})


def claims_of_walk(data: bytes) -> Job:
    """Check a batch, and compute the claims that are true of it."""
    if validator.check(data, now_ms=NOW_MS).batch_claims != claims.compute(data):
        raise AssertionError("other claims than compute's")
    return Job(
        "check(data, now_ms=now).batch_claims",
        {"check": validator.check, "data": data, "now": NOW_MS},
    )


def kept(job: Job) -> Job:
    """Wrap a job to keep each result, so that freed memory does not serve the next call
    uncounted.
    """
    results = [eval(job.statement, job.names) for _ in range(FREELIST)]
    return Job(f"keep({job.statement})", job.names | {"keep": results.append})


OPERATIONS: dict[str, Callable[[bytes], Job]] = {
    "claims": by_tag,
    "claims_header": by_header,
    "claims_ranges": ranges_by_tag,
    "claims_ranges_header": ranges_by_header,
    "check": check,
    "validate_messages": peer_batchval.legacy,
    "scan_batches": peer_batchval.scan,
    "header_and_crc": header_and_crc,
    "claims_of_walk": claims_of_walk,
    "claims_kept": lambda data: kept(by_tag(data)),
    "claims_header_kept": lambda data: kept(by_header(data)),
    "result_alone": peer_batchval.result_alone,
}
