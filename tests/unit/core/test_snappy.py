"""The block decoder compared with python-snappy; then xerial's framing, as in SnappyInputStream."""

from __future__ import annotations

import random
import struct

import pytest
import snappy

from batchval.core.batches.validator import LogValidator
from batchval.core.codecs.snappy import decode
from batchval.rules import Rule
from tests.support.batches import NOW, SNAPPY, batch, record, uvarint

RANDOM = random.Random(77)


def content(size: int) -> bytes:
    words = [RANDOM.randbytes(RANDOM.randrange(1, 70)) for _ in range(RANDOM.randrange(1, 30))]
    out = b""
    while len(out) < size:
        out += RANDOM.choice(words)
    return out[:size]


CONTENTS = [
    b"",
    b"a",
    b"a" * 70_000,
    RANDOM.randbytes(70_000),
    *(content(RANDOM.randrange(1, 5000)) for _ in range(200)),
]


def by_library(block: bytes) -> bytes | None:
    try:
        return bytes(snappy.decompress(block))
    except Exception:  # the package has changed its exceptions over time
        return None


def own(block: bytes) -> bytes | None:
    try:
        return decode(block)
    except ValueError:
        return None


def test_valid_blocks() -> None:
    for data in CONTENTS:
        assert decode(bytes(snappy.compress(data))) == data


def test_damaged_blocks() -> None:
    """Cut off, with flipped bits, with bytes after it: the library's answer."""
    accepted = refused = 0
    for _ in range(4000):
        block = bytearray(snappy.compress(RANDOM.choice(CONTENTS)))
        for _ in range(RANDOM.choice((1, 1, 3))):
            block[RANDOM.randrange(min(len(block), 60))] ^= 1 << RANDOM.randrange(8)
        if RANDOM.random() < 0.2:
            del block[RANDOM.randrange(len(block)) :]
        elif RANDOM.random() < 0.1:
            block += RANDOM.randbytes(3)
        if (
            int.from_bytes(block[:5], "little") & 0xFF >= 0x80
            and len(block) > 3
            and block[2] >= 0x80
            and block[3] > 8
        ):
            continue  # states so much that the library asks for the memory first
        expected = by_library(bytes(block))
        assert own(bytes(block)) == expected, bytes(block).hex()
        accepted += expected is not None
        refused += expected is None
    assert min(accepted, refused) > 200


def literal(data: bytes, extra: int = 0) -> bytes:
    """A literal with its length in the tag, or in 1 to 4 bytes after it."""
    if extra == 0:
        return bytes([(len(data) - 1) << 2]) + data
    return bytes([(59 + extra) << 2]) + (len(data) - 1).to_bytes(extra, "little") + data


def near(length: int, offset: int) -> bytes:
    return bytes([1 | (length - 4) << 2 | offset >> 8 << 5, offset & 255])


def far(length: int, offset: int, width: int = 2) -> bytes:
    return bytes([(2 if width == 2 else 3) | (length - 1) << 2]) + offset.to_bytes(width, "little")


@pytest.mark.parametrize("extra", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 59, 60])
def test_literals(extra: int, size: int) -> None:
    data = RANDOM.randbytes(size)
    assert decode(uvarint(size) + literal(data, extra)) == data


@pytest.mark.parametrize("offset", [*range(1, 40), 63, 64, 65, 100])
def test_copies(offset: int) -> None:
    """Each length at each offset, however source and target overlap."""
    start = RANDOM.randbytes(100)
    for length in range(1, 65):
        expected = bytearray(start)
        for _ in range(length):
            expected.append(expected[-offset])
        for copy in (
            far(length, offset),
            far(length, offset, 4),
            *([near(length, offset)] if 4 <= length <= 11 else []),
        ):
            assert decode(uvarint(100 + length) + literal(start, 1) + copy) == expected


MALFORMED = {
    "nothing": b"",
    "length cut off": b"\x80",
    "length of six bytes": b"\x80\x80\x80\x80\x80\0",
    "length above 32 bits": b"\xff\xff\xff\xff\x10",
    "length alone": uvarint(5),
    "claims more than can be": uvarint(2**31) + literal(b"a"),
    "makes less": uvarint(5) + literal(b"abcd"),
    "makes more": uvarint(3) + literal(b"abcd"),
    "literal cut off": uvarint(4) + literal(b"abcd")[:-1],
    "literal length cut off": uvarint(100) + bytes([62 << 2, 99]),
    "offset 0": uvarint(8) + literal(b"abcd") + far(4, 0),
    "offset before the start": uvarint(8) + literal(b"abcd") + far(4, 5),
    "copy first": uvarint(4) + far(4, 1),
    "copy past the length": uvarint(7) + literal(b"abcd") + far(4, 1),
    "near copy cut off": uvarint(8) + literal(b"abcd") + near(4, 1)[:1],
    "far copy cut off": uvarint(8) + literal(b"abcd") + far(4, 1)[:2],
    "farthest copy cut off": uvarint(8) + literal(b"abcd") + far(4, 1, 4)[:4],
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_blocks(what: str) -> None:
    assert own(MALFORMED[what]) is None
    if what not in (
        "claims more than can be",
        "length of six bytes",
    ):  # snappy-java refuses them, this library does not
        assert by_library(MALFORMED[what]) is None


# ---- framing -------------------------------------------------------------------------------------

RECORDS = b"".join(record(i, value=b"value %d" % i) for i in range(20))
HEAD = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def chunk(data: bytes) -> bytes:
    block = bytes(snappy.compress(data))
    return struct.pack(">i", len(block)) + block


WHOLE = HEAD + chunk(RECORDS)
HALF = len(RECORDS) // 2
PAYLOADS = {  # what Kafka says (None: it accepts), what strict mode says
    "one chunk": (WHOLE, None, None),
    "two chunks": (HEAD + chunk(RECORDS[:HALF]) + chunk(RECORDS[HALF:]), None, None),
    "a byte a chunk": (
        HEAD + b"".join(chunk(RECORDS[i : i + 1]) for i in range(len(RECORDS))),
        None,
        None,
    ),
    "an empty chunk between": (
        HEAD + chunk(RECORDS[:HALF]) + chunk(b"") + chunk(RECORDS[HALF:]),
        None,
        None,
    ),
    "two streams": (HEAD + chunk(RECORDS[:HALF]) + HEAD + chunk(RECORDS[HALF:]), None, None),
    "raw block": (bytes(snappy.compress(RECORDS)), None, None),
    "raw block and a byte": (bytes(snappy.compress(RECORDS)) + b"\0", -1, Rule.S7),
    "odd first version": (HEAD[:8] + struct.pack(">ii", 0, 0) + chunk(RECORDS), None, None),
    "odd second version": (WHOLE + HEAD[:8] + struct.pack(">ii", 0, 1), -1, Rule.S7),
    "a second header cut off": (WHOLE + HEAD[:9], -1, Rule.S7),
    **{f"{n} bytes after it": (WHOLE + b"\0" * n, None, Rule.S7) for n in (1, 2, 3)},
    "negative chunk size": (HEAD + struct.pack(">i", -1) + chunk(RECORDS), -1, Rule.S7),
    "huge chunk size": (HEAD + struct.pack(">i", 2**31 - 1) + chunk(RECORDS), -1, Rule.S7),
    "chunk cut off": (WHOLE[:-1], -1, Rule.S7),
    "chunk damaged": (HEAD + struct.pack(">i", 3) + b"\xff\xff\xff", -1, Rule.S7),
    "nothing": (b"", -1, Rule.S7),
    "odd compatible version": (
        HEAD + chunk(RECORDS[:HALF]) + HEAD[:-1] + b"\0" + chunk(RECORDS[HALF:]),
        None,
        None,
    ),
    "a header alone": (HEAD, 87, Rule.RECORD_MALFORMED),
}


@pytest.mark.parametrize("what", PAYLOADS)
def test_framing(what: str) -> None:
    payload, kafka, strict = PAYLOADS[what]
    data = batch(codec=SNAPPY, payload=payload, records_count=20)
    result = LogValidator(mode="kafka").check(data, now_ms=NOW)
    assert (None if result.ok else int(result.error_code)) == kafka, result
    assert LogValidator().check(data, now_ms=NOW).rule is strict
