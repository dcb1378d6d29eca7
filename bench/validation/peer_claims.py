"""Claims as operations for bench/validation/worker.py. Every answer is checked before it is timed.

The four ways of validating the same records:

    claims, claims_header   header, CRC and 13 bytes of claims; carried in a tag, or in a header of magic 3
    check                   shallow where the batch is compressed: unpacked, records walked
                            full where it is not: every field of every record
    validate_messages       magic 1: the wrapper unpacked, every message read
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from ctypes import c_int64, c_uint64, c_void_p
from typing import Any

import numpy

import batchval.core.crc32c
from batchval.core import claims
from batchval.core.batch import RecordBatch
from batchval.core.record_batch_builder import RecordBatchBuilder
from batchval.core.validator import LogValidator
from batchval.ledger import ClaimsLedger
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.record_rules import RecordRules, SchemaIds
from bench.validation import native, peer_batchval, peer_parts
from bench.validation.peer_batchval import COPIES, FREELIST, LARGE_COPIES, NOW_MS, SMALL
from bench.validation.worker import Job

RECORDS_AT, CLAIMED_RECORDS_AT, CRC_AT, ATTRIBUTES_AT, CODEC_AT = 61, 74, 17, 21, 22
ZSTD = 4
COMPRESSION_TYPES = ("none", "gzip", "snappy", "lz4", "zstd")
SECRET = bytes(range(32))

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


# ---- validation ----------------------------------------------------------------------------------


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


SCHEMA_IDS = (7, 300)
of_schema_ids = LogValidator(
    TopicPolicy(record_rules=RecordRules(SchemaIds(ids=frozenset(SCHEMA_IDS)), tombstones="refuse"))
)


def with_schema_ids(data: bytes) -> bytes:
    """Return the records with a schema id in the first 5 bytes of each value."""
    codec = COMPRESSION_TYPES[data[CODEC_AT] & 7]
    builder = RecordBatchBuilder(limit=1 << 30, compression=codec)
    for i, record in enumerate(RecordBatch(data)):
        prefix = b"\0" + SCHEMA_IDS[i % len(SCHEMA_IDS)].to_bytes(4, "big")
        builder.append(
            key=record.key, value=prefix + (record.value or b"")[5:], timestamp=record.timestamp
        )
    return bytes(builder.build())


def ids_by_records(data: bytes) -> Job:
    """Apply the topic's rule for schema ids by reading each record."""
    data = with_schema_ids(data)
    result = of_schema_ids.check(data, now_ms=NOW_MS)
    if not result.ok or result.path == "claims":
        raise AssertionError(f"validated by {result.path}, {result.rule}")
    names = {"check": of_schema_ids.check, "data": data, "now": NOW_MS}
    return Job("check(data, now_ms=now)", names, 1, {"records": result.records_count})


def ids_by_claims(data: bytes) -> Job:
    """Apply the same rule by field 1 of a tag."""
    data = with_schema_ids(data)
    true = claims.compute(data, schema_ids=True)
    if true is None or not true.schema_ids or not set(true.schema_ids) <= set(SCHEMA_IDS):
        raise AssertionError(f"the claims are {true}")
    call = (claims.to_tag(true, crc_of(data)), "trust")
    names = {"check": of_schema_ids.check, "data": data, "now": NOW_MS, "claims": call}
    return Job(
        "check(data, now_ms=now, claims=claims)",
        names,
        1,
        {"records": by_claims(of_schema_ids, data, call)},
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


def rebuilt(data: bytes) -> Job:
    """Rebuild a batch for a topic of another codec: decompress, check, compress; one call a
    batch.
    """
    target = rebuilt_codec(data)
    validator = LogValidator(TopicPolicy(compression_type=target))  # type: ignore[arg-type]
    result = validator.validate(data, now_ms=NOW_MS)
    if not result.ok or result.path != "rebuilt":
        raise AssertionError(f"validated by {result.path}, {result.rule}")
    names = {"validate": validator.validate, "data": data, "now": NOW_MS}
    return Job("validate(data, now_ms=now)", names, 1, {"records": result.records_count})


def rebuilt_codec(data: bytes) -> str:
    """Return the codec of the topic for which a batch is built again."""
    return "lz4" if data[CODEC_AT] & 7 == ZSTD else "zstd"


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


# ---- carriers ------------------------------------------------------------------------------------


def in_c(function: str, *arguments: Any, again: int, expected: int | None) -> Job:
    """Run the loop in the bench's own C, without the cost of a Python call."""
    run = getattr(native.load(), function)
    run.restype = ctypes.c_int64 if expected is None else ctypes.c_uint32
    got = run(*arguments, c_int64(again))
    if expected is not None and got != expected:
        raise AssertionError(f"{function} gives {got:#x}, not {expected:#x}")
    return Job("run(*arguments)", {"run": run, "arguments": (*arguments, c_int64(again))}, again)


def core(name: str) -> c_void_p:
    return c_void_p(peer_parts.core_function(batchval.core.crc32c, name))


def crc_patched(data: bytes) -> Job:
    """Compute the CRC of a batch with claims from that of the batch without claims."""
    after = claims.attach(data)
    headers = (data[ATTRIBUTES_AT:RECORDS_AT], after[ATTRIBUTES_AT:CLAIMED_RECORDS_AT])
    sized = [part for header in headers for part in (header, c_int64(len(header)))]
    tail = c_uint64(len(data) - RECORDS_AT)
    functions = (core("crc32c_of"), core("crc32c_moved"))
    return in_c(
        "patch_crc",
        *functions,
        ctypes.c_uint32(crc_of(data)),
        *sized,
        tail,
        again=100,
        expected=crc_of(after),
    )


def crc_whole(data: bytes) -> Job:
    """Compute the CRC over all bytes of the batch."""
    after = claims.attach(data)
    covered = after[ATTRIBUTES_AT:]
    again = max(1, (1 << 20) // len(covered))
    return in_c(
        "whole_crc",
        core("crc32c_of"),
        covered,
        c_int64(len(covered)),
        again=again,
        expected=crc_of(after),
    )


def attach(data: bytes) -> Job:
    true = claims.compute(data)
    if true is None or claims.strip(claims.attach(data, true)) != data:
        raise AssertionError("attach and strip are not each other's opposite")
    return Job("attach(data, true)", {"attach": claims.attach, "data": data, "true": true})


def strip(data: bytes) -> Job:
    return Job("strip(data)", {"strip": claims.strip, "data": claims.attach(data)})


def copy(data: bytes) -> Job:
    """Copy into a new bytes object from Python; attach and strip make the same allocation."""
    return Job("copy(view)", {"copy": bytes, "view": memoryview(data)})


def memcpy(data: bytes) -> Job:
    """Run memcpy into memory that is already allocated."""
    buffer = ctypes.create_string_buffer(len(data))
    again = max(1, (1 << 20) // len(data))
    return in_c("copy", buffer, data, c_int64(len(data)), again=again, expected=None)


# ---- the ledger ----------------------------------------------------------------------------------


def believed(rate: float = 0.01, senders: tuple[str, ...] = ("CN=edge",)) -> ClaimsLedger:
    """Return a ledger whose senders have completed their first hundred batches."""
    ledger = ClaimsLedger(ClaimsPolicy("audit", rate), secret=SECRET)
    for sender in senders:
        for _ in range(ledger.first_checked):
            ledger.decide(sender, 1, NOW_MS)
            ledger.note(sender, "honest", NOW_MS)
    return ledger


def decide_and_note(data: bytes) -> Job:
    """Measure the sampling decision alone, without validating a batch."""
    ledger, crc = believed(), crc_of(data)
    names = {"decide": ledger.decide, "note": ledger.note, "crc": crc, "now": NOW_MS}
    return Job("decide('CN=edge', crc, now); note('CN=edge', 'trusted', now)", names)


def by_ledger(data: bytes) -> Job:
    """Validate through the claims path with 1 % audited, one call a batch."""
    names = {
        "check": believed().check,
        "validator": validator,
        "data": data,
        "now": NOW_MS,
        "tag": tag_of(data),
    }
    return Job("check(validator, data, sender='CN=edge', now_ms=now, tag=tag)", names)


LYING_SENDERS, FORMULA_WITHIN = 200, 0.2


def detection(data: bytes) -> Job:
    """Simulate 200 lying senders a rate and count the lies until one is found; no time is
    measured.
    """
    facts: dict[str, Any] = {}
    for rate in (0.001, 0.01, 0.1):
        ledger = ClaimsLedger(ClaimsPolicy("audit", rate), secret=SECRET)
        crcs, waits = random.Random(8364), []
        for number in range(LYING_SENDERS):
            sender = f"CN=sender {number}"
            for _ in range(ledger.first_checked):
                ledger.decide(sender, crcs.getrandbits(32), NOW_MS)
                ledger.note(sender, "honest", NOW_MS)
            wait = 1
            while ledger.decide(sender, crcs.getrandbits(32), NOW_MS) == "trust":
                wait += 1
            waits.append(wait)
        facts[str(rate)] = sum(waits) / LYING_SENDERS
    return Job("", {}, 1, facts)


OPERATIONS: dict[str, Callable[[bytes], Job]] = {
    "claims": by_tag,
    "claims_header": by_header,
    "schema_ids_claims": ids_by_claims,
    "schema_ids_records": ids_by_records,
    "claims_ranges": ranges_by_tag,
    "claims_ranges_header": ranges_by_header,
    "check": check,
    "check_ranges": peer_batchval.check_ranges,
    "validate_messages": peer_batchval.legacy,
    "rebuilt": rebuilt,
    "scan_batches": peer_batchval.scan,
    "header_and_crc": header_and_crc,
    "claims_of_walk": claims_of_walk,
    "claims_kept": lambda data: kept(by_tag(data)),
    "claims_header_kept": lambda data: kept(by_header(data)),
    "result_alone": peer_batchval.result_alone,
    "crc_patched": crc_patched,
    "crc_whole": crc_whole,
    "attach": attach,
    "strip": strip,
    "copy": copy,
    "memcpy": memcpy,
    "decide_and_note": decide_and_note,
    "ledger": by_ledger,
    "detection": detection,
}
