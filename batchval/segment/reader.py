"""Stretches of a segment file: whole batches, read by pread into memory of its own.

A live file may shrink under its reader, so nothing is mapped. Damage does not end the reading: the reader says where it
was and goes on at the next batch that its own CRC proves. No size that a file states buys memory above BELIEVED before
the checksum over that many bytes has been found right.

**The walk.** From a position where a batch or damage starts, the next one follows from the file's bytes alone, whatever
the size of the blocks that are read:

* a batch with a right checksum, or with a wrong one whose size can be believed (``_leads_on``): behind it;
* anything else is damage: at the next place that a checksum proves.

So all who walk from 0 meet the same places, and so do all who walk from one of these. ``first_at`` finds the first of
them in the middle of a file, where a batch inside a record's value looks like any other.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

import numpy as np

from batchval.core.columns import BatchColumns, follow, resynchronise, scan_batches
from batchval.core.crc32c import crc32c
from batchval.core.layout import ATTRIBUTES, BATCH_LENGTH, CRC, LEGACY_SMALLEST, LOG_OVERHEAD, MAGIC, RECORDS

__all__ = [
    "INDEX_ENTRY",
    "Damage",
    "InMemory",
    "IndexEntry",
    "LocalFile",
    "SegmentFile",
    "SegmentReader",
    "Source",
    "Stretch",
    "index_entries",
    "read_index",
]

BLOCK = 8 << 20  # bytes read at a time; a larger batch gets a larger block
BELIEVED = 32 << 20  # a batch that states more than this must show a right checksum before it is read whole
WINDOW = 16 << 20  # searched at a time behind damage; successive windows share half
CHAIN = 1000  # batches with wrong checksums in a row, each leading to the next, before somebody must be proven
#: how far ahead of a position the search for the walk begins, and how far ahead it must have been found: no batch of up
#: to the second size can hide it
LOOKBACK = 24 << 20
CLEAR = 16 << 20
_PROOF_CHUNK = 1 << 20
_START = struct.Struct(">qi4xb")  # offset, size, magic: of every magic
INDEX_ENTRY = 8  # bytes: relative offset:4 position:4
_ZEROS_CHUNK = 1 << 20


class Source(Protocol):
    """An open file. ``size`` is what it was when opened, and goes down when a read shows that it has shrunk.

    ``chunk``: bytes that cost about as much to ask for as one.
    """

    size: int
    chunk: int

    def read_into(self, position: int, memory: memoryview) -> int:
        """How many bytes came; fewer than there is room for may come at any place, 0 only at the end."""

    def header(self, position: int) -> bytes:
        """The first bytes of a batch, up to its magic; fewer at the file's end."""

    def behind_hole(self, position: int) -> int:
        """``position``, or one behind it, if all between are zeros that need not be read to know it."""

    def close(self) -> None: ...


class Stretch(NamedTuple):
    """Whole batches: ``data`` holds the file's bytes from ``position`` on, ``columns`` a row for each."""

    position: int
    data: memoryview
    columns: BatchColumns


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


class LocalFile:
    """A regular file of this machine. Raises OSError for what cannot be opened, and for pipes, devices and folders."""

    chunk = 8 << 10

    def __init__(self, path: Path) -> None:
        # without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self.size = status.st_size

    def read_into(self, position: int, memory: memoryview) -> int:
        return os.preadv(self._fd, [memory], position)

    def header(self, position: int) -> bytes:
        return os.pread(self._fd, _START.size, position)

    def behind_hole(self, position: int) -> int:
        """A preallocated or sparse tail is one hole: gigabytes that cost a call, for each range that begins there."""
        try:
            found = os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:  # ENXIO: nothing but a hole up to the end, or the end is before
            found = os.fstat(self._fd).st_size if error.errno == errno.ENXIO else position
        return max(position, min(found, self.size))

    def close(self) -> None:
        os.close(self._fd)


class InMemory:
    """Bytes that lie in memory, as a file."""

    chunk = 64 << 10

    def __init__(self, data: memoryview) -> None:
        self._data = memoryview(data).cast("B")
        self.size = len(self._data)

    def read_into(self, position: int, memory: memoryview) -> int:
        found = self._data[position : position + len(memory)]
        memory[: len(found)] = found
        return len(found)

    def header(self, position: int) -> bytes:
        return bytes(self._data[position : position + _START.size])

    def behind_hole(self, position: int) -> int:
        """Memory has no holes."""
        return position

    def close(self) -> None:
        """Nothing is open."""


class _Memory:
    """A file's bytes from one place on, in memory that is used again; what two blocks share is read once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._bytes = memoryview(bytearray())
        self._position = 0
        self._size = 0

    def at(self, position: int, size: int) -> memoryview:
        """At most ``size`` bytes, fewer at the file's end; they stand until the next call."""
        before, offset = self._bytes, position - self._position
        held = max(min(self._size - offset, size), 0) if offset >= 0 else 0
        if not size <= len(before) <= 4 * max(size, BLOCK):
            self._bytes = np.empty(size, "u1").data
        if held:
            self._bytes[:held] = before[offset : offset + held]
        self._position, self._size = position, held
        while self._size < size:
            got = self._source.read_into(position + self._size, self._bytes[self._size : size])
            if not got:
                self._source.size = min(self._source.size, position + self._size)
                break
            self._size += got
        return self._bytes[: self._size].toreadonly()


class SegmentReader:
    """The walk over an open file of batches back to back.

    Batches of magic 3 are some only with ``accept_claims_header``; else they are damage of the kind ``magic``.
    """

    def __init__(self, source: Source, *, accept_claims_header: bool = False) -> None:
        self.source = source
        self.accept_claims_header = accept_claims_header

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.close()

    @property
    def size(self) -> int:
        """The file's when it was opened; it goes down when a read shows that the file has shrunk."""
        return self.source.size

    def read(self, position: int, size: int) -> memoryview:
        """At most ``size`` bytes; fewer at the file's end."""
        return _Memory(self.source).at(position, self._possible(position, size))

    def _possible(self, position: int, size: int) -> int:
        """Memory follows what there can be; the file may have grown by a block."""
        return max(min(size, max(self.size, position + RECORDS) - position + BLOCK), 0)

    def scan(self, data: memoryview) -> BatchColumns:
        return scan_batches(data, accept_claims_header=self.accept_claims_header)

    def stretches(
        self,
        start: int = 0,
        end: int | None = None,
        block: int = BLOCK,
        scan: Callable[[memoryview], BatchColumns] | None = None,
        reuse: bool = False,
    ) -> Iterator[Stretch | Damage]:
        """All batches that start in [start, end), in order, with the damage between them; ``start`` is on the walk.

        ``scan`` makes the columns, scan_batches if None. With ``reuse`` a stretch's data stand only until the next one
        is asked for: memory that is still in the processor's cache is twice as fast.
        """
        scan = scan or self.scan
        memory = _Memory(self.source)
        position, wanted = start, block
        while position < (stop := self.size if end is None else min(end, self.size)):
            data = (memory if reuse else _Memory(self.source)).at(position, self._possible(position, wanted))
            if not data:
                return
            wanted = block
            columns = scan(data)
            tail, whole = columns.tail, len(columns)
            columns.keep(self._believed(columns, position))
            if len(columns):
                if columns.end > stop - position:
                    columns.keep(int(np.searchsorted(columns["position"], stop - position)))
                yield Stretch(position, data[: columns.end], columns)
                position += columns.end
                continue
            kind: str = "crc" if whole else tail or "partial"
            if kind == "partial" and position + len(data) < self.size:
                needed = int.from_bytes(data[BATCH_LENGTH:LOG_OVERHEAD], "big") + LOG_OVERHEAD
                if len(data) < needed <= self.size - position:
                    if needed <= BELIEVED or self._proven(position, needed):
                        wanted = needed
                        continue
                    kind = "crc"
            damage = self._damage(position, kind)
            if damage.size <= 0:  # the file has shrunk to here
                return
            yield damage
            position += damage.size

    # ---- sizes that can be believed --------------------------------------------------------------------------------

    def _believed(self, columns: BatchColumns, base: int) -> int:
        """How many rows from the start are batches whose sizes can be believed."""
        row = columns.first_doubtful()
        while row >= 0:
            proven = self._leads_on(base + int(columns["position"][row]))
            if proven < 0:
                return row
            row = columns.first_doubtful(int(np.searchsorted(columns["position"], proven - base)))
        return len(columns)

    def _leads_on(self, position: int) -> int:
        """Of a whole batch with a wrong checksum: where its size leads to something that is a batch or the end.

        To the file's end, to zeros up to it, to a header that goes on with the offsets, to a proven batch, or to
        another of which this can be said: then all on the way are batches. -1: nowhere.
        """
        header = self.read(position, RECORDS)
        proofs = BELIEVED
        for _ in range(CHAIN):
            following = position + int.from_bytes(header[BATCH_LENGTH:LOG_OVERHEAD], "big") + LOG_OVERHEAD
            if following >= self.size:
                return following if following == self.size else -1
            ahead = self.read(following, RECORDS)
            if _goes_on(header, ahead):
                return following
            if not any(ahead):
                return following if self._first_byte_set(following) >= self.size else -1
            size = self._whole(following, ahead)
            proofs -= size
            if size == 0 or proofs < 0:
                return -1
            if self._proven(following, size):
                return following
            position, header = following, ahead
        return -1

    def _whole(self, position: int, header: memoryview) -> int:
        """The size of the batch that starts so, if the file holds it whole; else 0."""
        if len(header) <= MAGIC or header[MAGIC] > 2 + self.accept_claims_header:
            return 0
        size = int.from_bytes(header[BATCH_LENGTH:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        return size if LOG_OVERHEAD + LEGACY_SMALLEST <= size <= self.size - position else 0

    def _proven(self, position: int, size: int) -> bool:
        """Has the batch a right checksum? One of magic 2 or 3 is read in small pieces, whatever size it states."""
        header = self.read(position, RECORDS)
        if len(header) <= MAGIC:
            return False
        if header[MAGIC] < 2:
            return size <= BELIEVED and bool(self.scan(self.read(position, size))["is_valid"].any())
        if size < RECORDS or len(header) < RECORDS or not self._whole(position, header):
            return False
        crc, at, end = 0, position + ATTRIBUTES, position + size
        memory = _Memory(self.source)
        while at < end:
            data = memory.at(at, min(_PROOF_CHUNK, end - at))
            if not data:
                return False
            crc = crc32c(data, crc)
            at += len(data)
        return crc == int.from_bytes(header[CRC:ATTRIBUTES], "big")

    # ---- damage ----------------------------------------------------------------------------------------------------

    def _damage(self, position: int, kind: str) -> Damage:
        """From ``position`` to the next proven batch, or to the file's end.

        Batches of up to half a window are found for sure; a larger one right behind damage counts as damaged too.
        """
        at = position + 1
        if kind in ("zeros", "size"):
            set_at = self._first_byte_set(position)
            if set_at >= self.size:
                return Damage(position, self.size - position, "zeros")
            kind = "size"
            at = max(at, set_at - LOG_OVERHEAD + 1)  # no batch has a size of 0
        memory = _Memory(self.source)
        while at < self.size:
            data = memory.at(at, self._possible(at, WINDOW))
            found = resynchronise(data, accept_claims_header=self.accept_claims_header)
            if found >= 0:
                return Damage(position, at + found - position, kind)
            if at + len(data) >= self.size:
                break
            at += len(data) // 2
        return Damage(position, self.size - position, kind)

    def _first_byte_set(self, position: int) -> int:
        """Where the zeros that start here end; the file's size, if they do not."""
        memory = _Memory(self.source)
        while position < self.size:
            position = self.source.behind_hole(position)
            # comparing a memoryview goes byte by byte: 6 s a GiB
            data = np.frombuffer(memory.at(position, _ZEROS_CHUNK), "u1")
            if not len(data):
                break
            if data.max():
                return position + int(np.flatnonzero(data)[0])
            position += len(data)
        return self.size

    # ---- the middle of a file --------------------------------------------------------------------------------------

    def first_at(self, position: int) -> int:
        """Where the first batch or damage at or behind ``position`` starts, on the walk from the file's start.

        Exact up to LOOKBACK, and behind it if no batch is larger than CLEAR: a chain of headers that has met nothing
        odd over that length left every value that it may have started in. Where it meets damage, or does not begin in
        time, the walk is taken from the file's start. It costs one or two microseconds a batch.
        """
        if position <= 0:
            return 0
        near = self._approach(position) if position > LOOKBACK else -1
        return near if near >= 0 else self._hop(0, position, True)

    def _approach(self, position: int) -> int:
        start = position - LOOKBACK
        for size in (_PROOF_CHUNK, LOOKBACK - CLEAR):
            found = resynchronise(self.read(start, size), accept_claims_header=self.accept_claims_header)
            if found >= 0:
                return self._hop(start + found, position, False)
        return -1

    def _hop(self, at: int, until: int, through_damage: bool) -> int:
        """Along the walk to its first place at or behind ``until``; -1 at damage, unless that is part of the walk."""
        memory = _Memory(self.source)
        ahead = min(16 * self.source.chunk, BLOCK)
        came, header, chunk = at, None, self.source.chunk
        while at < self.size:
            data = memory.at(at, self._possible(at, min(chunk, max(until - at, 0) + MAGIC + 1)))
            if header is None or _goes_on(header, data):
                if at >= until:
                    return at
                last, following = follow(data, BELIEVED, accept_claims_header=self.accept_claims_header)
                came, header = at + last, bytes(data[last : last + MAGIC + 1])
                if came >= until:
                    return came
                large = following - last >= self.source.chunk
                if large and (stride := self._stride(came, header, until)) > came:
                    at, came, header = stride, stride, None
                    continue
                if following > last and at + following <= self.size:
                    chunk = RECORDS if large else ahead
                    at += following
                    continue
            part = next(self.stretches(came, came + 1, self.source.chunk), None)
            if part is None:
                return self.size
            if isinstance(part, Damage) and not through_damage:
                return -1
            at = came + (part.size if isinstance(part, Damage) else len(part.data))
            came, header = at, None
        return at

    def _stride(self, at: int, start: bytes, until: int) -> int:
        """As ``follow``, over batches so large that a read for each header costs less than what lies between them."""
        header, unpack, least = self.source.header, _START.unpack, self.source.chunk
        offset, size, magic = unpack(start)
        while at < until and least <= size <= BELIEVED - LOG_OVERHEAD:
            following = at + size + LOG_OVERHEAD
            found = header(following)
            if len(found) < _START.size:
                break
            following_offset, size, following_magic = unpack(found)
            if following_magic != magic or not 0 < following_offset - offset < 1 << 31:
                break
            at, offset = following, following_offset
        return at


class SegmentFile(SegmentReader):
    """A .log file, or any regular file of batches back to back. Use as a context manager; raises as LocalFile does."""

    def __init__(self, path: Path, *, accept_claims_header: bool = False) -> None:
        self.path = path
        super().__init__(LocalFile(path), accept_claims_header=accept_claims_header)

    def __enter__(self) -> SegmentFile:
        return self


def _goes_on(header: bytes | memoryview, following: memoryview) -> bool:
    """Is what follows a batch of the same magic, its offset behind that of the one before, and not far?"""
    if len(following) <= MAGIC or following[MAGIC] != header[MAGIC]:
        return False
    before = int.from_bytes(header[:BATCH_LENGTH], "big", signed=True)
    return 0 < int.from_bytes(following[:BATCH_LENGTH], "big", signed=True) - before < 1 << 31


def read_index(path: Path, base_offset: int) -> list[IndexEntry]:
    """The entries of an .index file, without the zeros of preallocation and without a last entry that is cut off."""
    offsets, positions = index_entries(path.read_bytes(), base_offset)
    return [IndexEntry(*entry) for entry in zip(offsets.tolist(), positions.tolist(), strict=True)]


def index_entries(data: bytes, base_offset: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of an index file's bytes, as two arrays: offsets, positions."""
    pairs = np.frombuffer(data, ">u4", len(data) // INDEX_ENTRY * 2).reshape(-1, 2).astype("<i8")
    used = np.flatnonzero(pairs.any(axis=1))
    pairs = pairs[: int(used[-1]) + 1 if len(used) else 0]
    return pairs[:, 0] + base_offset, pairs[:, 1]
