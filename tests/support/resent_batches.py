"""Batches that a producer without sequence numbers has sent again, because no answer came.

A broker takes each copy for a new batch (before KIP-98): all of them are in the log. With one
request in flight a copy follows its original, with nothing of this producer between them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.record_checker import Stored, unpacked

__all__ = ["Resent", "last_offsets", "without_copies"]

#: base_offset, batch_length
_FRAME = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23


@dataclass
class Resent:
    """Counts copies that a later one followed."""

    batches: int = 0
    records: int = 0


def last_offsets(folder: Path) -> Iterator[int]:
    """Yield the last offset of each batch in the segments of a partition's folder."""
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position < len(data):
            base_offset, length = _FRAME.unpack_from(data, position)
            (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, position + _LAST_OFFSET_DELTA_AT)
            yield base_offset + delta
            position += _FRAME.size + length


def without_copies(
    stored: Iterable[Stored], ends: Mapping[int, Iterable[int]], resent: Resent
) -> Iterator[Stored]:
    """Yield of each batch the last copy, and count the others.

    A copy is dropped only where the producer's next batch in this partition has the same records,
    all of them. So what is acknowledged must be the last copy: `record_checker.check` finds an
    earlier one as moved, and a part of a batch that is there again as doubled.

    ``stored``  partition by partition, in the order of offsets
    ``ends``    of a partition, the last offset of each batch
    """
    held: dict[tuple[int, int], list[Stored]] = {}
    for batch in _batches(
        stored, {partition: iter(offsets) for partition, offsets in ends.items()}
    ):
        read = unpacked(batch[0].value)
        if read is None:
            yield from batch
            continue
        place = batch[0].partition, read[0]
        before = held.get(place, [])
        if [record.value for record in before] == [record.value for record in batch]:
            resent.batches += 1
            resent.records += len(before)
        else:
            yield from before
        held[place] = batch
    for batch in held.values():
        yield from batch


def _batches(stored: Iterable[Stored], ends: Mapping[int, Iterator[int]]) -> Iterator[list[Stored]]:
    batch: list[Stored] = []
    end = -1
    for record in stored:
        if not batch:
            end = next(ends[record.partition])
        batch.append(record)
        assert record.partition == batch[0].partition, f"{batch[0]} is in a batch without an end"
        assert record.offset <= end, f"{record} is after the end of its batch, {end}"
        if record.offset == end:
            yield batch
            batch = []
    assert not batch, f"{batch[0]} is in a batch without an end"
