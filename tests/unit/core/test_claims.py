"""The 13 bytes, their carriers, and what is true of a batch: batchval.core.stages.claims."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.columns import scan_batches
from batchval.core.claims import (
    TAG,
    BatchClaims,
    attach,
    compute,
    from_tag,
    read,
    strip,
    to_tag,
)
from batchval.core.format import crc32c as core_crc
from batchval.errors import BatchvalError
from tests.support.batches import (
    CODECS,
    GZIP,
    HEADER,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    Body,
    batch,
    crc32c,
    fields,
    message,
    raw,
    record,
    records,
    varint,
)
from tests.support.claims import Stated, carried, carrying, damage, tag, three

ROOT = Path(__file__).parents[3]
SEGMENTS = sorted((ROOT / "fixtures" / "segments").rglob("*.log"))
CORNERS = [
    (0, 0, 0),
    (-1, -1, -1),
    (NOW, 3, 1),
    (2**63 - 1, 2**31 - 1, 127),
    (-(2**63), -(2**31), -128),
]


# ---- bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", CORNERS)
def test_thirteen_bytes_big_endian(values: tuple[int, int, int]) -> None:
    claims = BatchClaims(*values)
    assert claims.to_bytes() == struct.pack(">qib", *values)
    assert BatchClaims.from_bytes(claims.to_bytes()) == claims
    assert BatchClaims.from_bytes(memoryview(bytearray(claims.to_bytes()))) == claims


def test_the_bytes_one_by_one() -> None:
    assert BatchClaims(0x0102030405060708, 0x090A0B0C, 2).to_bytes() == bytes(range(1, 13)) + b"\2"


@pytest.mark.parametrize("size", [0, 12, 14, 18])
def test_another_number_of_bytes_is_refused(size: int) -> None:
    with pytest.raises(BatchvalError, match="13 bytes"):
        BatchClaims.from_bytes(bytes(size))


def test_all_key_is_null_is_true_for_one_value_alone() -> None:
    assert [BatchClaims(0, 1, n).all_key_is_null for n in (0, 1, 2, 3, -1)] == [
        False,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "values",
    [
        (2**63, 1, 0),
        (0, 2**31, 0),
        (0, 1, 128),
        (0, 1, -129),
        (0.5, 1, 0),
        (None, 1, 0),
        ("1", 1, 0),
    ],
)
def test_values_that_do_not_fit_are_a_callers_mistake(values: tuple[int, int, int]) -> None:
    with pytest.raises(BatchvalError, match="int64"):
        BatchClaims(*values).to_bytes()
    with pytest.raises(BatchvalError, match="int64"):
        attach(batch(codec=ZSTD), values)
    with pytest.raises(BatchvalError, match="int64"):
        to_tag(values, 0)


def test_too_few_values_are_a_callers_mistake() -> None:
    for make in (lambda: attach(batch(codec=ZSTD), (1, 2)), lambda: to_tag((1, 2), 0)):  # type: ignore[arg-type]
        with pytest.raises(BatchvalError, match="int64"):
            make()


# ---- tag -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", CORNERS)
@pytest.mark.parametrize("crc", [0, 1, 0x80000000, 0xFFFFFFFF])
def test_a_tag_is_version_claims_and_crc(values: tuple[int, int, int], crc: int) -> None:
    bytes_of_it = b"\1" + struct.pack(">qib", *values) + struct.pack(">I", crc)
    assert to_tag(values, crc) == bytes_of_it
    assert from_tag(bytes_of_it, crc) == BatchClaims(*values)
    assert from_tag(bytes_of_it, crc ^ 1) is None
    assert from_tag(bytes_of_it, crc ^ 0x80000000) is None


def test_a_tag_of_another_version_or_length_is_none() -> None:
    good = to_tag((NOW, 3, 1), 7)
    for version in (0, 2, 3, 255):
        assert from_tag(bytes([version]) + good[1:], 7) is None
    for bad in (b"", good[:-1], good + b"\0", good + good):
        assert from_tag(bad, 7) is None


def test_the_tagged_fields_number() -> None:
    assert TAG == 25206


# ---- attach, read, strip -------------------------------------------------------------------------


def compressed(size: int, codec: int, count: int = 3) -> bytes:
    value = random.Random(size).randbytes(size)
    return batch(
        [record(i, value=value, timestamp_delta=i) for i in range(count)],
        codec=codec,
        max_timestamp=NOW + 2,
    )


@pytest.mark.parametrize("size", [0, 1, 100, 700, 3000, 90_000])
@pytest.mark.parametrize("codec", CODECS)
def test_the_patched_checksum_is_the_full_one(codec: str, size: int) -> None:
    data = compressed(size, CODECS[codec])
    stated = Stated(NOW, 3, 1)
    assert attach(data, stated) == carrying(data, stated)
    assert strip(carrying(data, stated)) == data == carried(carrying(data, stated))


@pytest.mark.parametrize("codec", CODECS)
def test_damage_to_the_records_shows_as_before(codec: str) -> None:
    """Patched by what changed in the header: computed anew, the checksum would vouch for the
    damage.
    """
    good = compressed(500, CODECS[codec])
    for at in (HEADER, HEADER + 30, len(good) - 1):
        data = damage(good, at)
        difference = fields(data)["crc"] ^ crc32c(data[21:])
        assert difference
        out = attach(data, (NOW, 3, 1))
        assert not RecordBatch(out).is_valid
        assert fields(out)["crc"] ^ crc32c(out[21:]) == difference
        assert strip(out) == data
        assert not RecordBatch(strip(out)).is_valid


def test_damage_to_the_header_shows_as_before() -> None:
    good = compressed(500, ZSTD)
    for at in (17, 20, 21, 30, 60):
        data = damage(good, at)
        out = attach(data, (NOW, 3, 1))
        assert not RecordBatch(out).is_valid
        assert strip(out) == data


def test_damage_to_the_claims_shows_after_stripping() -> None:
    """It must not become a batch that looks right."""
    out = damage(attach(compressed(50, LZ4), (NOW, 3, 1)), 70)
    assert not RecordBatch(out).is_valid
    assert not RecordBatch(strip(out)).is_valid


def every_batch() -> Iterator[bytes]:
    for path in SEGMENTS:
        data = path.read_bytes()
        for row in scan_batches(data).rows():
            if row["magic"] == 2:
                yield data[row["position"] : row["position"] + row["size_in_bytes"]]


def test_attach_then_strip_gives_every_fixture_back() -> None:
    seen = computed = 0
    for data in every_batch():
        seen += 1
        out = attach(data, (NOW, 3, 1))
        assert (len(out), out[16], out[61:74]) == (len(data) + 13, 3, Stated(NOW, 3, 1).packed())
        assert RecordBatch(out).is_valid
        assert core_crc.crc32c(out[21:]) == fields(out)["crc"]
        assert strip(out) == data
        true = compute(data)
        if true is not None:
            computed += 1
            assert read(attach(data)) == BatchClaims(*true[:3])
            assert compute(attach(data)) == true
            assert strip(attach(data)) == data
    assert seen > 100
    assert computed > 50


def test_whatever_carries_the_batch_does() -> None:
    data = compressed(10, ZSTD)
    for kind in (bytes, bytearray, memoryview, lambda b: memoryview(b"xx" + b)[2:]):
        assert attach(kind(data), (1, 2, 0)) == carrying(data, (1, 2, 0))
        assert strip(kind(carrying(data, (1, 2, 0)))) == data
        assert read(kind(carrying(data, (1, 2, 0)))) == BatchClaims(1, 2, 0)
        assert three(compute(kind(data))) == (NOW, 3, 1)
    for call in (attach, strip, read, compute, BatchClaims.from_bytes):
        with pytest.raises(BatchvalError, match="contiguous"):
            call(memoryview(data)[::2])  # type: ignore[operator]
        with pytest.raises(BatchvalError, match="contiguous"):
            call(17)  # type: ignore[operator]


def test_one_whole_batch_of_the_right_magic_is_needed() -> None:
    two, claimed = compressed(10, ZSTD), carrying(compressed(10, ZSTD), (1, 2, 0))
    legacy = message(1)
    for data in (b"", two[:16], two[:60], two[:-1], two + b"\0", two + two, claimed, legacy):
        with pytest.raises(BatchvalError, match="magic 2"):
            attach(data, (1, 2, 0))
    for data in (
        b"",
        claimed[:16],
        claimed[:73],
        claimed[:-1],
        claimed + b"\0",
        claimed + claimed,
        legacy,
    ):
        with pytest.raises(BatchvalError, match="magic 3"):
            strip(data)
    with pytest.raises(BatchvalError, match="has no claims"):
        strip(two)
    for data in (b"", two[:60], two[:-1], two + b"\0", legacy, claimed[:-1]):
        with pytest.raises(BatchvalError, match="one whole batch"):
            compute(data)


def test_reading_needs_no_more_than_the_header() -> None:
    claimed = carrying(compressed(10, ZSTD), (NOW - 1, 9, 2))
    assert read(claimed) == read(claimed[:74]) == BatchClaims(NOW - 1, 9, 2)
    assert read(claimed[:73]) is None
    assert read(compressed(10, ZSTD)) is None
    assert read(b"") is None


def test_record_batch_shows_the_three_by_name() -> None:
    parts = [record(i, value=b"v%d" % i) for i in range(3)]
    for codec in CODECS.values():
        shown = RecordBatch(carrying(batch(parts, codec=codec), (NOW, 3, 1)))
        assert (
            shown.magic,
            shown.batch_min_timestamp,
            shown.records_number,
            shown.all_key_is_null,
        ) == (
            *(3, NOW, 3),
            True,
        )
        assert [bytes(r.value or b"") for r in shown.records()] == [b"v0", b"v1", b"v2"]
        assert shown.is_valid
    for null_keys in (0, 2):
        assert RecordBatch(carrying(batch(parts), (NOW, 3, null_keys))).all_key_is_null is False
    plain = RecordBatch(batch(parts))
    assert (plain.batch_min_timestamp, plain.records_number, plain.all_key_is_null) == (
        None,
        None,
        None,
    )


# ---- what is true --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_the_truth_about_a_batch(codec: str) -> None:
    deltas = [5, -20, 7, 0]
    for keys, null_keys in (
        ([None] * 4, 1),
        ([b"k"] * 4, 2),
        ([b""] * 4, 2),
        ([b"k", None, b"k", None], 0),
        ([None, b"k", b"k", b"k"], 0),
    ):
        parts = [
            record(i, key=k, timestamp_delta=d)
            for i, (k, d) in enumerate(zip(keys, deltas, strict=True))
        ]
        data = batch(parts, codec=CODECS[codec], max_timestamp=NOW + 7)
        assert three(compute(data)) == (NOW - 20, 4, null_keys)
        assert isinstance(compute(data), BatchClaims)
        assert attach(data) == carrying(data, (NOW - 20, 4, null_keys))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("records_number", [1, 2, 500])
def test_how_many(codec: str, records_number: int) -> None:
    claims = compute(batch(records(records_number, key=b"k"), codec=CODECS[codec]))
    assert three(claims) == (NOW, records_number, 2)


def long_record(delta: int) -> bytes:
    return raw(Body(offset_delta=varint(delta)), varint(100))


UNTRUE = {
    "max timestamp too high": {"max_timestamp": NOW + 1},
    "max timestamp too low": {"max_timestamp": NOW - 1},
    "max timestamp not set": {"max_timestamp": -1},
    "count too high": {"records_count": 4, "last_offset_delta": 3},
    "count too low": {"records_count": 2, "last_offset_delta": 1},
    "count unlike last delta": {"last_offset_delta": 7},
    "no records": {"parts": [], "records_count": 0},
    "negative count": {"records_count": -1},
    "deltas from 1": {"parts": [record(1), record(2), record(3)]},
    "a delta twice": {"parts": [record(0), record(0), record(2)]},
    "deltas swapped": {"parts": [record(0), record(2), record(1)]},
    "record attributes": {"parts": [record(0, attributes=1), record(1), record(2)]},
    "a timestamp below -1": {
        "base_timestamp": 0,
        "parts": [record(0, timestamp_delta=-2), record(1), record(2)],
    },
    "bytes after the records": {
        "parts": [*records(3), b"\0"],
        "records_count": 3,
        "last_offset_delta": 2,
    },
    "a record cut off": {"parts": [record(0), record(1), record(2)[:-2]]},
    "a key length below -1": {"parts": [raw(Body(key=varint(-2)))]},
    "a header key that is not UTF-8": {"parts": [record(0, headers=[(b"\xff", b"")])]},
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("how", UNTRUE)
def test_no_claims_are_true(codec: str, how: str) -> None:
    arguments = dict(UNTRUE[how])
    data = batch(arguments.pop("parts", records(3)), codec=CODECS[codec], **arguments)  # type: ignore[arg-type]
    assert compute(data) is None
    with pytest.raises(BatchvalError, match="no claim about the batch is true"):
        attach(data)


def test_a_record_length_that_the_skip_parser_forgives_cannot_be_claimed() -> None:
    assert compute(batch([long_record(0)], codec=ZSTD)) is None
    assert three(compute(batch([raw(Body())], codec=ZSTD))) == (NOW, 1, 1)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_damaged_stream_cannot_be_claimed(codec: int) -> None:
    data = batch(records(50), codec=codec)
    assert compute(data[:8] + struct.pack(">i", len(data) - 15) + data[12:-3]) is None
    assert compute(batch(records(3), payload=b"garbage", codec=codec)) is None


def test_more_than_the_limit_cannot_be_claimed() -> None:
    data = batch([record(0, value=bytes(10_000))], codec=ZSTD)
    assert compute(data, max_decompressed_bytes=5000) is None
    assert three(compute(data, max_decompressed_bytes=20_000)) == (NOW, 1, 1)


def test_the_checksum_is_not_asked() -> None:
    data = batch(records(3), codec=GZIP)
    assert compute(data[:17] + b"\0\0\0\0" + data[21:]) == compute(data)


def test_claims_that_stand_there_are_not_asked() -> None:
    data = batch(records(3), codec=GZIP)
    true = compute(data)
    assert true is not None
    assert (compute(carrying(data, (1, 99, 77))), true[:3]) == (true, (NOW, 3, 1))
    assert tag(true[:3], data) == to_tag(true[:3], fields(data)["crc"])
