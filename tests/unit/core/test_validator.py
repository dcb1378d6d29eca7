"""LogValidator's public calls: what they take, what it writes, what a caller may not do."""

from __future__ import annotations

import array
import ctypes
import mmap
import random
import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from batchval import compression
from batchval.core.batches.batch import RecordBatch, batches
from batchval.core.batches.result import RecordValidationStats, RejectedBatch
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, ErrorCode
from batchval.policy import TopicPolicy
from batchval.rules import Rule
from batchval.types import AppendOrigin, CompressionType
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NONE,
    NOW,
    ZSTD,
    batch,
    crc32c,
    decoded,
    fields,
    message,
    record,
    records,
)

STRICT = LogValidator()
KAFKA = LogValidator(mode="kafka")
PLAIN = batch(records(3))
TOPICS = {"none": "uncompressed"} | {name: name for name in CODECS if name != "none"}


def whole(data: Any) -> list[Any]:
    """What the records of a buffer say, whatever its codec."""
    return [
        (r.offset, r.timestamp, r.key and bytes(r.key), r.value and bytes(r.value), r.headers)
        for b in batches(data)
        for r in b.records()
    ]


def crc_is_right(data: Any) -> bool:
    data = bytes(data)
    if data[16] == 2:
        return fields(data)["crc"] == crc32c(data[21:])
    return struct.unpack_from(">I", data, 12)[0] == zlib.crc32(data[16:])


# ---- assignment in place -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 40, 1900, 2100, 70_000])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("topic", ["CreateTime", "LogAppendTime"])
def test_what_an_append_writes(codec: str, topic: str, size: int) -> None:
    """Base offset, leader epoch, timestamp type and max timestamp; every other byte as it was."""
    value = random.Random(size).randbytes(
        size
    )  # does not compress: the crc is patched from 2 KiB on
    parts = [record(i, value=value, timestamp_delta=7 * i) for i in range(3)]
    data = batch(
        parts,
        codec=CODECS[codec],
        max_timestamp=5,
        producer_id=4,
        producer_epoch=1,
        base_sequence=0,
    )
    validator = LogValidator(TopicPolicy(message_timestamp_type=topic))
    buffer = bytearray(data)
    result = validator.validate(
        buffer, now_ms=NOW + 50, first_offset=1000, leader_epoch=7, in_place=True
    )
    log_time = topic == "LogAppendTime"
    before, after = fields(data), fields(buffer)
    changed = {
        "base_offset": 1000,
        "partition_leader_epoch": 7,
        "max_timestamp": NOW + 50 if log_time else NOW + 14,
        "attributes": before["attributes"] | 8 * log_time,
    }
    assert after == before | changed | {"crc": crc32c(bytes(buffer[21:]))}
    assert buffer[61:] == data[61:]
    assert isinstance(result.output, memoryview)
    assert result.output.obj is buffer
    copied = validator.validate(data, now_ms=NOW + 50, first_offset=1000, leader_epoch=7)
    assert (type(copied.output), copied.output) == (bytes, bytes(buffer))
    assert (result.in_place, result.size_maybe_changed, result.converted) == (True, False, 0)
    assert (result.next_offset, result.max_timestamp, result.append_time) == (
        1003,
        changed["max_timestamp"],
        NOW + 50,
    )
    assert result.path == ("full" if codec == "none" else "shallow")


def test_a_header_that_is_right_keeps_its_checksum_and_its_unused_bits() -> None:
    data = batch(records(3), attributes=0x4080)
    result = KAFKA.validate(data, now_ms=NOW, first_offset=0, leader_epoch=7)
    assert fields(result.output) == fields(data) | {"partition_leader_epoch": 7}
    # where the attributes are written, Kafka writes the bits that it knows
    data = batch(
        records(3), attributes=0x40F0 & ~0x20, max_timestamp=1, producer_id=1, base_sequence=0
    )
    result = KAFKA.validate(data, now_ms=NOW)
    assert fields(result.output)["attributes"] == 0x50
    assert crc_is_right(result.output)


@pytest.mark.parametrize("first_offset", [0, 1, 2**31, 2**63 - 4])
def test_first_offsets(first_offset: int) -> None:
    result = STRICT.validate(PLAIN, now_ms=NOW, first_offset=first_offset)
    assert fields(result.output)["base_offset"] == first_offset
    assert result.next_offset == first_offset + 3


@pytest.mark.parametrize("epoch", [0, 7, 2**31 - 1])
def test_the_leader_epoch_is_outside_the_checksum(epoch: int) -> None:
    result = STRICT.validate(PLAIN, now_ms=NOW, leader_epoch=epoch)
    assert fields(result.output) == fields(PLAIN) | {"partition_leader_epoch": epoch}


def test_uncompressed_deltas_stay_and_the_last_offset_counts() -> None:
    """Kafka assigns the last offset and stores base offset and deltas as they are."""
    data = batch([record(4), record(2)], last_offset_delta=1)
    result = KAFKA.validate(data, now_ms=NOW, first_offset=100)
    assert [r[0] for r in decoded(result.output)] == [104, 102]
    # a coordinator's header is not held against its records: base offset = last offset -
    # last_offset_delta
    data = batch(records(3), last_offset_delta=9)
    result = KAFKA.validate(data, now_ms=NOW, first_offset=100, origin="COORDINATOR")
    assert fields(result.output)["base_offset"] == 100 + 3 - 1 - 9
    assert result.next_offset == 103


def test_the_max_timestamp_is_counted_anew() -> None:
    for stated in (-1, 0, NOW - 1, NOW + 10**9):
        for deltas, found in (((0, -5, 3), NOW + 3), ((-9, -5, -7), NOW - 5)):
            parts = [record(i, timestamp_delta=d) for i, d in enumerate(deltas)]
            for codec in CODECS.values():
                result = KAFKA.validate(batch(parts, max_timestamp=stated, codec=codec), now_ms=NOW)
                assert (result.max_timestamp, fields(result.output)["max_timestamp"]) == (
                    found,
                    found,
                )
                assert crc_is_right(result.output)


@pytest.mark.parametrize(
    "data", [batch(crc=1), batch([record(0)], records_count=2), batch(base_offset=4), b"", b"x"]
)
def test_a_refusal_leaves_the_buffer_as_it_was(data: bytes) -> None:
    buffer = bytearray(data)
    result = STRICT.validate(buffer, now_ms=NOW, first_offset=9, leader_epoch=9, in_place=True)
    assert not result.ok
    assert (result.output, buffer) == (None, data)


def test_check_writes_nothing() -> None:
    buffer = bytearray(batch(records(3), max_timestamp=1))
    before = bytes(buffer)
    result = STRICT.check(buffer, now_ms=NOW, first_offset=44, leader_epoch=4)
    assert (result.ok, result.next_offset, result.output) == (True, 47, None)
    assert buffer == before


def test_in_place_output_lets_go_of_the_buffer() -> None:
    buffer = bytearray(PLAIN + b"beyond")
    result = KAFKA.validate(buffer, now_ms=NOW, in_place=True)
    output = result.output
    assert len(output) == len(PLAIN)
    with pytest.raises(BufferError):
        buffer += b"x"
    del output
    buffer += b"x"


# ---- recompression -------------------------------------------------------------------------------

MIXED = [
    record(0, key=b"k", value=b"v" * 5000, timestamp_delta=5),
    record(1, key=None, value=None, headers=[(b"h", b"1"), (b"h", None), ("ü".encode(), b"")]),
    record(2, key=b"", value=b"", timestamp_delta=-3),
]


@pytest.mark.parametrize("to", TOPICS)
@pytest.mark.parametrize("source", CODECS)
def test_from_every_codec_to_every_other(source: str, to: str) -> None:
    data = batch(
        MIXED, codec=CODECS[source], producer_id=8, producer_epoch=2, base_sequence=7, attributes=16
    )
    result = LogValidator(TopicPolicy(compression_type=TOPICS[to])).validate(
        data, now_ms=NOW, first_offset=300, leader_epoch=6
    )
    assert result.ok, result
    rebuilt = source != to
    assert (result.path == "rebuilt", result.size_maybe_changed, result.in_place) == (
        rebuilt,
        rebuilt,
        not rebuilt,
    )
    assert result.converted == (3 if rebuilt else 0)
    out = RecordBatch(result.output)
    assert out.is_valid
    assert (out.compression_type.kafka_name, out.base_offset, out.last_offset) == (to, 300, 302)
    assert (out.producer_id, out.producer_epoch, out.base_sequence, out.is_transactional) == (
        8,
        2,
        7,
        True,
    )
    assert (out.partition_leader_epoch, out.max_timestamp, out.records_count) == (6, NOW + 5, 3)
    assert out.base_timestamp == (
        NOW + 5 if rebuilt else NOW
    )  # the builder starts at its first record
    assert whole(result.output) == [
        (300, NOW + 5, b"k", b"v" * 5000, ()),
        (301, NOW, None, None, (("h", b"1"), ("h", None), ("ü", b""))),
        (302, NOW - 3, b"", b"", ()),
    ]
    checked = LogValidator(TopicPolicy(compression_type=TOPICS[to])).check(
        data, now_ms=NOW, first_offset=300
    )
    for name in (
        "ok",
        "path",
        "next_offset",
        "max_timestamp",
        "size_maybe_changed",
        "in_place",
        "converted",
    ):
        assert getattr(checked, name) == getattr(result, name), name


def test_rebuilt_records_are_written_in_the_shortest_form() -> None:
    padded = b"\x80\x80\x00"
    body = b"\0" + padded + b"\x82\x00" + b"\x01" + padded + padded
    odd = bytes([len(body) << 1 | 0x80, 0]) + body
    data = batch([odd], codec=GZIP)
    result = LogValidator(TopicPolicy(compression_type="uncompressed"), mode="kafka").validate(
        data, now_ms=NOW
    )
    assert result.ok, result
    assert bytes(result.output)[61:] == record(0, key=None, value=b"")


@pytest.mark.parametrize("to", TOPICS)
def test_a_batch_may_be_too_large_once_it_is_rebuilt(to: str) -> None:
    data = batch([record(0, value=bytes(5000))], codec=ZSTD if to != "zstd" else GZIP)
    out = LogValidator(TopicPolicy(compression_type=TOPICS[to])).validate(data, now_ms=NOW).output
    for limit in (len(out), len(out) - 1):
        policy = TopicPolicy(compression_type=TOPICS[to], max_message_bytes=max(limit, len(data)))
        validator = LogValidator(policy)
        fits = policy.max_message_bytes >= len(out)
        result = validator.validate(data, now_ms=NOW)
        assert result.ok == fits
        assert validator.check(data, now_ms=NOW).ok  # rule 40 is left to the caller that appends
        if not fits:
            assert (result.rule, result.error_code) == (
                Rule.REBUILT_BATCH_TOO_LARGE,
                ErrorCode.MESSAGE_TOO_LARGE,
            )
            assert (
                result.reason
                == f"the rebuilt batch has {len(out)} bytes, but max.message.bytes is "
                f"{policy.max_message_bytes}"
            )
            assert (result.output, result.stats, result.converted) == (None, None, 0)


def test_rule_40_is_not_log_validators_own() -> None:
    policy = TopicPolicy(compression_type="uncompressed", max_message_bytes=100)
    data = batch([record(0, value=bytes(5000))], codec=ZSTD)
    assert LogValidator(policy).validate(data, now_ms=NOW).rule is Rule.REBUILT_BATCH_TOO_LARGE
    assert LogValidator(policy).validate_messages_and_assign_offsets(data, now_ms=NOW).ok


def test_log_append_time_in_a_rebuilt_batch() -> None:
    policy = TopicPolicy(compression_type="lz4", message_timestamp_type="LogAppendTime")
    result = LogValidator(policy).validate(batch(MIXED, codec=GZIP), now_ms=NOW + 9)
    out = RecordBatch(result.output)
    assert (out.timestamp_type.kafka_name, out.max_timestamp, result.max_timestamp) == (
        "LogAppendTime",
        NOW + 9,
        NOW + 9,
    )
    assert {r.timestamp for r in out.records()} == {NOW + 9}


def test_in_place_is_a_wish_where_the_batch_must_be_rebuilt() -> None:
    buffer = bytearray(PLAIN)
    result = LogValidator(TopicPolicy(compression_type="lz4")).validate(
        buffer, now_ms=NOW, in_place=True
    )
    assert (result.in_place, type(result.output), buffer) == (False, bytes, PLAIN)


def test_a_control_batch_stays_as_it_is() -> None:
    data = batch(
        [record(0, key=b"\0\0\0\1", value=b"\0" * 6)],
        attributes=32 | 16,
        producer_id=1,
        producer_epoch=0,
    )
    policy = TopicPolicy(compression_type="zstd")
    result = LogValidator(policy).validate(data, now_ms=NOW, origin="COORDINATOR", first_offset=3)
    assert (result.ok, result.in_place, result.path) == (True, True, "full")
    assert fields(result.output) == fields(data) | {"base_offset": 3, "partition_leader_epoch": 0}


# ---- record errors and statistics ----------------------------------------------------------------


def test_record_errors_have_text_and_rule() -> None:
    parts = [record(0), record(1, key=b"k", timestamp_delta=-(10**6))]
    policy = TopicPolicy(cleanup_policy="compact", message_timestamp_before_max_ms=1000)
    result = LogValidator(policy).validate(batch(parts), now_ms=NOW)
    assert result.record_errors == [
        (0, "Compacted topic cannot accept message without key"),
        (
            1,
            f"Timestamp {NOW - 10**6} of message with offset 1 is out of range. "
            f"The timestamp should be within [{NOW - 1000}, {NOW + 3_600_000}]",
        ),
    ]
    assert result.record_error_rules == [(0, Rule.KEY_MISSING), (1, Rule.TIMESTAMP_OUT_OF_RANGE)]
    assert (result.rule, result.error_code, result.position) == (
        Rule.RECORD_ERRORS,
        ErrorCode.INVALID_TIMESTAMP,
        0,
    )
    allowed = f"[{NOW - 1000}, {NOW + 3_600_000}]"
    assert result.reason == f"records have timestamps that are not within {allowed}"
    with pytest.raises(RejectedBatch, match="INVALID_TIMESTAMP") as caught:
        result.raise_for_error()
    assert caught.value.result is result


@pytest.mark.untraced
@pytest.mark.parametrize("count", [1, 64, 999, 1000, 1001, 10_000])
@pytest.mark.parametrize("mode", ["strict", "kafka"])
def test_many_record_errors(count: int, mode: Any) -> None:
    """All are counted, the first 1,000 are kept; the next call sees none of them."""
    policy = TopicPolicy(cleanup_policy="compact", max_message_bytes=2**30)
    validator = LogValidator(policy, mode=mode)
    result = validator.check(batch(records(count), codec=LZ4), now_ms=NOW)
    again = validator.check(batch(records(2)), now_ms=NOW)
    assert [i for i, _ in result.record_errors] == list(range(min(count, 1000)))
    assert [i for i, _ in result.record_error_rules] == list(range(min(count, 1000)))
    assert (result.record_errors_count, again.record_errors_count) == (count, 2)
    assert [i for i, _ in again.record_errors] == [0, 1]
    assert result.meters == {"nokey": count}
    assert result.reason == (
        "1 record was refused" if count == 1 else f"{count} records were refused"
    )
    assert validator.check(batch(records(1, key=b"k")), now_ms=NOW).record_errors_count == 0


def test_statistics_of_a_batch_that_stays() -> None:
    assert STRICT.validate(PLAIN, now_ms=NOW).stats == RecordValidationStats(0, 0, None)
    for codec in (GZIP, LZ4, ZSTD):  # header and records as they are decompressed
        result = STRICT.validate(batch(records(3), codec=codec), now_ms=NOW)
        assert result.stats == RecordValidationStats(61 + len(b"".join(records(3))), 0, None)


def test_statistics_of_a_rebuilt_batch() -> None:
    size = len(b"".join(records(3)))
    result = LogValidator(TopicPolicy(compression_type="lz4")).validate(PLAIN, now_ms=NOW)
    assert result.stats == RecordValidationStats(2 * (61 + size), 3, None)


def test_conversion_time_is_the_callers_clock() -> None:
    ticks = iter(range(100, 200, 7))
    validator = LogValidator(TopicPolicy(compression_type="lz4"), clock_ns=lambda: next(ticks))
    assert validator.validate(PLAIN, now_ms=NOW).stats.conversion_time_nanos == 7
    assert (
        validator.validate(batch(codec=LZ4), now_ms=NOW).stats.conversion_time_nanos is None
    )  # nothing was built
    assert (
        validator.with_policy(TopicPolicy(compression_type="gzip"))
        .validate(PLAIN, now_ms=NOW)
        .stats.conversion_time_nanos
        == 7
    )


# ---- buffers -------------------------------------------------------------------------------------


def mapped(data: bytes) -> mmap.mmap:
    region = mmap.mmap(-1, len(data))
    region[:] = data
    return region


PADDED = PLAIN + bytes(-len(PLAIN) % 8)
BUFFERS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "read-only memoryview of a bytearray": lambda data: memoryview(bytearray(data)).toreadonly(),
    "slice of a memoryview": lambda data: memoryview(b"before" + data + b"beyond")[6:-6],
    "signed bytes": lambda data: memoryview(data).cast("b"),
    "characters": lambda data: memoryview(data).cast("c"),
    "array": lambda data: array.array("B", data),
    "numpy": lambda data: np.frombuffer(data, "u1"),
    "numpy slice": lambda data: np.frombuffer(b"xx" + data, "u1")[2:],
    "mmap": mapped,
    "ctypes": lambda data: (ctypes.c_ubyte * len(data)).from_buffer_copy(data),
    "ctypes characters": lambda data: ctypes.create_string_buffer(data, len(data)),
}
#: more than one dimension
WIDE: dict[str, Callable[[bytes], Any]] = {
    "numpy two dimensions": lambda data: np.frombuffer(data, "u1").reshape(-1, 8).copy(),
}
#: elements that are not bytes
OTHER_ITEMS: dict[str, Callable[[bytes], Any]] = {
    "numpy objects": lambda data: np.array([data, None, 5] * 100, dtype=object),
    "numpy truths": lambda data: np.frombuffer(data, "?"),
    "numpy strings": lambda data: np.frombuffer(data, "S1"),
    "numpy structures": lambda data: np.frombuffer(data, [("a", "u1")]),
    "numpy dates": lambda data: np.frombuffer(data, "M8[ms]"),
    "array of longs": lambda data: array.array("q", data),
    "numpy big-endian longs": lambda data: np.frombuffer(data, ">i8").copy(),
    "numpy floats": lambda data: np.frombuffer(data, "f8").copy(),
    "numpy records": lambda data: np.frombuffer(data, [("a", ">i4"), ("b", "u1", 4)]).copy(),
    "ctypes structure": lambda data: (ctypes.c_uint64 * (len(data) // 8)).from_buffer_copy(data),
}


@pytest.mark.parametrize("kind", [*BUFFERS, *WIDE])
def test_any_contiguous_buffer(kind: str) -> None:
    data = PLAIN if kind in BUFFERS else PADDED
    buffer = (BUFFERS | WIDE)[kind](data)
    for validator in (KAFKA, LogValidator(mode="kafka", profile="log")):
        assert validator.check(buffer, now_ms=NOW).valid_bytes == len(PLAIN)
    assert KAFKA.check_request(buffer).ok
    assert KAFKA.analyze(buffer).valid_bytes == len(PLAIN)
    result = KAFKA.validate(buffer, now_ms=NOW, first_offset=5)
    assert result.output == KAFKA.validate(PLAIN, now_ms=NOW, first_offset=5).output
    columns = KAFKA.check_ranges(buffer, now_ms=NOW)
    assert (len(columns), columns.result(0).records_count) == (1, 3)
    assert LogValidator(profile="log").check_batches(buffer).result(0).records_count == 3
    assert [r[3] for r in whole(buffer)] == [b"value 0", b"value 1", b"value 2"]


@pytest.mark.parametrize(
    "kind", ["bytearray", "array", "mmap", "ctypes", "ctypes characters", *WIDE]
)
def test_any_writable_buffer(kind: str) -> None:
    data = PLAIN if kind in BUFFERS else PADDED
    buffer = (BUFFERS | WIDE)[kind](data)
    result = KAFKA.validate(buffer, now_ms=NOW, first_offset=77, in_place=True)
    assert result.ok
    assert fields(bytes(buffer))["base_offset"] == 77
    assert (len(result.output), fields(result.output)["base_offset"]) == (len(PLAIN), 77)
    del result


@pytest.mark.parametrize("kind", OTHER_ITEMS)
def test_items_that_are_not_bytes(kind: str) -> None:
    """Their bytes are an accident of this machine: of objects, they are addresses."""
    buffer = OTHER_ITEMS[kind](PADDED)
    log = LogValidator(profile="log")
    for ask in (
        KAFKA.check,
        KAFKA.validate,
        KAFKA.check_ranges,
        KAFKA.validate_messages_and_assign_offsets,
    ):
        with pytest.raises(BatchvalError, match="expected a contiguous buffer of bytes"):
            ask(buffer, now_ms=NOW)
    for look in (KAFKA.check_request, KAFKA.analyze, log.check, log.check_batches):
        with pytest.raises(BatchvalError, match="expected a contiguous buffer of bytes"):
            look(buffer)
    with pytest.raises(BatchvalError, match=r"expected a contiguous buffer of bytes|writable"):
        KAFKA.validate(buffer, now_ms=NOW, in_place=True)
    # and no buffer of it is held
    assert len(memoryview(buffer).cast("B") if kind != "numpy dates" else b"x") > 0


@pytest.mark.parametrize(
    "kind", ["bytes", "memoryview", "read-only memoryview of a bytearray", "numpy"]
)
def test_in_place_needs_a_writable_buffer(kind: str) -> None:
    with pytest.raises(BatchvalError, match="writable"):
        KAFKA.validate(BUFFERS[kind](PLAIN), now_ms=NOW, in_place=True)


@pytest.mark.parametrize(
    "what", ["text", None, 7, [1, 2], memoryview(PLAIN)[::2], np.zeros((9, 9), "u1")[:, ::2]]
)
def test_other_buffers_are_refused(what: Any) -> None:
    log = LogValidator(profile="log")
    for ask in (
        KAFKA.check,
        KAFKA.validate,
        KAFKA.check_ranges,
        KAFKA.validate_messages_and_assign_offsets,
    ):
        with pytest.raises(BatchvalError, match="contiguous"):
            ask(what, now_ms=NOW)
    for look in (KAFKA.check_request, KAFKA.analyze, log.check, log.check_batches):
        with pytest.raises(BatchvalError, match="contiguous"):
            look(what)


# ---- a caller's mistakes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "lax"},
        {"profile": "rest"},
        {"policy": {"compression_type": "lz4"}},
        {"extras": {"S99": "report"}},
        {"extras": {"L1": "report"}},
        {"extras": {Rule.CRC_MISMATCH: "report"}},
        {"extras": {"S1": "ignore"}},
        {"extras": {"S8": "report"}},
        {"extras": {Rule.S8: "report"}},
        {"extras": "S1"},
        {"extras": 5},
        {"max_decompressed_bytes": -1},
        {"max_decompressed_bytes": 1 << 62},
        {"max_decompressed_bytes": 1.5},
    ],
    ids=str,
)
def test_settings_that_are_none(settings: dict[str, Any]) -> None:
    with pytest.raises(BatchvalError):
        LogValidator(**settings)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"now_ms": None},
        {"now_ms": NOW, "origin": "BROKER"},
        {"now_ms": NOW, "origin": 9},
        {"now_ms": NOW, "origin": []},
        {"now_ms": NOW, "to_magic": 3},
        {"now_ms": NOW, "to_magic": -1},
    ],
    ids=str,
)
def test_arguments_that_are_none(arguments: dict[str, Any]) -> None:
    for ask in (
        KAFKA.check,
        KAFKA.validate,
        KAFKA.check_ranges,
        KAFKA.validate_messages_and_assign_offsets,
    ):
        with pytest.raises(BatchvalError):
            ask(PLAIN, **arguments)


def test_a_source_that_is_none() -> None:
    for source in ("producer", "lzma", "", "GZIP"):
        with pytest.raises(BatchvalError, match="source"):
            KAFKA.validate_messages_and_assign_offsets(PLAIN, now_ms=NOW, source=source)


def test_calls_of_the_other_profile() -> None:
    log = LogValidator(profile="log")
    with pytest.raises(BatchvalError, match="log profile"):
        log.validate(PLAIN, now_ms=NOW)
    with pytest.raises(BatchvalError, match="profile='log'"):
        log.check_ranges(PLAIN, [(0, 61)])
    with pytest.raises(BatchvalError, match="requires profile="):
        KAFKA.check_batches(PLAIN)
    assert len(log.check_ranges(PLAIN + PLAIN)) == 2


def test_origins_by_name_and_member() -> None:
    data = batch(base_offset=4)
    for origin in AppendOrigin:
        answers = {KAFKA.analyze(data, origin=o).ok for o in (origin, origin.name)}
        assert answers == {origin in (AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION)}


# ---- check_ranges --------------------------------------------------------------------------------

REQUEST = [
    PLAIN,
    batch(codec=GZIP),
    batch(crc=1),
    batch(records(2)) + b"beyond",
    batch(base_offset=3),
    b"",
]
JOINED = b"".join(REQUEST)
ENDS = np.cumsum([len(part) for part in REQUEST])
RANGES = [(int(end) - len(part), len(part)) for part, end in zip(REQUEST, ENDS, strict=True)]


@pytest.mark.parametrize(
    "ranges",
    [
        RANGES,
        tuple(RANGES),
        [list(pair) for pair in RANGES],
        np.array(RANGES, "i8"),
        np.array(RANGES, "i8").ravel(),
        array.array("q", [n for pair in RANGES for n in pair]),
        [np.array(pair) for pair in RANGES],
    ],
    ids=["tuples", "tuple", "lists", "numpy", "flat", "array", "rows"],
)
def test_each_range_is_answered_as_alone(ranges: Any) -> None:
    columns = STRICT.check_ranges(JOINED, ranges, now_ms=NOW)
    assert len(columns) == len(REQUEST)
    for i, part in enumerate(REQUEST):
        alone = STRICT.check(part, now_ms=NOW)
        assert columns["rule"][i] == (alone.rule.number if alone.rule else 0)
        assert columns["error_code"][i] == alone.error_code
        assert columns["position"][i] == RANGES[i][0]
        assert columns.reason_of(i) == alone.reason
        again = columns.result(i)
        assert (again.rule, again.reason, again.records_count) == (
            alone.rule,
            alone.reason,
            alone.records_count,
        )
    assert columns.ok().tolist() == [True, True, False, False, False, False]
    assert not columns.all_ok


def test_is_valid_is_the_checksums_matter_alone() -> None:
    """Also of a batch that was refused before anybody asked for its checksum."""
    parts = [
        batch(base_offset=3),
        batch(base_offset=3, crc=1),
        batch(crc=1),
        PLAIN,
        batch([record()], records_count=2),
    ]
    parts += [
        PLAIN + PLAIN,
        batch(crc=1) + PLAIN,
        message(1),
        message(1, crc=1),
        batch(last_offset_delta=-1, crc=4),
    ]
    expected = [True, False, False, True, True, True, False, True, False, False]
    ends = np.cumsum([len(part) for part in parts])
    ranges = [(int(end) - len(part), len(part)) for part, end in zip(parts, ends, strict=True)]
    for validator in (STRICT, KAFKA):
        columns = validator.check_ranges(b"".join(parts), ranges, now_ms=NOW)
        assert columns["is_valid"].tolist() == expected


def test_ranges_may_overlap_and_repeat() -> None:
    columns = STRICT.check_ranges(
        PLAIN, [(0, len(PLAIN)), (0, len(PLAIN)), (1, 30), (len(PLAIN), 0)], now_ms=NOW
    )
    alone = STRICT.check(PLAIN[1:31], now_ms=NOW).rule
    assert alone is not None
    assert columns["rule"].tolist() == [0, 0, alone.number, 5]
    assert columns["magic"].tolist() == [2, 2, -1, -1]


def test_without_ranges_every_whole_batch_is_one() -> None:
    data = PLAIN + batch(codec=ZSTD) + batch(crc=1) + PLAIN[:-1]
    columns = STRICT.check_ranges(data, now_ms=NOW)
    assert columns["position"].tolist() == [0, len(PLAIN), len(PLAIN + batch(codec=ZSTD))]
    assert columns["rule"].tolist() == [0, 0, 14]
    assert len(STRICT.check_ranges(b"", now_ms=NOW)) == 0


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 500)],
        [(-1, 5)],
        [(0, -1)],
        [(500, 0)],
        [(2**63 - 1, 1)],
        [(1, 2**63 - 1)],
        [(2**64, 1)],
        [(0, 61), (0, "a")],
        [5],
        [()],
        [(1,)],
        [None],
        "text",
        7,
        {"a": 1},
        np.array(RANGES, "i4"),
        np.array(RANGES, "u8"),
        np.array(RANGES, "f8"),
        np.array(RANGES, ">i8"),
        np.array([0, 1, 2], "i8"),
        np.array(RANGES * 2, "i8")[::2],
        b"0123456789abcdef",
    ],
    ids=str,
)
def test_bad_ranges(ranges: Any) -> None:
    with pytest.raises(BatchvalError):
        STRICT.check_ranges(PLAIN, ranges, now_ms=NOW)


def test_a_policy_for_each_range() -> None:
    small = TopicPolicy(max_message_bytes=10)
    compact = TopicPolicy(cleanup_policy="compact")
    ranges = [(0, len(PLAIN))] * 4
    columns = STRICT.check_ranges(PLAIN, ranges, [small, TopicPolicy(), compact, small], now_ms=NOW)
    assert columns["rule"].tolist() == [13, 0, 35, 13]
    assert [columns.result(i).rule and columns.result(i).rule.id for i in range(4)] == [
        "13",
        None,
        "35",
        "13",
    ]
    assert columns.result(2).record_errors[0][0] == 0
    assert STRICT.check_ranges(PLAIN, ranges, compact, now_ms=NOW)["rule"].tolist() == [35] * 4
    assert STRICT.check_ranges(PLAIN, [], [], now_ms=NOW)["rule"].tolist() == []


BAD_POLICIES = [
    [],
    [TopicPolicy()] * 3,
    [None],
    ["lz4"] * 2,
    [TopicPolicy(), 5],
    5,
    {"a": 1},
    {"a": 1, "b": 2},
]


@pytest.mark.parametrize("policies", BAD_POLICIES, ids=repr)
def test_bad_policies(policies: Any) -> None:
    with pytest.raises(BatchvalError):
        STRICT.check_ranges(PLAIN, [(0, 5), (5, 6)], policies, now_ms=NOW)


@pytest.mark.untraced
def test_a_policy_that_died_is_not_mistaken_for_its_successor() -> None:
    """Compiled policies are kept by id: thousands of short-lived ones must each be judged by their
    own rules.
    """
    for limit in range(60, 60 + 300):
        columns = STRICT.check_ranges(
            PLAIN, [(0, len(PLAIN))], TopicPolicy(max_message_bytes=limit), now_ms=NOW
        )
        assert columns["rule"][0] == (13 if limit < len(PLAIN) else 0)


@pytest.mark.untraced
def test_more_policies_than_are_kept() -> None:
    policies = [TopicPolicy(max_message_bytes=n) for n in range(10_050)]
    columns = STRICT.check_ranges(PLAIN, [(0, len(PLAIN))] * len(policies), policies, now_ms=NOW)
    assert columns["rule"].tolist() == [13 if n < len(PLAIN) else 0 for n in range(10_050)]


# ---- with_policy, threads ------------------------------------------------------------------------


def test_with_policy_keeps_every_setting() -> None:
    first = LogValidator(extras={"S1": "report", "S10": "report"}, max_decompressed_bytes=77)
    second = first.with_policy(TopicPolicy(max_message_bytes=50))
    assert (second.mode, second.profile, second.max_decompressed_bytes) == ("strict", "produce", 77)
    assert second.policy.max_message_bytes == 50
    assert second.check(PLAIN, now_ms=NOW).rule is Rule.BATCH_TOO_LARGE
    third = second.with_policy(TopicPolicy())
    assert third.check(batch(attributes=64), now_ms=NOW).reports == [Rule.S1]
    assert third.check(batch(records(9), codec=GZIP), now_ms=NOW).rule is Rule.S8
    log = LogValidator(mode="kafka", profile="log").with_policy(TopicPolicy())
    assert (log.mode, log.profile) == ("kafka", "log")


@pytest.mark.untraced
@pytest.mark.parametrize("provider", compression.PROVIDERS)
def test_one_validator_in_many_threads(provider: str) -> None:
    """Long batches of every codec, good and bad: calls without the GIL must not see each other's
    scratch.
    """
    before = compression.provider()
    compression.use(provider)
    policy = TopicPolicy(cleanup_policy="compact", max_message_bytes=2**30)
    validator = LogValidator(policy)
    noise = random.Random(3)
    work = []
    for codec in CODECS.values():
        for keyed in (True, False):
            parts = [
                record(i, key=b"k" if keyed or i % 5 else None, value=noise.randbytes(300))
                for i in range(700)
            ]
            work.append((batch(parts, codec=codec), [] if keyed else list(range(0, 700, 5))))
    wrong: list[Any] = []

    def judge(seed: int) -> None:
        order = random.Random(seed)
        for _ in range(12):
            data, refused = order.choice(work)
            result = validator.validate(data, now_ms=NOW, first_offset=seed)
            if [i for i, _ in result.record_errors] != refused or result.ok != (not refused):
                wrong.append((seed, result))
            elif result.ok and fields(result.output)["base_offset"] != seed:
                wrong.append((seed, "offset"))

    threads = [threading.Thread(target=judge, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    compression.use(before)
    assert wrong == []


# ---- results -------------------------------------------------------------------------------------


def test_what_a_result_says_of_itself() -> None:
    good = LogValidator(extras={"S1": "report"}).check(batch(attributes=64), now_ms=NOW)
    assert repr(good) == "<ValidationResult ok path=full records=1 reports=['S1']>"
    assert (bool(good), good.reason, good.rule, good.error_code) == (True, "", None, ErrorCode.NONE)
    assert good.raise_for_error() is None
    bad = STRICT.check(batch(base_offset=4), now_ms=NOW)
    assert repr(bad) == (
        "<ValidationResult INVALID_RECORD rule=10 base-offset-not-zero: "
        "base offset is 4, but must be 0>"
    )
    assert not bad
    assert (bad.max_timestamp, bad.append_time, bad.next_offset, bad.in_place) == (None,) * 4
    assert bad.source is CompressionType.NONE
    assert NONE == 0
