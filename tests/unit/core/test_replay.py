"""A batch with two faults, a record that does not parse and a stream that is damaged: which does
Kafka meet first?

Kafka reads in chunks, and a read that reaches the damage delivers nothing. ``ANSWERS`` is what
Kafka 4.4.0 answered: for each codec, parser and place of the bad record, one letter for each place
of the damage: ``i`` for INVALID_RECORD (the record was met first), ``f`` for the failing broker
(the damage was).
"""

from __future__ import annotations

import random
import struct
import zlib

import lz4.block
import pytest
import snappy

from batchval import compression
from batchval.core.batches.validator import LogValidator
from batchval.errors import ErrorCode
from batchval.policy import TopicPolicy
from batchval.rules import Rule
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    batch,
    message,
    record,
    varint,
)

BLOCK = 1024
BLOCKS = 40
#: the first block that is damaged
DAMAGED = (0, 1, 2, 3, 15, 16, 17, 19, 20, 31, 32, 33, 36, 39)
LETTERS = {87: "i", -1: "f"}


def filling(size: int, noise: random.Random) -> bytes:
    """A record of exactly `size` bytes."""
    overhead = len(record(0, value=bytes(size))) - size
    for less in (overhead, overhead - 1, overhead - 2):
        found = record(0, value=noise.randbytes(size - less))
        if len(found) == size:
            return found
    raise AssertionError(f"no record has {size} bytes")


def content(bad_at: int) -> bytes:
    """Records up to `bad_at`, a length of -1 there, and then noise."""
    noise = random.Random(bad_at)
    return (filling(bad_at, noise) + varint(-1) + noise.randbytes(BLOCK * BLOCKS))[: BLOCK * BLOCKS]


def blocks(data: bytes) -> list[bytes]:
    return [data[i : i + BLOCK] for i in range(0, len(data), BLOCK)]


def damaged_gzip(data: bytes, block: int) -> bytes:
    """Stored blocks of deflate; the damaged one has the block type that is none."""
    out = b"\x1f\x8b\x08\0\0\0\0\0\0\0"
    for i, part in enumerate(blocks(data)):
        head = 7 if i == block else (i == BLOCKS - 1)
        out += struct.pack("<BHH", head, len(part), len(part) ^ 0xFFFF) + part
    return out + struct.pack("<II", zlib.crc32(data), len(data))


def damaged_snappy(data: bytes, block: int) -> bytes:
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for i, part in enumerate(blocks(data)):
        packed = bytes(snappy.compress(part))
        out += struct.pack(">i", len(packed)) + (b"\xff" * len(packed) if i == block else packed)
    return out


def damaged_lz4(data: bytes, block: int) -> bytes:
    out = b"\x04\x22\x4d\x18\x60\x40\x82"
    for i, part in enumerate(blocks(data)):
        packed = lz4.block.compress(part, store_size=False)
        out += struct.pack("<I", len(packed)) + (b"\xff" * len(packed) if i == block else packed)
    return out + bytes(4)


def damaged_zstd(data: bytes, block: int) -> bytes:
    """One frame of raw blocks; the damaged one has the block type that is reserved."""
    out = b"\x28\xb5\x2f\xfd\0\x38"  # a window of 128 KiB, no content size, no checksum
    for i, part in enumerate(blocks(data)):
        kind = 3 if i == block else 0
        out += struct.pack("<I", len(part) << 3 | kind << 1 | (i == BLOCKS - 1))[:3] + part
    return out


DAMAGE = {GZIP: damaged_gzip, SNAPPY: damaged_snappy, LZ4: damaged_lz4, ZSTD: damaged_zstd}
OTHER = {GZIP: "lz4", SNAPPY: "gzip", LZ4: "gzip", ZSTD: "gzip"}


def case(codec: int, parser: str, bad_at: int, block: int) -> tuple[bytes, str, int]:
    """(buffer, target codec, to_magic)"""
    if parser == "wrapper":
        bad = message(1, value=bytes(bad_at - 34))[:bad_at] + message(1, size=5)[:12]
        data = (bad + random.Random(1).randbytes(BLOCK * BLOCKS))[: BLOCK * BLOCKS]
        return message(1, value=DAMAGE[codec](data, block), attributes=codec), "producer", 1
    data = batch(payload=DAMAGE[codec](content(bad_at), block), records_count=3, codec=codec)
    return data, "producer" if parser == "skip" else OTHER[codec], 2


ANSWERS: dict[tuple[str, str, int], str] = {
    ("gzip", "skip", 30): "ffffiiiiiiiiii",
    ("gzip", "skip", 2000): "ffffiiiiiiiiii",
    ("gzip", "skip", 16300): "fffffiiiiiiiii",
    ("gzip", "skip", 20000): "fffffffffiiiii",
    ("gzip", "stream", 30): "ffffiiiiiiiiii",
    ("gzip", "stream", 2000): "ffffiiiiiiiiii",
    ("gzip", "stream", 16300): "fffffiiiiiiiii",
    ("gzip", "stream", 20000): "fffffffffiiiii",
    ("gzip", "wrapper", 40): "ffff2222222222",
    ("gzip", "wrapper", 2000): "ffff2222222222",
    ("gzip", "wrapper", 16300): "fffffffff22222",
    ("gzip", "wrapper", 20000): "fffffffff22222",
    ("snappy", "skip", 30): "ffiiiiiiiiiiii",
    ("snappy", "skip", 2000): "ffiiiiiiiiiiii",
    ("snappy", "skip", 16300): "fffffiiiiiiiii",
    ("snappy", "skip", 20000): "ffffffffiiiiii",
    ("snappy", "stream", 30): "ffiiiiiiiiiiii",
    ("snappy", "stream", 2000): "ffiiiiiiiiiiii",
    ("snappy", "stream", 16300): "fffffffiiiiiii",
    ("snappy", "stream", 20000): "fffffffffiiiii",
    ("snappy", "wrapper", 40): "ff222222222222",
    ("snappy", "wrapper", 2000): "ff222222222222",
    ("snappy", "wrapper", 16300): "fffffff2222222",
    ("snappy", "wrapper", 20000): "fffffffff22222",
    ("lz4", "skip", 30): "fiiiiiiiiiiiii",
    ("lz4", "skip", 2000): "ffiiiiiiiiiiii",
    ("lz4", "skip", 16300): "fffffiiiiiiiii",
    ("lz4", "skip", 20000): "ffffffffiiiiii",
    ("lz4", "stream", 30): "fiiiiiiiiiiiii",
    ("lz4", "stream", 2000): "ffiiiiiiiiiiii",
    ("lz4", "stream", 16300): "fffffiiiiiiiii",
    ("lz4", "stream", 20000): "ffffffffiiiiii",
    ("lz4", "wrapper", 40): "f2222222222222",
    ("lz4", "wrapper", 2000): "ff222222222222",
    ("lz4", "wrapper", 16300): "fffff222222222",
    ("lz4", "wrapper", 20000): "ffffffff222222",
    ("zstd", "skip", 30): "ffffffiiiiiiii",
    ("zstd", "skip", 2000): "ffffffiiiiiiii",
    ("zstd", "skip", 16300): "ffffffiiiiiiii",
    ("zstd", "skip", 20000): "fffffffffffiii",
    ("zstd", "stream", 30): "ffffffiiiiiiii",
    ("zstd", "stream", 2000): "ffffffiiiiiiii",
    ("zstd", "stream", 16300): "ffffffiiiiiiii",
    ("zstd", "stream", 20000): "fffffffffffiii",
}


@pytest.mark.parametrize("provider", compression.PROVIDERS)
@pytest.mark.parametrize(("codec", "parser", "bad_at"), ANSWERS)
def test_which_fault_comes_first(codec: str, parser: str, bad_at: int, provider: str) -> None:
    before = compression.provider()
    compression.use(provider)
    try:
        found = ""
        for block in DAMAGED:
            data, target, to_magic = case(CODECS[codec], parser, bad_at, block)
            policy = TopicPolicy(compression_type=target)
            arguments = {"now_ms": NOW, "to_magic": to_magic}
            result = LogValidator(policy, mode="kafka").validate_messages_and_assign_offsets(
                data, **arguments
            )
            code = int(result.error_code)
            found += "2" if code == 2 else LETTERS[code]
            strict = LogValidator(policy).validate_messages_and_assign_offsets(data, **arguments)
            if code == -1:
                assert (strict.rule, strict.error_code) == (Rule.S7, ErrorCode.INVALID_RECORD)
            else:
                assert (strict.rule, strict.error_code) == (result.rule, result.error_code)
        assert found == ANSWERS[codec, parser, bad_at]
    finally:
        compression.use(before)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_one_fault_alone(codec: str) -> None:
    """Undamaged, the record is refused; and without the bad record, the damage is."""
    data = content(2000)
    bad = batch(payload=DAMAGE[CODECS[codec]](data, -1), records_count=3, codec=CODECS[codec])
    assert LogValidator(mode="kafka").check(bad, now_ms=NOW).rule is Rule.RECORD_MALFORMED
    good = filling(BLOCK * BLOCKS, random.Random(5))
    whole = batch(payload=DAMAGE[CODECS[codec]](good, -1), records_count=1, codec=CODECS[codec])
    assert LogValidator().check(whole, now_ms=NOW).ok
    cut = batch(payload=DAMAGE[CODECS[codec]](good, 39), records_count=1, codec=CODECS[codec])
    assert (
        LogValidator(mode="kafka").check(cut, now_ms=NOW).error_code
        is ErrorCode.UNKNOWN_SERVER_ERROR
    )
