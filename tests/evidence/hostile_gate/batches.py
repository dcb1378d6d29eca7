"""Batches for hostile requests: bombs, records that are refused one by one, streams of nothing.

``Batch.plain`` is what the batch decompresses to, at most what the gate may decompress of it.
"""

from __future__ import annotations

import random
import struct
import time
import zlib
from typing import NamedTuple

import zstandard

from tests.evidence.hostile import seeds
from tests.evidence.hostile.gil import dynamic_blocks
from tests.evidence.hostile.seeds import compress, record, varint

MINIMAL_RECORD = record(0, None, b"")
LOG_APPEND_TIME = 8
CODECS = {name: codec for codec, name in enumerate(seeds.CODECS)}


class Batch(NamedTuple):
    """A sealed batch, and the bytes that it decompresses to (0 where it is not compressed)."""

    data: bytes
    plain: int


def now_ms() -> int:
    return int(time.time() * 1000)


def packed(codec: int, records: bytes) -> bytes:
    """Compress fast and well: one zstd frame without a stated size, else as a client does."""
    if codec == CODECS["zstd"]:
        return zstandard.ZstdCompressor(level=3, write_content_size=False).compress(records)
    return compress(codec, records, 1 if codec == CODECS["gzip"] else 0)


def of(records: bytes, count: int, codec: int = 0, **fields: int) -> Batch:
    """Return a batch of now."""
    fields.setdefault("base_timestamp", now_ms())
    payload = packed(codec, records)
    return Batch(
        seeds.batch(b"", count, codec, payload=payload, **fields), len(records) if codec else 0
    )


def around(payload: bytes, codec: int, plain: int, count: int = 1) -> Batch:
    """Return a batch of a payload that is compressed already."""
    return Batch(seeds.batch(b"", count, codec, payload=payload, base_timestamp=now_ms()), plain)


def small() -> Batch:
    """Return an ordinary batch of one short record."""
    return of(record(0, b"key", b"an ordinary value"), 1)


def ordinary(codec: int = CODECS["zstd"], size: int = 120_000) -> Batch:
    """Return an ordinary batch of about this many compressed bytes: records of 1 kB, half text."""
    rng = random.Random(size)
    words = [b"offset", b"segment", b"leader", b"epoch", b"replica", b"quota", b"broker", b"topic"]

    def value() -> bytes:
        return (b" ".join(rng.choices(words, k=110)) + rng.randbytes(150).hex().encode())[:1000]

    count = size // 300
    while True:
        made = of(b"".join(record(i, b"k%d" % i, value()) for i in range(count)), count, codec)
        if len(made.data) >= size:
            return made
        count += count // 8


def damaged(good: Batch) -> Batch:
    """Return the same batch with a wrong checksum."""
    return Batch(good.data[:-1] + bytes([good.data[-1] ^ 1]), 0)


def equal_records(count: int, codec: int) -> Batch:
    """Return records that are all the same; offset deltas are wrong from the second on."""
    return of(MINIMAL_RECORD * count, count, codec)


def errors(count: int, codec: int = 0, attributes: int = LOG_APPEND_TIME) -> Batch:
    """Return a batch of which every record is refused: a producer may not set LogAppendTime."""
    fields = {"attributes": attributes, "base_timestamp": -1, "max_timestamp": -1}
    return of(MINIMAL_RECORD * count, count, codec, **fields)


def null_keys(count: int, codec: int) -> Batch:
    """Return a batch of which a compacted topic refuses every record."""
    return of(b"".join(record(i, None, b"") for i in range(count)), count, codec)


def old_records(count: int, codec: int) -> Batch:
    """Return a batch of which a topic that bounds timestamps refuses every record."""
    records = b"".join(record(i, b"k", b"") for i in range(count))
    return of(records, count, codec, base_timestamp=1_000_000, max_timestamp=1_000_000)


def one_record(body: bytes) -> bytes:
    return varint(len(body)) + body


def empty_headers(count: int, codec: int) -> Batch:
    """Return one record with so many headers of an empty key and no value."""
    body = b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(count) + (varint(0) + varint(-1)) * count
    return of(one_record(body), 1, codec)


def zeros(size: int, codec: int) -> Batch:
    """Return one record of so many zeros."""
    return of(record(0, None, bytes(size)), 1, codec)


def large_bomb(pieces: int) -> Batch:
    """Return ``pieces`` times 7 MB of equal records in one zstd frame of some kilobytes."""
    count = 1_000_000
    packer = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    payload = (
        b"".join(packer.compress(MINIMAL_RECORD * count) for _ in range(pieces)) + packer.flush()
    )
    return around(payload, CODECS["zstd"], pieces * count * len(MINIMAL_RECORD), pieces * count)


def empty_streams(size: int) -> dict[str, Batch]:
    """Return payloads of about so many bytes of which almost nothing comes out."""
    last = record(0, None, b"v")
    head = bytes.fromhex("1f8b08000000000000ff")
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    end = deflate.compress(last) + deflate.flush() + struct.pack("<II", zlib.crc32(last), len(last))
    blocks = head + dynamic_blocks(size // 13, 0) + end
    member = head + b"\3\0" + bytes(8)
    members = member * (size // len(member)) + compress(1, last)
    skippable = struct.pack("<II", 0x184D2A50, 0) * (size // 8) + compress(4, last)
    frames = bytes.fromhex("28b52ffd2000010000")
    empty = frames * (size // len(frames)) + compress(4, last)
    chunks = (
        b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", 1) + b"\0") * (size // 5)
    )
    chunks += compress(2, last)[16:]
    lz4_blocks = b"".join(
        b"\x01\0\0\x80" + bytes([byte]) for byte in record(0, None, bytes(size // 5))
    )
    found = {"gzip blocks": (blocks, 1), "gzip members": (members, 1)}
    found |= {
        "zstd skippable": (skippable, 4),
        "zstd frames": (empty, 4),
        "snappy chunks": (chunks, 2),
    }
    found["lz4 blocks of a byte"] = (bytes.fromhex("04224d18607073") + lz4_blocks + bytes(4), 3)
    return {name: around(payload, codec, 0) for name, (payload, codec) in found.items()}
