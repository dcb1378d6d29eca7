"""The search for the next batch after damage, and the proof of sizes that may be wrong.

A file can be made so that each of its bytes looks like the start of a batch, and that thousands of
sizes lead to one place. So the answers come from what is kept of the file:

* a window of at most 32 MiB, whose parts have a checksum in constant time (SearchWindow). It grows
  from 64 KiB while batches are found in it that end outside;
* checksums of the beginnings of pages of 32 MiB, for batches that are larger than half a window;
* runs of zeros that have been read.

Each byte of the file is read a few times at most, however many questions are asked. No answer
depends on what was kept.
"""

from __future__ import annotations

import bisect

import numpy as np

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
from batchval.segment.search_window import NEEDS_MORE, NOT_A_BATCH, ZEROS_FOLLOW, SearchWindow
from batchval.segment.source import Memory, Source

__all__ = ["CHAIN", "SEARCHED", "Search"]

#: bytes of the largest batch that is found after damage, or believed without a right checksum
SEARCHED = 12 << 20
#: batches with wrong checksums, each leading to the next, before one must be proven
CHAIN = 256
_FIRST_WINDOW = 64 << 10
_LARGEST_WINDOW = 32 << 20  # a batch, the batches that it leads to, and as much again
_GROWTH = 4
_FIRST_ZEROS, _MOST_ZEROS = 4 << 10, 1 << 20
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
        self._size = min(self._size, _LARGEST_WINDOW)
        self._window = None
        data = self._memory.at(position, max(min(self._size, self._source.size - position), 0))
        self._start, self._end = position, position + len(data)
        self._window = SearchWindow(
            data, SEARCHED, is_end=self._end >= self._source.size, accept_claims_header=self._claims
        )
        return self._window

    def _is_largest(self, position: int) -> bool:
        """Return whether the window starts at ``position`` and cannot grow."""
        return self._start == position and self._size >= _LARGEST_WINDOW

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
            size = min(size * _GROWTH, _MOST_ZEROS)
        return max(position, stop)
