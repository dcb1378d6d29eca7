"""Joins what the ranges of one partition's segments show: the findings between batches, folded by
cause.

Ranges of a segment and segments of a partition are joined in the order of their offsets: a missing
segment, an overlap or a sequence that goes on wrongly is found wherever the cuts are. Which gaps
compaction makes legal is known when the whole partition is.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from batchval.core.continuity import PRODUCERS, Continuity
from batchval.rules import Rule
from batchval.segment.findings import Finding, Found, FoundList, Level, fold
from batchval.segment.folders import SEGMENT_NAME
from batchval.segment.judge import Last, RangeResult, is_compacted
from batchval.segment.options import Options
from batchval.segment.store import SegmentInfo, Unreadable, folder_and_name, shown, sibling, text_of

__all__ = ["Entry", "Joined", "Part", "by_folder", "join"]

#: gaps that are legal once the cleaner has been at the partition
LEGAL_IF_COMPACTED = (Rule.L3, Rule.L5)
#: segments of a partition whose producers an entry keeps
_KEPT = 2


@dataclass
class Entry:
    """What an audit knows of one segment, or of a file that could not be read.

    ``continuity``: where the partition was after this segment.
    """

    topic: str | None
    partition: int | None
    base_offset: int | None
    size: int | None
    mtime_ns: int | None
    file: str
    unreadable: str | None = None
    batches: int = 0
    records: int = 0
    findings: int = 0
    thinned: bool = False
    last: Last | None = None
    continuity: Continuity = field(default_factory=Continuity)

    @property
    def end(self) -> int:
        """Where the last batch that was believed ends."""
        return self.last.position + self.last.size if self.last else 0


@dataclass
class Part:
    """One segment of a joined partition. ``results`` are empty where an earlier audit had read
    it."""

    segment: SegmentInfo
    entry: Entry
    results: list[RangeResult]
    findings: list[Finding]


@dataclass
class Joined:
    """One partition: its segments in order, and what could not be read of it.

    ``moved``      segments that were deleted or replaced while they were read; the partition is
                   listed again
    ``unsettled``  of these, what changed each time that it was read
    """

    parts: list[Part] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    unsettled: list[Unreadable] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """Return all findings, segment by segment."""
        return [finding for part in self.parts for finding in part.findings]

    @property
    def is_suspect(self) -> bool:
        """Whether what was seen may come of a broker that was writing meanwhile."""
        return bool(self.moved or self.unreadable) or any(one.level is Level.FINDING for one in self.findings)


def by_folder(listed: Iterable[SegmentInfo | Unreadable]) -> dict[str, list[SegmentInfo | Unreadable]]:
    """Return what lies in each folder, in the order of base offsets; each file once, however often
    it was named."""
    folders: dict[str, dict[str, SegmentInfo | Unreadable]] = {}
    for one in listed:
        folders.setdefault(folder_and_name(one.uri)[0], {}).setdefault(one.uri, one)
    return {folder: sorted(inside.values(), key=_base_of) for folder, inside in folders.items()}


def _base_of(one: SegmentInfo | Unreadable) -> tuple[int, str]:
    if isinstance(one, SegmentInfo):
        return one.base_offset, one.uri
    name = SEGMENT_NAME.fullmatch(folder_and_name(one.uri)[1])
    return int(name[1]) if name else -1, one.uri


def join(
    listed: Sequence[SegmentInfo | Unreadable],
    results: Mapping[SegmentInfo, list[RangeResult]],
    options: Options,
    known: Mapping[str, Entry],
) -> Joined:
    """Join one folder of segments.

    ``known``: what an earlier audit left, by URI. A segment that is known and has no result is
    unchanged; one that has both was read from its known end on.
    """
    joined = Joined()
    segments = [one for one in listed if isinstance(one, SegmentInfo)]
    thinned = any(result.thinned for one in segments for result in results.get(one, ()))
    thinned = thinned or any(known[one.uri].thinned for one in segments if one.uri in known)
    compacted = any(is_compacted(options, one) for one in segments) or (thinned and options.cleanup_policy == "auto")
    state = Continuity(compacted=compacted)
    for one in listed:
        if isinstance(one, Unreadable):
            state.damaged()
            joined.unreadable.append(one)
            base = _base_of(one)[0]
            joined.entries.append(Entry(None, None, base if base >= 0 else None, None, None, one.uri, one.reason))
            continue
        before = known.get(one.uri)
        if before is not None:
            state = copied(before.continuity, compacted=compacted)
        part = _joined(one, sorted(results.get(one, ()), key=lambda part: part.range.start), before, state, options)
        _take_lost(joined, part)
        part.entry.continuity = copied(state, compacted=False)
        joined.parts.append(part)
        joined.entries.append(part.entry)
    for entry in joined.entries[:-_KEPT]:
        entry.continuity.producers = np.empty(0, PRODUCERS)
    return joined


def copied(continuity: Continuity, *, compacted: bool) -> Continuity:
    """Return one that can go on without the other."""
    new = copy.copy(continuity)
    new.compacted = compacted
    return new


def _joined(
    segment: SegmentInfo, results: list[RangeResult], known: Entry | None, state: Continuity, options: Options
) -> Part:
    entry = Entry(*segment[1:6], file=text_of(shown(segment.uri)))
    if known is not None:
        entry.batches, entry.records, entry.findings = known.batches, known.records, known.findings
        entry.thinned, entry.last = known.thinned, known.last
    found = _found(segment, results, state, options)
    findings = [_finding(segment, one) for one in found]
    entry.findings += sum(one.level is Level.FINDING for one in findings)
    for result in results:
        entry.batches += result.batches
        entry.records += result.records
        entry.thinned |= result.thinned
        entry.last = result.last or entry.last
    return Part(segment, entry, results, findings)


def _found(segment: SegmentInfo, results: list[RangeResult], state: Continuity, options: Options) -> list[Found]:
    """Return the findings of a segment, folded: of its side files first, then by position."""
    lost = [damage for result in results for damage in result.lost]
    all_of_them = FoundList()
    between: list[Found] = []
    for result in results:
        all_of_them.extend(result.findings)
        for one in state.join(result.continuity):
            stamp = one.max_timestamp if one.max_timestamp >= 0 else None
            between.append(Found(one.position, one.offset, one.rule, one.reason, stamp, previous=one.previous))
        between += [
            Found(miss.position, miss.offset, Rule.L6, miss.reason, side=".index")
            for miss in result.misses
            if not any(position <= miss.position < position + size for position, size in lost)
        ]
    found = [*all_of_them, *between]
    if state.compacted:
        found = [one for one in found if one.rule not in LEGAL_IF_COMPACTED]
    elif options.cleanup_policy == "auto" and (why := _uncertain(segment)):
        found = [_as_note(one, why) if one.rule is Rule.L3 else one for one in found]
    return fold(found)


def _uncertain(segment: SegmentInfo) -> str | None:
    """Return why gaps may be the cleaner's, None where they are not."""
    if segment.cleaned is None:
        return "legal if the topic is compacted: no cleaner-offset-checkpoint says so"
    if segment.in_flux:
        return "legal if the cleaner is at work: its files are in the folder"
    return None


def _as_note(found: Found, why: str) -> Found:
    return found._replace(level=Level.NOTE, reason=f"{found.reason}; {why}")


def _finding(segment: SegmentInfo, one: Found) -> Finding:
    name = folder_and_name(segment.uri)[1]
    side = one.side if not one.side.startswith(".") else name.removesuffix(".log") + one.side
    file = sibling(segment.uri, side) if side else segment.uri
    return Finding(
        file=shown(file),
        position=one.position,
        offset=one.offset,
        rule=one.rule,
        reason=one.reason,
        level=one.level,
        follows=one.follows,
        topic=segment.topic,
        partition=segment.partition,
        segment=segment.base_offset,
        max_timestamp=one.max_timestamp,
        broker=segment.broker,
        cluster=segment.cluster,
    )


def _take_lost(joined: Joined, part: Part) -> None:
    segment, entry = part.segment, part.entry
    for result in part.results:
        if result.gone or result.changed:
            joined.moved.append(segment.uri)
        if result.gone:
            continue
        for unreadable in result.unreadable:
            joined.unreadable.append(unreadable._replace(uri=shown(unreadable.uri)))
            own = unreadable.uri == segment.uri
            entry.unreadable = unreadable.reason if own else f".index: {unreadable.reason}"
    changed = next((result.changed for result in part.results if result.changed), None)
    if not any(result.gone for result in part.results):
        changed = changed or _torn(segment, part.results)
    if entry.unreadable is None and changed:
        joined.moved.append(segment.uri)
        joined.unsettled.append(Unreadable(shown(segment.uri), changed))
        entry.unreadable = changed


def _torn(segment: SegmentInfo, results: Sequence[RangeResult]) -> str | None:
    """Return how the parts of a segment do not fit together; None where they do.

    Each range must begin where the one before ended, the last one at the segment's end or beyond.
    Else the file has been cut off or rewritten between two reads. (Or ranges were entered at
    batches inside the value of one of more than 16 MiB, which SegmentReader.first_at may take for
    the walk.)
    """
    at = results[0].range.start if results else segment.size
    for result in results:
        if result.first is None:
            continue
        if result.first != at:
            return f"changed while it was read: the parts before and after position {at} do not meet"
        at = result.end
    return f"became shorter while it was read: {segment.size} bytes, then {at}" if at < segment.size else None
