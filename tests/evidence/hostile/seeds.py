"""Good batches to start from: every magic, codec and feature, written by code that is not the
core's.

magic 2:  offset:8 size:4 epoch:4 2 crc:4 attributes:2 last_offset_delta:4 base_timestamp:8
          max_timestamp:8 producer_id:8 producer_epoch:2 base_sequence:4 records_count:4, records
magic 0/1: offset:8 size:4 crc:4 magic:1 attributes:1 [timestamp:8] key_length:4 key value_length:4
value
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import lz4.block
import lz4.frame
import numpy as np
import snappy
import zstandard

from batchval.core.format.crc32c import crc32c

__all__ = [
    "CODECS",
    "NOW",
    "batch",
    "compress",
    "deflate_seeds",
    "legacy",
    "record",
    "records_in_order",
    "seeds",
    "snappy_seeds",
    "varint",
    "wrapper",
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW = 1_700_000_000_000
MAX_SEED_BYTES = 4096  # larger seeds only slow the mutator down
_ROOT = Path(__file__).parents[3]


def varint(value: int) -> bytes:
    """Encode a zigzag varint in its shortest form."""
    v = (value << 1) ^ (value >> 63)
    out = bytearray()
    while v >= 0x80:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    return bytes([*out, v])


def _bytes(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(
    index: int,
    key: bytes | None,
    value: bytes | None,
    delta: int = 0,
    headers: Iterable[tuple[bytes, bytes | None]] = (),
    attributes: int = 0,
) -> bytes:
    """Encode one record of magic 2."""
    headers = list(headers)
    body = (
        bytes([attributes])
        + varint(delta)
        + varint(index)
        + _bytes(key)
        + _bytes(value)
        + varint(len(headers))
    )
    body += b"".join(_bytes(name) + _bytes(content) for name, content in headers)
    return varint(len(body)) + body


def records_in_order(first: int, count: int, value: bytes) -> bytes:
    """Return ``record(i, None, value)`` for so many ``i``, a million in the time of some calls.

    Records whose offset deltas have varints of one width differ in these alone.
    """
    found, end = [], first + count
    while first < end:
        width = len(varint(first))
        until = min(end, 1 << 7 * width - 1)
        one = record(first, None, value)
        at = len(one) - len(varint(-1) + _bytes(value) + varint(0)) - width
        rows = np.tile(np.frombuffer(one, np.uint8), (until - first, 1))
        zigzag = np.arange(first, until) << 1
        for n in range(width):
            rows[:, at + n] = zigzag >> 7 * n & 0x7F | (0x80 if n < width - 1 else 0)
        found.append(rows.tobytes())
        first = until
    return b"".join(found)


def compress(codec: int, data: bytes, style: int = 0) -> bytes:
    """Compress a payload as some client does; ``style`` selects which."""
    if codec == 1:
        return gzip.compress(data, (6, 1, 9)[style % 3], mtime=0)
    if codec == 2:
        if style % 3 == 2:
            return bytes(snappy.compress(data))
        step = 32768 if style % 3 == 0 else max(1, len(data) // 3)
        chunks = [bytes(snappy.compress(data[at : at + step])) for at in range(0, len(data), step)]
        return (
            b"\x82SNAPPY\0"
            + struct.pack(">ii", 1, 1)
            + b"".join(struct.pack(">i", len(c)) + c for c in chunks)
        )
    if codec == 3:
        return bytes(
            lz4.frame.compress(
                data,
                block_linked=False,
                store_size=style % 2 == 1,
                content_checksum=style % 3 == 1,
                block_checksum=style % 3 == 2,
                block_size=4 + style % 4,
            )
        )
    if codec == 4:
        return zstandard.ZstdCompressor(
            level=(3, 1, 19)[style % 3],
            write_content_size=style % 2 == 1,
            write_checksum=style % 3 == 1,
        ).compress(data)
    return data


def batch(
    records: bytes,
    count: int,
    codec: int = 0,
    *,
    style: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_timestamp: int = NOW,
    max_timestamp: int | None = None,
    base_offset: int = 0,
    epoch: int = 0,
    payload: bytes | None = None,
    last_delta: int | None = None,
) -> bytes:
    """Build a sealed batch of magic 2. ``payload`` replaces the compressed records."""
    payload = compress(codec, records, style) if payload is None else payload
    checked = (
        struct.pack(
            ">hiqqqhii",
            attributes | codec,
            count - 1 if last_delta is None else last_delta,
            base_timestamp,
            base_timestamp if max_timestamp is None else max_timestamp,
            *producer,
            count,
        )
        + payload
    )
    return struct.pack(">qiibI", base_offset, len(checked) + 9, epoch, 2, crc32c(checked)) + checked


def legacy(
    magic: int,
    key: bytes | None,
    value: bytes | None,
    offset: int = 0,
    timestamp: int = NOW,
    attributes: int = 0,
) -> bytes:
    """Build one message of magic 0 or 1."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    magic: int, inner: bytes, codec: int, offset: int, timestamp: int = NOW, style: int = 0
) -> bytes:
    """Build a compressed message set."""
    return legacy(magic, None, compress(codec, inner, style), offset, timestamp, codec)


def _record_sets() -> Iterable[tuple[bytes, int]]:
    rng = random.Random(8364)
    words = [b"alpha", b"beta", b"gamma", b"delta", b"omega", b"kafka"]
    text = lambda n: b" ".join(rng.choice(words) for _ in range(n))  # noqa: E731
    yield record(0, b"k", b"v"), 1
    yield record(0, None, text(8)), 1
    yield record(0, b"key", None), 1
    yield record(0, b"", b""), 1
    yield record(0, b"k", text(40), 5, [(b"h", b"x"), ("ключ".encode(), None), (b"", b"")]), 1
    for count, size in ((2, 1), (3, 10), (5, 30), (10, 4), (20, 12), (40, 2)):
        yield (
            b"".join(
                record(i, text(1) if i % 3 else None, text(size), i * 7 - 3) for i in range(count)
            ),
            count,
        )
    yield (
        b"".join(
            record(i, b"k%d" % i, bytes(rng.randbytes(50)), i, [(b"h%d" % i, text(2))])
            for i in range(6)
        ),
        6,
    )
    yield b"".join(record(i, None, b"\0" * 200, 0) for i in range(8)), 8


def _generated() -> Iterable[bytes]:
    for records, count in _record_sets():
        for codec in range(5):
            for style in range(1 if codec == 0 else 3):
                yield batch(records, count, codec, style=style, max_timestamp=NOW + 1000)
    records, count = record(0, b"k", b"v") + record(1, b"k", b"w", 3), 2
    for codec in range(5):
        yield batch(records, count, codec, attributes=0x10, producer=(4000, 3, 17))
        yield batch(records, count, codec, attributes=0x08, max_timestamp=NOW)
        yield batch(records, count, codec, base_offset=77, epoch=4)
    yield batch(
        record(0, b"\0\0\0\1", b"\0" * 6), 1, attributes=0x30, producer=(4000, 3, -1), base_offset=5
    )
    yield batch(b"", 0, last_delta=9, base_offset=100, attributes=0x40)
    for magic in (0, 1):
        yield legacy(magic, b"key", b"value")
        yield legacy(magic, None, b"value") + legacy(magic, b"k", None, 1)
        for count in (1, 2, 5):
            for codec in (1, 2, 3):
                relative = b"".join(
                    legacy(magic, b"k%d" % i, b"some value %d" % i, i, NOW + i)
                    for i in range(count)
                )
                for style in range(3):
                    yield wrapper(magic, relative, codec, count - 1, style=style)
                    yield wrapper(
                        magic, relative, codec, 0 if magic else 100 + count - 1, style=style
                    )


def _files(extra: Iterable[Path]) -> Iterable[bytes]:
    """Yield the repository's golden and hostile cases, batches of its segments, and ``extra``
    files.
    """
    cases = [
        *(_ROOT / "fixtures" / "golden").rglob("*.jsonl*"),
        *(_ROOT / "fixtures" / "hostile").glob("batches.jsonl"),
    ]
    opened = [*sorted(cases), *extra]
    for path in opened:
        with (
            gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines
        ):
            for line in lines:
                yield bytes.fromhex(json.loads(line)["batch_hex"])
    for path in sorted((_ROOT / "fixtures" / "segments").rglob("*.log")):
        data, at, taken = path.read_bytes(), 0, 0
        while at + 17 < len(data) and taken < 6:
            size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
            if size < 26:
                break
            yield data[at : at + size]
            at += size
            taken += 1


def seeds(extra: Iterable[Path] = ()) -> list[bytes]:
    """Return all seeds, each once."""
    found = dict.fromkeys(
        seed for seed in (*_generated(), *_files(extra)) if len(seed) <= MAX_SEED_BYTES
    )
    return list(found)


def deflate_seeds() -> list[bytes]:
    """Return raw deflate data: stored, fixed, dynamic, long codes, far matches."""
    rng = random.Random(1)
    out = []
    for n in (0, 1, 10, 100, 1000, 6000):
        for data in (
            bytes(n),
            rng.randbytes(n),
            bytes(rng.choice(b"abcdefgh ") for _ in range(n)),
            bytes(int(rng.expovariate(0.05)) & 255 for _ in range(n)),
        ):
            for level, strategy in (
                (0, 0),
                (1, 0),
                (6, 0),
                (9, 0),
                (6, zlib.Z_FIXED),
                (6, zlib.Z_HUFFMAN_ONLY),
                (6, zlib.Z_RLE),
            ):
                packer = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
                out.append(packer.compress(data) + packer.flush())
    return [s for s in dict.fromkeys(out) if len(s) <= MAX_SEED_BYTES]


def snappy_seeds() -> list[bytes]:
    """Return raw snappy blocks."""
    rng = random.Random(2)
    out = []
    for n in (0, 1, 5, 60, 61, 300, 5000):
        for data in (
            bytes(n),
            rng.randbytes(n),
            bytes(rng.choice(b"abc") for _ in range(n)),
            (b"0123456789" * n)[:n],
        ):
            out.append(bytes(snappy.compress(data)))
    return [s for s in dict.fromkeys(out) if len(s) <= MAX_SEED_BYTES]
