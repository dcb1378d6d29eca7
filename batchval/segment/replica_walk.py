"""The logs of one partition's replicas, walked side by side in the order of offsets.

Segments end at other places on each replica, so a log is a stream of batches here, read one stretch
at a time. At each offset the replicas that should hold a batch there are compared, each from its
log start up to its high watermark and its log end. The cleanup policy decides what must be equal:

    delete      the batch must have the same bytes everywhere
    compacted   records of the same offset must have the same key and value; the cleaner may have
                removed a record on any of them, at any time

Memory holds one stretch of each replica. ``Walk.at`` is how far the walk has come, so a walk that
meets a deleted file goes on from there in a new listing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from batchval.core.batches.record_columns import RecordColumns, record_columns
from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.segment.range_check import CACHED
from batchval.segment.reader import Damage, Stretch
from batchval.segment.store import SegmentInfo, Store

__all__ = ["Difference", "Held", "Side", "Walk"]

#: differing batches of a partition after which the comparison ends
MAX_DIFFERENCES = 10_000
_NO_LIMIT = 1 << 62


class Side(NamedTuple):
    """A replica of a partition, as it was listed.

    ``start``           the lowest offset that it must hold
    ``high_watermark``  committed offsets are below; None where no checkpoint says so
    """

    name: str
    segments: tuple[SegmentInfo, ...]
    start: int
    high_watermark: int | None


class Held(NamedTuple):
    """The batch of a replica at a difference: the one of that offset, or the next one after it.

    ``position`` is that of the batch, or of the damage in its place. ``end``: of the batch.
    """

    segment: SegmentInfo
    position: int
    end: int
    epoch: int
    max_timestamp: int
    has_batch: bool
    is_sound: bool


class Difference(NamedTuple):
    """An offset at which replicas differ.

    ``held``      by the replica's number
    ``majority``  replicas that are equal and contradict all others; empty where no majority is
    ``record``    the offset of the record that differs, where records were compared
    """

    offset: int
    last_offset: int
    held: dict[int, Held]
    majority: tuple[int, ...]
    record: int | None = None


class Cursor:
    """The next batches of one replica: rows [row, stop) of a stretch.

    ``damage``  the place of bytes before the row that are not a batch
    """

    def __init__(
        self, side: Side, number: int, start: int, options: Options, progress: Callable[[int], None]
    ) -> None:
        self.side = side
        self._progress = progress
        self.number = number
        self.row = self.stop = 0
        self.damage: tuple[SegmentInfo, int] | None = None
        # names and checkpoints may state offsets that a batch cannot have
        self._start = min(start, _NO_LIMIT)
        self._limit = (
            _NO_LIMIT if side.high_watermark is None else min(side.high_watermark, _NO_LIMIT)
        )
        self._is_over = False
        self._pieces = self._read(options)

    def _read(self, options: Options) -> Iterator[tuple[SegmentInfo, Stretch | Damage]]:
        segments = self.side.segments
        for segment, later in zip(segments, [*segments[1:], None], strict=True):
            if later is not None and later.base_offset <= self._start:
                continue
            store, path = Store.of(segment.uri)
            with store.open(path, accept_claims_header=options.reads_claims) as file:
                for piece in file.stretches(
                    0, segment.size, max(file.source.chunk, CACHED), reuse=True
                ):
                    yield segment, piece

    def close(self) -> None:
        """Close the file that is being read."""
        self._pieces.close()  # type: ignore[attr-defined]

    @property
    def offset(self) -> int:
        """Return the base offset of the next batch."""
        return int(self.base[self.row])

    @property
    def is_displaced(self) -> bool:
        """Return whether the batch after the next one has a lower offset. Waiting for the others at
        the higher offset would lose all between.
        """
        return self.row + 1 < self.stop and bool(self.base[self.row + 1] < self.base[self.row])

    def ready(self) -> bool:
        """Return whether there is a next batch below the high watermark."""
        while self.row >= self.stop:
            if self._is_over:
                return False
            self._next()
        return True

    def _next(self) -> None:
        found = next(self._pieces, None)
        if found is None:
            self._is_over = True
            return
        self.segment, piece = found
        if isinstance(piece, Damage):
            self._progress(piece.size)
            self.damage = self.segment, piece.position
            return
        self._progress(len(piece.data))
        columns = piece.columns
        self.columns, self.data, self.place = columns, piece.data, piece.position
        self.base, self.size = columns["base_offset"], columns["size_in_bytes"]
        self.position, self.last = columns["position"], columns["last_offset"]
        committed = np.flatnonzero(self.last < self._limit)
        self.stop = int(committed[-1]) + 1 if len(committed) else 0
        self._is_over = self.stop < len(columns)
        below = np.flatnonzero(self.last[: self.stop] >= self._start)
        self.row = int(below[0]) if len(below) else self.stop
        if self.row:
            self.damage = None

    def bytes_of(self, rows: int) -> memoryview:
        """Return the next batches, without a copy."""
        last = self.row + rows - 1
        return self.data[int(self.position[self.row]) : int(self.position[last] + self.size[last])]

    def advance(self, rows: int) -> None:
        """Skip a number of batches."""
        self.row += rows
        if rows:
            self.damage = None

    def held(self, row: int, *, has_batch: bool) -> Held:
        """Return the batch of a row."""
        if self.damage is not None and not has_batch:
            segment, position = self.damage
        else:
            segment, position = self.segment, self.place + int(self.position[row])
        sound = bool(self.columns["is_valid"][row]) if has_batch else self.damage is None
        end = self.place + int(self.position[row] + self.size[row])
        epoch, stamp = (
            int(self.columns[name][row]) for name in ("partition_leader_epoch", "max_timestamp")
        )
        return Held(
            segment, position, end, epoch, stamp if has_batch and sound else -1, has_batch, sound
        )


@dataclass
class Walk:
    """A running comparison, and its differences.

    ``progress``  gets bytes of all replicas as they are read
    ``at``      offsets below are compared
    ``agreed``  the highest base offset at which each replica was equal to another
    """

    options: Options
    progress: Callable[[int], None]
    at: int = 0
    differences: list[Difference] = field(default_factory=list)
    agreed: dict[int, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Return whether so much differs that the comparison ends."""
        return len(self.differences) >= MAX_DIFFERENCES

    def run(self, sides: Sequence[Side], *, compacted: bool) -> None:
        """Run to the end. Raises OSError for storage errors, such as a deleted file."""
        # below the second lowest log start, one replica alone has batches
        self.at = max(self.at, sorted(side.start for side in sides)[1])
        cursors = [
            Cursor(side, n, max(self.at, side.start), self.options, self.progress)
            for n, side in enumerate(sides)
        ]
        try:
            step = self._records if compacted else self._batches
            while not self.is_full and len(ready := [one for one in cursors if one.ready()]) > 1:
                step(ready)
        finally:
            for one in cursors:
                one.close()

    # ---- bytes -----------------------------------------------------------------------------------

    def _batches(self, ready: list[Cursor]) -> None:
        """Compare as many batches as are equal, or the batch of one offset."""
        offset = min(one.offset for one in ready)
        here = [one for one in ready if one.side.start <= offset or one.offset == offset]
        waiting = [one.side.start for one in ready if one not in here]
        if len(here) > 1:
            rows = _equal_rows(here, min(waiting, default=_NO_LIMIT))
            if rows:
                self._agree(here, int(here[0].base[here[0].row + rows - 1]))
                self.at = max(self.at, int(here[0].last[here[0].row + rows - 1]) + 1)
                for one in here:
                    one.advance(rows)
                return
            self._differ(here, offset)
        for one in here:
            if one.offset == offset:
                self.at = max(self.at, int(one.last[one.row]) + 1)
            if one.offset == offset or one.is_displaced:
                one.advance(1)

    def _agree(self, cursors: Sequence[Cursor], offset: int) -> None:
        for one in cursors:
            self.agreed[one.number] = max(offset, self.agreed.get(one.number, -1))

    def _differ(self, here: Sequence[Cursor], offset: int) -> None:
        """Note which replicas differ at an offset, and which of them the majority contradicts."""
        groups: dict[bytes | None, list[Cursor]] = {}
        for one in here:
            groups.setdefault(bytes(one.bytes_of(1)) if one.offset == offset else None, []).append(
                one
            )
        largest = max(groups.values(), key=len)
        majority = largest if 2 * len(largest) > len(here) else []
        if len(majority) > 1:
            self._agree(majority, offset)
        held = {one.number: one.held(one.row, has_batch=one.offset == offset) for one in here}
        last = max(int(one.last[one.row]) for one in here if one.offset == offset)
        self.differences.append(
            Difference(offset, last, held, tuple(one.number for one in majority))
        )

    # ---- records ---------------------------------------------------------------------------------

    def _records(self, ready: list[Cursor]) -> None:
        """Compare the batches up to the lowest end of a stretch."""
        highest = [np.maximum.accumulate(one.base[one.row : one.stop]) for one in ready]
        bound = min(int(one[-1]) for one in highest)
        rows = [int(np.searchsorted(one, bound, "right")) for one in highest]
        contradictions: dict[int, list[_Pair]] = {}
        for a, b in combinations(range(len(ready)), 2):
            for pair in _contradictions((ready[a], rows[a]), (ready[b], rows[b]), self.options):
                contradictions.setdefault(pair.base, []).append(pair)
        for base in sorted(contradictions):
            self._contradict(base, contradictions[base])
        self._agree(ready, bound)
        self.at = max(self.at, bound + 1)
        for one, count in zip(ready, rows, strict=True):
            one.advance(count)

    def _contradict(self, base: int, pairs: Sequence[_Pair]) -> None:
        votes = Counter(cursor.number for pair in pairs for cursor, _ in pair.places)
        most = [number for number, count in votes.items() if count == max(votes.values())]
        majority = tuple(sorted(votes.keys() - most)) if len(votes) > 2 and len(most) == 1 else ()
        places = {cursor.number: (cursor, row) for pair in pairs for cursor, row in pair.places}
        held = {
            number: cursor.held(row, has_batch=True)
            for number, (cursor, row) in sorted(places.items())
        }
        last = max(int(cursor.last[row]) for cursor, row in places.values())
        if not self.is_full:
            self.differences.append(
                Difference(base, last, held, majority, min(pair.record for pair in pairs))
            )


def _equal_rows(cursors: Sequence[Cursor], below: int) -> int:
    """Return how many next batches are the same on all, of those that begin below an offset."""
    first, *others = cursors
    rows = min(one.stop - one.row for one in cursors)
    for name in ("base", "size"):
        wanted = getattr(first, name)[first.row : first.row + rows]
        for other in others:
            got = getattr(other, name)[other.row : other.row + len(wanted)]
            differ = np.flatnonzero(wanted[: len(got)] != got)
            rows = min(rows, int(differ[0]) if len(differ) else rows)
    rows = min(rows, int(np.searchsorted(first.base[first.row : first.row + rows], below)))
    for other in others:
        if rows:
            rows = _rows_of_equal_bytes(first, other, rows)
    return rows


def _rows_of_equal_bytes(first: Cursor, other: Cursor, rows: int) -> int:
    ours, theirs = (np.frombuffer(one.bytes_of(rows), "u1") for one in (first, other))
    differ = ours != theirs
    at = int(differ.argmax())
    if not differ[at]:
        return rows
    starts = first.position[first.row : first.row + rows] - first.position[first.row]
    return int(np.searchsorted(starts, at, "right")) - 1


# ---- records of two replicas ---------------------------------------------------------------------


class _Pair(NamedTuple):
    """Two batches of one base offset with a record that differs."""

    base: int
    record: int
    places: tuple[tuple[Cursor, int], tuple[Cursor, int]]


def _contradictions(
    one: tuple[Cursor, int], other: tuple[Cursor, int], options: Options
) -> Iterator[_Pair]:
    """Yield the first contradiction of each pair of batches. A batch that is equal on both by its
    size and checksum is not opened, one that is damaged is a finding by itself."""
    a, b = one[0], other[0]
    _, ours, theirs = np.intersect1d(
        a.base[a.row : a.row + one[1]], b.base[b.row : b.row + other[1]], return_indices=True
    )
    ours, theirs = ours + a.row, theirs + b.row
    sound = a.columns["is_valid"][ours] & b.columns["is_valid"][theirs]
    same = (a.size[ours] == b.size[theirs]) & (a.columns["crc"][ours] == b.columns["crc"][theirs])
    asked = np.flatnonzero(sound & ~same)
    yield from _opened(a, ours[asked], b, theirs[asked], options)


def _opened(
    a: Cursor, ours: np.ndarray, b: Cursor, theirs: np.ndarray, options: Options
) -> Iterator[_Pair]:
    """Compare the records of batches: of all at once where the limit allows it, else of fewer."""
    if not len(ours):
        return
    left, right = _decoded(a, ours, options), _decoded(b, theirs, options)
    if left is not None and right is not None:
        for record, n in _differing(left, right):
            yield _Pair(int(a.base[ours[n]]), record, ((a, int(ours[n])), (b, int(theirs[n]))))
    elif len(ours) > 1:
        half = len(ours) // 2
        yield from _opened(a, ours[:half], b, theirs[:half], options)
        yield from _opened(a, ours[half:], b, theirs[half:], options)


def _decoded(cursor: Cursor, rows: np.ndarray, options: Options) -> RecordColumns | None:
    """Return the records of batches; None where one cannot be read or they are too large."""
    places = zip(cursor.position[rows].tolist(), cursor.size[rows].tolist(), strict=True)
    data = b"".join(cursor.data[position : position + size] for position, size in places)
    try:
        return record_columns(data, max_decompressed_bytes=options.max_decompressed_bytes)
    except BatchvalError:
        return None


def _differing(left: RecordColumns, right: RecordColumns) -> Iterator[tuple[int, int]]:
    """Yield where the first key or value of each batch differs: the offset, and the batch."""
    offsets, ours, theirs = np.intersect1d(left["offset"], right["offset"], return_indices=True)
    seen = -1
    for offset, i, j, batch in zip(
        offsets.tolist(), ours.tolist(), theirs.tolist(), left["batch"][ours].tolist(), strict=True
    ):
        if batch == seen or (left.key(i) == right.key(j) and left.value(i) == right.value(j)):
            continue
        seen = batch
        yield offset, batch
