"""Stretches of a segment file: complete batches, read by pread into own memory.

A live file may shrink under its reader, so nothing is mapped. Damage does not end the reading: the
reader says where it was and goes on at the next batch that its own CRC proves. No size that a file
states buys memory above BELIEVED before the checksum over that many bytes has been found right.

**The walk.** From a position where a batch or damage starts, the next one follows from the file's
bytes alone, whatever the size of the blocks that are read:

* a batch with a right checksum, or with a wrong one whose size can be believed
  (``Search.leads_on``): after it;
* anything else is damage: at the next place that a checksum proves.

So all who walk from 0 meet the same places, and so do all who walk from one of these. ``first_at``
finds the first of them in the middle of a file, where a batch inside a record's value looks like
any other.

**The search** for the next batch after damage, and the proof of sizes that may be wrong. A file can
be made so that each of its bytes looks like the start of a batch, and that thousands of sizes lead
to one place. So the answers come from what is kept of the file:

* a window of at most 32 MiB, whose parts have a checksum in constant time (SearchWindow). It grows
  from 64 KiB while batches are found in it that end outside;
* checksums of the beginnings of pages of 32 MiB, for batches that are larger than half a window;
* runs of zeros that have been read.

Each byte of the file is read a few times at most, however many questions are asked. No answer
depends on what was kept.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from batchval.core.batches.columns import BatchColumns, scan_batches
from batchval.core.format.crc32c import crc32, crc32_combine, crc32c, crc32c_combine
from batchval.core.format.layout import (
    ATTRIBUTES,
    BATCH_LENGTH,
    CRC,
    LEGACY_CRC,
    LEGACY_MAGIC,
    LOG_OVERHEAD,
    MAGIC,
    RECORDS,
)
from batchval.segment.search_window import (
    NEEDS_MORE,
    NOT_A_BATCH,
    ZEROS_FOLLOW,
    SearchWindow,
    follow,
    resynchronise,
)
from batchval.segment.source import BLOCK, START, InMemory, LocalFile, Memory, Source

__all__ = [
    "CHAIN",
    "INDEX_ENTRY",
    "SEARCHED",
    "Damage",
    "InMemory",
    "LocalFile",
    "Search",
    "SegmentFile",
    "SegmentReader",
    "Source",
    "Stretch",
    "index_entries",
]

#: bytes of the largest batch that is found after damage, or believed without a right checksum
SEARCHED = 12 << 20

#: batches with wrong checksums, each leading to the next, before one must be proven
CHAIN = 256

_FIRST_WINDOW = 64 << 10

_MAX_WINDOW = 32 << 20  # a batch, the batches that it leads to, and as much again

_GROWTH = 4

_FIRST_ZEROS, _MAX_ZEROS = 4 << 10, 1 << 20

_PAGE, _STEP, _PROOF_CHUNK = 32 << 20, 16 << 10, 1 << 20

#: of magic 2, and of magic 0 and 1: the checksum, and that of two stretches
_CHECKSUMS = {False: (crc32c, crc32c_combine), True: (crc32, crc32_combine)}


class Search:
    """A search in the bytes of one open file, from any position on."""

    def __init__(self, source: Source, accept_claims_header: bool) -> None:
        self._source = source
        self._claims = accept_claims_header
        self._memory = Memory(source)
        self._window: SearchWindow | None = None
        self._start = self._end = self._size = 0
        self._zeros: list[tuple[int, int]] = []  # long runs that were read, in order
        self._pages: dict[tuple[int, bool], list[int]] = {}

    # ---- windows ---------------------------------------------------------------------------------

    def _at(self, position: int) -> SearchWindow:
        """Return a window that holds ``position``."""
        window = self._window
        return (
            window
            if window is not None and self._start <= position < self._end
            else self._load(position)
        )

    def _load(self, position: int) -> SearchWindow:
        """Return a window that starts at ``position``, larger than the last one if that is near."""
        is_near = self._start <= position <= self._end + self._size
        self._size = (
            self._size * _GROWTH
            if is_near and self._size
            else max(_FIRST_WINDOW, self._source.chunk)
        )
        self._size = min(self._size, _MAX_WINDOW)
        self._window = None
        data = self._memory.at(position, max(min(self._size, self._source.size - position), 0))
        self._start, self._end = position, position + len(data)
        self._window = SearchWindow(
            data, SEARCHED, is_end=self._end >= self._source.size, accept_claims_header=self._claims
        )
        return self._window

    def _is_largest(self, position: int) -> bool:
        """Return whether the window starts at ``position`` and cannot grow."""
        return self._start == position and self._size >= _MAX_WINDOW

    def next_batch(self, position: int) -> int:
        """Return where the first batch starts at or after ``position``, as its checksum proves.

        Batches of more than SEARCHED bytes are not found. The file's size if there is none.
        """
        while position < self._source.size:
            window = self._at(position)
            start = self._start
            found, end = window.next(position - start)
            if found >= 0:
                return start + found
            if start + end >= self._source.size:
                break
            position = start + end
            self._load(position)
        return self._source.size

    # ---- sizes that may be wrong -----------------------------------------------------------------

    def leads_on(self, position: int) -> int:
        """Return where the size of a batch with a wrong checksum leads; -1 if it is not believed.

        It is if it leads to the end of the file, to zeros up to it, to a header that goes on with
        the offsets, to a proven batch, or to another for which this holds, CHAIN times at most.
        """
        while position < self._source.size:
            answer, place = self._at(position).leads_on(position - self._start, CHAIN)
            if answer == ZEROS_FOLLOW:
                place += self._start
                return place if self.first_byte_set(place) >= self._source.size else -1
            if answer == NOT_A_BATCH:
                return -1
            if answer != NEEDS_MORE:
                return self._start + int(answer)
            if self._is_largest(position):
                break
            self._load(position)
        return -1

    def stands(self, position: int, size: int) -> bool:
        """Return whether a batch may be read whole: it is proven, or its size is believed."""
        if size > SEARCHED:
            return self._is_proven_by_pages(position, size)
        while True:
            proven = self._at(position).is_proven(position - self._start)
            if proven is not None or self._is_largest(position):
                return bool(proven) or self.leads_on(position) >= 0
            self._load(position)

    def _is_proven_by_pages(self, position: int, size: int) -> bool:
        header = bytes(Memory(self._source).at(position, RECORDS))
        if len(header) < RECORDS or header[MAGIC] > 2 + self._claims:
            return False
        if int.from_bytes(header[BATCH_LENGTH:LOG_OVERHEAD], "big") + LOG_OVERHEAD != size:
            return False
        is_legacy = header[MAGIC] < 2
        stored = header[LEGACY_CRC:LEGACY_MAGIC] if is_legacy else header[CRC:ATTRIBUTES]
        _, combine = _CHECKSUMS[is_legacy]
        crc, at, end = 0, position + (LEGACY_MAGIC if is_legacy else ATTRIBUTES), position + size
        while at < end:
            page = at // _PAGE
            stop = min(end, (page + 1) * _PAGE)
            before, after = (self._crc_to(page, place, is_legacy) for place in (at, stop))
            crc = combine(crc, combine(before, after, stop - at), stop - at)
            at = stop
        return crc == int.from_bytes(stored, "big")

    def _crc_to(self, page: int, position: int, is_legacy: bool) -> int:
        """Return the checksum from the start of a page to ``position``.

        Any other if the file has become shorter.
        """
        steps, rest = divmod(position - page * _PAGE, _STEP)
        noted = self._noted(page, is_legacy)
        start = min(steps, len(noted) - 1)
        return _CHECKSUMS[is_legacy][0](
            Memory(self._source).at(position - rest, rest), noted[start]
        )

    def _noted(self, page: int, is_legacy: bool) -> list[int]:
        """Return the checksums from the start of a page to each of its steps."""
        noted = self._pages.get((page, is_legacy))
        if noted is None:
            noted, memory, crc = [0], Memory(self._source), _CHECKSUMS[is_legacy][0]
            for start in range(
                page * _PAGE, min((page + 1) * _PAGE, self._source.size), _PROOF_CHUNK
            ):
                data = memory.at(start, _PROOF_CHUNK)
                for at in range(0, len(data) - _STEP + 1, _STEP):
                    noted.append(crc(data[at : at + _STEP], noted[-1]))
            self._pages[page, is_legacy] = noted
        return noted

    # ---- zeros -----------------------------------------------------------------------------------

    def first_byte_set(self, position: int) -> int:
        """Return where the zeros that start here end; the file's size, if they do not."""
        runs = self._zeros
        i = bisect.bisect_right(runs, (position, self._source.size + 1))
        if i and runs[i - 1][0] <= position < runs[i - 1][1]:
            return runs[i - 1][1]
        known = runs[i] if i < len(runs) else None
        end = self._read_zeros(position, known[0] if known is not None else self._source.size)
        if known is not None and end >= known[0]:
            runs[i] = (position, known[1])
            return known[1]
        if end - position > _FIRST_ZEROS:
            runs.insert(i, (position, end))
        return end

    def _read_zeros(self, position: int, stop: int) -> int:
        """Return where the zeros from ``position`` on end, or ``stop`` if they go on so far."""
        memory, size = Memory(self._source), _FIRST_ZEROS
        while position < stop:
            if size > _FIRST_ZEROS:
                position = self._source.after_hole(position)
            # comparing a memoryview goes byte by byte: 6 s a GiB
            data = np.frombuffer(memory.at(position, size), "u1")
            if not len(data):
                return self._source.size
            if data.max():
                return position + int((data != 0).argmax())
            position += len(data)
            size = min(size * _GROWTH, _MAX_ZEROS)
        return max(position, stop)


BELIEVED = 32 << 20  # the largest batch whose header is followed without its checksum

FRESH = 4 << 10  # bytes of the first block after damage: what follows may be damaged too

#: how far ahead of a position the search for the walk begins, and how far ahead it must have been
#: found: no batch of up to the second size can hide it
LOOKBACK = 24 << 20

CLEAR = 16 << 20

_APPROACH = 1 << 20

INDEX_ENTRY = 8  # bytes: relative offset:4 position:4

#: the field of a batch that is wrong, by the kind of a damage
_FIELDS = {"size": slice(BATCH_LENGTH, LOG_OVERHEAD), "magic": slice(MAGIC, MAGIC + 1)}


class Stretch(NamedTuple):
    """Complete batches: ``data`` holds the file's bytes from ``position`` on, ``columns`` a row for
    each.
    """

    position: int
    data: memoryview
    columns: BatchColumns


class Damage(NamedTuple):
    """Bytes outside of batches, from ``position`` on, up to the next proven batch or to the file's
    end.

    ``kind``: ``partial`` (the file does not hold what the size field states), ``zeros`` (to the
    end), ``size`` (an impossible size field), ``magic`` (an unknown one), or ``crc`` (a wrong
    checksum, and nothing stands where the size field points). ``value``: the size field or the
    magic, where that is wrong.
    """

    position: int
    size: int
    kind: str
    value: int | None = None


class SegmentReader:
    """The walk over an open file of batches in a row.

    Batches of magic 3 count as batches only with ``accept_claims_header``; else they are damage of
    kind ``magic``.
    """

    def __init__(self, source: Source, *, accept_claims_header: bool = False) -> None:
        self.source = source
        self.accept_claims_header = accept_claims_header
        self._search = Search(source, accept_claims_header)

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.source.close()

    @property
    def size(self) -> int:
        """Return the file's size when it was opened. It goes down when a read shows that the file
        has shrunk.
        """
        return self.source.size

    def read(self, position: int, size: int) -> memoryview:
        """Return at most ``size`` bytes; fewer at the file's end."""
        return Memory(self.source).at(position, self._possible(position, size))

    def _possible(self, position: int, size: int) -> int:
        """Return the size limited by the file, so that memory follows the file; the file may have
        grown by a block.
        """
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
        """Yield all batches that start in [start, end), in order, with the damage between them.
        ``start`` is on the walk.

        ``scan`` makes the columns, scan_batches if None. With ``reuse`` a stretch's data stand only
        until the next one is asked for: memory that is still in the processor's cache is twice as
        fast.
        """
        scan = scan or self.scan
        memory = Memory(self.source)
        position, wanted, sound = start, block, 0
        while position < (stop := self.size if end is None else min(end, self.size)):
            data = (memory if reuse else Memory(self.source)).at(
                position, self._possible(position, wanted)
            )
            if not data:
                return
            columns = scan(data)
            tail, whole = columns.tail, len(columns)
            columns.keep(self._believed(columns, position))
            if len(columns):
                if columns.end > stop - position:
                    columns.keep(int(np.searchsorted(columns["position"], stop - position)))
                yield Stretch(position, data[: columns.end], columns)
                position += columns.end
                sound += columns.end
                wanted = min(block, max(2 * wanted, FRESH))
                continue
            kind: str = "crc" if whole else tail or "partial"
            if kind == "partial" and position + len(data) < self.size:
                needed = int.from_bytes(data[BATCH_LENGTH:LOG_OVERHEAD], "big") + LOG_OVERHEAD
                if len(data) < needed <= self.size - position:
                    # a size may be wrong: it makes this read at most as much as was valid before
                    if needed <= sound or self._search.stands(position, needed):
                        wanted = needed
                        continue
                    kind = "crc"
            damage = self._damage(position, kind, data)
            if damage.size <= 0:  # the file has shrunk to here
                return
            yield damage
            position += damage.size
            wanted, sound = min(block, FRESH), 0

    # ---- sizes that can be believed --------------------------------------------------------------

    def _believed(self, columns: BatchColumns, base: int) -> int:
        """Return how many rows from the start are batches with believed sizes."""
        row = columns.first_doubtful()
        while row >= 0:
            proven = self._search.leads_on(base + int(columns["position"][row]))
            if proven < 0:
                return row
            row = columns.first_doubtful(int(np.searchsorted(columns["position"], proven - base)))
        return len(columns)

    # ---- damage ----------------------------------------------------------------------------------

    def _damage(self, position: int, kind: str, data: memoryview) -> Damage:
        """Return the damage from ``position`` to the next proven batch, or to the file's end.
        ``data``: the bytes there.

        A batch of more than SEARCHED bytes right after damage counts as damaged too.
        """
        at = position + 1
        if kind in ("zeros", "size"):
            set_at = self._search.first_byte_set(position)
            if set_at >= self.size:
                return Damage(position, self.size - position, "zeros")
            kind = "size"
            at = max(at, set_at - LOG_OVERHEAD + 1)  # no batch has a size of 0
        value = int.from_bytes(data[_FIELDS[kind]], "big", signed=True) if kind in _FIELDS else None
        return Damage(position, self._search.next_batch(at) - position, kind, value)

    # ---- the middle of a file --------------------------------------------------------------------

    def first_at(self, position: int, known: int = 0) -> int:
        """Return where the first batch or damage at or after ``position`` starts, on the walk from
        the file's start.

        Exact up to LOOKBACK, and after it if no batch is larger than CLEAR: a chain of headers
        that has met nothing odd over that length left every value that it may have started in.
        Where it meets damage, or does not begin in time, the walk is taken from ``known``, a place
        on it. It costs one or two microseconds a batch.
        """
        if position <= known:
            return known
        near = self._approach(position) if position - known > LOOKBACK else -1
        return near if near >= 0 else self._hop(known, position, True)

    def _approach(self, position: int) -> int:
        start = position - LOOKBACK
        for size in (_APPROACH, LOOKBACK - CLEAR):
            found = resynchronise(
                self.read(start, size), accept_claims_header=self.accept_claims_header
            )
            if found >= 0:
                return self._hop(start + found, position, False)
        return -1

    def _hop(self, at: int, until: int, through_damage: bool) -> int:
        """Return the first place of the walk at or after ``until``; -1 at damage, unless that is
        part of the walk.
        """
        memory = Memory(self.source)
        ahead = min(16 * self.source.chunk, BLOCK)
        came, header, chunk = at, None, self.source.chunk
        while at < self.size:
            data = memory.at(at, self._possible(at, min(chunk, max(until - at, 0) + MAGIC + 1)))
            if header is None or _goes_on(header, data):
                if at >= until:
                    return at
                last, following = follow(
                    data, BELIEVED, accept_claims_header=self.accept_claims_header
                )
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
        """Do the same as ``follow`` over batches so large that a read for each header costs less
        than reading what lies between them.
        """
        header, unpack, least = self.source.header, START.unpack, self.source.chunk
        offset, size, magic = unpack(start)
        while at < until and least <= size <= BELIEVED - LOG_OVERHEAD:
            following = at + size + LOG_OVERHEAD
            found = header(following)
            if len(found) < START.size:
                break
            following_offset, size, following_magic = unpack(found)
            if following_magic != magic or not 0 < following_offset - offset < 1 << 31:
                break
            at, offset = following, following_offset
        return at


class SegmentFile(SegmentReader):
    """A .log file, or any regular file of batches back to back. Use as a context manager; raises as
    LocalFile does.
    """

    def __init__(self, path: Path, *, accept_claims_header: bool = False) -> None:
        self.path = path
        super().__init__(LocalFile(path), accept_claims_header=accept_claims_header)

    def __enter__(self) -> SegmentFile:
        return self


def _goes_on(header: bytes | memoryview, following: memoryview) -> bool:
    """Return whether a batch of the same magic follows, with an offset after that of the one
    before, and not far.
    """
    if len(following) <= MAGIC or following[MAGIC] != header[MAGIC]:
        return False
    before = int.from_bytes(header[:BATCH_LENGTH], "big", signed=True)
    return 0 < int.from_bytes(following[:BATCH_LENGTH], "big", signed=True) - before < 1 << 31


def index_entries(data: bytes, base_offset: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the entries of an index file's bytes as two arrays: offsets, positions. The zeros of
    preallocation and an incomplete last entry are left out.
    """
    pairs = np.frombuffer(data, ">u4", len(data) // INDEX_ENTRY * 2).reshape(-1, 2).astype("<i8")
    used = np.flatnonzero(pairs[:, 0] | pairs[:, 1])
    pairs = pairs[: int(used[-1]) + 1 if len(used) else 0]
    return pairs[:, 0] + base_offset, pairs[:, 1]
