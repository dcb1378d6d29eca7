"""Log folders for tests, and the rows of a plain loop over them: what every way through Spark is
held against.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from batchval.audit.arrow_rows import read_range, row_schema, unreadable_row
from batchval.core.claims import attach, compute
from batchval.segment.options import Options
from batchval.segment.ranges import Range
from batchval.segment.store import SegmentInfo, Store
from tests.support.batches import GZIP, LZ4, NONE, SNAPPY, ZSTD, batch, record, records

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)


def series(count: int, seed: int = 1, base: int = 0) -> list[bytes]:
    """Return batches of all codecs and of many sizes, one after the other."""
    chance = random.Random(seed)
    found = []
    for n in range(count):
        each = chance.randint(1, 30)
        value = chance.randbytes(chance.randint(1, 60))
        found.append(
            batch(
                records(each, value=value),
                codec=CODECS[n % 5],
                base_offset=base,
                partition_leader_epoch=3,
            )
        )
        base += each
    return found


def write(folder: Path, parts: Iterable[bytes], base: int = 0, every: int = 2048) -> Path:
    """Write a segment and its .index, with an entry for each interval of bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{base:020d}.log"
    position = since = 0
    entries = b""
    with log.open("wb") as file:
        for part in parts:
            if since > every and len(part) >= 8:
                entries += struct.pack(
                    ">Ii", (struct.unpack(">q", part[:8])[0] - base) & 0xFFFFFFFF, position
                )
                since = 0
            file.write(part)
            position += len(part)
            since += len(part)
    log.with_suffix(".index").write_bytes(entries)
    return log


def claimed(folder: Path, *, lies: bool = False) -> Path:
    """Write a segment of zstd and gzip batches with claims in their payload, true or false ones."""
    parts = []
    for n in range(60):
        one = batch(records(2, key=b"k"), codec=(ZSTD, GZIP)[n % 2], base_offset=2 * n)
        true = compute(one)
        assert true is not None
        claims = true._replace(null_keys=1) if lies else true
        parts.append(bytes(attach(one, claims, carrier="payload")))
    return write(folder, parts)


def flipped(data: bytes, at: int = -3) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 0x40
    return bytes(changed)


def a_cluster(folder: Path) -> Path:
    """Write five partitions: valid, damaged in three ways, two segments, and batches within
    values.
    """
    write(folder / "orders-0", series(120))
    parts = series(120, seed=2)
    parts[40] = flipped(parts[40])
    parts[80] = b"\xff" * 777
    write(folder / "orders-1", parts)
    write(folder / "orders-2", [*series(60, seed=3), bytes(3000)])
    first, second = series(30, seed=4), series(30, seed=5, base=5000)
    write(folder / "pay.ments-0", first)
    write(folder / "pay.ments-0", [*second, second[-1][:50]], base=5000)
    inner = batch([record()], base_offset=77, partition_leader_epoch=3)
    carriers = [
        batch(records(2, value=inner * 3), base_offset=n * 2, partition_leader_epoch=3)
        for n in range(40)
    ]
    write(folder / "nested-0", carriers)
    return folder


def plain(path: Path, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of one range per segment, by a loop."""
    chosen = Options(**options)
    store, below = Store.of(str(path))
    found: list[pa.RecordBatch] = []
    for one in store.list_segments(below, chosen.topics):
        if isinstance(one, SegmentInfo):
            found += list(read_range(Range(one, 0, one.size), chosen))
        else:
            found.append(
                unreadable_row(
                    SegmentInfo("", "", -1, -1, 0, 0), f"{one.uri}: {one.reason}", chosen
                )
            )
    return ordered(pa.Table.from_batches(found, row_schema(chosen.columns)).to_pylist())


def ordered(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return rows as dicts in the order of the log. Times in UTC: Spark's are local without a time
    zone.
    """
    dicts = [dict(row) if isinstance(row, dict) else row.asDict() for row in rows]
    for row in dicts:
        row |= {
            name: value.astimezone(UTC)
            for name, value in row.items()
            if isinstance(value, datetime)
        }
    names = ("topic", "partition", "segment", "position")
    return sorted(dicts, key=lambda row: [(row[name] is not None, row[name]) for name in names])
