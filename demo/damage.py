"""Damaged copies of real segments: one damage each, made from a seed.

    offset  0 base_offset:8         8 batch_length:4    12 partition_leader_epoch:4
           16 magic:1              17 crc:4             21 attributes:2
           23 last_offset_delta:4  27 base_timestamp:8  35 max_timestamp:8
           43 producer_id:8        51 producer_epoch:2  53 base_sequence:4
           57 records_count:4      61 records           (the checksum covers 21 to the end)

Damage by a disk or a network makes the checksum wrong. A faulty program computes a right checksum
over wrong content. So a right checksum does not make a batch valid.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from batchval import scan_batches
from batchval.compression.compressors import compress
from batchval.core.format.crc32c import crc32c
from batchval.types import CompressionType

LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
CRC_AT, COVERED_FROM, RECORDS_FROM = 17, 21, 61
BOMB_BYTES = 80 << 20  # above the default limit of 64 MiB

Row = dict[str, Any]


class Segment(NamedTuple):
    """A copy of a segment, to be damaged in place."""

    log: bytearray
    offset_index: bytearray

    def rows(self) -> list[Row]:
        return list(scan_batches(self.log).rows())

    def sign(self, row: Row) -> None:
        """Compute the checksum of a changed batch anew."""
        start, end = row["position"], row["position"] + row["size_in_bytes"]
        struct.pack_into(
            ">I", self.log, start + CRC_AT, crc32c(memoryview(self.log)[start + COVERED_FROM : end])
        )

    def replace(self, row: Row, batch: bytes) -> None:
        self.log[row["position"] : row["position"] + row["size_in_bytes"]] = batch


class Damage(NamedTuple):
    """What is done to a copy of which partition, and the ids of the rules that must see it."""

    what: str
    partition: str
    do: Callable[[Segment, random.Random], None]
    rules: frozenset[str]


_DAMAGES: list[Damage] = []


def _damage(
    what: str, partition: str, *rules: str
) -> Callable[[Callable[[Segment, random.Random], None]], None]:
    def keep(do: Callable[[Segment, random.Random], None]) -> None:
        _DAMAGES.append(Damage(what, partition, do, frozenset(rules)))

    return keep


def _inner(segment: Segment, chance: random.Random) -> Row:
    """Choose a batch that is neither the first nor the last."""
    return chance.choice(segment.rows()[1:-1])


@_damage("a bit of a record", "codec-none-0", "14")
def _bit(segment: Segment, chance: random.Random) -> None:
    row = _inner(segment, chance)
    at = row["position"] + chance.randrange(RECORDS_FROM, row["size_in_bytes"])
    segment.log[at] ^= 1 << chance.randrange(8)


@_damage("a bit of a checksum", "idempotent-0", "14")
def _crc(segment: Segment, chance: random.Random) -> None:
    segment.log[_inner(segment, chance)["position"] + CRC_AT + chance.randrange(4)] ^= 0x10


@_damage("last batch cut off", "codec-lz4-0", "L1")
def _cut(segment: Segment, chance: random.Random) -> None:
    last = segment.rows()[-1]
    del segment.log[last["position"] + chance.randrange(1, last["size_in_bytes"]) :]


@_damage("last batch all zeros", "codec-snappy-0", "L1")
def _zeros(segment: Segment, chance: random.Random) -> None:
    last = segment.rows()[-1]
    segment.replace(last, bytes(last["size_in_bytes"]))


@_damage("a batch_length of 5", "rolled-0", "2")
def _size(segment: Segment, chance: random.Random) -> None:
    struct.pack_into(">i", segment.log, _inner(segment, chance)["position"] + 8, 5)


@_damage("magic 9", "transactional-0", "4")
def _magic(segment: Segment, chance: random.Random) -> None:
    segment.log[_inner(segment, chance)["position"] + 16] = 9


@_damage("two neighbours swapped", "codec-zstd-0", "L2")
def _swap(segment: Segment, chance: random.Random) -> None:
    rows = segment.rows()
    first = chance.randrange(1, len(rows) - 1)
    one, two = rows[first], rows[first + 1]
    start, middle = one["position"], two["position"]
    end = middle + two["size_in_bytes"]
    segment.log[start:end] = segment.log[middle:end] + segment.log[start:middle]


@_damage("a batch taken out", "codec-gzip-0", "L3")
def _hole(segment: Segment, chance: random.Random) -> None:
    segment.replace(_inner(segment, chance), b"")


@_damage("an older leader epoch", "leader-epoch-0", "L4")
def _epoch(segment: Segment, chance: random.Random) -> None:
    struct.pack_into(">i", segment.log, segment.rows()[-1]["position"] + 12, 0)


@_damage("a sequence moved on *", "idempotent-0", "L5")
def _sequence(segment: Segment, chance: random.Random) -> None:
    row = _inner(segment, chance)
    struct.pack_into(">i", segment.log, row["position"] + 53, row["base_sequence"] + 1000)
    segment.sign(row)


@_damage("a wrong index entry", "rolled-0", "L6")
def _index(segment: Segment, chance: random.Random) -> None:
    entry = 8 * chance.randrange(len(segment.offset_index) // 8)
    (position,) = struct.unpack_from(">i", segment.offset_index, entry + 4)
    struct.pack_into(">i", segment.offset_index, entry + 4, position + chance.randrange(1, 12))


@_damage("records_count + 1 *", "codec-none-0", "29")
def _count(segment: Segment, chance: random.Random) -> None:
    row = _inner(segment, chance)
    struct.pack_into(">i", segment.log, row["position"] + 57, row["records_count"] + 1)
    segment.sign(row)


@_damage("a bit of a gzip stream *", "codec-gzip-0", "S7", "29")
def _stream(segment: Segment, chance: random.Random) -> None:
    row = _inner(segment, chance)
    # after the member's header of 10 bytes, whose flags and names do not affect the content
    at = row["position"] + chance.randrange(RECORDS_FROM + 10, row["size_in_bytes"])
    segment.log[at] ^= 1 << chance.randrange(8)
    segment.sign(row)


@_damage("an undefined codec *", "codec-zstd-0", "15", "S6")
def _codec(segment: Segment, chance: random.Random) -> None:
    row = _inner(segment, chance)
    segment.log[row["position"] + 22] = segment.log[row["position"] + 22] & ~7 | chance.choice(
        (5, 6, 7)
    )
    segment.sign(row)


def _varint(number: int) -> bytes:
    number <<= 1  # lengths and deltas here are not negative
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def bomb(base_offset: int, leader_epoch: int, size: int = BOMB_BYTES) -> bytes:
    """Return a batch whose only value is ``size`` zero bytes; it compresses to a thousandth of
    them.
    """
    body = b"\0" + _varint(0) + _varint(0) + b"\x01" + _varint(size)  # attributes, deltas, no key
    record = _varint(len(body) + size + 1) + body + bytes(size) + b"\0"  # no headers
    payload = compress(CompressionType.ZSTD, record)
    head = struct.pack(">hiqqqhii", CompressionType.ZSTD, 0, 1, 1, -1, -1, -1, 1)
    crc = crc32c(payload, crc32c(head))
    return (
        struct.pack(">qiibI", base_offset, len(head) + len(payload) + 9, leader_epoch, 2, crc)
        + head
        + payload
    )


@_damage("80 MiB in a few kB *", "codec-zstd-0", "S8")
def _bomb(segment: Segment, chance: random.Random) -> None:
    last = segment.rows()[-1]
    segment.replace(last, bomb(last["base_offset"], last["partition_leader_epoch"]))


def damages() -> tuple[Damage, ...]:
    return tuple(_DAMAGES)


def damaged_copy(damage: Damage, source: Path, to: Path, seed: int) -> Path:
    """Copy the partition's first segment to a folder below ``to``, damage it, and return the
    folder.
    """
    folder = source / damage.partition
    index = folder / INDEX
    segment = Segment(
        bytearray((folder / LOG).read_bytes()),
        bytearray(index.read_bytes() if index.exists() else b""),
    )
    damage.do(segment, random.Random(f"{seed} {damage.what}"))
    copy = to / f"{zlib.crc32(damage.what.encode()):08x}" / damage.partition
    copy.mkdir(parents=True)
    (copy / LOG).write_bytes(segment.log)
    if segment.offset_index:
        (copy / INDEX).write_bytes(segment.offset_index)
    return copy
