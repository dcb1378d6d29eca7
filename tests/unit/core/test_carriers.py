"""Claims of version 2 and their carriers, held against the vectors of a second hand
(fixtures/claims).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.native_validator import settled_by_claims
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import (
    BatchClaims,
    attach,
    carrier_of,
    compute,
    from_tag,
    read,
    strip,
    to_tag,
)
from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy
from tests.support.batches import (
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    batch,
    crc32c,
    fields,
    record,
    with_crc,
)
from tests.support.claims import damage

VECTORS = Path(__file__).parents[3] / "fixtures" / "claims"
SKIPPABLE = bytes.fromhex("5b2a4d18")


def vectors(name: str) -> list[Any]:
    lines = (VECTORS / f"{name}.jsonl").read_text().splitlines()
    assert lines
    return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


def claims_of(case: dict[str, Any]) -> BatchClaims:
    values = dict(case)
    values.pop("version", None)
    further = tuple(
        (number, bytes.fromhex(content)) for number, content in values.pop("fields", ())
    )
    return BatchClaims(**values, fields=further)


# ---- vectors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", vectors("blocks"))
def test_blocks(case: dict[str, Any]) -> None:
    block = bytes.fromhex(case["block"])
    if case["claims"] is None:
        with pytest.raises(BatchvalError, match="not a block of claims"):
            BatchClaims.from_block(block)
        assert from_tag(block + bytes(4), 0) is None
        return
    claims = claims_of(case["claims"])
    assert BatchClaims.from_block(block) == claims
    assert claims.to_block() == block
    assert from_tag(block + b"\0\0\0\7", 7) == claims
    assert to_tag(claims, 7) == block + b"\0\0\0\7"
    assert from_tag(block + b"\0\0\0\7", 8) is None


@pytest.mark.parametrize("case", vectors("carriers"))
def test_carriers(case: dict[str, Any]) -> None:
    data, claims = bytes.fromhex(case["batch"]), claims_of(case["claims"])
    assert (compute(data), carrier_of(data), read(data)) == (claims._replace(fields=()), None, None)
    assert to_tag(claims, fields(data)["crc"]).hex() == case["tag"]
    assert read(data, bytes.fromhex(case["tag"])) == claims
    if case["payload_batch"] is None:
        with pytest.raises(BatchvalError, match="cannot carry claims"):
            attach(data, claims, carrier="payload")
        return
    carrying = bytes.fromhex(case["payload_batch"])
    assert attach(data, claims, carrier="payload") == carrying
    assert (carrier_of(carrying), read(carrying), strip(carrying)) == ("payload", claims, data)
    assert attach(carrying, claims, carrier="payload") == carrying
    assert RecordBatch(carrying).is_valid == RecordBatch(data).is_valid
    assert compute(carrying) == compute(data)
    assert [(r.key, r.value) for r in RecordBatch(carrying).records()] == [
        (r.key, r.value) for r in RecordBatch(data).records()
    ]


@pytest.mark.parametrize("case", vectors("readings"))
def test_readings(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["batch"])
    tag = None if case["tag"] is None else bytes.fromhex(case["tag"])
    data = with_crc(data) if len(data) >= 61 and tag is None else data
    answer = LogValidator().check(data, now_ms=NOW, claims=(tag, "verify")).claims
    if case["reads"] == "none":
        assert (read(data, tag), answer) == (None, None)
    elif case["reads"] == "unbound":
        assert answer == "unbound"
        # the claims in a header of magic 3 are read, and the tag next to them is not
        assert read(data, tag) == (read(data) if data[16] == 3 else None)
    else:
        assert read(data, tag) == claims_of(case["reads"])
        assert answer in ("honest", "lying", "unjudged")


# ---- bytes that are not what they seem -----------------------------------------------------------


def claimed(codec: int, count: int = 20, **fields: Any) -> bytes:
    parts = [record(i, key=b"k", value=b"v" * 50) for i in range(count)]
    return attach(batch(parts, codec=codec), carrier="payload", **fields)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_no_byte_of_a_carrier_is_read_past_its_end(codec: int) -> None:
    """Each length of the carrier, over a buffer that ends where the batch does."""
    good = claimed(codec)
    for at in range(61, 61 + 45):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            bad = with_crc(good[:at] + bytes([value]) + good[at + 1 :])
            for word in ("verify", "trust"):
                LogValidator().check(bad, now_ms=NOW, claims=(None, word))
            read(bad)
            if carrier_of(bad) == "payload":
                left = strip(bad)
                assert carrier_of(left) is None
                assert RecordBatch(left).is_valid
    for size in range(62, len(good)):
        cut = good[:8] + (size - 12).to_bytes(4, "big") + good[12:size]
        read(cut)
        if carrier_of(cut) == "payload":
            assert carrier_of(strip(cut)) is None


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_damage_shows_after_attaching_and_stripping(codec: int) -> None:
    """The checksum is patched: computed anew it would vouch for the damage."""
    plain = batch([record(i, value=bytes(range(100))) for i in range(20)], codec=codec)
    true = compute(plain)
    assert true is not None
    for at in (17, 30, 61 + 9, len(plain) - 1):
        data = damage(plain, at)
        out = attach(data, true, carrier="payload")
        assert not RecordBatch(out).is_valid
        assert strip(out) == data
    out = attach(plain, carrier="payload")
    for at in range(61, len(out)):
        bad = damage(out, at)
        if carrier_of(bad) == "payload":
            assert not RecordBatch(strip(bad)).is_valid


def test_many_carriers_are_stripped_in_one_move() -> None:
    """40,000 frames of claims, each of 10 bytes: quadratic work would take minutes."""
    plain = batch([record(0)], codec=ZSTD)
    frames = (SKIPPABLE + b"\2\0\0\0BV") * 40_000
    data = bytearray(plain[:61] + frames + plain[61:])
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    assert strip(with_crc(data)) == plain
    gzipped = claimed(GZIP, 1)
    extra = b"BV\0\0" * 16_000
    start = gzipped[:71] + len(extra).to_bytes(2, "little") + extra
    data = bytearray(start + strip(gzipped)[71:])
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    assert strip(with_crc(data)) == strip(gzipped)


def test_other_subfields_stay() -> None:
    good = claimed(GZIP)
    own = int.from_bytes(good[71:73], "little")
    other = b"XY\3\0abc"
    data = bytearray(
        good[:71] + (own + len(other)).to_bytes(2, "little") + good[73 : 73 + own] + other
    )
    data += good[73 + own :]
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    both = with_crc(data)
    assert read(both) == read(good)
    left = strip(both)
    assert left[71:80] == len(other).to_bytes(2, "little") + other
    assert fields(left)["crc"] == crc32c(left[21:])
    with pytest.raises(BatchvalError, match="cannot carry claims"):
        attach(left, compute(left), carrier="payload")


# ---- arguments -----------------------------------------------------------------------------------


def test_what_attach_and_strip_refuse() -> None:
    plain = batch([record(0)], codec=ZSTD)
    true = compute(plain)
    assert true is not None
    with pytest.raises(BatchvalError, match="carrier must be header or payload, not 'tag'"):
        attach(plain, carrier="tag")  # type: ignore[arg-type]
    with pytest.raises(BatchvalError, match="claims without sizes are of version 1"):
        attach(plain, true[:3], carrier="payload")
    for codec in (0, SNAPPY, LZ4):
        with pytest.raises(BatchvalError, match="cannot carry claims"):
            attach(batch([record(0)], codec=codec), carrier="payload")
    with pytest.raises(BatchvalError, match="has no claims"):
        strip(plain)
    for further in (((1, bytes(300)),), ((2, b""), (1, b"")), ((1, b""), (1, b""))):
        with pytest.raises(BatchvalError, match="make no block"):
            true._replace(fields=further).to_block()
    with pytest.raises(BatchvalError, match="not 4294967296"):
        true._replace(fields=((2**32, b""),)).to_block()


# ---- sizes settle --------------------------------------------------------------------------------


def tag_for(data: bytes, **changed: int) -> tuple[bytes, str]:
    true = compute(data)
    assert true is not None
    return to_tag(true._replace(**changed), fields(data)["crc"]), "trust"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_topic_that_bounds_single_records_is_settled_by_version_2(codec: int) -> None:
    """max.decompressed.message.bytes: version 1 says nothing of it, so the records are read."""
    data = batch([record(i, value=bytes(100)) for i in range(5)], codec=codec)
    true = compute(data)
    assert true is not None
    assert true.max_record_bytes == len(record(4, value=bytes(100))) - 2
    for limit, by_claims in ((true.max_record_bytes, True), (true.max_record_bytes - 1, False)):
        topic = LogValidator(TopicPolicy(max_decompressed_message_bytes=limit))
        result = topic.check(data, now_ms=NOW, claims=tag_for(data))
        assert (result.ok, result.path == "claims") == (by_claims, by_claims)
        assert result.claims == ("trusted" if by_claims else "unjudged")
        assert settled_by_claims(topic, data, tag_for(data)[0], NOW, 9) == by_claims
        assert (
            topic.check(
                data, now_ms=NOW, claims=(to_tag(true[:3], fields(data)["crc"]), "trust")
            ).path
            != "claims"
        )


def test_a_record_above_the_limit_that_was_claimed_to_be_smaller_is_a_lie() -> None:
    data = batch([record(0, value=bytes(500))], codec=ZSTD)
    topic = LogValidator(TopicPolicy(max_decompressed_message_bytes=100))
    for claims, answer in (
        (tag_for(data), "unjudged"),
        (tag_for(data, max_record_bytes=100), "lying"),
    ):
        result = topic.check(data, now_ms=NOW, claims=(claims[0], "verify"))
        assert (result.ok, result.claims, str(result.rule)) == (
            False,
            answer,
            "29 record-malformed",
        )


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_statistics_are_complete(codec: int) -> None:
    data = batch([record(i, value=bytes(100)) for i in range(5)], codec=codec)
    plain = LogValidator().check(data, now_ms=NOW)
    trusted = LogValidator().check(data, now_ms=NOW, claims=tag_for(data))
    assert (trusted.path, trusted.stats) == ("claims", plain.stats)
    true = compute(data)
    assert true is not None
    assert trusted.stats.temporary_memory_bytes == true.uncompressed_bytes
    version_1 = to_tag(true[:3], fields(data)["crc"])
    result = LogValidator().check(data, now_ms=NOW, claims=(version_1, "trust"))
    assert (result.path, result.stats.temporary_memory_bytes) == ("claims", None)


SIZES = {
    "a batch over the limit": {"uncompressed_bytes": 61 + 10_001},
    "no room for a header": {"uncompressed_bytes": 60},
    "negative": {"uncompressed_bytes": -1},
    "a negative record": {"max_record_bytes": -1},
    "a record larger than all of them": {"uncompressed_bytes": 100, "max_record_bytes": 40},
    "the largest integers": {"uncompressed_bytes": 2**31 - 1, "max_record_bytes": 2**31 - 1},
}


@pytest.mark.parametrize("how", SIZES)
def test_sizes_that_settle_nothing(how: str) -> None:
    data = batch([record(i, value=bytes(100)) for i in range(5)], codec=LZ4)
    topic = LogValidator(max_decompressed_bytes=10_000)
    assert topic.check(data, now_ms=NOW, claims=tag_for(data)).path == "claims"
    result = topic.check(data, now_ms=NOW, claims=tag_for(data, **SIZES[how]))
    assert (result.ok, result.path, result.claims) == (True, "shallow", "lying")


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("field", ["uncompressed_bytes", "max_record_bytes"])
def test_a_size_that_is_not_exact_is_a_lie(field: str, by: int) -> None:
    for codec in (0, GZIP, SNAPPY, LZ4, ZSTD):
        data = batch([record(i, value=bytes(100)) for i in range(5)], codec=codec)
        true = compute(data)
        assert true is not None
        tag = tag_for(data, **{field: getattr(true, field) + by})[0]
        result = LogValidator().check(data, now_ms=NOW, claims=(tag, "verify"))
        assert (result.ok, result.claims) == (True, "lying")


def test_padded_lengths_cannot_be_claimed() -> None:
    """Kafka counts a record's size from its value, not from its bytes: no size would be true."""
    plain = record(0, value=b"x")
    padded = bytes([plain[0] | 0x80, 0]) + plain[1:]
    for codec in (GZIP, ZSTD):
        data = batch([padded], codec=codec)
        assert LogValidator().check(data, now_ms=NOW).ok
        assert compute(data) is None
