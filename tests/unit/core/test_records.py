"""Kafka's record parsers and where they disagree: one test for each row of the table, under each
parser and codec.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from batchval.core.batches.validator import LogValidator
from batchval.errors import ErrorCode
from batchval.policy import TopicPolicy
from batchval.rules import EXTRAS, Rule
from tests.support.batches import (
    CODECS,
    NOW,
    Body,
    batch,
    blob,
    raw,
    record,
    records,
    uvarint,
    varint,
)

OK, INVALID, FAILS = None, 87, -1
S = Rule.__members__


class Row(NamedTuple):
    """A batch's records, and Kafka's answers: uncompressed, compressed and rebuilt, compressed and
    in place.
    """

    parts: list[bytes]
    buffer: int | None
    stream: int | None
    skip: int | None
    strict: str | None = (
        None  # the extra that refuses what Kafka accepts, or names the cause of its -1
    )
    more: dict[str, int] = {}  # noqa: RUF012


GOOD = Body()
SIZE = len(b"".join(GOOD))
REC = raw(GOOD)


def defect(length: bytes | None = None, **fields: bytes) -> list[bytes]:
    """Two records, the first broken."""
    return [raw(GOOD._replace(**fields), length), record(1)]


def header(*parts: bytes, count: int = 1) -> bytes:
    return varint(count) + b"".join(parts)


LONG5, LONG10 = b"\x80" * 5 + b"\0", b"\x80" * 10 + b"\0"
ROWS = {
    "right": Row([record(0), record(1)], OK, OK, OK),
    # the length in front
    "length one more": Row(defect(varint(SIZE + 1)), INVALID, INVALID, OK, "S4"),
    "length one less": Row(defect(varint(SIZE - 1)), INVALID, INVALID, OK, "S4"),
    "length 0": Row(defect(varint(0)), INVALID, INVALID, OK, "S4"),
    "length of both": Row(defect(varint(SIZE + len(record(1)))), INVALID, INVALID, OK, "S4"),
    "length negative": Row(defect(varint(-1)), INVALID, INVALID, INVALID),
    "length the least": Row(defect(varint(-(2**31))), INVALID, INVALID, INVALID),
    "length past the end": Row(defect(varint(200)), INVALID, INVALID, OK, "S4"),
    "length 2^31 - 1": Row(defect(varint(2**31 - 1)), INVALID, INVALID, INVALID),
    "length of six bytes": Row(defect(LONG5), FAILS, INVALID, INVALID, "S9"),
    "length padded": Row(defect(bytes([SIZE << 1 | 0x80, 0x80, 0])), OK, OK, OK),
    # varints inside
    "timestamp of eleven bytes": Row(defect(timestamp_delta=LONG10), INVALID, INVALID, INVALID),
    "timestamp padded to ten": Row(defect(timestamp_delta=b"\x80" * 9 + b"\0"), OK, OK, OK),
    "offset of six bytes": Row(defect(offset_delta=LONG5), INVALID, INVALID, INVALID),
    "offset padded": Row(defect(offset_delta=b"\x80\x80\x80\x80\0"), OK, OK, OK),
    "key length of six bytes": Row(defect(key=LONG5), INVALID, INVALID, INVALID),
    "value length of six bytes": Row(defect(value=LONG5), INVALID, INVALID, INVALID),
    "headers count of six bytes": Row(defect(headers=LONG5), INVALID, INVALID, INVALID),
    "fifth byte above 32 bits": Row(defect(offset_delta=b"\x80\x80\x80\x80\x70"), OK, OK, OK),
    # keys and values
    "key length -2": Row(defect(key=varint(-2)), OK, OK, OK, "S5"),
    "value length -2": Row(defect(value=varint(-2)), OK, OK, OK, "S5"),
    "key length the least": Row(defect(key=varint(-(2**31))), OK, OK, OK, "S5"),
    "key past the record": Row(defect(key=varint(30) + b"k"), INVALID, INVALID, INVALID),
    "value past the end": Row(
        [record(0), raw(Body(offset_delta=varint(1), value=varint(99)))], INVALID, INVALID, INVALID
    ),
    "value length 2^31 - 1": Row(defect(value=varint(2**31 - 1)), INVALID, INVALID, INVALID),
    "null value": Row(defect(value=varint(-1)), OK, OK, OK),
    # headers
    "headers count -1": Row(defect(headers=varint(-1)), INVALID, INVALID, INVALID),
    "headers count above what is left": Row(defect(headers=varint(9)), INVALID, INVALID, INVALID),
    "headers count 2^31 - 1": Row(defect(headers=varint(2**31 - 1)), INVALID, INVALID, INVALID),
    "header": Row(defect(headers=header(blob(b"k"), blob(b"v"))), OK, OK, OK),
    "header key null": Row(
        defect(headers=header(varint(-1), blob(b"v"))), INVALID, INVALID, INVALID
    ),
    "header key empty": Row(defect(headers=header(blob(b""), blob(b"v"))), OK, OK, OK),
    "header value null": Row(defect(headers=header(blob(b"k"), varint(-1))), OK, OK, OK),
    "header value length -2": Row(defect(headers=header(blob(b"k"), varint(-2))), OK, OK, OK, "S5"),
    "header key past the end": Row(
        defect(headers=header(varint(90), b"k")), INVALID, INVALID, INVALID
    ),
    "header value past the end": Row(
        defect(headers=header(blob(b"k"), varint(90))), INVALID, INVALID, INVALID
    ),
    "header key not UTF-8": Row(defect(headers=header(blob(b"\xff"), blob(b""))), OK, OK, OK, "S5"),
    "header key a surrogate": Row(
        defect(headers=header(blob(b"\xed\xa0\x80"), blob(b""))), OK, OK, OK, "S5"
    ),
    "header key cut off UTF-8": Row(
        defect(headers=header(blob("ü".encode()[:1]), blob(b""))), OK, OK, OK, "S5"
    ),
    "header key UTF-8": Row(
        defect(headers=header(blob("ü€𝄞".encode()), blob(b"\xff"))), OK, OK, OK
    ),
    # the rest of a record
    "bytes after the fields": Row(defect(trailing=b"\0\0"), INVALID, INVALID, INVALID),
    "attributes": Row(defect(attributes=b"\x07"), OK, OK, OK, "S5"),
    "all attributes": Row(defect(attributes=b"\xff"), OK, OK, OK, "S5"),
    # offsets
    "deltas swapped": Row([record(1), record(0)], OK, OK, FAILS, "S3"),
    "deltas from 1": Row([record(1), record(2)], OK, OK, FAILS, "S3"),
    "delta twice": Row([record(0), record(0)], OK, OK, FAILS, "S3"),
    "delta negative": Row([record(-1), record(1)], OK, OK, FAILS, "S3"),
    # how many
    "fewer than stated": Row([record(0)], INVALID, INVALID, INVALID, more={"records_count": 2}),
    "more than stated": Row(
        [record(0), record(1)], INVALID, INVALID, INVALID, more={"records_count": 1}
    ),
    "one byte after it": Row(
        [record(0), b"\0"], INVALID, INVALID, INVALID, more={"records_count": 1}
    ),
    "no byte at all": Row([], INVALID, INVALID, INVALID, more={"records_count": 1}),
    "a length alone": Row([varint(SIZE)], INVALID, INVALID, INVALID, more={"records_count": 1}),
    "cut in the middle": Row(
        [REC[: len(REC) // 2]], INVALID, INVALID, INVALID, more={"records_count": 1}
    ),
    # timestamps
    "sum overflows to -2": Row(
        [record(0, timestamp_delta=2**63 - 1)],
        OK,
        FAILS,
        OK,
        "S10",
        more={"base_timestamp": 2**63 - 1},
    ),
}
PARSERS = {
    "buffer": ("none", "producer"),
    "stream-gzip": ("gzip", "lz4"),
    "stream-snappy": ("snappy", "gzip"),
    "stream-lz4": ("lz4", "zstd"),
    "stream-zstd": ("zstd", "uncompressed"),
    "skip-gzip": ("gzip", "producer"),
    "skip-snappy": ("snappy", "producer"),
    "skip-lz4": ("lz4", "lz4"),
    "skip-zstd": ("zstd", "zstd"),
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("what", ROWS)
def test_the_table(what: str, parser: str) -> None:
    row = ROWS[what]
    codec, target = PARSERS[parser]
    policy = TopicPolicy(compression_type=target)
    data = batch(row.parts, codec=CODECS[codec], **row.more)
    result = LogValidator(policy, mode="kafka").check(data, now_ms=NOW)
    expected = getattr(row, parser.split("-", maxsplit=1)[0])
    assert (None if result.ok else int(result.error_code)) == expected, result
    path = {"buffer": "full", "stream": "rebuilt", "skip": "shallow"}[
        parser.split("-", maxsplit=1)[0]
    ]
    assert result.path in (path, "rebuilt" if expected == FAILS else path)

    strict = LogValidator(policy).check(data, now_ms=NOW)
    if expected not in (OK, FAILS):
        assert (strict.error_code, strict.rule) == (result.error_code, result.rule)
    elif row.strict is None:
        assert strict.ok == (expected is OK)
    else:
        assert strict.rule is S[row.strict]
        assert strict.error_code is S[row.strict].error_code
    assert strict.reason or strict.ok

    # extras that are only reported change no answer of Kafka's
    extras = {rule.id: "report" for rule in EXTRAS if rule is not Rule.S8}
    reported = LogValidator(policy, extras=extras).check(data, now_ms=NOW)
    assert reported.ok == (expected is OK)
    if expected is OK:
        assert [r.id for r in reported.reports] == ([row.strict] if row.strict else [])


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_of_one_record(codec: str) -> None:
    """max.decompressed.message.bytes bounds the stated body of a compressed record, and of no
    other.
    """
    data = batch([record(0, value=bytes(300))], codec=CODECS[codec])
    body = len(record(0, value=bytes(300))) - 2
    for limit, ok in ((body, True), (body - 1, codec == "none")):
        policy = TopicPolicy(max_decompressed_message_bytes=limit)
        result = LogValidator(policy, mode="kafka").check(data, now_ms=NOW)
        assert result.ok == ok
        if not ok:
            assert result.rule is Rule.RECORD_MALFORMED
            assert f"length {body} is above max.decompressed.message.bytes {limit}" in result.reason


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_wrap_at_64_bits(codec: str) -> None:
    """As in Java: two great negative numbers make a time that is now."""
    data = batch(
        [record(0, timestamp_delta=NOW - 2**63)], base_timestamp=-(2**63), codec=CODECS[codec]
    )
    result = LogValidator(TopicPolicy(message_timestamp_before_max_ms=0)).check(data, now_ms=NOW)
    assert (result.ok, result.max_timestamp) == (True, NOW)


LENGTHS = [0, 1, 63, 64, 8191, 8192, 8193, 16383, 16384, 16385, 40_000, 131_072, 300_000]


@pytest.mark.untraced
@pytest.mark.parametrize("codec", CODECS)
def test_fields_across_the_blocks_of_a_stream(codec: str) -> None:
    """Every field of some record falls on a border: the walk must not mind where blocks end."""
    for size in LENGTHS:
        for shift in range(8):
            first = record(0, value=b"\xaa" * max(0, size - shift))
            second = record(
                1,
                key=b"key",
                value=b"value",
                headers=[(b"header", b"x" * 20)],
                timestamp_delta=2**40,
            )
            data = batch([first, second], codec=CODECS[codec], max_timestamp=NOW + 2**40)
            result = LogValidator(TopicPolicy(message_timestamp_after_max_ms=2**50)).check(
                data, now_ms=NOW
            )
            assert result.ok, (size, shift, result)
            assert result.records_count == 2
            assert result.max_timestamp == NOW + 2**40


@pytest.mark.untraced
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_many_records(codec: str) -> None:
    data = batch(records(70_000), codec=CODECS[codec])
    result = LogValidator(TopicPolicy(max_message_bytes=2**30)).check(data, now_ms=NOW)
    assert (result.ok, result.records_count) == (True, 70_000)


@pytest.mark.parametrize("codec", CODECS)
def test_record_errors(codec: str) -> None:
    """Of each record the first error only: its key is asked before its timestamp."""
    parts = [
        record(0, key=b"k"),
        record(1, key=None),
        record(2, key=b"k", timestamp_delta=4_000_000),
        record(3, key=None, timestamp_delta=4_000_000),
        record(4, key=b""),
    ]
    policy = TopicPolicy(cleanup_policy="compact")
    result = LogValidator(policy).check(batch(parts, codec=CODECS[codec]), now_ms=NOW)
    assert [(i, rule.id) for i, rule in result.record_error_rules] == [
        (1, "35"),
        (2, "36"),
        (3, "35"),
    ]
    assert [i for i, _ in result.record_errors] == [1, 2, 3]
    assert (result.rule, result.error_code) == (Rule.RECORD_ERRORS, ErrorCode.INVALID_TIMESTAMP)
    assert result.meters == {"nokey": 2}
    alone = LogValidator(policy).check(batch(parts[:2], codec=CODECS[codec]), now_ms=NOW)
    assert (alone.rule, alone.error_code) == (Rule.KEY_MISSING, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("delta", "before", "after", "ok"),
    [
        (0, 0, 0, True),
        (-1, 0, 0, False),
        (1, 0, 0, False),
        (1000, 0, 1000, True),
        (1001, 0, 1000, False),
        (-1000, 1000, 0, True),
        (-1001, 1000, 0, False),
        (-NOW - 1, 0, 0, True),  # -1: no timestamp
        (-NOW - 1001, 2**63 - 1, 0, True),  # below -1, which only a rebuild minds (and strict mode)
    ],
)
def test_timestamp_bounds(codec: str, delta: int, before: int, after: int, ok: bool) -> None:
    policy = TopicPolicy(
        message_timestamp_before_max_ms=before, message_timestamp_after_max_ms=after
    )
    data = batch([record(0), record(1, timestamp_delta=delta)], codec=CODECS[codec])
    result = LogValidator(policy, mode="kafka").check(data, now_ms=NOW)
    assert result.ok == ok
    if not ok:
        assert result.record_error_rules == [(1, Rule.TIMESTAMP_OUT_OF_RANGE)]
        assert str(NOW + delta) in result.record_errors[0][1]


def test_a_producer_may_not_set_log_append_time() -> None:
    data = batch(records(3), attributes=8)
    for kind in ("CreateTime", "LogAppendTime"):
        result = LogValidator(TopicPolicy(message_timestamp_type=kind)).check(data, now_ms=NOW)
        if kind == "CreateTime":  # the records' time is the batch's maximum, which is now
            assert result.ok
        else:
            assert result.record_error_rules == [
                (i, Rule.TIMESTAMP_TYPE_BY_PRODUCER) for i in range(3)
            ]
            assert result.error_code is ErrorCode.INVALID_TIMESTAMP


def test_varints_of_every_width() -> None:
    for width in range(1, 11):
        for value in {2 ** (7 * width - 1) - 1, -(2 ** (7 * width - 1)), 2 ** (7 * width - 1)}:
            if not -(2**63) <= value < 2**63:
                continue
            body = Body(timestamp_delta=varint(value))
            data = batch([raw(body)], base_timestamp=0)
            result = LogValidator(
                TopicPolicy(message_timestamp_after_max_ms=2**63 - 1), mode="kafka"
            ).check(data, now_ms=0)
            if result.ok:
                assert result.max_timestamp == max(value, -1)
            else:
                assert result.rule is Rule.TIMESTAMP_OUT_OF_RANGE
    assert uvarint(300) == b"\xac\x02"
