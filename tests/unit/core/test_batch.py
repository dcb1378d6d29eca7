"""RecordBatch and its records, held against struct and against what was put in."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import random
import re
import struct
import subprocess
import sys
from typing import Any

import pytest

from batchval.core.batches.batch import DecodedRecord, RecordBatch, batches
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, NotABatch
from batchval.policy import TopicPolicy
from batchval.types import CompressionType, TimestampType
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    Body,
    batch,
    blob,
    fields,
    message,
    raw,
    record,
    records,
    varint,
    wrapper,
)
from tests.support.sources import ROOT
from tests.support.unreadable import UNREADABLE

FULL = [
    record(
        0,
        key=b"k0",
        value=b"v0",
        headers=[(b"a", b"1"), (b"a", None), (b"", b"")],
        timestamp_delta=5,
    ),
    record(1, key=None, value=b"", timestamp_delta=-7),
    record(2, key=b"", value=None, timestamp_delta=2**40),
]


@pytest.mark.parametrize(
    "fields_set",
    [
        {},
        {"base_offset": 77, "partition_leader_epoch": 3, "attributes": 16},
        {"producer_id": 2**62, "producer_epoch": 9, "base_sequence": 2**31 - 2},
        {"base_offset": 2**63 - 1, "last_offset_delta": 5},
        {"base_offset": -(2**63), "last_offset_delta": -1, "max_timestamp": -5},
        {"attributes": 32 | 64 | 8, "base_timestamp": 9, "max_timestamp": 10},
    ],
)
def test_every_field(fields_set: dict[str, int]) -> None:
    data = batch(FULL, **fields_set)
    b, head = RecordBatch(data), fields(data)
    for name, value in head.items():
        assert getattr(b, name) == value, name
    assert b.size_in_bytes == len(data)
    assert (
        b.last_offset == (head["base_offset"] + head["last_offset_delta"] + 2**63) % 2**64 - 2**63
    )
    assert b.is_valid
    assert b.is_transactional is bool(head["attributes"] & 16)
    assert b.is_control_batch is bool(head["attributes"] & 32)
    assert b.delete_horizon_ms == (head["base_timestamp"] if head["attributes"] & 64 else None)
    assert b.timestamp_type is TimestampType(head["attributes"] >> 3 & 1)
    assert (b.batch_min_timestamp, b.records_number, b.all_key_is_null) == (None, None, None)
    assert not RecordBatch(batch(FULL, crc=1, **fields_set)).is_valid


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [
        (0, 0, 0),
        (5, 3, 8),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 3, 1),
        (-1, 9, -1),
    ],
)
def test_last_sequence_wraps_to_zero(base: int, delta: int, last: int) -> None:
    """DefaultRecordBatch.incrementSequence: after 2^31 - 1 comes 0."""
    data = batch(records(1), producer_id=1, base_sequence=base, last_offset_delta=delta)
    expected = (base + delta) % 2**31 if base >= 0 else -1
    assert last == expected
    assert RecordBatch(data).last_sequence == last


def test_sequences_of_records_wrap_too() -> None:
    data = batch(records(4), producer_id=1, base_sequence=2**31 - 2)
    assert [r.sequence for r in RecordBatch(data).records()] == [2**31 - 2, 2**31 - 1, 0, 1]
    assert {r.sequence for r in RecordBatch(batch(records(4))).records()} == {-1}


@pytest.mark.parametrize("codec", CODECS)
def test_records(codec: str) -> None:
    data = batch(FULL, codec=CODECS[codec], base_offset=100)
    found = list(RecordBatch(data).records())
    assert [(r.offset, r.timestamp) for r in found] == [
        (100, NOW + 5),
        (101, NOW - 7),
        (102, NOW + 2**40),
    ]
    assert [(r.key, r.value) for r in found] == [(b"k0", b"v0"), (None, b""), (b"", None)]
    assert [r.headers for r in found] == [(("a", b"1"), ("a", None), ("", b"")), (), ()]
    assert [r.size_in_bytes for r in found] == [len(part) for part in FULL]
    assert [r.attributes for r in found] == [0, 0, 0]
    assert RecordBatch(data).compression_type is CompressionType[codec.upper()]


@pytest.mark.parametrize("codec", CODECS)
def test_a_buffer_that_changes_after_the_call_changes_no_record(codec: str) -> None:
    data = bytearray(batch(FULL, codec=CODECS[codec]))
    found = RecordBatch(data).records()
    data[61:] = bytes(len(data) - 61)
    assert [(r.key, r.value, r.headers) for r in found] == [
        (b"k0", b"v0", (("a", b"1"), ("a", None), ("", b""))),
        (None, b"", ()),
        (b"", None, ()),
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_records_outlive_batch_and_buffer(codec: str) -> None:
    found = list(RecordBatch(bytearray(batch(records(50), codec=CODECS[codec]))).records())
    gc.collect()
    junk = [bytes(4000) for _ in range(50)]
    assert [r.value for r in found] == [b"value %d" % i for i in range(50)]
    assert len(junk) == 50


def test_log_append_time_is_every_records_time() -> None:
    data = batch(FULL, attributes=8, max_timestamp=NOW + 99)
    assert {r.timestamp for r in RecordBatch(data).records()} == {NOW + 99}


def test_header_keys_go_through_a_java_string() -> None:
    keys = {
        b"\xff": "\ufffd",
        "ü€𝄞".encode(): "ü€𝄞",
        b"\xed\xa0\x80": "\ufffd",
        b"a\xc3": "a\ufffd",
    }
    data = batch([record(0, headers=[(key, b"") for key in keys])])
    assert [key for key, _ in next(RecordBatch(data).records()).headers] == list(keys.values())


def test_header_keys_of_any_bytes() -> None:
    """As Java's decoder does: one U+FFFD for the longest start of a character, and for a
    surrogate.
    """
    noise = random.Random(8)
    likely = bytes.fromhex("00417f8090a0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5ff")
    keys = [bytes(noise.choices(likely, k=noise.randrange(1, 9))) for _ in range(20_000)]
    data = batch([record(0, headers=[(key, b"") for key in keys])])
    surrogate = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
    expected = [surrogate.sub(b"\xef\xbf\xbd", key).decode("utf-8", "replace") for key in keys]
    assert [key for key, _ in next(RecordBatch(data).records()).headers] == expected
    rebuilt = LogValidator(TopicPolicy(compression_type="zstd"), mode="kafka").validate(
        data, now_ms=NOW
    )
    assert [key for key, _ in next(RecordBatch(rebuilt.output).records()).headers] == expected


def test_negative_lengths_are_null() -> None:
    data = batch(
        [raw(Body(key=varint(-5), value=varint(-9), headers=varint(1) + blob(b"k") + varint(-3)))]
    )
    (found,) = RecordBatch(data).records()
    assert (found.key, found.value, found.headers) == (None, None, (("k", None),))


def test_a_control_batch() -> None:
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 5)
    b = RecordBatch(
        batch([record(0, key=key, value=value)], attributes=48, producer_id=4, producer_epoch=2)
    )
    assert (b.is_control_batch, b.is_transactional, b.base_sequence, b.last_sequence) == (
        True,
        True,
        -1,
        -1,
    )
    assert [(r.key, r.value) for r in b.records()] == [(key, value)]


def test_an_empty_batch() -> None:
    for codec in CODECS.values():
        b = RecordBatch(batch([], codec=codec, last_offset_delta=4, base_offset=3, payload=b""))
        assert (list(b.records()), b.last_offset, b.records_count) == ([], 7, 0)


def test_the_least_codec_that_is_none() -> None:
    b = RecordBatch(batch(attributes=5))
    assert (b.compression_type, type(b.compression_type)) == (5, int)
    with pytest.raises(NotABatch, match="compression codec 5 is unknown: expected 0 to 4"):
        list(b.records())


# ---- magic 0 and 1 -------------------------------------------------------------------------------


def test_one_message() -> None:
    for magic, time, kind in ((0, -1, -1), (1, NOW, 0)):
        b = RecordBatch(message(magic, offset=12, key=b"k", value=None))
        assert (b.magic, b.base_offset, b.last_offset, b.max_timestamp, int(b.timestamp_type)) == (
            magic,
            12,
            12,
            time,
            kind,
        )
        assert (
            b.partition_leader_epoch,
            b.producer_id,
            b.producer_epoch,
            b.base_sequence,
            b.last_sequence,
        ) == (-1,) * 5
        assert (b.records_count, b.last_offset_delta, b.base_timestamp, b.delete_horizon_ms) == (
            None,
        ) * 4
        assert (b.is_transactional, b.is_control_batch, b.is_valid, b.attributes) == (
            False,
            False,
            True,
            0,
        )
        size = len(message(magic, key=b"k", value=None))
        assert list(b.records()) == [DecodedRecord(12, time, -1, b"k", None, (), 0, size)]
        assert b.size_in_bytes == b.batch_length + 12 == size
        assert not RecordBatch(message(magic, crc=3)).is_valid
    assert RecordBatch(message(1, attributes=8)).timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper(magic: int, codec: int) -> None:
    """Offsets of magic 1 are counted from the wrapper's, which is the last one's; magic 0 holds the
    real ones.
    """
    shift = 0 if magic else 50
    inner = [
        message(magic, offset=shift + i, key=b"%d" % i, value=b"v" * i, timestamp=NOW + i)
        for i in range(3)
    ]
    b = RecordBatch(wrapper(inner, codec, magic, offset=52))
    assert (b.base_offset, b.last_offset, b.compression_type) == (50, 52, codec)
    assert [(r.offset, r.key, r.value) for r in b.records()] == [
        (50, b"0", b""),
        (51, b"1", b"v"),
        (52, b"2", b"vv"),
    ]
    assert [r.timestamp for r in b.records()] == ([NOW, NOW + 1, NOW + 2] if magic else [-1] * 3)


def test_wrapper_offsets() -> None:
    inner = [message(1, offset=i) for i in (4, 9)]
    assert [r.offset for r in RecordBatch(wrapper(inner, GZIP, offset=0)).records()] == [
        4,
        9,
    ]  # as librdkafka writes
    assert [r.offset for r in RecordBatch(wrapper(inner, GZIP, offset=109)).records()] == [104, 109]
    with pytest.raises(NotABatch, match="below"):
        list(RecordBatch(wrapper(inner, GZIP, offset=8)).records())


def test_a_wrapper_with_the_logs_time() -> None:
    data = wrapper(
        [message(1, timestamp=5), message(1, offset=1, timestamp=6)],
        LZ4,
        attributes=8,
        timestamp=NOW,
    )
    assert {r.timestamp for r in RecordBatch(data).records()} == {NOW}


def test_the_last_entry_of_a_wrapper_may_be_cut_off() -> None:
    whole = [message(1, offset=0), message(1, offset=1)[:-1]]
    assert [r.offset for r in RecordBatch(wrapper(whole, GZIP, offset=0)).records()] == [0]


@pytest.mark.parametrize("data", UNREADABLE)
def test_records_that_cannot_be_read(data: bytes) -> None:
    b = RecordBatch(data)
    with pytest.raises(NotABatch) as caught:
        list(b.records())
    assert str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_limit(codec: str) -> None:
    parts = [record(0, value=bytes(10_000))]
    size = len(parts[0])
    for data, fits in (
        (batch(parts, codec=CODECS[codec]), size),
        (
            wrapper([message(1, value=bytes(10_000))], CODECS[codec]),
            len(message(1, value=bytes(10_000))),
        ),
    ):
        if codec == "zstd" and data[16] == 1:
            continue
        assert len(list(RecordBatch(data).records(max_decompressed_bytes=fits))) == 1
        with pytest.raises(NotABatch, match="more than"):
            list(RecordBatch(data).records(max_decompressed_bytes=fits - 1))
    assert len(list(RecordBatch(batch(parts)).records(max_decompressed_bytes=1))) == 1


# ---- positions -----------------------------------------------------------------------------------


def test_positions() -> None:
    data = b"xx" + batch(base_offset=1) + message(1, offset=2)
    assert RecordBatch(data, 2).base_offset == 1
    assert RecordBatch(data, 2 + len(batch())).last_offset == 2
    for bad in (-1, len(data) + 1, 2**62):
        with pytest.raises(NotABatch, match=f"{bad} is outside the buffer of {len(data)} bytes"):
            RecordBatch(data, bad)
    for bad in (0, 1, 3, len(data), len(data) - 5):
        with pytest.raises(NotABatch, match="no whole batch"):
            RecordBatch(data, bad)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        batch()[:-1],
        batch()[:16],
        batch(magic=3),
        batch(magic=-1),
        bytes(61),
        batch(batch_length=2**31 - 1),
    ],
)
def test_no_batch(data: bytes) -> None:
    with pytest.raises(NotABatch):
        RecordBatch(data)
    assert list(batches(data)) == []


def test_a_batch_smaller_than_its_header() -> None:
    data = batch()[:8] + struct.pack(">i", 48) + batch()[12:60]
    with pytest.raises(NotABatch, match="60 bytes are fewer"):
        RecordBatch(data)


def test_batches_walks_to_the_first_that_is_none() -> None:
    parts = [batch(base_offset=i, codec=i % 5) for i in range(9)]
    data = b"".join(parts)
    for appended in (b"", b"\0", bytes(99), batch()[:50], b"\xff" * 40):
        assert [b.base_offset for b in batches(data + appended)] == list(range(9))


def test_a_batch_holds_its_buffer() -> None:
    data = bytearray(batch())
    b = RecordBatch(data)
    with pytest.raises(BufferError):
        data += b"x"
    del b
    data += b"x"
    with pytest.raises(NotABatch):
        RecordBatch(data, 7)
    data += b"y"  # a refusal holds nothing


@pytest.mark.parametrize("what", ["text", None, 5])
def test_no_buffer(what: Any) -> None:
    with pytest.raises(BatchvalError):
        RecordBatch(what)
    with pytest.raises((BatchvalError, TypeError)):
        list(batches(what))


def test_what_a_batch_says_of_itself() -> None:
    data = batch(records(2), codec=LZ4)
    assert repr(RecordBatch(data)) == (
        f"<RecordBatch magic=2 last_offset=1 records_count=2 lz4 size={len(data)}>"
    )
    assert "codec 7" in repr(RecordBatch(batch(attributes=7)))


# ---- a batch among Python's objects --------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_length_and_iteration(codec: str) -> None:
    b = RecordBatch(batch(FULL, codec=CODECS[codec]))
    assert len(b) == 3
    assert list(b) == list(b.records())
    assert operator.length_hint(iter(b)) == 3
    inner = [message(1, offset=0), message(1, offset=1)]
    assert len(RecordBatch(wrapper(inner, GZIP, offset=1))) == 2


def test_a_batch_without_records_is_true() -> None:
    b = RecordBatch(batch([]))
    assert (len(b), bool(b), list(b)) == (0, True, [])
    with pytest.raises(NotABatch, match="records_count is -1, but cannot be negative"):
        len(RecordBatch(batch(records_count=-1)))


def test_batches_are_copied_and_compared_by_their_bytes() -> None:
    data = batch(FULL, base_offset=7)
    b = RecordBatch(b"before" + data + b"after", 6)
    assert bytes(b) == data
    for twin in (copy.copy(b), copy.deepcopy(b), pickle.loads(pickle.dumps(b)), RecordBatch(data)):
        assert twin == b
        assert (twin.base_offset, len(twin)) == (7, 3)
    assert b != RecordBatch(batch(FULL, base_offset=8))
    assert b != data
    with pytest.raises(TypeError, match="unhashable"):
        hash(b)


def test_records_are_copied_and_compared_by_their_fields() -> None:
    first, second, _ = RecordBatch(batch(FULL))
    for twin in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert twin == first
        assert hash(twin) == hash(first)
    assert first != second
    assert first != 1
    offset, timestamp, sequence, key, value, headers, attributes, size = first
    assert (offset, timestamp, sequence, key, value) == (0, NOW + 5, -1, b"k0", b"v0")
    assert (headers, attributes, size) == (first.headers, 0, len(FULL[0]))
    match second:
        case DecodedRecord(1, _, _, key, value):
            assert (key, value) == (None, b"")
    assert (
        repr(second)
        == f"DecodedRecord(offset=1, timestamp={NOW - 7}, key=None, value=b'', headers=())"
    )


@pytest.mark.parametrize("wrong", [-1, 1.0, "1", None, True, 2**63])
def test_limits_of_another_type(wrong: Any) -> None:
    with pytest.raises(BatchvalError, match="max_decompressed_bytes must be"):
        RecordBatch(batch()).records(max_decompressed_bytes=wrong)
    with pytest.raises(BatchvalError, match=r"^position "):
        batches(b"", wrong)


@pytest.mark.parametrize(
    ("rest", "tail"),
    [
        (b"", None),
        (batch()[:-1], "partial"),
        (batch(base_offset=1)[:11], "partial"),
        (bytes(100), "zeros"),
        (bytes(8) + struct.pack(">i", 13) + bytes([0] * 5 + [2]) + b"x" * 9, "size"),
        (bytes(8) + struct.pack(">i", 20) + bytes(4) + b"\x02" + bytes(15), "size"),
        (b"no batch, and longer than its log overhead", "magic"),
    ],
)
def test_batches_say_why_they_stopped(rest: bytes, tail: str | None) -> None:
    data = batch() + message(1)
    walk = batches(data + rest)
    assert walk.position == 0
    assert [b.magic for b in walk] == [2, 1]
    assert (walk.position, walk.tail) == (len(data), tail)
    assert next(walk, None) is None
    assert [b.magic for b in batches(data + rest, len(batch()))] == [1]
    scanned = scan_batches(data + rest)
    if tail != "size":  # a scan shows the stump of a batch of magic 2
        assert (scanned.end, scanned.tail) == (len(data), tail)


DEATHS = """
import gc, sys
sys.path.insert(0, ".")
from tests.support.batches import batch
from batchval.core.batches.batch import RecordBatch

class Holder: pass

def cycle(with_records):
    held = memoryview(bytearray(batch()))  # the oldest of the cycle is cleared first
    holder = Holder()
    holder.held = held
    holder.batch = RecordBatch(held)
    if with_records:
        holder.records = list(holder.batch.records())
    holder.me = holder

gc.disable()
for with_records in (False, True):
    for _ in range(200):
        cycle(with_records)
    gc.collect()
print("alive")
"""


def test_a_batch_dies_in_a_cycle_with_its_buffer() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DEATHS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "alive\n", "")
