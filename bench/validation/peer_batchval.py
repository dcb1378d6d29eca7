"""batchval's operations, for worker.py. Every one is checked for its answer before it is timed."""

from __future__ import annotations

import numpy

from batchval.core.batches.columns import scan_batches
from batchval.core.batches.result import ValidationResult
from batchval.core.batches.validator import LogValidator
from batchval.core.format.crc32c import crc32c
from bench.validation.worker import Job

NOW_MS = 1_700_000_000_000
COPIES = 100
LARGE_COPIES = 16  # of a batch that is scanned
# copies of a batch up to this size lie one after the other; of a larger one the same bytes are
# validated again
SMALL = 1024

validator = LogValidator()


def _records(data: bytes) -> int:
    result = validator.check(data, now_ms=NOW_MS)
    if not result.ok:
        raise AssertionError(f"refused by {result.rule}")
    return result.records_count


def check(data: bytes) -> Job:
    """Check a batch, one call a batch."""
    return Job(
        "check(data, now_ms=now)",
        {"check": validator.check, "data": data, "now": NOW_MS},
        1,
        {"records": _records(data)},
    )


def validate_in_place(data: bytes) -> Job:
    """Check a batch, and write offsets and leader epoch into its buffer; one call a batch.

    The offset is 0, as in the JMH bench: a client's batch with another base offset is refused when
    it comes again.
    """
    buffer = bytearray(data)
    for _ in range(2):
        result = validator.validate(buffer, now_ms=NOW_MS, leader_epoch=7, in_place=True)
        if not (result.ok and result.in_place and int.from_bytes(buffer[12:16], "big") == 7):
            raise AssertionError(f"not assigned in place: {result.rule}")
    names = {"validate": validator.validate, "buffer": buffer, "now": NOW_MS}
    statement = "validate(buffer, now_ms=now, leader_epoch=7, in_place=True)"
    return Job(statement, names, 1, {"records": result.records_count})


def check_ranges(data: bytes) -> Job:
    """Check 100 batches a call."""
    n = len(data)
    if n <= SMALL:
        buffer, pairs = data * COPIES, [(n * i, n) for i in range(COPIES)]
    else:
        buffer, pairs = data, [(0, n)] * COPIES
    ranges = numpy.array(pairs, numpy.int64)
    columns = validator.check_ranges(buffer, ranges, now_ms=NOW_MS)
    if len(columns) != COPIES or columns["rule"].any():
        raise AssertionError("check_ranges refuses")
    names = {
        "check_ranges": validator.check_ranges,
        "buffer": buffer,
        "ranges": ranges,
        "now": NOW_MS,
    }
    return Job(
        "check_ranges(buffer, ranges, now_ms=now)",
        names,
        COPIES,
        {"records": int(columns["records_count"][0])},
    )


def scan(data: bytes) -> Job:
    """Check headers and CRCs of successive batches: 100 a call, or 16 large ones."""
    copies = COPIES if len(data) <= SMALL else LARGE_COPIES
    buffer = data * copies
    columns = scan_batches(buffer)
    if len(columns) != copies or not columns["is_valid"].all():
        raise AssertionError("scan_batches finds damage")
    return Job(
        "scan(buffer)",
        {"scan": scan_batches, "buffer": buffer},
        copies,
        {"records": int(columns["records_count"][0])},
    )


def legacy(data: bytes) -> Job:
    """Run LogValidator's stage over messages of magic 0 and 1 in place, as Kafka does: offsets from
    0 on leave the bytes as they are. Wrappers of magic 0 are built anew.
    """
    magic, buffer = data[16], bytearray(data)
    run = validator.validate_messages_and_assign_offsets
    result = run(buffer, now_ms=NOW_MS, to_magic=magic, in_place=True)
    if not result.ok or buffer != data:
        raise AssertionError(f"refused, or the buffer has changed: {result}")
    statement = "run(buffer, now_ms=now, to_magic=magic, in_place=True)"
    return Job(
        statement,
        {"run": run, "buffer": buffer, "now": NOW_MS, "magic": magic},
        1,
        {"records": result.records_count},
    )


def converted(data: bytes) -> ValidationResult:
    """Return the result of a conversion of magic 0 or 1 to a batch of magic 2."""
    result = validator.validate_messages_and_assign_offsets(data, now_ms=NOW_MS, to_magic=2)
    if not result.ok or not result.converted:
        raise AssertionError(f"not converted: {result.rule}")
    return result


def convert(data: bytes) -> Job:
    """Convert a message set of magic 0 or 1 to a batch of magic 2 with the same codec."""
    run = validator.validate_messages_and_assign_offsets
    names = {"run": run, "data": data, "now": NOW_MS}
    return Job(
        "run(data, now_ms=now, to_magic=2)", names, 1, {"records": converted(data).records_count}
    )


def checksum(data: bytes) -> Job:
    return Job("crc32c(data)", {"crc32c": crc32c, "data": data}, 1, {"crc": crc32c(data)})


# As many results are kept first as a freelist may hold: a freed result's memory would serve the
# next one, uncounted.
FREELIST = 200


def kept(data: bytes) -> Job:
    """Check a batch and keep each result."""
    results: list[object] = [validator.check(data, now_ms=NOW_MS) for _ in range(FREELIST)]
    names = {"check": validator.check, "data": data, "now": NOW_MS, "keep": results.append}
    return Job("keep(check(data, now_ms=now))", names)


def result_alone(data: bytes) -> Job:
    """Make an empty result object and keep it: the least that a check has to allocate."""
    kind = type(validator.check(data, now_ms=NOW_MS))
    results: list[object] = [kind.__new__(kind) for _ in range(FREELIST)]
    return Job("keep(kind.__new__(kind))", {"kind": kind, "keep": results.append})


OPERATIONS = {
    "check": check,
    "validate_in_place": validate_in_place,
    "check_ranges": check_ranges,
    "scan_batches": scan,
    "validate_messages": legacy,
    "convert": convert,
    "crc32c": checksum,
    "check_kept": kept,
    "result_alone": result_alone,
}

__all__ = ["OPERATIONS"]
