"""New segment files with the valid batches of partitions, and lost.jsonl with the lost offsets.

    <out>/<topic>-<partition>/<base offset>.log        sound batches, byte for byte
                              leader-epoch-checkpoint  of these batches
                              partition.metadata       where the one of the source is sound
    <out>/lost.jsonl                                   the lost offset ranges, written at the end
                                                       of a complete run

A batch is sound when its checksum is right, no rule refuses it, and its leader epoch is -1 or more.
Sound batches that lie next to each other, in the file and by their offsets, are one piece. Pieces
are cut where another piece begins or ends among their offsets. The pieces with most batches in
ascending order stay, and of two that are equal the first of the log, which a broker serves.

Indexes, transaction indexes and producer snapshots are left to the recovery of the broker, which
makes them of the log where a segment has no .index.
"""

from __future__ import annotations

import itertools
import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchval.core.batches.columns import BatchColumns
from batchval.errors import BatchvalError
from batchval.rules import Rule
from batchval.segment.aux_files import EpochStart, Malformed, check_topic_id
from batchval.segment.file_names import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
)
from batchval.segment.index import index_entries
from batchval.segment.options import Options
from batchval.segment.partition import Joined, uncertain
from batchval.segment.range_check import Block, RangeResult, is_compacted
from batchval.segment.reader import Damage
from batchval.segment.store import (
    SegmentInfo,
    Store,
    Unreadable,
    folder_and_name,
    one_line,
    with_place,
)

__all__ = ["Lost", "Salvage", "Salvaged"]

#: a row is a piece: where it lies in its file, its offsets, leader epoch, and number of batches
PIECE = np.dtype(
    [(name, "<i8") for name in ("position", "end", "first", "last", "epoch", "batches")]
)
#: the offsets of a segment are stored as 31 bits above its base offset
_MAX_SEGMENT_OFFSETS = (1 << 31) - 1
_COPIED = 1 << 20  # bytes at a time
#: checkpoints whose offset is at most the end of the log
_END_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, REPLICATION_CHECKPOINT)


class Lost(NamedTuple):
    """Offsets of a partition that no valid batch holds. ``position``: where they are missing."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    file: str
    position: int

    @property
    def offsets(self) -> int:
        """Return the number of offsets."""
        return self.last_offset - self.first_offset + 1

    def row(self) -> dict[str, Any]:
        """Return the line of lost.jsonl."""
        return {"type": "lost", **self._asdict()}


@dataclass
class Salvaged:
    """Totals of the written files."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    lost: list[Lost] = field(default_factory=list)

    @property
    def lost_offsets(self) -> int:
        """Return the number of lost offsets."""
        return sum(one.offsets for one in self.lost)


class Piece(NamedTuple):
    """A row of PIECE with its segment."""

    segment: SegmentInfo
    position: int
    end: int
    first: int
    last: int
    epoch: int
    batches: int


class _Pieces:
    """The valid pieces of one segment, in the order of its blocks."""

    def __init__(self) -> None:
        self._rows: list[np.ndarray] = [np.empty(0, PIECE)]
        self._last = self._end = -1

    def take(self, block: Block) -> None:
        if len(block.columns):
            self._rows.append(_merged(self._sound(block.columns, block.position), gaps=False))

    def _sound(self, columns: BatchColumns, base: int) -> np.ndarray:
        """Return a piece for each valid batch."""
        new = columns["magic"] >= 2
        epochs = np.where(new, columns["partition_leader_epoch"], -1)
        sound = columns["is_valid"] & (columns["rule"] == 0) & (epochs >= -1)
        sound &= (columns["base_offset"] >= 0) & (columns["last_offset"] >= columns["base_offset"])
        rows = np.flatnonzero(sound)
        found = np.empty(len(rows), PIECE)
        if not len(rows):
            return found
        found["position"] = columns["position"][rows] + base
        found["end"] = found["position"] + columns["size_in_bytes"][rows]
        found["first"], found["last"] = columns["base_offset"][rows], columns["last_offset"][rows]
        found["epoch"], found["batches"] = epochs[rows], 1
        # a set of magic 0 or 1 states its last offset only: nothing shows that some are missing
        following = np.concatenate([[self._last], found["last"][:-1]]) + 1
        unknown = ~new[rows] & (found["first"] > following)
        unknown &= found["position"] == np.concatenate([[self._end], found["end"][:-1]])
        found["first"][unknown] = following[unknown]
        self._last, self._end = int(found["last"][-1]), int(found["end"][-1])
        return found

    def all(self, *, gaps: bool) -> np.ndarray:
        """Return all pieces, in the order of the file. ``gaps``: the cleaner may have left some."""
        return _merged(np.concatenate(self._rows), gaps=gaps)


def _merged(pieces: np.ndarray, *, gaps: bool) -> np.ndarray:
    """Merge pieces of which each goes on where the one before ends.

    With ``gaps`` also those that ascend with a gap, where the offsets of no other piece contradict.
    The first and the last of a file stay apart: nothing on one side of them confirms their offsets.
    """
    if len(pieces) < 2:
        return pieces
    first, last = pieces["first"], pieces["last"]
    goes_on = first[1:] == last[:-1] + 1
    if gaps:
        agreed = np.ones(len(pieces), bool)
        agreed[1:] = first[1:] > np.maximum.accumulate(last)[:-1]
        agreed[:-1] &= last[:-1] < np.minimum.accumulate(first[::-1])[::-1][1:]
        agreed[[0, -1]] = False
        goes_on |= agreed[1:] & agreed[:-1]
    goes_on &= pieces["position"][1:] == pieces["end"][:-1]
    goes_on &= pieces["epoch"][1:] == pieces["epoch"][:-1]
    starts = np.flatnonzero(np.concatenate([[True], ~goes_on]))
    ends = np.concatenate([starts[1:], [len(pieces)]]) - 1
    merged = pieces[starts].copy()
    merged["end"], merged["last"] = pieces["end"][ends], last[ends]
    merged["batches"] = np.add.reduceat(pieces["batches"], starts)
    return merged


def _cut(pieces: Sequence[Piece]) -> list[Piece]:
    """Cut pieces that overlap, so that of a repeated batch one piece holds that batch only."""
    ordered = sorted(pieces, key=lambda one: one.first)
    bounds: set[int] = set()
    highest: Piece | None = None
    for piece in ordered:
        if highest is not None and piece.first <= highest.last:
            bounds |= {piece.first, piece.last + 1, highest.first, highest.last + 1}
        if highest is None or piece.last > highest.last:
            highest = piece
    if not bounds:
        return list(pieces)
    places = np.array(sorted(bounds), "<i8")
    try:
        return [part for piece in pieces for part in _parts(piece, places)]
    except OSError:
        return list(pieces)  # copying them will show it


def _parts(piece: Piece, bounds: np.ndarray) -> Iterator[Piece]:
    """Yield a piece, cut at the batches that begin at or after one of these offsets."""
    within = np.searchsorted(bounds, [piece.first, piece.last], side="right")
    if within[0] == within[1]:
        yield piece
        return
    store, path = Store.of(piece.segment.uri)
    with store.open(path, accept_claims_header=True) as source:
        for stretch in source.stretches(piece.position, piece.end):
            if isinstance(stretch, Damage):
                continue  # the file has changed, which copying it will show
            columns = stretch.columns
            rows = np.searchsorted(bounds, columns["base_offset"], side="right")
            edges = [0, *(np.flatnonzero(np.diff(rows)) + 1).tolist(), len(rows)]
            for start, end in itertools.pairwise(edges):
                first, last = columns[start], columns[end - 1]
                yield piece._replace(
                    position=stretch.position + first.position,
                    end=stretch.position + last.position + last.size_in_bytes,
                    first=first.base_offset,
                    last=last.last_offset,
                    batches=end - start,
                )


def _ascending(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with most batches whose offsets ascend; of equal ones the first.

    ``lasts`` and ``weights`` are those of the best chains so far, both ascending.
    """
    lasts: list[int] = []
    weights: list[int] = []
    ids: list[int] = []
    before: list[int] = []
    for i, piece in enumerate(pieces):
        j = bisect_left(lasts, piece.first) - 1
        weight = piece.batches + (weights[j] if j >= 0 else 0)
        before.append(ids[j] if j >= 0 else -1)
        k = bisect_left(lasts, piece.last)
        if k and weights[k - 1] >= weight:
            continue
        beaten = k
        while beaten < len(lasts) and weights[beaten] < weight:
            beaten += 1
        lasts[k:beaten], weights[k:beaten], ids[k:beaten] = [piece.last], [weight], [i]
    kept = []
    at = ids[-1] if ids else -1
    while at >= 0:
        kept.append(pieces[at])
        at = before[at]
    return kept[::-1]


class Salvage:
    """A writer of valid batches below a folder. ``done`` has the totals.

    ``watch`` gives the taker of a range's blocks while it is validated; ``write`` copies what was
    seen of a partition, once it is joined.
    """

    def __init__(self, out: Path, options: Options) -> None:
        self.out = out
        self.options = options
        self.done = Salvaged()
        self._pieces: dict[SegmentInfo, np.ndarray] = {}
        self._watched = _Pieces()
        self._sources: dict[str, str] = {}

    def prepare(self, paths: Sequence[Path]) -> None:
        """Make the folder. Raises BatchvalError where it is not empty, or overlaps a path, and
        OSError where it cannot be made.
        """
        out = self.out.resolve()
        for path in paths:
            named = path.resolve() if path.is_dir() else path.resolve().parent
            if out == named or named in out.parents or out in named.parents:
                raise BatchvalError(f"{self.out} overlaps {path}: expected a folder elsewhere")
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            if any(self.out.iterdir()):
                raise BatchvalError(f"{self.out} is not empty: expected a new or an empty folder")
        except OSError as error:
            raise _not_written(self.out, error) from None

    def expect(self, folders: Sequence[str]) -> None:
        """Raise BatchvalError where two folders have one name, such as two replicas."""
        for folder in folders:
            name = os.path.basename(folder)
            other = self._sources.setdefault(name, folder)
            if other != folder:
                raise BatchvalError(f"{other} and {folder} have the same name: salvage one of them")

    def watch(self, then: Callable[[Block], None]) -> Callable[[Block], None]:
        """Return the function that takes the blocks of a whole segment and passes them on."""
        pieces = _Pieces()

        def take(block: Block) -> None:
            pieces.take(block)
            then(block)

        self._watched = pieces
        return take

    def seen(self, result: RangeResult) -> None:
        """Keep the pieces of a segment after its validation."""
        segment = result.range.segment
        gaps = is_compacted(self.options, segment) or result.thinned
        gaps |= self.options.cleanup_policy == "auto" and segment.cleaned is None
        self._pieces[segment] = self._watched.all(gaps=gaps)

    def write(self, joined: Joined, named: Callable[[str], str] = str) -> None:
        """Write a partition. ``named`` returns the path of a file as a person named it.

        Raises OSError where the folder cannot be written.
        """
        segments = [part.segment for part in joined.parts]
        pieces = {one: self._pieces.pop(one, np.empty(0, PIECE)) for one in segments}
        if not segments:
            return
        ordered = sorted(segments, key=lambda one: _content(one, pieces[one]))
        kept = _ascending(
            _cut([Piece(one, *row) for one in ordered for row in pieces[one].tolist()])
        )
        folder = self.out / os.path.basename(folder_and_name(segments[0].uri)[0])
        try:
            folder.mkdir()
            joined.unreadable += self._write_segments(folder, kept, segments[-1])
            _write_epochs(folder, kept)
            _copy_metadata(folder, segments[0])
        except OSError as error:
            raise _not_written(folder, error) from None
        self.done.partitions += 1
        for lost in _lost(joined, ordered, kept, self.options):
            self.done.lost.append(lost._replace(file=named(lost.file)))

    def _write_segments(
        self, folder: Path, kept: Sequence[Piece], newest: SegmentInfo
    ) -> Iterator[Unreadable]:
        """Write the .log files. The newest keeps its name also without a batch: the log goes on
        there."""
        end = -1
        for base, pieces in _files(kept):
            unreadable = self._write_segment(folder / f"{base:020}.log", pieces)
            if unreadable is not None:
                yield unreadable
            end = pieces[-1].last
        if newest.is_last and newest.base_offset > end:
            (folder / f"{newest.base_offset:020}.log").touch()
            self.done.segments += 1

    def _write_segment(self, file: Path, pieces: Sequence[Piece]) -> Unreadable | None:
        segment = pieces[0].segment
        store, path = Store.of(segment.uri)
        with file.open("xb") as target:
            try:
                source = store.open(path)
            except OSError as error:
                return Unreadable(segment.uri, one_line(error))
            with source:
                if why := _changed(segment):
                    return Unreadable(segment.uri, why)
                for piece in pieces:
                    at = piece.position
                    while at < piece.end:
                        try:
                            data = source.read(at, min(piece.end - at, _COPIED))
                        except OSError as error:
                            return Unreadable(segment.uri, one_line(error))
                        if not data:
                            return Unreadable(segment.uri, "became shorter while it was salvaged")
                        target.write(data)
                        at += len(data)
                    self.done.batches += piece.batches
                    self.done.bytes += piece.end - piece.position
            target.flush()
            os.fsync(target.fileno())
        self.done.segments += 1
        return None

    def finish(self) -> None:
        """Write lost.jsonl: a file of this name shows that the run is complete. Raises OSError."""
        file = self.out / "lost.jsonl"
        try:
            unfinished = file.with_suffix(".unfinished")
            lines = [json.dumps(one.row(), ensure_ascii=False) + "\n" for one in self.done.lost]
            unfinished.write_text("".join(lines), "utf-8")
            unfinished.rename(file)
        except OSError as error:
            raise _not_written(file, error) from None


def _not_written(file: Path, error: OSError) -> OSError:
    return with_place(error, "cannot be written", str(error.filename or file))


def _changed(segment: SegmentInfo) -> str | None:
    """Return why a file differs from the validated one."""
    if not segment.inode:
        return None
    now = os.stat(segment.uri)
    same = now.st_ino == segment.inode and now.st_size >= segment.size
    if same and (segment.is_last or now.st_mtime_ns == segment.mtime_ns):
        return None
    return "changed after its validation: stop the broker, and salvage again"


def _content(segment: SegmentInfo, pieces: np.ndarray) -> tuple[int, int]:
    """Return the order of a segment: by the offsets of its largest piece, whatever its name is."""
    if not len(pieces):
        return segment.base_offset, segment.base_offset
    return int(pieces["first"][int(np.argmax(pieces["batches"]))]), segment.base_offset


def _files(kept: Sequence[Piece]) -> Iterator[tuple[int, list[Piece]]]:
    """Yield the base offset and the pieces of each file to write.

    A segment keeps its name where that is right: above the batches before, at most its own first.
    """
    end, base = -1, 0
    pieces: list[Piece] = []
    for piece in kept:
        another = not pieces or piece.segment != pieces[-1].segment
        if another or piece.last - base > _MAX_SEGMENT_OFFSETS:
            if pieces:
                yield base, pieces
            named = piece.segment.base_offset
            is_right = another and end < named <= piece.first
            base = named if is_right and piece.last - named <= _MAX_SEGMENT_OFFSETS else piece.first
            pieces = []
        pieces.append(piece)
        end = piece.last
    if pieces:
        yield base, pieces


def _write_epochs(folder: Path, kept: Sequence[Piece]) -> None:
    """Write where leader epochs begin, as a broker would when it appended these batches."""
    starts: list[EpochStart] = []
    for piece in kept:
        if piece.epoch < 0 or (starts and starts[-1].epoch == piece.epoch):
            continue
        while starts and starts[-1].epoch >= piece.epoch:
            starts.pop()
        starts.append(EpochStart(piece.epoch, piece.first))
    if starts:
        lines = "".join(f"{one.epoch} {one.offset}\n" for one in starts)
        (folder / LEADER_EPOCHS).write_text(f"0\n{len(starts)}\n{lines}")


def _copy_metadata(folder: Path, first: SegmentInfo) -> None:
    uri = first.side_uri(PARTITION_METADATA)
    if uri is None:
        return
    store, path = Store.of(uri)
    try:
        data = store.read_bytes(path)
        check_topic_id(data)
    except (OSError, Malformed):
        return  # a finding says so; a broker writes a new one
    (folder / PARTITION_METADATA).write_bytes(data)


# ---- what is lost --------------------------------------------------------------------------------


def _lost(
    joined: Joined, ordered: Sequence[SegmentInfo], kept: Sequence[Piece], options: Options
) -> Iterator[Lost]:
    """Yield the ranges before, between and after the pieces that were kept."""
    gaps = joined.compacted or (
        options.cleanup_policy == "auto" and any(uncertain(one) for one in ordered)
    )
    start = min(one.base_offset for one in ordered)
    before: Piece | None = None
    for piece in kept:
        expected = start if before is None else before.last + 1
        is_whole = _next_to_each_other(before, piece, ordered)
        if piece.first > expected and not (is_whole and (gaps or before is None)):
            yield _range(before, ordered, expected, piece.first - 1, gap_in=piece)
        before = piece
    end = _known_end(joined, ordered)
    expected = start if before is None else before.last + 1
    if end > expected:
        yield _range(before, ordered, expected, end - 1)


def _next_to_each_other(before: Piece | None, piece: Piece, ordered: Sequence[SegmentInfo]) -> bool:
    """Return whether no byte of the log lies between two pieces, or before the first."""
    if before is not None and before.segment == piece.segment:
        return before.end == piece.position
    if piece.position:
        return False
    at = ordered.index(piece.segment)
    if before is None:
        return at == 0
    return ordered[at - 1] == before.segment and before.end == before.segment.size


def _range(
    before: Piece | None,
    ordered: Sequence[SegmentInfo],
    first: int,
    last: int,
    gap_in: Piece | None = None,
) -> Lost:
    """Return a lost range, at the end of the piece before it, or at the start of the next file."""
    segment, position = ordered[0], 0
    if before is not None:
        segment, position = before.segment, before.end
        is_other = gap_in is not None and gap_in.segment != segment
        at = ordered.index(segment) + 1
        if position >= segment.size and (is_other or gap_in is None) and at < len(ordered):
            segment, position = ordered[at], 0
    return Lost(segment.topic, segment.partition, first, last, segment.uri, position)


def _known_end(joined: Joined, ordered: Sequence[SegmentInfo]) -> int:
    """Return the highest end of the log that its files show."""
    first, newest = joined.parts[0].segment, joined.parts[-1]
    ends = [one.base_offset for one in ordered]
    if not newest.segment.is_last:
        return max(ends)
    ends += [first.checkpoints[name] for name in _END_CHECKPOINTS if name in first.checkpoints]
    ends += [int(side.name[:20]) for side in first.sides if side.name.endswith(".snapshot")]
    uri = newest.segment.index_uri
    if uri is not None and not any(one.rule is Rule.L6 for one in newest.findings):
        store, path = Store.of(uri)
        try:
            offsets, _ = index_entries(store.read_bytes(path), newest.segment.base_offset)
        except OSError:
            offsets = np.empty(0, "<i8")
        if len(offsets):
            ends.append(int(offsets[-1]) + 1)
    return max(ends)
