"""Make the bench batches: one record batch a file, the same bytes each time.

    magic 2   header of 61 bytes, records (varints), compressed as a whole
    magic 1   messages of 34 bytes + key + value; compressed: one wrapper whose value holds them, with relative offsets
    magic 0   the same without timestamps, 26 bytes a message; inner offsets are absolute

Keys are "key-N", values word-like text that gzip shortens to about a third. Compression is that of
Kafka's producer at its defaults (batchval.compression.compressors): gzip 6, xerial snappy in 32 KiB
blocks, lz4 frames of separate 64 KiB blocks, zstd 3 as a stream, so without content size and with
the level's whole window. The random numbers are java.util.Random's, so that Kafka's own builder
(``oracle.py bench-batches DIR``) makes the same records.

    python -m bench.validation.batches [DIR]
"""

from __future__ import annotations

import struct
import sys
import zlib
from functools import cache
from pathlib import Path

import zstandard

from bench.validation import cells

FIRST_TIMESTAMP = 1_700_000_000_000
WORDS = [
    "order",
    "user",
    "event",
    "click",
    "price",
    "0001",
    "true",
    "null",
    "eu-west",
    "ts",
    "session",
    "a",
    "42",
    "kafka",
    "topic",
    "id",
]
CODEC_IDS = {name: number for number, name in enumerate(cells.CODECS)}


class JavaRandom:
    """java.util.Random: a linear congruential generator of 48 bits, as its documentation gives
    it.
    """

    def __init__(self, seed: int) -> None:
        self.state = (seed ^ 0x5DEECE66D) & ((1 << 48) - 1)

    def bits(self, n: int) -> int:
        self.state = (self.state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        value = self.state >> (48 - n)
        return value - (1 << n) if n == 32 and value >> 31 else value

    def below(self, bound: int) -> int:
        if bound & (bound - 1) == 0:
            return bound * self.bits(31) >> 31
        while True:
            bits = self.bits(31)
            value = bits % bound
            if bits - value + bound - 1 < 1 << 31:
                return value


def text(random: JavaRandom, size: int) -> bytes:
    """Return words, every third followed by a random hexadecimal number."""
    parts: list[str] = []
    length = 0
    while length < size:
        part = WORDS[random.below(len(WORDS))] + "="
        if random.below(3) == 0:
            part += f"{random.bits(32) & 0xFFFFFFFF:x}"
        part += ";"
        parts.append(part)
        length += len(part)
    return "".join(parts).encode()[:size]


@cache
def records(count: int, size: int) -> list[tuple[int, bytes, bytes]]:
    """Return (timestamp, key, value) of each record: the same for every codec and magic."""
    random = JavaRandom(count * 31 + size)
    out = []
    for i in range(count):
        key = f"key-{random.below(100000)}".encode()
        out.append((FIRST_TIMESTAMP + i, key, text(random, size)))
    return out


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compressed(codec: str, data: bytes, magic: int) -> bytes:
    if codec == "zstd":
        # a Java output stream is flushed before it is closed: the last block is an empty one
        stream = zstandard.ZstdCompressor(level=3).compressobj()
        return (
            stream.compress(data) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + stream.flush()
        )
    from batchval.compression.compressors import compress

    return compress(CODEC_IDS[codec], data, magic)


def batch_v2(codec: str, count: int, size: int) -> bytes:
    return batch_of(codec, records(count, size))


def batch_of(codec: str, content: list[tuple[int, bytes, bytes]]) -> bytes:
    """Return a batch whose timestamps rise by one from FIRST_TIMESTAMP."""
    from batchval.core.format.crc32c import crc32c

    count = len(content)
    body = bytearray()
    for i, (timestamp, key, value) in enumerate(content):
        record = (
            b"\0"
            + varint(timestamp - FIRST_TIMESTAMP)
            + varint(i)
            + varint(len(key))
            + key
            + varint(len(value))
            + value
            + b"\0"
        )
        body += varint(len(record)) + record
    covered = struct.pack(
        ">hiqqqhii",
        CODEC_IDS[codec],
        count - 1,
        FIRST_TIMESTAMP,
        FIRST_TIMESTAMP + count - 1,
        -1,
        -1,
        -1,
        count,
    )
    covered += compressed(codec, bytes(body), 2)
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered


def message(
    magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes
) -> bytes:
    covered = struct.pack(">bb", magic, attributes) + (
        struct.pack(">q", timestamp) if magic else b""
    )
    for field in (key, value):
        covered += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def batch_legacy(magic: int, codec: str, count: int, size: int) -> bytes:
    inner = b"".join(
        message(magic, i, 0, timestamp, key, value)
        for i, (timestamp, key, value) in enumerate(records(count, size))
    )
    if codec == "none":
        return inner
    value = compressed(codec, inner, magic)
    return message(magic, count - 1, CODEC_IDS[codec], FIRST_TIMESTAMP + count - 1, None, value)


def build(cell: cells.Cell) -> bytes:
    if cell.magic == 2:
        return batch_v2(cell.codec, cell.records, cell.value_size)
    return batch_legacy(cell.magic, cell.codec, cell.records, cell.value_size)


def make(folder: Path) -> Path:
    """Write the file of each cell that has none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for cell in [*cells.cells(2), *cells.legacy_cells()]:
        path = cell.path(folder)
        if not path.exists():
            unfinished = path.with_suffix(".part")
            unfinished.write_bytes(build(cell))
            unfinished.rename(path)
    return folder


if __name__ == "__main__":
    print(make(Path(sys.argv[1]) if len(sys.argv) > 1 else cells.BATCHES))
