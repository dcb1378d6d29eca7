"""Messages of magic 0 and 1, alone and in wrappers: LegacyRecord and AbstractLegacyRecordBatch."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pytest

from batchval.core.batches.batch import batches
from batchval.core.batches.validator import LogValidator
from batchval.errors import ArgumentTypeError, ErrorCode
from batchval.policy import TopicPolicy
from batchval.record_rules import RecordRules
from batchval.rules import Rule
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    batch,
    compress,
    message,
    record,
    wrapper,
)

WRAPPED = {name: codec for name, codec in CODECS.items() if name not in ("none", "zstd")}
KAFKA = LogValidator(mode="kafka")


def judge(data: bytes, to_magic: int = 1, validator: LogValidator = KAFKA, **arguments: Any) -> Any:
    """Return the result of new bytes, which is the same in place."""
    arguments |= {"now_ms": NOW, "to_magic": to_magic}
    result = validator.validate_messages_and_assign_offsets(data, **arguments)
    buffer = bytearray(data)
    same = validator.validate_messages_and_assign_offsets(buffer, in_place=True, **arguments)
    assert same == result
    assert buffer == (result.output if result.in_place else data)
    return result


def records_in(data: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (
            r.offset,
            r.timestamp,
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
        )
        for b in batches(data)
        for r in b.records()
    ]


def messages(magic: int, count: int = 3, first: int = 0) -> list[bytes]:
    return [
        message(magic, offset=first + i, key=b"k%d" % i, timestamp=NOW + i) for i in range(count)
    ]


# ---- in place ------------------------------------------------------------------------------------


#: of a message: fields that are plain, and others
KEYS = (b"", b"k", b"\xff" * 300)
ODD: dict[str, dict[str, Any]] = {
    "no key": {"key": None},
    "no value": {"value": None},
    "no timestamp": {"timestamp": -1},
    "a timestamp below -1": {"timestamp": -2},
    "too late": {"timestamp": NOW + 3_600_001},
    "log append time": {"attributes": 8},
    "gzip in spite of none": {"attributes": 1},
    "a codec that does not exist": {"attributes": 7},
    "a key length of -2": {"tail": struct.pack(">iib", -2, 1, 0)},
    "a value length of -2": {"tail": struct.pack(">ii", -1, -2)},
    "a key without end": {"tail": struct.pack(">ii", 100, 0)},
    "a value without end": {"tail": struct.pack(">ii", -1, 100)},
    "bytes after the value": {"tail": struct.pack(">iib", -1, 1, 0) + b"more"},
    "no fields": {"tail": b""},
    "a key alone": {"tail": struct.pack(">i", -1)},
    "magic 0": {"magic": 0},
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("at", [0, 1, 4])
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("mode", ["kafka", "strict"])
def test_plain_messages_are_judged_as_others(odd: str, at: int, compacted: bool, mode: str) -> None:
    # Where the topic has rules for records, no message is plain.
    cleanup = "compact" if compacted else "delete"
    plain = TopicPolicy(cleanup_policy=cleanup)
    asked = TopicPolicy(cleanup_policy=cleanup, record_rules=RecordRules(max_value_bytes=1 << 20))
    messages = [message(1, offset=i, key=KEYS[i % 3], timestamp=NOW + i % 4) for i in range(5)]
    messages[at] = message(**({"offset": at, "key": b"k"} | ODD[odd]))
    data = b"".join(messages)
    found, expected = (
        judge(data, validator=LogValidator(policy, mode=mode), first_offset=70, source="none")
        for policy in (plain, asked)
    )
    if expected.rule is Rule.R3:  # Kafka does not read keys and values
        assert (found.ok, found.records_count) == (True, 5)
        return
    assert found == expected
    assert found.batch_claims == expected.batch_claims


def test_a_set_of_many_messages_is_written_in_place() -> None:
    buffer = bytearray().join(messages(1, 1_000))
    result = KAFKA.validate_messages_and_assign_offsets(
        buffer, now_ms=NOW, to_magic=1, first_offset=1 << 40, in_place=True
    )
    assert (result.path, result.in_place, result.records_count) == ("full", True, 1_000)
    assert result.output.obj is buffer
    assert [b.base_offset for b in batches(buffer)] == [(1 << 40) + i for i in range(1_000)]
    assert (result.next_offset, result.max_timestamp) == ((1 << 40) + 1_000, NOW + 999)


@pytest.mark.parametrize("in_place", [True, 1])
def test_messages_in_place_need_a_writable_buffer(in_place: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="in_place=True requires a writable"):
        KAFKA.validate_messages_and_assign_offsets(
            b"".join(messages(1)), now_ms=NOW, to_magic=1, in_place=in_place
        )


@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_of_messages_gets_its_offsets(magic: int) -> None:
    data = b"".join(messages(magic, first=70))
    result = judge(data, magic, first_offset=500)
    assert (result.in_place, result.path, result.next_offset, result.records_count) == (
        True,
        "full",
        503,
        3,
    )
    times = [NOW + i for i in range(3)] if magic else [-1] * 3
    assert records_in(result.output) == [(500 + i, times[i], b"k%d" % i, b"v") for i in range(3)]
    assert result.max_timestamp == times[-1]
    assert [b.is_valid for b in batches(result.output)] == [True] * 3
    # nothing but the offsets has changed
    size = len(data) // 3
    for i in range(3):
        assert result.output[i * size + 8 : (i + 1) * size] == data[i * size + 8 : (i + 1) * size]


def test_log_append_time_of_messages() -> None:
    policy = TopicPolicy(message_timestamp_type="LogAppendTime")
    result = judge(b"".join(messages(1)), 1, LogValidator(policy, mode="kafka"))
    assert result.max_timestamp == NOW
    for b in batches(result.output):
        assert (b.attributes, b.max_timestamp, b.is_valid) == (8, NOW, True)
    # magic 0 has no room for a time
    result = judge(b"".join(messages(0)), 0, LogValidator(policy, mode="kafka"))
    assert (result.max_timestamp, result.ok) == (-1, True)


@pytest.mark.parametrize("codec", WRAPPED)
def test_a_wrapper_stays_where_its_offsets_are_right(codec: str) -> None:
    """Inner offsets 0 to n - 1 under a wrapper of any offset, 0 among them."""
    for offset in (2, 0):
        data = wrapper(messages(1), WRAPPED[codec], offset=offset, timestamp=NOW + 2)
        result = judge(data, first_offset=500)
        assert result.in_place == (offset in (0, 2)), offset
        assert result.path == "full"
        assert records_in(result.output) == [(500 + i, NOW + i, b"k%d" % i, b"v") for i in range(3)]
        assert result.output[8:] == data[8:]
        assert result.max_timestamp == NOW + 2


@pytest.mark.parametrize("codec", WRAPPED)
def test_the_wrappers_time_is_the_greatest_of_its_messages(codec: str) -> None:
    data = wrapper(messages(1), WRAPPED[codec], timestamp=3)
    result = judge(data)
    (b,) = batches(result.output)
    assert (b.max_timestamp, b.is_valid, result.in_place, result.max_timestamp) == (
        NOW + 2,
        True,
        True,
        NOW + 2,
    )
    policy = TopicPolicy(message_timestamp_type="LogAppendTime")
    result = judge(data, 1, LogValidator(policy, mode="kafka"))
    (b,) = batches(result.output)
    assert (b.max_timestamp, b.attributes, b.is_valid) == (NOW, 8 | WRAPPED[codec], True)
    assert {r.timestamp for r in b.records()} == {NOW}


@pytest.mark.parametrize("offsets", [(5, 6, 7), (1, 2, 3), (0, 2, 3), (2, 1, 0), (0, 0, 0)])
def test_other_inner_offsets_are_rebuilt(offsets: tuple[int, ...]) -> None:
    data = wrapper([message(1, offset=o, key=b"k") for o in offsets], GZIP, offset=0)
    result = judge(data, first_offset=500)
    assert (result.path, result.in_place, result.converted) == ("rebuilt", False, 3)
    assert [r[0] for r in records_in(result.output)] == [500, 501, 502]
    (b,) = batches(result.output)
    assert (b.magic, b.last_offset, b.compression_type, b.is_valid) == (1, 502, GZIP, True)


def test_a_wrapper_of_magic_0_is_always_rebuilt() -> None:
    for first in (0, 9):
        data = wrapper(messages(0, first=first), LZ4, magic=0, offset=first + 2)
        result = judge(data, 0, first_offset=500)
        assert (result.path, result.in_place, result.max_timestamp) == ("rebuilt", False, -1)
        assert records_in(result.output) == [(500 + i, -1, b"k%d" % i, b"v") for i in range(3)]


# ---- what is refused -----------------------------------------------------------------------------


class Row(NamedTuple):
    """A wrapper of magic 1, and Kafka's answer: rule and code; strict's rule where that is a -1."""

    data: bytes
    rule: str | None
    code: int
    strict: str | None = None


def pack(*inner: bytes, **fields: Any) -> bytes:
    return wrapper(inner, GZIP, **{"offset": 0} | fields)


ONE = message(1)
NO_FIELDS = message(1, tail=b"")
KEY_RUNS_OUT = message(1, tail=struct.pack(">i", 100) + b"k")
VALUE_RUNS_OUT = message(1, tail=struct.pack(">ii", -1, 100) + b"v")
KEY_WRAPS = message(1, tail=struct.pack(">i", 2**31 - 1) + bytes(8))

ROWS = {
    "right": Row(pack(ONE), None, 0),
    "null value": Row(message(1, attributes=GZIP, value=None), "30", 87),
    "no stream": Row(message(1, attributes=GZIP, value=b""), "30", -1, "S7"),
    "no gzip": Row(message(1, attributes=GZIP, value=b"no gzip"), "30", -1, "S7"),
    "no snappy": Row(message(1, attributes=SNAPPY, value=b"\x82SNAPPY\0"), "30", -1, "S7"),
    "no message": Row(pack(), "30", 87),
    "an entry's start": Row(pack(ONE[:11]), "30", 87),
    "an entry cut off": Row(pack(ONE[:-1]), "30", 87),
    "the second cut off": Row(pack(ONE, ONE[:-1]), None, 0),
    "the second's start": Row(pack(ONE, b"\0"), None, 0),
    "size 13": Row(pack(message(1, size=13)), "31", 2),
    "size -1": Row(pack(message(1, size=-1)), "31", 2),
    "the second of size 13": Row(pack(ONE, message(1, size=13)), "31", 2),
    "size the greatest": Row(pack(message(1, size=2**31 - 1)), "30", 87),
    "compressed inside": Row(pack(pack(ONE)), "32", 87),
    "codec bits inside": Row(pack(message(1, attributes=SNAPPY)), "32", 87),
    "codec 5 inside": Row(pack(message(1, attributes=5)), "15", -1, "S6"),
    "codec 5": Row(message(1, attributes=5), "15", -1, "S6"),
    "zstd": Row(wrapper([ONE], ZSTD), "30", 87),
    "magic 0 inside": Row(pack(message(0)), "33", 87),
    "magic 3 inside": Row(pack(message(3)), "33", 87),
    "wrong checksum inside": Row(pack(message(1, crc=0)), "34", 2),
    "wrong checksum in the last": Row(pack(ONE, message(1, offset=1, crc=0)), "34", 2),
    "wrapper's offset below the last": Row(pack(message(1, offset=5), offset=4), "30", 87),
    "wrapper's offset as the last": Row(pack(message(1, offset=5), offset=5), None, 0),
    "wrapper's offset -1": Row(pack(ONE, offset=-1), "30", 87),
    # fields are read where somebody asks for them
    "14 bytes inside": Row(pack(NO_FIELDS), None, 0),
    "key runs out inside": Row(pack(KEY_RUNS_OUT), None, 0),
    "value runs out inside": Row(pack(VALUE_RUNS_OUT), None, 0),
    "key length that wraps inside": Row(pack(KEY_WRAPS), None, 0),
    "14 bytes": Row(message(1, attributes=GZIP, tail=b""), "30", -1, "S9"),
    "value runs out": Row(
        message(1, attributes=GZIP, tail=struct.pack(">ii", -1, 100)), "30", -1, "S9"
    ),
    "key runs out": Row(message(1, attributes=GZIP, tail=struct.pack(">i", 100)), "30", -1, "S9"),
    "negative key length": Row(
        message(
            1,
            attributes=GZIP,
            tail=struct.pack(">ii", -9, len(compress(GZIP, ONE))) + compress(GZIP, ONE),
        ),
        None,
        0,
    ),
}


@pytest.mark.parametrize("what", ROWS)
def test_wrappers(what: str) -> None:
    row = ROWS[what]
    result = judge(row.data)
    assert (result.rule and result.rule.id, int(result.error_code)) == (row.rule, row.code), result
    if row.rule is None:
        assert result.ok
        return
    strict = judge(row.data, validator=LogValidator())
    assert (strict.rule.id, bool(strict.reason)) == (row.strict or row.rule, True)
    assert strict.error_code is not ErrorCode.UNKNOWN_SERVER_ERROR


def test_14_bytes_without_a_key_on_a_compacted_topic() -> None:
    compact = LogValidator(TopicPolicy(cleanup_policy="compact"), mode="kafka")
    assert judge(pack(NO_FIELDS), validator=compact).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert judge(NO_FIELDS, validator=compact).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert judge(NO_FIELDS).ok
    # a conversion reads every field
    for data in (NO_FIELDS, KEY_RUNS_OUT, VALUE_RUNS_OUT, KEY_WRAPS):
        assert judge(data, 2).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert judge(pack(data), 2).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert judge(data, 2, LogValidator()).rule is Rule.S9
        assert judge(pack(data), 2, LogValidator()).rule is Rule.S9


def test_the_limit_of_one_message() -> None:
    inner = message(1, value=bytes(300))
    for limit, ok in ((len(inner) - 12, True), (len(inner) - 13, False)):
        result = judge(
            pack(inner), validator=LogValidator(TopicPolicy(max_decompressed_message_bytes=limit))
        )
        assert result.ok == ok
        if not ok:
            assert (result.rule, str(limit) in result.reason) == (Rule.WRAPPER_MALFORMED, True)
    assert judge(inner, validator=LogValidator(TopicPolicy(max_decompressed_message_bytes=5))).ok


def test_record_errors_of_a_wrapper() -> None:
    inner = [
        message(1, key=b"k"),
        message(0, offset=1, key=b"k"),
        message(1, offset=2),
        message(1, offset=3, key=b"k", timestamp=NOW + 10**8),
    ]
    result = judge(pack(*inner), validator=LogValidator(TopicPolicy(cleanup_policy="compact")))
    assert [(i, rule.id) for i, rule in result.record_error_rules] == [
        (1, "33"),
        (2, "35"),
        (3, "36"),
    ]
    assert result.record_errors[0][1] == (
        "The magic of log record with offset 1 does not match outer magic"
    )
    assert (result.rule, result.error_code) == (Rule.RECORD_ERRORS, ErrorCode.INVALID_TIMESTAMP)
    assert result.meters == {"magic": 1, "nokey": 1}


def test_the_timestamp_bit_of_messages() -> None:
    policy = TopicPolicy(message_timestamp_type="LogAppendTime")
    result = judge(message(1, attributes=8), validator=LogValidator(policy))
    assert result.record_error_rules == [(0, Rule.TIMESTAMP_TYPE_BY_PRODUCER)]
    assert result.record_errors == [
        (
            0,
            "Invalid timestamp type in message with offset 0. "
            "Producer should not set timestamp type to LogAppendTime.",
        )
    ]
    result = judge(wrapper([message(1)], GZIP, attributes=8), validator=LogValidator(policy))
    assert result.record_error_rules == [(0, Rule.TIMESTAMP_TYPE_BY_PRODUCER)]
    assert judge(message(0, attributes=8), 0, LogValidator(policy)).ok  # magic 0 has no such bit


@pytest.mark.parametrize("codec", WRAPPED)
def test_many_messages_across_blocks(codec: str) -> None:
    inner = [message(1, offset=i, value=bytes([i % 251]) * (i * 37 % 3000)) for i in range(400)]
    result = judge(wrapper(inner, WRAPPED[codec]), first_offset=7)
    assert (result.in_place, result.records_count, result.next_offset) == (True, 400, 407)
    assert [r[0] for r in records_in(result.output)] == list(range(7, 407))


def test_strict_extras_of_messages() -> None:
    below = judge(pack(message(1, timestamp=-2)), validator=LogValidator())
    assert below.rule is Rule.S10
    lengths = message(1, tail=struct.pack(">ii", -2, -1))
    assert judge(lengths, validator=LogValidator()).rule is Rule.S5
    assert judge(lengths).ok
    rest = message(1, attributes=GZIP, value=compress(GZIP, ONE) + b"beyond")
    assert judge(rest, validator=LogValidator()).rule is Rule.S7
    assert judge(rest).ok
    big = pack(message(1, value=bytes(5000)))
    assert judge(big, validator=LogValidator(max_decompressed_bytes=5000)).rule is Rule.S8


# ---- up and down ---------------------------------------------------------------------------------

SOURCES = {
    "messages 0": (b"".join(messages(0)), 0),
    "messages 1": (b"".join(messages(1)), 1),
    "wrapper 0": (wrapper(messages(0), GZIP, magic=0), 0),
    "wrapper 1": (wrapper(messages(1), SNAPPY), 1),
    "batch": (batch([record(i, key=b"k%d" % i, timestamp_delta=i) for i in range(3)]), 2),
    "compressed batch": (
        batch([record(i, key=b"k%d" % i, timestamp_delta=i) for i in range(3)], codec=LZ4),
        2,
    ),
}


@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("to_magic", [0, 1, 2])
@pytest.mark.parametrize("source", SOURCES)
def test_conversion(source: str, to_magic: int, target: str) -> None:
    data, magic = SOURCES[source]
    policy = TopicPolicy(compression_type=target)
    result = judge(data, to_magic, LogValidator(policy), first_offset=40, leader_epoch=3)
    assert result.ok, result
    has_time = magic > 0 and to_magic > 0
    times = [NOW + i if has_time else -1 for i in range(3)]
    assert records_in(result.output) == [(40 + i, times[i], b"k%d" % i, b"v") for i in range(3)]
    assert (result.next_offset, result.max_timestamp) == (43, times[2])
    found = list(batches(result.output))
    assert {b.magic for b in found} == {to_magic}
    assert all(b.is_valid for b in found)
    if magic != to_magic:
        assert (result.path, result.converted, result.size_maybe_changed) == ("rebuilt", 3, True)
    if to_magic == 2:
        (b,) = found
        assert (b.producer_id, b.producer_epoch, b.base_sequence, b.partition_leader_epoch) == (
            -1,
            -1,
            -1,
            3,
        )
        assert (b.base_timestamp, b.max_timestamp, b.attributes & ~7) == (times[0], times[2], 0)


@pytest.mark.parametrize("to_magic", [0, 1, 2])
@pytest.mark.parametrize("source", SOURCES)
def test_conversion_with_the_logs_time(source: str, to_magic: int) -> None:
    data, magic = SOURCES[source]
    policy = TopicPolicy(message_timestamp_type="LogAppendTime", compression_type="lz4")
    result = judge(data, to_magic, LogValidator(policy))
    assert result.ok
    assert {t for _, t, _, _ in records_in(result.output)} == {-1 if to_magic == 0 else NOW}
    assert result.append_time == NOW
    assert magic in (0, 1, 2)
