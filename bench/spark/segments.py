"""Segments to audit, as large as asked: */<topic>-<partition>/<base offset>.log and .index, the
same bytes each time.

A batch of each codec in turn, with the bench's own records (bench/validation/batches.py), of about
``batch_bytes`` as stored. Only the base offset differs from one round to the next: it is not under
the checksum.
"""

from __future__ import annotations

import struct
from itertools import cycle
from pathlib import Path

from bench.validation import batches

INDEX_INTERVAL = 4096  # Kafka's default
VALUE_SIZE = 1000
VARIANTS = 4  # of each codec, of other lengths


def batch_near(codec: str, size: int, variant: int) -> bytes:
    """Return a batch of whole records of about ``size`` bytes as stored."""
    value = VALUE_SIZE if size > 2 * VALUE_SIZE else 100
    count, batch = 1, batches.batch_v2(codec, 1, value)
    for _ in range(4):
        count = max(1, round(count * size / len(batch)) + variant)
        batch = batches.batch_v2(codec, count, value)
    return batch


def write(
    out: Path, topic: str, partitions: int, size: int, batch_bytes: int, codecs: tuple[str, ...]
) -> int:
    """Write ``size`` bytes a partition in one segment each; return the number of batches."""
    kinds = [(codec, variant) for variant in range(VARIANTS) for codec in codecs]
    made = [bytearray(batch_near(codec, batch_bytes, variant)) for codec, variant in kinds]
    total = 0
    for partition in range(partitions):
        folder = out / f"{topic}-{partition}"
        folder.mkdir(parents=True, exist_ok=True)
        offset = position = indexed = 0
        with (
            (folder / f"{0:020}.log").open("wb") as log,
            (folder / f"{0:020}.index").open("wb") as index,
        ):
            for batch in cycle(made):
                if position + len(batch) > size:
                    break
                last = offset + struct.unpack_from(">i", batch, 23)[0]
                struct.pack_into(">q", batch, 0, offset)
                if indexed > INDEX_INTERVAL:
                    index.write(struct.pack(">ii", last, position))
                    indexed = 0
                log.write(batch)
                offset, position, indexed = last + 1, position + len(batch), indexed + len(batch)
                total += 1
    return total
