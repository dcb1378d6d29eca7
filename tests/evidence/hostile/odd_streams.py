"""Valid compressed streams with pieces that yield no bytes, and what follows a stream's end: every
placement in turn.

    lz4      blocks that decompress to nothing, frames without blocks
    snappy   chunks of no bytes, chunks of an empty block, a second stream header
    gzip     members without content, deflate blocks without content, bytes that follow a member
    zstd     frames and blocks without content, skippable frames

Kafka's stream classes answer a read or skip that lands on such a piece with 0 or -1 bytes, and its
record parsers take that for the end of the stream, for a byte 0xFF or for nothing at all: where a
piece stands decides what Kafka answers.
"""

from __future__ import annotations

import gzip
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import snappy
import zstandard

from tests.evidence.hostile.mutator import xxh32
from tests.evidence.hostile.seeds import batch, legacy, record

__all__ = ["OddStream", "gzip_tails", "odd_streams"]


class OddStream(NamedTuple):
    """A batch, and what is odd in it."""

    what: str
    batch: bytes


# ---- pieces of the four codecs -------------------------------------------------------------------


def _lz4(parts: Sequence[bytes | None], flags: int = 0x60, empty: bytes = b"\0") -> bytes:
    """Build a frame of stored blocks; None is a block without bytes."""
    head = bytes([flags, 0x40])
    out = b"\x04\x22\x4d\x18" + head + bytes([xxh32(head) >> 8 & 0xFF])
    for part in parts:
        block = empty if part is None else part
        if block:
            out += struct.pack("<I", len(block) | (0 if part is None else 1 << 31)) + block
            if flags & 0x10:
                out += struct.pack("<I", xxh32(block))
    out += bytes(4)
    if flags & 4:
        out += struct.pack("<I", xxh32(b"".join(part or b"" for part in parts)))
    return out


_SNAPPY_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def _snappy(parts: Sequence[bytes | None], empty: bytes) -> bytes:
    out = _SNAPPY_HEADER
    for part in parts:
        if part is None:
            out += empty
        elif part:
            block = bytes(snappy.compress(part))
            out += struct.pack(">i", len(block)) + block
    return out


def _gzip(parts: Sequence[bytes | None], empty: bytes) -> bytes:
    return b"".join(
        empty if part is None else gzip.compress(part, mtime=0) for part in parts if part != b""
    )


def _gzip_blocks(parts: Sequence[bytes | None], empty: bytes) -> bytes:
    """Build one member of stored deflate blocks."""
    body = b""
    content = b""
    for part in parts:
        if part is None:
            body += empty
        elif part:
            body += b"\0" + struct.pack("<HH", len(part), len(part) ^ 0xFFFF) + part
            content += part
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    return head + body + b"\x01\0\0\xff\xff" + struct.pack("<II", zlib.crc32(content), len(content))


def _zstd(parts: Sequence[bytes | None], empty: bytes) -> bytes:
    pack = zstandard.ZstdCompressor(level=1).compress
    return b"".join(empty if part is None else pack(part) for part in parts if part != b"")


def _zstd_blocks(parts: Sequence[bytes | None], empty: bytes) -> bytes:
    """Build one frame of raw blocks with a window of 1 MiB."""
    out = b"\x28\xb5\x2f\xfd\0\x50"
    for part in parts:
        if part is None:
            out += empty
        elif part:
            out += struct.pack("<I", len(part) << 3)[:3] + part
    return out + b"\x01\0\0"


_STYLES: tuple[tuple[str, int, Callable[[Sequence[bytes | None]], bytes]], ...] = (
    ("lz4 empty block", 3, _lz4),
    ("lz4 empty block, another token", 3, lambda parts: _lz4(parts, empty=b"\x07")),
    ("lz4 empty block, block checksums", 3, lambda parts: _lz4(parts, 0x70)),
    ("lz4 empty block, content checksum", 3, lambda parts: _lz4(parts, 0x64)),
    (
        "lz4 end mark in between",
        3,
        lambda parts: b"".join(_lz4([part], empty=b"") for part in parts if part != b""),
    ),
    ("snappy chunk of no bytes", 2, lambda parts: _snappy(parts, bytes(4))),
    ("snappy empty block", 2, lambda parts: _snappy(parts, b"\0\0\0\1\0")),
    ("snappy second header", 2, lambda parts: _snappy(parts, _SNAPPY_HEADER)),
    ("snappy broken header", 2, lambda parts: _snappy(parts, b"\x82SNAPPX\0" + bytes(8))),
    ("gzip empty member", 1, lambda parts: _gzip(parts, gzip.compress(b"", mtime=0))),
    ("gzip empty stored block", 1, lambda parts: _gzip_blocks(parts, b"\0\0\0\xff\xff")),
    ("zstd empty frame", 4, lambda parts: _zstd(parts, zstandard.ZstdCompressor().compress(b""))),
    ("zstd empty raw block", 4, lambda parts: _zstd_blocks(parts, b"\0\0\0")),
    ("zstd empty run", 4, lambda parts: _zstd_blocks(parts, b"\x02\0\0\0")),
    ("zstd skippable frame", 4, lambda parts: _zstd(parts, b"\x51\x2a\x4d\x18\0\0\0\0")),
    (
        "zstd skippable frame with content",
        4,
        lambda parts: _zstd(parts, b"\x5b\x2a\x4d\x18\3\0\0\0abc"),
    ),
)


# ---- placements ----------------------------------------------------------------------------------


def _cut(data: bytes, cuts: Sequence[int], empties: Sequence[int]) -> list[bytes | None]:
    """Cut ``data`` in pieces, with ``empties`` empty ones before each cut."""
    parts: list[bytes | None] = []
    at = 0
    for cut, empty in zip(cuts, empties, strict=True):
        parts += [data[at:cut], *[None] * empty]
        at = cut
    return [*parts, data[at:]]


def _placements(data: bytes, positions: Sequence[int]) -> Iterator[list[bytes | None]]:
    for cut in positions:
        for empties in (1, 2, 3):
            yield _cut(data, [cut], [empties])
    for first, second in itertools.combinations(positions, 2):
        for empties in ((1, 0), (0, 1), (1, 1), (2, 1)):
            yield _cut(data, [first, second], empties)


def _record_sets() -> Iterator[tuple[bytes, int, Sequence[int]]]:
    one = record(0, b"key", b"abcdefghij")
    yield one, 1, range(len(one) + 1)
    two = record(0, None, b"v", 3, [(b"h", b"x")]) + record(1, b"", None, -1)
    yield two, 2, range(len(two) + 1)
    # larger than Kafka's buffers of 2,048 and 16,384 bytes
    large = record(0, b"k" * 300, b"v" * 2500, 0, [(b"h" * 2100, b"w" * 17000)]) + record(
        1, b"k", b"v"
    )
    yield (
        large,
        2,
        (
            0,
            1,
            2,
            9,
            200,
            310,
            313,
            400,
            2048,
            2361,
            2860,
            2864,
            2870,
            4912,
            4966,
            19500,
            len(large),
        ),
    )


#: a commit, by coordinator epoch 3 (EndTransactionMarker)
_MARKER = record(0, b"\0\0\0\1", b"\0\0\0\0\0\3")
_MARKED = 0x30  # transactional, control


def _message_sets() -> Iterator[tuple[int, bytes]]:
    for magic in (0, 1):
        yield magic, legacy(magic, b"k", b"some value", 0) + legacy(magic, None, b"v", 1)


def _everything() -> Iterator[OddStream]:
    for name, codec, pack in _STYLES:
        for records, count, positions in _record_sets():
            for parts in _placements(records, positions):
                yield OddStream(
                    f"{name}, magic 2", batch(records, count, codec, payload=pack(parts))
                )
        for parts in _placements(_MARKER, range(len(_MARKER) + 1)):
            marker = batch(_MARKER, 1, codec | _MARKED, payload=pack(parts), producer=(7, 1, -1))
            yield OddStream(f"{name}, a marker", marker)
        for magic, inner in _message_sets() if codec != 4 else ():
            for parts in _placements(inner, range(0, len(inner) + 1, 3)):
                yield OddStream(
                    f"{name}, magic {magic}", legacy(magic, None, pack(parts), 1, attributes=codec)
                )
    yield from gzip_tails()


def gzip_tails() -> Iterator[OddStream]:
    """Yield a gzip member and 0 to 40 bytes that start as another member does.

    java.util.zip.GZIPInputStream reads on only if enough bytes are left or its source has more
    (JDK-7036144).
    """
    records, count = record(0, b"key", b"abcdefghij"), 1
    plain = gzip.compress(records, mtime=0)
    starts = [
        b"\x1f\x8b\x08" + bytes(37),
        b"\x1f\x8b\x08\x04" + bytes(36),
        b"\x1f\x8b\x08\x08" + bytes(6) + b"name" + bytes(26),
        b"\x1f\x8b\x08\x02" + bytes(36),
        b"\x1f\x8b\x07" + bytes(37),
        b"\x1f\x8c" + bytes(38),
        gzip.compress(b"", mtime=0) * 2,
        bytes(40),
    ]
    for start in starts:
        for length in range(41):
            yield OddStream(
                "gzip tail, magic 2", batch(records, count, 1, payload=plain + start[:length])
            )
            whole = plain + gzip.compress(b"", mtime=0) + start[:length]
            yield OddStream("gzip tail of two, magic 2", batch(records, count, 1, payload=whole))


@cache
def _distinct() -> list[OddStream]:
    return list(dict.fromkeys(_everything()))


def odd_streams(limit: int = 1 << 60) -> list[OddStream]:
    """Return all of them; with ``limit``, every n-th."""
    found = _distinct()
    return found[:: max(1, -(-len(found) // limit))]
