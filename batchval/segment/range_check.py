"""A range of a segment: its batches are read and validated into one small result.

A loop in this process, local processes and Spark's tasks call the same function, so their findings
are the same. What spans ranges (offsets, epochs, sequences, the index) is left to
batchval.segment.partition.

A broker may write, roll, clean and delete while a range is read. Nothing beyond the size that was
listed is read, and index entries beyond it are ignored. A file that is not the one that was listed
is ``changed``, one that is not there any more is ``gone``; both are listed again
(batchval.segment.segment_run).

Kafka's files next to a segment are checked by the range that they describe (L6, L9 to L14):

.index, .timeindex   each range checks the entries that point into it; the first one checks their
                     order
all others           checked whole by the first range of the segment
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from batchval.core.batches.columns import BatchColumns
from batchval.core.batches.continuity import Continuity
from batchval.core.batches.result import CLAIMS, PATHS
from batchval.errors import BatchvalError
from batchval.rules import EXTRAS, Rule, by_number
from batchval.segment.aux_checks import (
    EpochChange,
    check_small_file,
    check_time_entries,
    check_time_order,
    check_transactions,
    first_of,
)
from batchval.segment.aux_files import (
    TIME_ENTRY,
    Aborted,
    EpochStart,
    Malformed,
    epoch_starts,
    time_entries,
)
from batchval.segment.aux_files import transactions as parse_transactions
from batchval.segment.file_formats import START_SIZE, foreign_reason
from batchval.segment.file_names import LEADER_EPOCHS
from batchval.segment.findings import (
    Found,
    FoundList,
    Level,
    damage_found,
    damage_rule,
    found_between,
)
from batchval.segment.index import (
    IndexLie,
    Places,
    index_entries,
    index_lies,
    index_out_of_order,
    index_rest_reason,
)
from batchval.segment.options import Options, validator_of
from batchval.segment.ranges import Range
from batchval.segment.reader import INDEX_ENTRY, Damage, SegmentReader, Stretch
from batchval.segment.store import SegmentInfo, Store, Unreadable, one_line, sibling
from batchval.segment.transactions import NO_MARKER, Transactions, marker_kinds
from batchval.segment.trust import TrustCounts

__all__ = [
    "Block",
    "Last",
    "RangeResult",
    "blocks",
    "check_range",
    "is_compacted",
    "thinned",
    "was_compacted",
]

CACHED = 512 << 10  # bytes read and validated at a time
GATHERED = 64 << 20  # bytes whose columns are handed on together
MAX_ROWS = 1 << 15
#: changes of the leader epoch that a range notes
_MAX_EPOCH_CHANGES = 1000
#: segment -> a position, the first place of the walk from there on, and when the file was written
#: last: ranges that one process reads one after the other do not each walk through the damage
#: before them
_WALKED: dict[SegmentInfo, tuple[int, int, int]] = {}
_MAX_WALKED_RANGES = 100
#: index entries that match nothing which a range lists; the others are counted
_MAX_INDEX_MISSES = 1000


@dataclass
class Block:
    """Bytes of a segment from ``position`` on: complete batches, and the damage between them.

    ``columns``  a row for each batch; their positions count from ``position``
    ``damages``  in order; ``breaks``: for each, how many of the rows precede it
    ``markers``  what the rows are as transaction markers, by the row where a stretch of them starts
    ``foreign``  what the file is, where it holds no batch at all and that can be seen
    """

    position: int
    columns: BatchColumns = field(default_factory=functools.partial(BatchColumns, True))
    damages: list[Damage] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    markers: list[tuple[int, np.ndarray]] = field(default_factory=list)
    file_size: int = 0
    foreign: str | None = None
    size: int = 0

    def add(self, piece: Stretch | Damage) -> None:
        """Add the next part of the segment."""
        if isinstance(piece, Damage):
            self.damages.append(piece)
            self.breaks.append(len(self.columns))
            self.size += piece.size
            return
        kinds = marker_kinds(piece.columns, piece.data)
        if kinds is not None:
            self.markers.append((len(self.columns), kinds))
        self.columns.extend(piece.columns, self.size)
        self.size += len(piece.data)

    @property
    def is_full(self) -> bool:
        """Return whether it is large enough to be handed on."""
        return self.size >= GATHERED or len(self.columns) + len(self.damages) >= MAX_ROWS

    def kinds(self) -> np.ndarray | None:
        """Return what each row is as a transaction marker (``marker_kinds``)."""
        if not self.markers:
            return None
        found = np.full(len(self.columns), NO_MARKER, "i1")
        for row, kinds in self.markers:
            found[row : row + len(kinds)] = kinds
        return found


class Last(NamedTuple):
    """The last believed batch, by which a later run knows that a segment has only grown."""

    position: int
    size: int
    crc: int


@dataclass
class RangeResult:
    """The result of one range of a segment.

    ``first``       where the range's first batch or damage starts (None: none does)
    ``end``         where its last one ends
    ``findings``    those that the range shows by itself
    ``misses``      index entries that name no batch of it: a fault unless damage covers the place
    ``time_misses`` time index entries that contradict its batches
    ``changed``     why the file is not the one that was listed; ``gone``: it is not there any more
    ``unreadable``  of the segment, or of its index
    ``span``        first and last offset of its believed batches of magic 2
    ``epochs``      where leader epochs change, the range's first batch included
    ``aborted``     the .txnindex, where this range has read it; None without one
    ``starts``      of the partition's leader-epoch-checkpoint, where this range has read it
    ``max_timestamp``  the highest of a batch that is believed; ``time_end``: that of the last entry
                    of the time index, where this range has read it
    ``trust``       batches that were taken by their claims
    ``hours``       the audit's counts by hour and codec (audit/hours.py), packed
    ``files``       where the audit wrote its rows: file, first row there, rows
    """

    range: Range
    first: int | None = None
    end: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    claims: Counter[str] = field(default_factory=Counter)
    continuity: Continuity = field(default_factory=Continuity)
    transactions: Transactions = field(default_factory=Transactions)
    aborted: list[Aborted] | None = None
    findings: FoundList = field(default_factory=FoundList)
    lost: list[tuple[int, int]] = field(default_factory=list)  # damage: position, size
    misses: list[IndexLie] = field(default_factory=list)
    time_misses: list[Found] = field(default_factory=list)
    last: Last | None = None
    thinned: bool = False
    changed: str | None = None
    gone: bool = False
    unreadable: list[Unreadable] = field(default_factory=list)
    span: tuple[int, int] | None = None
    epochs: list[EpochChange] = field(default_factory=list)
    starts: list[EpochStart] | None = None
    max_timestamp: int = -1
    time_end: int | None = None
    trust: TrustCounts = field(default_factory=TrustCounts)
    hours: Any = None
    files: tuple[tuple[str, int, int], ...] = ()


def is_compacted(options: Options, segment: SegmentInfo) -> bool:
    """Return what is known before a batch is read. (``auto``: a thinned batch shows it also, but
    later.)"""
    if options.cleanup_policy == "auto":
        return bool(segment.cleaned)
    return "compact" in options.cleanup_policy


def was_compacted(options: Options, segments: Iterable[SegmentInfo], *, thinned: bool) -> bool:
    """Return whether the cleaner has rewritten a partition. ``thinned``: one of its batches shows
    it.
    """
    return (thinned and options.cleanup_policy == "auto") or any(
        is_compacted(options, one) for one in segments
    )


def thinned(columns: BatchColumns) -> bool:
    """Return whether a batch has fewer records than offsets. Only the cleaner writes that."""
    counted = columns["is_valid"] & (columns["records_count"] >= 0)
    return bool(
        (
            counted
            & (columns["records_count"].astype("<i8") <= columns["last_offset_delta"].astype("<i8"))
        ).any()
    )


def blocks(part: Range, options: Options) -> Iterator[Block]:
    """Yield the batches that start in a range, in order, with the damage between them.

    The blocks of a segment's ranges hold, one after the other, what the whole segment holds,
    however it was cut: SegmentReader.first_at finds where the walk from the segment's start enters
    the range, whatever lies there. Raises OSError for what storage does.
    """
    store, path = Store.of(part.segment.uri)
    with store.open(path, accept_claims_header=options.reads_claims) as file:
        yield from _read(file, part, options)


def _read(file: SegmentReader, part: Range, options: Options) -> Iterator[Block]:
    """Yield blocks. Small stretches are read and checked while they are in the processor's cache;
    blocks are large.

    Damage does not end a block: each block has a cost of its own, and a hostile segment may have
    damage after each batch.
    """
    validator = validator_of(options, topic=part.segment.topic)
    scan = functools.partial(
        validator.check_batches, deep=options.deep, trust_claims=options.sample
    )
    written = _last_write(part.segment)
    start = _entered(file, part, written)
    block = Block(start)
    try:
        for piece in file.stretches(
            start, part.end, max(file.source.chunk, CACHED), scan, reuse=True
        ):
            block.add(piece)
            block.file_size = file.size
            if isinstance(piece, Damage):
                block.foreign = _foreign(file, part, piece)
            if block.is_full:
                yield block
                block = Block(block.position + block.size)
    except (OSError, BatchvalError, MemoryError):
        if block.size:  # what was read before it counts
            yield block
        raise
    _WALKED[part.segment] = part.end, block.position + block.size, written
    if block.size:
        yield block


def _last_write(segment: SegmentInfo) -> int:
    """Return the time of a local file's last write in nanoseconds, -1 where it is deleted; 0 for an
    object of a store."""
    try:
        return os.stat(segment.uri).st_mtime_ns if segment.inode else 0
    except OSError:
        return -1


def _entered(file: SegmentReader, part: Range, written: int) -> int:
    """Return where the walk enters a range, from where this process knows it in the segment."""
    asked, place, then = _WALKED.pop(part.segment, (0, 0, written))
    while len(_WALKED) >= _MAX_WALKED_RANGES:
        del _WALKED[next(iter(_WALKED))]
    if then != written:  # what was known may have been written over
        asked, place = 0, 0
    if asked <= part.start <= place:
        return place
    return file.first_at(part.start, place if place < part.start else 0)


def _foreign(file: SegmentReader, part: Range, damage: Damage) -> str | None:
    if damage.position or damage.size < file.size:
        return None
    return foreign_reason(PurePosixPath(part.segment.uri), bytes(file.read(0, START_SIZE)))


def check_range(
    part: Range, options: Options, take: Callable[[Block], None] = lambda block: None
) -> RangeResult:
    """Read and validate a range; ``take`` gets each block after its validation.

    What storage does is in the result. Raises what ``take`` raises.
    """
    segment = part.segment
    result = RangeResult(part, end=part.start)
    result.continuity = Continuity(
        compacted=is_compacted(options, segment),
        producer_id_expiration_ms=options.producer_id_expiration_ms,
    )
    places = Places()
    # before the log: entries of batches that come later are not in it
    sides = _read_aux_files(result)
    reading = blocks(part, options)
    while True:
        try:
            block = next(reading, None)
        except (OSError, BatchvalError, MemoryError) as error:
            _not_read(result, error)
            break
        if block is None:
            break
        _take(result, places, block, options)
        take(block)
    if not result.changed and not result.gone:
        result.changed = _another(segment)
    if not result.unreadable:
        _check_aux_files(result, places, sides)
    return result


def _not_read(result: RangeResult, error: Exception) -> None:
    segment = result.range.segment
    result.continuity.damaged()
    result.transactions.damaged()
    if isinstance(error, FileNotFoundError) and not _is_link(segment):
        result.gone = True
    result.unreadable.append(Unreadable(segment.uri, one_line(error)))


def _is_link(segment: SegmentInfo) -> bool:
    """Return whether the path is a link of this machine that leads nowhere."""
    return bool(segment.inode) and os.path.islink(segment.uri)


def _another(segment: SegmentInfo) -> str | None:
    """Return why the file is another one than was listed: the cleaner puts new ones in the place of
    old ones."""
    if not segment.inode:
        return None
    try:
        inode = os.stat(segment.uri).st_ino
    except OSError:
        return None  # deleted after it was read
    return None if inode == segment.inode else "another file was put in its place"


def _take(result: RangeResult, places: Places, block: Block, options: Options) -> None:
    if result.first is None:
        result.first = block.position
    result.end = block.position + block.size
    result.bytes += block.size
    places.damaged += block.damages
    result.lost += [(one.position, one.size) for one in block.damages]
    noted = _Noted(result.findings)
    _take_damages(result, noted, block)
    if len(block.columns):
        _take_batches(result, noted, block, options)
        places.add(block.position, block.columns)
    _follow(result, noted, block)
    noted.close()


class _Noted:
    """Findings of one block, which come in any order and are passed on by position."""

    def __init__(self, into: FoundList) -> None:
        self._into = into
        self._found: list[Found] = []
        self._more: Counter[tuple[Rule, Level]] = Counter()

    def add(self, found: Found) -> None:
        """Note a finding."""
        self._found.append(found)

    def rows(
        self,
        rows: np.ndarray,
        rule: Rule,
        make: Callable[[int], Found],
        level: Level = Level.FINDING,
    ) -> None:
        """Note one finding for each row: only those that may be kept are made."""
        kept = self._into.free(rule, level)
        self._found += map(make, rows[:kept].tolist())
        if len(rows) > kept:
            self._more[rule, level] += len(rows) - kept

    def close(self) -> None:
        """Pass all findings on."""
        self._into.add(*sorted(self._found, key=lambda one: one.position))
        for (rule, level), more in self._more.items():
            self._into.count(rule, more, level)


def _take_damages(result: RangeResult, noted: _Noted, block: Block) -> None:
    if not block.damages:
        return
    is_last = result.range.segment.is_last
    believed = np.flatnonzero(block.columns["is_valid"])
    counts = np.searchsorted(believed, block.breaks)

    def make(i: int) -> Found:
        found = damage_found(block.damages[i], block.file_size, is_last=is_last)
        last = result.continuity.last_offset
        if counts[i]:
            last = int(block.columns["last_offset"][believed[counts[i] - 1]])
        if last is not None:
            found = found._replace(before=last)
        return found._replace(reason=block.foreign) if block.foreign else found

    kinds = np.array([one.kind for one in block.damages])
    *_, end = block.damages
    if end.position + end.size >= block.file_size:
        noted.add(make(len(kinds) - 1))
        kinds = kinds[:-1]
    for kind in np.unique(kinds).tolist():
        noted.rows(np.flatnonzero(kinds == kind), damage_rule(kind), make)


def _take_batches(result: RangeResult, noted: _Noted, block: Block, options: Options) -> None:
    columns, base = block.columns, block.position
    positions = columns["position"]
    result.batches += len(columns)
    counts = columns["records_count"]  # -1 where magic 0 or 1 does not say
    result.records += int(counts[(counts > 0) & columns["is_valid"]].sum())
    _tally(result.paths, columns["path"], PATHS)
    _tally(result.claims, columns["claims"], CLAIMS)
    if options.trust_claims is not None:
        result.trust.count(columns)
    _take_refused(noted, columns, base)
    if options.extras:
        _take_reports(noted, columns, base)
    _take_span(result, columns)
    _take_epochs(result, noted, columns, base)
    result.thinned = result.thinned or thinned(columns)
    believed = np.flatnonzero(columns["is_valid"])
    if len(believed):
        stamps = columns["max_timestamp"][believed]
        result.max_timestamp = max(result.max_timestamp, int(stamps.max()))
        row = int(believed[-1])
        result.last = Last(
            base + int(positions[row]), int(columns["size_in_bytes"][row]), int(columns["crc"][row])
        )


def _follow(result: RangeResult, noted: _Noted, block: Block) -> None:
    """Follow offsets, producers and transactions through a block."""
    columns, base, count = block.columns, block.position, len(block.columns)
    states = result.continuity, result.transactions
    if block.breaks and not block.breaks[0]:
        for state in states:
            state.damaged()
    inside = [row for row in block.breaks if 0 < row < count]
    for one in result.continuity.feed(columns, base, inside):
        noted.add(found_between(one))
    segment = result.range.segment.base_offset
    result.transactions.feed(columns, block.kinds(), base, segment=segment, breaks=inside)
    if block.breaks and block.breaks[-1] == count:
        for state in states:
            state.damaged()


def _take_span(result: RangeResult, columns: BatchColumns) -> None:
    rows = np.flatnonzero(columns["is_valid"] & (columns["magic"] >= 2))
    if len(rows):
        first = result.span[0] if result.span is not None else int(columns["base_offset"][rows[0]])
        result.span = first, int(columns["last_offset"][rows[-1]])


def _take_epochs(result: RangeResult, noted: _Noted, columns: BatchColumns, base: int) -> None:
    """Note where leader epochs change. An epoch below -1 cannot be: L15."""
    epochs = columns["partition_leader_epoch"]
    new = columns["is_valid"] & (columns["magic"] >= 2)

    def below(row: int) -> Found:
        reason = f"partition leader epoch is {epochs[row]}: expected -1 or more"
        return _refused(columns, row, base, Rule.L15, reason)

    noted.rows(np.flatnonzero(new & (epochs < -1)), Rule.L15, below)
    rows = np.flatnonzero(new & (epochs >= 0))
    if not len(rows):
        return
    before = np.concatenate([[result.epochs[-1].epoch if result.epochs else -1], epochs[rows][:-1]])
    for row in rows[epochs[rows] != before][: _MAX_EPOCH_CHANGES - len(result.epochs)].tolist():
        result.epochs.append(EpochChange(int(epochs[row]), int(columns["base_offset"][row])))


def _tally(counter: Counter[str], numbers: np.ndarray, names: Any) -> None:
    for number, count in enumerate(np.bincount(numbers).tolist()):
        if count and names[number]:
            counter[str(names[number])] += count


def _take_refused(noted: _Noted, columns: BatchColumns, base: int) -> None:
    rules = columns["rule"]
    for number in np.unique(rules[rules != 0]).tolist():
        rule = by_number(number)
        assert rule is not None

        def make(row: int, rule: Rule = rule) -> Found:
            return _refused(columns, row, base, rule, columns.reason_of(row))

        noted.rows(np.flatnonzero(rules == number), rule, make)


def _take_reports(noted: _Noted, columns: BatchColumns, base: int) -> None:
    reports = np.where(columns["rule"] == 0, columns["reports"], 0)
    for bit, extra in enumerate(EXTRAS, 1):
        rows = np.flatnonzero(reports & (1 << bit))
        if not len(rows):
            continue

        def make(row: int, extra: Rule = extra) -> Found:
            found = _refused(columns, row, base, extra, extra.summary)
            return found._replace(level=Level.REPORT)

        noted.rows(rows, extra, make, Level.REPORT)


def _refused(columns: BatchColumns, row: int, base: int, rule: Rule, reason: str) -> Found:
    stamp = int(columns["max_timestamp"][row]) if columns["is_valid"][row] else -1
    place = base + int(columns["position"][row]), int(columns["base_offset"][row])
    return Found(*place, rule, reason, stamp if stamp >= 0 else None)


def _read_aux_files(result: RangeResult) -> dict[str, bytes]:
    """Return the files next to the segment by name: indexes, and to its first range the others."""
    segment = result.range.segment
    found = {}
    for side in segment.sides:
        if result.range.start and not side.name.endswith((".index", ".timeindex")):
            continue
        uri = sibling(segment.uri, side.name)
        store, path = Store.of(uri)
        try:
            found[side.name] = store.read_bytes(path)
        except FileNotFoundError:
            continue  # gone with its segment, which is opened next
        except OSError as error:
            if result.range.start == 0:
                result.unreadable.append(Unreadable(uri, one_line(error)))
    return found


def _check_aux_files(result: RangeResult, places: Places, sides: dict[str, bytes]) -> None:
    """Add the findings of these files to a result whose range has been read. ``places``: where its
    batches are.
    """
    segment = result.range.segment
    for name, data in sides.items():
        if name.endswith(".index"):
            _check_index(result, places, data)
        elif name.endswith(".timeindex"):
            _check_time_index(result, places, data)
        elif name.endswith(".txnindex"):
            damaged = list(check_transactions(data, segment.base_offset))
            result.findings.add(*damaged)
            result.aborted = [] if damaged else parse_transactions(data)
        else:
            result.findings.add(*check_small_file(name, data))
        if name == LEADER_EPOCHS:
            with contextlib.suppress(Malformed):
                result.starts = epoch_starts(data)


def _check_time_index(result: RangeResult, places: Places, data: bytes) -> None:
    """Check L9: the order of all entries in the first range, and each entry in the range of its
    batch.
    """
    segment = result.range.segment
    entries = time_entries(data, segment.base_offset)
    is_open = _is_open(segment, data, TIME_ENTRY, len(entries.offsets))
    if result.range.start == 0:
        result.time_end = int(entries.timestamps[-1]) if len(entries.timestamps) else -1
        order = list(check_time_order(entries, len(data), is_last=segment.is_last))
        result.findings.add(*(_left_over(one) if is_open else one for one in order))
        if order:
            return
    bases, last, stamps = places.timestamps()
    if len(last) and (np.diff(last) > 0).all():
        found = first_of(list(check_time_entries(entries, bases, last, stamps)))
        result.time_misses += [_left_over(one) if is_open else one for one in found]


def _is_open(segment: SegmentInfo, data: bytes, entry: int, used: int) -> bool:
    """Return whether an index has space after its entries, as that of the segment that a broker
    writes."""
    return segment.is_last and len(data) // entry > used


def _left_over(found: Found) -> Found:
    """Return a note. A follower that truncates its log forgets the entries of its open indexes, but
    AbstractIndex.truncateToEntries0 leaves their bytes there until others take their place."""
    reason = f"{found.reason}; legal in an open index after the log was truncated"
    return found._replace(level=Level.NOTE, reason=reason)


def _size_now(segment: SegmentInfo) -> int:
    """Return the size of a file after its index was read: a broker may have written to both since
    the listing."""
    if not segment.is_last:
        return segment.size
    store, path = Store.of(segment.uri)
    try:
        return max(store.size(path), segment.size)
    except OSError:
        return segment.size


def _check_index(result: RangeResult, places: Places, data: bytes) -> None:
    """Check L6 of the entries that point into this range; the last range has those that point to
    the end or beyond.
    """
    segment, start, end = result.range
    is_end = end >= segment.size
    offsets, positions = index_entries(data, segment.base_offset)
    is_open = _is_open(segment, data, INDEX_ENTRY, len(offsets))
    if segment.is_last and len(positions) and not positions[-1]:
        offsets, positions = offsets[:-1], positions[:-1]  # a broker is writing it
    if start == 0:
        for lie in index_out_of_order(offsets, positions):
            found = Found(lie.position, lie.offset, Rule.L6, lie.reason, side=".index")
            result.findings.add(_left_over(found) if is_open else found)
    here = (positions >= start) & ((positions < end) | is_end)
    here &= (positions < segment.size) | (positions >= _size_now(segment))
    for lie in index_lies(offsets[here], positions[here], *places.arrays()):
        found = Found(lie.position, lie.offset, Rule.L6, lie.reason, side=".index")
        if is_open and not places.lost(lie.position):
            result.findings.add(_left_over(found))
        elif lie.names_a_batch:
            result.findings.add(found)
        elif not places.lost(lie.position):
            result.misses.append(lie)
            if len(result.misses) == _MAX_INDEX_MISSES:
                break
    rest = len(data) % INDEX_ENTRY
    if rest and is_end:
        found = Found(len(data) - rest, None, Rule.L6, index_rest_reason(rest), side=".index")
        result.findings.add(found)
