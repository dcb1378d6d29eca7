"""Stretches of a segment file: whole batches, read by pread into memory of its own.

A live file may shrink under its reader, so nothing is mapped. Damage does not end the reading: the reader says where it
was and goes on at the next batch that its own CRC proves. No size that a file states buys memory above BELIEVED before
the checksum over that many bytes has been found right.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from batchval.core.columns import BatchColumns, resynchronise, scan_batches
from batchval.core.crc32c import crc32c

__all__ = ["INDEX_ENTRY", "Damage", "IndexEntry", "SegmentFile", "Stretch", "index_entries", "read_index"]

BLOCK = 8 << 20  # bytes read at a time; a larger batch gets a larger block
BELIEVED = 32 << 20  # a batch that states more than this must show a right checksum before it is read whole
WINDOW = 16 << 20  # searched at a time behind damage; successive windows share half
_PROOF_CHUNK = 1 << 20
_LOG_OVERHEAD = 12
_SIZE_AT = 8
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_HEADER = 61
INDEX_ENTRY = 8  # bytes: relative offset:4 position:4


class Stretch(NamedTuple):
    """Whole batches: ``data`` holds the file's bytes from ``position`` on."""

    position: int
    data: memoryview


class Damage(NamedTuple):
    """Bytes that are no batch, from ``position`` on, up to the next proven batch or to the file's end.

    ``kind``: ``partial`` (the file does not hold what the size field states), ``zeros`` (to the end), ``size`` (an
    impossible size field), ``magic``, or ``crc`` (a wrong checksum, and nothing stands where the size field points).
    """

    position: int
    size: int
    kind: str


class IndexEntry(NamedTuple):
    """One entry of an .index file: from ``offset`` on, look at ``position``."""

    offset: int
    position: int


class SegmentFile:
    """A .log file, or any regular file of batches back to back. Use as a context manager.

    Batches of magic 3 are some only with ``accept_claims_header``; else they are damage of the kind ``magic``.
    ``size`` is the file's when it was opened; it goes down when a read shows that the file has shrunk. Raises OSError
    for what cannot be opened, and for pipes, devices and folders.
    """

    def __init__(self, path: Path, *, accept_claims_header: bool = False) -> None:
        self.path = path
        self.accept_claims_header = accept_claims_header
        # without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self.size = status.st_size

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def read(self, position: int, size: int) -> memoryview:
        """At most ``size`` bytes; fewer at the file's end."""
        wanted = min(size, max(self.size, position + _HEADER) - position + BLOCK)  # memory follows what there can be
        data = os.pread(self._fd, wanted, position)
        while 0 < len(data) < wanted:  # a pread may be short, and gives at most 2 GiB
            more = os.pread(self._fd, wanted - len(data), position + len(data))
            if not more:
                break
            data += more
        if len(data) < size:
            self.size = min(self.size, position + len(data))
        return memoryview(data)

    def stretches(self, start: int = 0, end: int | None = None, block: int = BLOCK) -> Iterator[Stretch | Damage]:
        """All batches that start in [start, end), in order, with the damage between them."""
        position, wanted = start, block
        while position < (self.size if end is None else min(end, self.size)):
            data = self.read(position, wanted)
            if not data:
                return
            wanted = block
            columns = scan_batches(data, accept_claims_header=self.accept_claims_header)
            at_end = position + len(data) >= self.size
            whole = _believed(columns, data, at_end)
            if whole:
                stop = self.size if end is None else min(end, self.size)
                whole = _before(columns, min(whole, stop - position))
                yield Stretch(position, data[:whole])
                position += whole
                continue
            kind: str = columns.tail or "partial"
            if columns.end:
                kind = "crc"
            elif kind == "partial" and not at_end:
                needed = int.from_bytes(data[_SIZE_AT:_LOG_OVERHEAD], "big") + _LOG_OVERHEAD
                if len(data) < needed <= self.size - position:
                    if needed <= BELIEVED or self._proven(position):
                        wanted = needed
                        continue
                    kind = "crc"
            damage = self._damage(position, kind)
            if damage.size <= 0:  # the file has shrunk to here
                return
            yield damage
            position += damage.size

    def _proven(self, position: int) -> bool:
        """Has the batch of magic 2 or 3 a right checksum? Read in small pieces, whatever size it states."""
        header = self.read(position, _HEADER)
        if len(header) < _HEADER or not 2 <= header[_MAGIC_AT] <= 2 + self.accept_claims_header:
            return False
        at, end = (
            position + _ATTRIBUTES_AT,
            position + int.from_bytes(header[_SIZE_AT:_LOG_OVERHEAD], "big") + _LOG_OVERHEAD,
        )
        if not position + _HEADER <= end <= self.size:
            return False
        crc = 0
        while at < end:
            data = self.read(at, min(_PROOF_CHUNK, end - at))
            if not data:
                return False
            crc = crc32c(data, crc)
            at += len(data)
        return crc == int.from_bytes(header[_CRC_AT:_ATTRIBUTES_AT], "big")

    def _damage(self, position: int, kind: str) -> Damage:
        """From ``position`` to the next proven batch, or to the file's end.

        Batches of up to half a window are found for sure; a larger one right behind damage counts as damaged too.
        """
        at = position + 1
        while at < self.size:
            data = self.read(at, WINDOW)
            found = resynchronise(data, accept_claims_header=self.accept_claims_header)
            if found >= 0:
                return Damage(position, at + found - position, "size" if kind == "zeros" else kind)
            if at + len(data) >= self.size:
                break
            at += len(data) // 2
        return Damage(position, self.size - position, kind)


def _believed(columns: BatchColumns, data: memoryview, at_end: bool) -> int:
    """How many bytes from the start are batches whose size fields can be believed.

    A right checksum proves the size it was computed over. A wrong one may mean a wrong size: then the chain must lead
    on from there to a batch that is proven, to the very end of the file, or to a header that goes on with the offsets.
    """
    valid = np.flatnonzero(columns["is_valid"])
    sound = int(valid[-1]) + 1 if len(valid) else 0
    end = int(columns.end)
    if sound == len(columns):
        return end
    if at_end and columns.tail in (None, "zeros"):
        return end
    if columns.tail in (None, "partial"):
        if not at_end and sound:
            return int(columns["position"][sound])  # more can be seen from there
        if not len(data) - end or _goes_on(columns, data[end:]):
            return end
    return int(columns["position"][sound])


def _goes_on(columns: BatchColumns, data: memoryview) -> bool:
    """Does a batch that is not whole start here? Its offset lies behind the last one's, and not far."""
    if len(data) <= _MAGIC_AT:
        return False
    offset = int.from_bytes(data[:_SIZE_AT], "big", signed=True)
    return bool(data[_MAGIC_AT] == columns["magic"][-1] and 0 < offset - int(columns["base_offset"][-1]) < 1 << 31)


def _before(columns: BatchColumns, limit: int) -> int:
    """Bytes of the batches that start before ``limit``."""
    count = int((columns["position"] < limit).sum())
    return int(columns["position"][count - 1] + columns["size_in_bytes"][count - 1])


def read_index(path: Path, base_offset: int) -> list[IndexEntry]:
    """The entries of an .index file, without the zeros of preallocation and without a last entry that is cut off."""
    return index_entries(path.read_bytes(), base_offset)


def index_entries(data: bytes, base_offset: int) -> list[IndexEntry]:
    """The same of an index file's bytes."""
    pairs = np.frombuffer(data, ">u4", len(data) // INDEX_ENTRY * 2).reshape(-1, 2).astype("<i8")
    pairs = pairs[(pairs != 0).any(axis=1)]
    return [IndexEntry(base_offset + relative, position) for relative, position in pairs.tolist()]
