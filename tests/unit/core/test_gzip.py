"""Inflate compared with zlib: the same bytes, the same input used, the same idea of what is valid.
Then gzip members.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator

import pytest

from batchval.core.batches.validator import LogValidator
from batchval.core.codecs.gzip import inflate
from batchval.rules import Rule
from tests.support.batches import GZIP, NOW, batch, record

RANDOM = random.Random(1951)


def by_zlib(data: bytes) -> tuple[str, bytes, int]:
    """zlib's answer in inflate's form; of damaged data, what came out before the damage."""
    out, stream = [], zlib.decompressobj(-15)
    try:
        for i in range(len(data)):  # a byte at a time: an error then tells what preceded it
            out.append(stream.decompress(data[i : i + 1]))
            if stream.eof:
                return "done", b"".join(out), i + 1
    except zlib.error:
        return "bad", b"".join(out), 0
    out.append(stream.flush())
    return "short", b"".join(out), 0


def contents() -> Iterator[bytes]:
    words = [RANDOM.randbytes(RANDOM.randrange(1, 12)) for _ in range(60)]
    yield b""
    yield b"a"
    yield b"a" * 100_000
    yield RANDOM.randbytes(70_000)
    yield bytes(range(256)) * 20
    yield b"".join(RANDOM.choice(words) for _ in range(20_000))
    for _ in range(60):
        size = RANDOM.choice((3, 40, 300, 3000, 40_000))
        yield b"".join(
            words[RANDOM.randrange(RANDOM.randrange(1, 60))] for _ in range(size // 2 + 1)
        )[:size]


def deflated(data: bytes, level: int, strategy: int, flush: int = 0) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, -15, RANDOM.choice((1, 8, 9)), strategy)
    if not flush:
        return stream.compress(data) + stream.flush()
    out = []
    for i in range(0, len(data), max(1, len(data) // 7)):
        out += [stream.compress(data[i : i + max(1, len(data) // 7)]), stream.flush(flush)]
    return b"".join([*out, stream.flush()])


STRATEGIES = {
    "default": zlib.Z_DEFAULT_STRATEGY,
    "filtered": zlib.Z_FILTERED,
    "huffman": zlib.Z_HUFFMAN_ONLY,
    "rle": zlib.Z_RLE,
    "fixed": zlib.Z_FIXED,
}
CONTENTS = list(contents())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_valid_streams(level: int, strategy: str) -> None:
    for data in CONTENTS:
        flush = RANDOM.choice((0, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_PARTIAL_FLUSH))
        packed = deflated(data, level, STRATEGIES[strategy], flush)
        assert inflate(packed) == ("done", data, len(packed))
        assert inflate(packed + b"beyond") == ("done", data, len(packed))


def small() -> list[bytes]:
    out = []
    for data in CONTENTS:
        if len(data) <= 3000:
            out += [
                deflated(data, level, strategy)
                for level in (0, 1, 9)
                for strategy in (0, zlib.Z_FIXED)
            ]
    return out


SMALL = small()


@pytest.mark.untraced
@pytest.mark.long
def test_cut_off_streams() -> None:
    """At every byte: the same content so far, and not one byte less or more."""
    tried = 0
    for packed in SMALL:
        for cut in range(0, len(packed), max(1, len(packed) // 60)):
            status, content, _ = inflate(packed[:cut])
            assert (status, content) == by_zlib(packed[:cut])[:2]
            tried += 1
    assert tried > 3000


def agrees(data: bytes) -> str:
    status, content, used = inflate(data)
    expected, before, consumed = by_zlib(data)
    assert status == expected
    if status == "bad":
        # how far zlib hands on what precedes damage depends on its chunks; neither may contradict
        # the other
        assert content.startswith(before) or before.startswith(content)
    else:
        assert content == before
    if status == "done":
        assert used == consumed
    return status


@pytest.mark.untraced
@pytest.mark.long
def test_flipped_bits() -> None:
    seen = {"done": 0, "short": 0, "bad": 0}
    for _ in range(6000):
        packed = bytearray(RANDOM.choice(SMALL))
        for _ in range(RANDOM.choice((1, 1, 2, 5))):
            packed[RANDOM.randrange(min(len(packed), 120))] ^= 1 << RANDOM.randrange(8)
        seen[agrees(bytes(packed))] += 1
    assert min(seen.values()) > 300


@pytest.mark.untraced
def test_random_bytes() -> None:
    seen = {"done": 0, "short": 0, "bad": 0}
    for _ in range(12_000):
        data = bytearray(RANDOM.randbytes(RANDOM.randrange(1, 90)))
        data[0] = data[0] & 0xF8 | RANDOM.choice(
            (0, 1, 2, 3, 4, 5, 5, 5, 6)
        )  # mostly blocks that exist
        if RANDOM.random() < 0.3 and len(data) > 5 and not data[0] & 6:
            data[3:5] = bytes(b ^ 0xFF for b in data[1:3])  # a stored block whose length is right
        seen[agrees(bytes(data))] += 1
    assert min(seen.values()) > 30


def bits(*fields: tuple[int, int]) -> bytes:
    """(value, width) fields, lowest bit first, padded to bytes."""
    value = at = 0
    for number, width in fields:
        value |= number << at
        at += width
    return value.to_bytes((at + 7) // 8 + 8, "little")


def dynamic(precode: dict[int, int], hlit: int, hdist: int, *rest: tuple[int, int]) -> bytes:
    """The header of a dynamic block: lengths of the code-length code, then whatever follows."""
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
    lengths = [(precode.get(symbol, 0), 3) for symbol in order]
    return bits((1, 1), (2, 2), (hlit - 257, 5), (hdist - 1, 5), (15, 4), *lengths, *rest)


# a precode of two symbols: 18 (many zeros) is bit 0, 1 (a length of 1) is bit 1; repeat counts of
# 18: 7 bits + 11
P = {18: 1, 1: 1}
ZEROS_138, ONE = [(1, 1), (127, 7)], [(0, 1)]
HEADERS = {
    "no symbol at all": dynamic({}, 257, 1),
    "one code length alone": dynamic({18: 1}, 257, 1),
    "too many code lengths": dynamic(dict.fromkeys((0, 1, 2), 1), 257, 1),
    "287 lengths": dynamic(P, 287, 1),
    "31 distances": dynamic(P, 257, 31),
    "repeat before the first": dynamic({16: 1, 1: 1}, 257, 1, (1, 1), (0, 2)),
    "repeat past the end": dynamic(P, 257, 1, *ZEROS_138, *ZEROS_138),
    "no end of block": dynamic(P, 257, 1, *ONE, *ONE, *ZEROS_138, (1, 1), (106, 7), *ONE),
    "one symbol of one bit": dynamic(P, 257, 1, *ZEROS_138, (1, 1), (107, 7), *ONE, *ONE, (0, 1)),
    "its unused half": dynamic(P, 257, 1, *ZEROS_138, (1, 1), (107, 7), *ONE, *ONE, (1, 1)),
    "no distance code": dynamic({18: 2, 1: 1, 0: 2}, 257, 1, (2, 2), (0, 0)),
}


@pytest.mark.parametrize("what", HEADERS)
def test_headers_of_dynamic_blocks(what: str) -> None:
    agrees(HEADERS[what])
    for cut in range(len(HEADERS[what])):
        agrees(HEADERS[what][:cut])


@pytest.mark.parametrize("kind", [3, 7])
def test_a_reserved_block_kind(kind: int) -> None:
    assert inflate(bits((kind & 1, 1), (3, 2)))[0] == "bad"


def test_a_distance_before_the_start() -> None:
    """Fixed codes: a literal, then length 3 from distance 2."""
    # literal 0x30 + n is 8 bits, most significant first; length code 257 is 0000001; distance code
    # 1 is 00001
    stream = bits(
        (1, 1),
        (1, 2),
        (int("01100001"[::-1], 2), 8),
        (int("0000001"[::-1], 2), 7),
        (int("00001"[::-1], 2), 5),
    )
    assert agrees(stream) == "bad"
    stream = bits(
        (1, 1), (1, 2), (int("01100001"[::-1], 2), 8), (int("0000001"[::-1], 2), 7), (0, 5), (0, 7)
    )
    assert inflate(stream)[:2] == ("done", b"1111")


@pytest.mark.parametrize("symbols", [1, 2, 3, 5, 9, 40, 256])
@pytest.mark.parametrize("size", [0, 1, 2, 300, 12_000, 150_000])
def test_codes_of_every_length(symbols: int, size: int) -> None:
    """Tables are as large as a code's longest symbol asks for; in long blocks literals are
    paired.
    """
    noise = random.Random(symbols * size)
    weights = [1.5 ** -(i % 20) for i in range(symbols)]
    for memory in (1, 9):
        data = bytes(noise.choices(range(symbols), weights, k=size))
        stream = zlib.compressobj(9, zlib.DEFLATED, -15, memory, zlib.Z_HUFFMAN_ONLY)
        packed = stream.compress(data) + stream.flush()
        assert inflate(packed) == ("done", data, len(packed))


class Bits:
    def __init__(self) -> None:
        self.value = self.size = 0

    def put(self, value: int, size: int) -> None:
        self.value |= value << self.size
        self.size += size

    def code(self, lengths: dict[int, int], symbol: int) -> None:
        """Canonical, first bit lowest."""
        ranked = sorted((length, each) for each, length in lengths.items() if length)
        code = before = 0
        for length, each in ranked:
            code <<= length - before
            if each == symbol:
                return self.put(int(f"{code:0{length}b}"[::-1], 2), length)
            code, before = code + 1, length
        raise AssertionError(symbol)


def dynamic_block(lengths: dict[int, int], symbols: list[int], last: bool = False) -> Bits:
    """Code lengths of five bits each, one distance; then the symbols and the end of the block."""
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
    bits = Bits()
    bits.put(last, 1)
    bits.put(2, 2)
    bits.put(0, 14 - 4)
    bits.put(15, 4)
    for each in order:
        bits.put(4 if each < 16 else 0, 3)
    for each in [*(lengths.get(i, 0) for i in range(257)), 0]:
        bits.code(dict.fromkeys(range(16), 4), each)
    for symbol in [*symbols, 256]:
        bits.code(lengths, symbol)
    return bits


@pytest.mark.parametrize(
    "longest",
    [*range(1, 9), *(pytest.param(n, marks=pytest.mark.long) for n in range(9, 16))],
)
def test_blocks_that_end_at_once(longest: int) -> None:
    """The end of the block may be any symbol of its code. What follows it is another block."""
    noise = random.Random(longest)
    lengths = {i: min(i + 1, longest) for i in range(longest + 1)} if longest > 1 else {0: 1, 1: 1}
    for end in lengths:
        code = {(256 if i == end else i): length for i, length in lengths.items()}
        literals = [i for i in code if i != 256]
        stream, content = Bits(), b""
        for _ in range(40):
            symbols = noise.choices(literals, k=noise.choice((0, 0, 1, 2, 30)))
            block = dynamic_block(code, symbols)
            stream.put(block.value, block.size)
            content += bytes(symbols)
        block = dynamic_block(code, [], last=True)
        stream.put(block.value, block.size)
        packed = stream.value.to_bytes(-(-stream.size // 8), "little")
        assert zlib.decompressobj(-15).decompress(packed) == content
        assert inflate(packed) == ("done", content, len(packed))
        assert inflate(packed[:-1])[0] == "short"


def test_a_limit_stops_the_output() -> None:
    packed = deflated(bytes(10 << 20), 6, 0)
    status, content, _ = inflate(packed, limit=100_000)
    assert status == "full"
    assert 65536 <= len(content) <= 100_000
    assert content == bytes(len(content))


@pytest.mark.parametrize("size", [32767, 32768, 32769, 65535, 65536, 65537, 300_000])
def test_matches_across_the_window(size: int) -> None:
    """Content that repeats at the largest distance, in sizes around those of the buffers."""
    data = (RANDOM.randbytes(32768) * 12)[:size]
    packed = deflated(data, 9, 0)
    assert inflate(packed)[:2] == ("done", data)


# ---- members, as GZIPInputStream reads them ------------------------------------------------------

RECORDS = b"".join(record(i, value=b"value %d" % i) for i in range(20))


def member(
    data: bytes,
    *,
    extra: bytes | None = None,
    name: bytes | None = None,
    comment: bytes | None = None,
    header_crc: int | None = None,
    reserved: int = 0,
    head: bytes = b"\x1f\x8b\x08",
    crc: int | None = None,
    size: int | None = None,
) -> bytes:
    flags = (extra is not None) * 4 | (name is not None) * 8 | (comment is not None) * 16 | reserved
    flags |= (header_crc is not None) * 2
    out = head + bytes([flags]) + b"\1\2\3\4\0\xff"
    if extra is not None:
        out += struct.pack("<H", len(extra)) + extra
    out += b"".join(text + b"\0" for text in (name, comment) if text is not None)
    if header_crc is not None:
        out += struct.pack("<H", (zlib.crc32(out) & 0xFFFF) ^ header_crc)
    crc = zlib.crc32(data) if crc is None else crc
    return out + deflated(data, 6, 0) + struct.pack("<II", crc, len(data) if size is None else size)


HALF = len(RECORDS) // 2
PAYLOADS = {  # what Kafka says (None: it accepts), and what strict mode says
    "plain": (member(RECORDS), None, None),
    "extra": (member(RECORDS, extra=b"abc"), None, None),
    "empty extra": (member(RECORDS, extra=b""), None, None),
    "name and comment": (member(RECORDS, name=b"n", comment=b""), None, None),
    "header crc": (member(RECORDS, extra=b"x", name=b"n", comment=b"c", header_crc=0), None, None),
    "wrong header crc": (member(RECORDS, name=b"n", header_crc=1), -1, Rule.S7),
    "reserved flags": (member(RECORDS, reserved=0xE0), None, None),
    "two members": (member(RECORDS[:HALF]) + member(RECORDS[HALF:]), None, None),
    "many members": (b"".join(member(RECORDS[i : i + 1]) for i in range(len(RECORDS))), None, None),
    "an empty member first": (member(b"") + member(RECORDS), None, None),
    "junk after it": (member(RECORDS) + b"junk", None, Rule.S7),
    "half a header after it": (member(RECORDS) + b"\x1f\x8b\x08", None, Rule.S7),
    "zeros after it": (member(RECORDS) + bytes(20), None, Rule.S7),
    "wrong magic": (member(RECORDS, head=b"\x1f\x8c\x08"), -1, Rule.S7),
    "wrong method": (member(RECORDS, head=b"\x1f\x8b\x07"), -1, Rule.S7),
    "wrong crc": (member(RECORDS, crc=1), -1, Rule.S7),
    "wrong size": (member(RECORDS, size=1), -1, Rule.S7),
    "no trailer": (member(RECORDS)[:-8], -1, Rule.S7),
    "half a trailer": (member(RECORDS)[:-3], -1, Rule.S7),
    "cut in the data": (member(RECORDS)[:-20], -1, Rule.S7),
    "nothing": (b"", -1, Rule.S7),
    "a header alone": (member(RECORDS)[:10], -1, Rule.S7),
    "extra cut off": (member(RECORDS, extra=b"abc")[:12], -1, Rule.S7),
    "name cut off": (member(RECORDS, name=b"abc")[:12], -1, Rule.S7),
    "a second member damaged": (member(RECORDS) + member(b"x", crc=3), 87, Rule.RECORD_MALFORMED),
}


@pytest.mark.parametrize("what", PAYLOADS)
def test_members(what: str) -> None:
    payload, kafka, strict = PAYLOADS[what]
    data = batch(codec=GZIP, payload=payload, records_count=20)
    result = LogValidator(mode="kafka").check(data, now_ms=NOW)
    assert (None if result.ok else int(result.error_code)) == kafka
    result = LogValidator().check(data, now_ms=NOW)
    assert result.rule is strict
