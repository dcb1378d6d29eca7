"""Stretches of a segment file: whole batches, read by pread into memory of its own.

A live file may shrink under its reader, so nothing is mapped. Damage does not end the reading: the reader says where it
was and goes on at the next batch that its own CRC proves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from batchval.core.columns import BatchColumns, resynchronise, scan_batches

__all__ = ["Damage", "IndexEntry", "SegmentFile", "Stretch", "read_index"]

BLOCK = 8 << 20  # bytes read at a time; a larger batch gets a larger block
_LOG_OVERHEAD = 12
_SIZE_AT = 8
_INDEX_ENTRY = 8
_LARGEST_BATCH = (1 << 31) - 1


class Stretch(NamedTuple):
    """Whole batches: ``data`` holds the file's bytes from ``position`` on."""

    position: int
    data: memoryview


class Damage(NamedTuple):
    """Bytes that are no batch, from ``position`` on. ``kind`` as BatchColumns.tail; the last reaches the file's end."""

    position: int
    size: int
    kind: str


class IndexEntry(NamedTuple):
    """One entry of an .index file: from ``offset`` on, look at ``position``."""

    offset: int
    position: int


class SegmentFile:
    """A .log file, or any file of batches back to back. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self.size = os.fstat(self._fd).st_size

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def read(self, position: int, size: int) -> memoryview:
        """At most ``size`` bytes; fewer at the file's end."""
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(self._fd, size, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
            size -= len(part)
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def stretches(self, start: int = 0, end: int | None = None, block: int = BLOCK) -> Iterator[Stretch | Damage]:
        """All batches that start in [start, end), in order, with the damage between them."""
        stop = self.size if end is None else min(end, self.size)
        position = start
        while position < stop:
            data = self.read(position, block)
            columns = scan_batches(data)
            if columns.end:
                whole = self._before(columns, stop - position)
                yield Stretch(position, data[:whole])
                position += whole
                continue
            at_end = position + len(data) >= self.size
            if columns.tail == "partial" and not at_end:
                larger = self._larger_block(data, block)
                if larger > block:
                    block = larger
                    continue
            damage = self._damage(position, columns.tail or "partial")
            yield damage
            position += damage.size

    @staticmethod
    def _before(columns: BatchColumns, limit: int) -> int:
        """Bytes of the batches that start before ``limit``."""
        starts = columns["position"]
        count = int((starts < limit).sum())
        return int(starts[count - 1] + columns["size_in_bytes"][count - 1])

    def _larger_block(self, data: memoryview, block: int) -> int:
        """What the batch at the block's start needs, if its size field can be believed."""
        needed = int.from_bytes(data[_SIZE_AT:_LOG_OVERHEAD], "big") + _LOG_OVERHEAD
        return needed if block < needed <= _LARGEST_BATCH else block

    def _damage(self, position: int, kind: str) -> Damage:
        """From ``position`` to the next proven batch, or to the file's end."""
        at = position + 1
        window = BLOCK
        while at < self.size:
            data = self.read(at, window)
            found = resynchronise(data)
            if found >= 0:
                return Damage(position, at + found - position, "size" if kind == "zeros" else kind)
            if at + len(data) >= self.size:
                break
            if window < _LARGEST_BATCH:  # a batch may be larger than the window
                window = min(4 * window, _LARGEST_BATCH)
                continue
            at += len(data) // 2
        return Damage(position, self.size - position, kind)


def read_index(path: Path, base_offset: int) -> list[IndexEntry]:
    """The entries of an .index file, but for the zeros that preallocation leaves behind them."""
    data = path.read_bytes()
    entries = []
    for start in range(0, len(data) - len(data) % _INDEX_ENTRY, _INDEX_ENTRY):
        relative, position = (
            int.from_bytes(data[start : start + 4], "big"),
            int.from_bytes(data[start + 4 : start + 8], "big"),
        )
        if relative == 0 and position == 0:
            continue
        entries.append(IndexEntry(base_offset + relative, position))
    return entries
