"""Make the produce requests of the paced run, as PacedCommand.java of the oracle and paced.py read
them.

    for each request:  batches:4 content:4   content: bytes of its records, uncompressed
                       length:4              a batch
                       the batches           one after the other

16 producers, each with records of its own, take turns; a request holds one batch a partition. A
batch holds 16 records of 1 kB, which is the producer's batch.size of 16 kB. No two of the 2,112
batches are the same, so that neither caches nor branch predictors know what comes: 34 MB, gone
round and round.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bench.validation import batches

PRODUCERS = 16
RECORDS, VALUE_SIZE = 16, 1000
BATCHES = 2112  # a multiple of 16 × 12, and more than 16 × 128
HEADER = 61


@cache
def words(size: int) -> bytes:
    return batches.text(batches.JavaRandom(8364), size)


def content(number: int) -> list[tuple[int, bytes, bytes]]:
    """Return the records of a batch: a stretch of text that starts elsewhere for each number."""
    text = words(2 << 20)
    start = number * 9973 % (len(text) - RECORDS * VALUE_SIZE)
    return [
        (
            batches.FIRST_TIMESTAMP + i,
            f"key-{number}-{i}".encode(),
            text[start + i * VALUE_SIZE : start + (i + 1) * VALUE_SIZE],
        )
        for i in range(RECORDS)
    ]


@cache
def pool(codec: str, count: int) -> list[tuple[bytes, int]]:
    """Return ``count`` batches, each with the size of its records."""
    out = []
    for number in range(count):
        records = content(number)
        plain = len(batches.batch_of("none", records)) - HEADER
        out.append((batches.batch_of(codec, records), plain))
    return out


def requests(codec: str, partitions: int, count: int) -> Iterator[list[tuple[bytes, int]]]:
    """Yield requests of 16 producers in turn: every sixteenth batch is of the same producer."""
    made = pool(codec, count)
    of_producer = [made[producer::PRODUCERS] for producer in range(PRODUCERS)]
    for turn in range(max(1, count // PRODUCERS // partitions)):
        for own in of_producer:
            yield [own[i % len(own)] for i in range(turn * partitions, (turn + 1) * partitions)]


def make(folder: Path, codec: str, partitions: int, count: int = BATCHES) -> Path:
    path = folder / f"stream-{codec}-{partitions}-{count}.bin"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        for request in requests(codec, partitions, count):
            file.write(struct.pack(">ii", len(request), sum(size for _, size in request)))
            file.write(b"".join(struct.pack(">i", len(batch)) for batch, _ in request))
            file.write(b"".join(batch for batch, _ in request))
    unfinished.rename(path)
    return path


def read(path: Path) -> Iterator[tuple[bytes, list[int], int]]:
    """Yield batches, their lengths, and the size of their records."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        count, size = struct.unpack_from(">ii", data, at)
        lengths = list(struct.unpack_from(f">{count}i", data, at + 8))
        at += 8 + 4 * count
        yield data[at : at + sum(lengths)], lengths, size
        at += sum(lengths)
