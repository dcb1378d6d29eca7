"""List, cut, read, join; and read again what changed meanwhile.

A broker may write, roll, clean and delete while its logs are read. A partition of which a segment
vanished or was replaced is listed again, and so is one with findings whose folder has changed since
it was listed. Segments that are the same keep their results, the others are read again. In a folder
that changes, a finding counts when it was seen twice; what was seen once is a note.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from batchval.errors import BatchvalError
from batchval.segment.findings import Finding, Level
from batchval.segment.judge import RangeResult
from batchval.segment.options import Options
from batchval.segment.partition import Entry, Joined, by_folder, join
from batchval.segment.ranges import Range, cut, not_there
from batchval.segment.replicas import name_of
from batchval.segment.store import SegmentInfo, Store, Unreadable

__all__ = ["Engine", "Known", "Work", "list_work", "settled"]

#: times that a partition is read again before its state is taken as it is
ROUNDS = 6
#: seconds before it is listed again, doubled each time: Kafka writes some files later than the log
PAUSE_S = 0.1

#: ranges -> a result for each, in any order
Engine = Callable[[Sequence[Range]], Iterable[RangeResult]]


class Known(Protocol):
    """What an earlier audit knows."""

    def same(self, segment: SegmentInfo) -> Entry | None:
        """Return the entry of a segment to which nobody has written since."""

    def grown(self, segment: SegmentInfo) -> Entry | None:
        """Return the entry of a segment to which batches were added since."""


@dataclass
class Work:
    """What there is to do.

    ``listed``   segments, and what could not be listed
    ``ranges``   what is read, the largest first
    ``known``    entries of an earlier audit for segments of which it has read all, or the first
    part
    ``paths``    what was named, to list it again
    ``now_ms``   when the run began, milliseconds since the epoch
    """

    listed: list[SegmentInfo | Unreadable] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    known: dict[str, Entry] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    now_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    @property
    def bytes(self) -> int:
        """Return how many bytes the ranges have."""
        return sum(one.end - one.start for one in self.ranges)


def list_work(paths: Iterable[str], options: Options, since: Known | None = None) -> Work:
    """List the segments below paths and cut what is to be read. Raises BatchvalError for an unknown
    scheme."""
    paths = tuple(paths)
    found = Work(paths=paths)
    if options.now_ms is not None:
        found.now_ms = options.now_ms
    seen: set[str] = set()
    for one in _listed(paths, options):
        if one.uri in seen:
            continue
        seen.add(one.uri)
        found.listed.append(one)
        if isinstance(one, SegmentInfo):
            found.ranges += _ranges(one, options, found.known, since)
    found.listed += not_there(paths, options.topics, found.listed)
    found.ranges.sort(key=lambda part: (part.start - part.end, part.segment.uri, part.start))
    return found


def _listed(paths: Iterable[str], options: Options) -> Iterator[SegmentInfo | Unreadable]:
    for uri in paths:
        store, path = Store.of(uri)
        for one in store.list_segments(path, options.topics):
            name = name_of(one.uri, options.replicas)
            yield one._replace(broker=name) if name is not None and isinstance(one, SegmentInfo) else one


def _ranges(segment: SegmentInfo, options: Options, known: dict[str, Entry], since: Known | None) -> Iterator[Range]:
    start = 0
    if since is not None:
        entry = since.same(segment)
        if entry is not None:
            known[segment.uri] = entry
            return
        entry = since.grown(segment)
        if entry is not None:
            known[segment.uri] = entry
            start = entry.end
    store, _ = Store.of(segment.uri)
    for part in cut(segment, options.split_bytes, store):
        if part.end > start or (part.end == segment.size and start == segment.size):
            yield part._replace(start=max(part.start, start))


def settled(work: Work, results: Iterable[RangeResult], options: Options, engine: Engine) -> list[Joined]:
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
    """Return what is in the folders now; nothing where no broker of this machine writes."""
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
        found[folder] = [one for one in inside if isinstance(one, SegmentInfo) or alone]
    return found


def _read_again(
    work: Work,
    again: dict[str, list[SegmentInfo | Unreadable]],
    before: dict[str, list[SegmentInfo | Unreadable]],
    held: dict[SegmentInfo, list[RangeResult]],
    options: Options,
    engine: Engine,
) -> None:
    """Read the segments that are new or another than before."""
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
                ranges += _ranges(one, options, {}, None)
    for result in engine(ranges) if ranges else ():
        held.setdefault(result.range.segment, []).append(result)


def _confirm(later: Joined, earlier: Sequence[Finding], *, last: bool) -> None:
    """Make notes of findings that were not seen the time before, the last time."""
    if not last:
        return
    seen = {(one.file, one.position, one.rule) for one in earlier}
    for part in later.parts:
        part.findings = [
            one
            if one.level is not Level.FINDING or (one.file, one.position, one.rule) in seen
            else one._replace(level=Level.NOTE, reason=f"{one.reason}; seen once, while the folder changed")
            for one in part.findings
        ]


def moved_meanwhile(work: Work, joined: Iterable[Joined]) -> int:
    """Return how many of the segments that were listed first have been deleted or replaced
    since."""
    left = {part.segment.uri for one in joined for part in one.parts}
    return sum(isinstance(one, SegmentInfo) and one.uri not in left for one in work.listed)
