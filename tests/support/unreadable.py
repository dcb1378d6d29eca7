"""Batches whose records cannot be read, though each is whole and its checksum is right."""

from __future__ import annotations

import struct

from tests.support.batches import (
    GZIP,
    LZ4,
    ZSTD,
    Body,
    batch,
    message,
    raw,
    record,
    records,
    varint,
    wrapper,
)

__all__ = ["UNREADABLE"]

UNREADABLE = [
    wrapper([message(1)], ZSTD),
    wrapper([wrapper([message(1)], GZIP)], GZIP),
    message(1, attributes=GZIP, value=None),
    message(1, attributes=GZIP, value=b""),
    message(1, attributes=GZIP, value=b"no gzip"),
    wrapper([message(1)[:-1]], LZ4),
    wrapper([message(1, size=13)], LZ4),
    message(1, attributes=5),
    message(1, tail=b""),
    message(1, tail=struct.pack(">i", 9) + b"k"),
    message(0, tail=struct.pack(">ii", -1, 9)),
    batch([record(0)], records_count=2),
    batch([record(0), b"\0"], records_count=1),
    batch(records(2), records_count=1),
    batch([raw(Body(), varint(99))]),
    batch(payload=b"\x1f\x8b", codec=GZIP),
    batch(payload=b"", codec=ZSTD),
    batch(records_count=-1),
    batch(attributes=7),
    batch(records(9), records_count=2**31 - 1),
    batch([], records_count=2),
    batch([], records_count=2, codec=LZ4),
]
