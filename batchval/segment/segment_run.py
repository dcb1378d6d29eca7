"""A run over segments: list, cut, read and join, then read again what changed meanwhile.

A broker may write, roll, clean and delete while its logs are read. A partition of which a segment
vanished or was replaced is listed again, and so is one with findings whose folder has changed since
it was listed. Segments that are the same keep their results, the others are read again. In a folder
that changes, a finding counts when it was seen twice; what was seen once is a note.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from batchval.errors import BatchvalError
from batchval.segment.file_names import SEGMENT_NAME
from batchval.segment.findings import STRUCTURAL, Finding, Level
from batchval.segment.folders import PAUSE_S, ROUNDS
from batchval.segment.manifest_entry import Entry, Reading
from batchval.segment.options import Options
from batchval.segment.partition import Joined, by_folder, join
from batchval.segment.range_check import RangeResult, was_compacted
from batchval.segment.ranges import Range, cut, not_there
from batchval.segment.replicas import name_of
from batchval.segment.store import SegmentInfo, Store, Unreadable, folder_and_name

__all__ = ["Engine", "Known", "Work", "due", "list_work", "settled"]

#: ranges -> a result for each, in any order
Engine = Callable[[Sequence[Range]], Iterable[RangeResult]]


class Known(Protocol):
    """State of an earlier audit.

    ``began``     when it began, or the one before it that last read segments again; milliseconds
    ``findings``  and notes
    ``unreadable``  files that it could not read, with the times when that was seen first
    ``runs``      its table of runs
    """

    began: int
    findings: Sequence[Finding]
    unreadable: Mapping[str, int]
    runs: Any

    def find(self, segment: SegmentInfo) -> tuple[Reading, Entry | None]:
        """Return how much of a segment must be read, and its entry where that is not all."""

    def follows(self, segment: SegmentInfo, before: SegmentInfo | None) -> bool:
        """Return whether ``before`` was the segment before this one then, too."""

    def is_another(self, segment: SegmentInfo) -> bool:
        """Return whether the log is new, or its size or time differs from the earlier run."""


@dataclass
class Work:
    """The work of a run.

    ``listed``   segments, and what could not be listed
    ``ranges``   what is read, the largest first
    ``since``    the earlier audit
    ``known``    its entries for segments that have not changed, or have only grown
    ``reread``   segments that are read again because of their age
    ``paths``    what was named, to list it again
    ``now_ms``   when the run began, milliseconds since the epoch
    """

    listed: list[SegmentInfo | Unreadable] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    since: Known | None = None
    known: dict[str, Entry] = field(default_factory=dict)
    reread: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    now_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    @property
    def bytes(self) -> int:
        """Return how many bytes the ranges have."""
        return sum(one.end - one.start for one in self.ranges)


def list_work(
    paths: Iterable[str], options: Options, since: Known | None = None, reread_ms: int | None = None
) -> Work:
    """List the segments below paths and cut them into ranges. Raises BatchvalError for an unknown
    scheme.

    ``reread_ms``: within this time, every segment is read again.
    """
    paths = tuple(paths)
    found = Work(paths=paths, since=since)
    if options.now_ms is not None:
        found.now_ms = options.now_ms
    unique: dict[str, SegmentInfo | Unreadable] = {}
    for one in _listed(paths, options):
        unique.setdefault(one.uri, one)
    found.listed = list(unique.values())
    segments = [one for one in found.listed if isinstance(one, SegmentInfo)]
    readings = dict.fromkeys(segments, Reading.WHOLE)
    if since is not None:
        readings = _readings(found, since, options)
        if reread_ms is not None:
            found.reread = due(found, reread_ms)
    for segment, reading in readings.items():
        again = segment.uri in found.reread
        found.ranges += _ranges(segment, Reading.WHOLE if again else reading, options, found.known)
    found.listed += not_there(paths, options.topics, found.listed)
    found.ranges.sort(key=lambda part: (part.start - part.end, part.segment.uri, part.start))
    return found


def _readings(work: Work, since: Known, options: Options) -> dict[SegmentInfo, Reading]:
    """Return how much of each segment is read; the work gets what is known of them.

    What a segment shows at its first batches depends on the segment before. Where that is another
    one than then, both are read; where it is deleted, the segment is read if it had findings there.
    """
    found: dict[SegmentInfo, Reading] = {}
    for listed in by_folder(work.listed).values():
        segments = [one for one in listed if isinstance(one, SegmentInfo)]
        before: SegmentInfo | None = None
        changed = False  # the segment before
        for one in segments:
            reading, entry = since.find(one)
            if entry is not None and not since.follows(one, before):
                changed |= before is not None or any(it.rule in STRUCTURAL for it in entry.found)
            if changed or entry is None:
                found[one] = Reading.WHOLE
            else:
                found[one] = reading
                work.known[one.uri] = entry
            before, changed = one, reading in (Reading.GROWN, Reading.WHOLE)
        if _sequences_are_unknown(work, since, options, segments):
            found.update(dict.fromkeys(segments, Reading.WHOLE))
            for one in segments:
                work.known.pop(one.uri, None)
    return found


def _sequences_are_unknown(
    work: Work, since: Known, options: Options, segments: Sequence[SegmentInfo]
) -> bool:
    """Return whether a segment that is not read follows one whose log is another than then.

    Its producers may have written last in the other one, or in any before (L5). An entry does not
    say so. The cleaner replaces logs all the time, but a compacted partition has no L5.
    """
    thinned = any(work.known[one.uri].thinned for one in segments if one.uri in work.known)
    if was_compacted(options, segments, thinned=thinned):
        return False
    others = itertools.dropwhile(
        lambda one: one.uri in work.known or not since.is_another(one), segments
    )
    return any(one.uri in work.known for one in others)


def due(work: Work, interval_ms: int) -> frozenset[str]:
    """Return the segments to read again so that all are read within an interval.

    These are those that were last read before it, and of the others the oldest, as many bytes as
    the time since ``began`` asks for.
    """
    assert work.since is not None
    known = [one for one in work.listed if isinstance(one, SegmentInfo) and one.uri in work.known]
    known.sort(key=lambda one: (work.known[one.uri].read_at or 0, one.uri))
    left = sum(one.size for one in known) * (work.now_ms - work.since.began) // interval_ms
    found = set()
    for one in known:
        is_old = (work.known[one.uri].read_at or 0) <= work.now_ms - interval_ms
        if not is_old and one.size > left:
            break
        left -= one.size
        found.add(one.uri)
    return frozenset(found)


def _listed(paths: Iterable[str], options: Options) -> Iterator[SegmentInfo | Unreadable]:
    for uri in paths:
        store, path = Store.of(uri)
        for one in store.list_segments(path, options.topics):
            name = name_of(one.uri, options.replicas)
            yield (
                one._replace(broker=name)
                if name is not None and isinstance(one, SegmentInfo)
                else one
            )


def _ranges(
    segment: SegmentInfo, reading: Reading, options: Options, known: Mapping[str, Entry]
) -> Iterator[Range]:
    if reading in (Reading.SIDES, Reading.GROWN):
        yield Range(segment, 0, 0)
    if reading in (Reading.UNCHANGED, Reading.SIDES):
        return
    start = known[segment.uri].end if reading is Reading.GROWN else 0
    store, _ = Store.of(segment.uri)
    for part in cut(segment, options.split_bytes, store):
        if part.end > start or not segment.size:
            yield part._replace(start=max(part.start, start))


def settled(
    work: Work, results: Iterable[RangeResult], options: Options, engine: Engine
) -> list[Joined]:
    """Join all partitions; list and read again those that changed while they were read.

    ``results`` are those of the work's ranges, ``engine`` reads further ones.
    """
    held: dict[SegmentInfo, list[RangeResult]] = {}
    for result in results:
        held.setdefault(result.range.segment, []).append(result)
    folders = by_folder(work.listed)
    joined = {folder: join(listed, held, options, work.known) for folder, listed in folders.items()}
    for attempt in range(ROUNDS):
        suspects = [folder for folder, one in joined.items() if one.is_suspect]
        again = {
            folder: listed
            for folder, listed in _listed_again(work, options, suspects, folders, attempt).items()
            if listed != folders[folder]
        }
        if not again:
            break
        _read_again(work, again, folders, held, options, engine)
        for folder, listed in again.items():
            if not any(isinstance(one, SegmentInfo) for one in listed) and not joined[folder].parts:
                continue
            later = join(listed, held, options, work.known)
            _confirm(later, joined[folder].findings, last=attempt == ROUNDS - 1)
            folders[folder], joined[folder] = listed, later
    return list(joined.values())


def _listed_again(
    work: Work,
    options: Options,
    suspects: Sequence[str],
    folders: dict[str, list[SegmentInfo | Unreadable]],
    attempt: int,
) -> dict[str, list[SegmentInfo | Unreadable]]:
    """Return the current listing of the folders; empty where no broker of this machine writes."""
    found: dict[str, list[SegmentInfo | Unreadable]] = {}
    for folder in suspects:
        first = next((one for one in folders[folder] if isinstance(one, SegmentInfo)), None)
        if first is None or not Store.of(first.uri)[0].grows:
            continue
        if attempt and not found:
            time.sleep(PAUSE_S * 2**attempt)
        named = {one.uri for one in folders[folder]}
        alone = [path for path in work.paths if path in named]
        try:
            listed = list(_listed(alone or [folder], options))
        except BatchvalError:
            continue
        inside = by_folder(listed).get(folder, [])
        found[folder] = [
            one
            for one in inside
            if isinstance(one, SegmentInfo)
            or alone
            or SEGMENT_NAME.fullmatch(folder_and_name(one.uri)[1])
        ]
    return found


def _read_again(
    work: Work,
    again: dict[str, list[SegmentInfo | Unreadable]],
    before: dict[str, list[SegmentInfo | Unreadable]],
    held: dict[SegmentInfo, list[RangeResult]],
    options: Options,
    engine: Engine,
) -> None:
    """Read the segments that are new or have changed."""
    ranges: list[Range] = []
    for folder, listed in again.items():
        unchanged = set(before[folder])
        for one in listed:
            if isinstance(one, Unreadable):
                continue
            moved = any(result.gone or result.changed for result in held.get(one, ()))
            if one not in unchanged or moved:
                held.pop(one, None)
                work.known.pop(one.uri, None)
                ranges += _ranges(one, Reading.WHOLE, options, {})
    for result in engine(ranges) if ranges else ():
        held.setdefault(result.range.segment, []).append(result)


def _confirm(later: Joined, earlier: Sequence[Finding], *, last: bool) -> None:
    """Make notes of findings that were not seen the time before, the last time."""
    if not last:
        return
    confirmed = {(one.file, one.position, one.rule) for one in earlier}
    for part in later.parts:
        for i, one in enumerate(part.findings):
            if one.level is Level.FINDING and (one.file, one.position, one.rule) not in confirmed:
                reason = f"{one.reason}; seen once, while the folder changed"
                part.findings[i] = one._replace(level=Level.NOTE, reason=reason)
                part.entry.is_settled = False


def moved_meanwhile(work: Work, joined: Iterable[Joined]) -> int:
    """Return how many of the segments that were listed first have been deleted or replaced
    since."""
    left = {part.segment.uri for one in joined for part in one.parts}
    return sum(isinstance(one, SegmentInfo) and one.uri not in left for one in work.listed)
