"""Joins what the ranges of one partition's segments show: the findings between batches, folded by
cause.

Ranges of a segment and segments of a partition are joined in the order of their offsets: a missing
segment, an overlap or a sequence that goes on wrongly is found wherever the cuts are. Which gaps
compaction makes legal is known when the whole partition is.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from batchval.core.batches.continuity import PRODUCERS, Continuity
from batchval.rules import Rule
from batchval.segment.aux_checks import EpochChange, check_epochs, first_of
from batchval.segment.aux_files import ABORTED_ENTRY
from batchval.segment.file_names import SEGMENT_NAME
from batchval.segment.findings import (
    BREAKS,
    BROKEN,
    Finding,
    Found,
    FoundList,
    Level,
    fold,
    found_between,
)
from batchval.segment.index import check_transaction_index, covers
from batchval.segment.manifest_entry import OF_THE_LOG, Entry, Seen, is_whole, log_results
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult, was_compacted
from batchval.segment.store import SegmentInfo, Unreadable, folder_and_name, shown, sibling, text_of
from batchval.segment.tiered import OVERLAP
from batchval.segment.transaction_rows import rows_of
from batchval.segment.transactions import Transactions

__all__ = ["Joined", "Part", "by_folder", "join", "uncertain"]

#: gaps that are legal after the cleaner has rewritten a partition
LEGAL_IF_COMPACTED = (Rule.L3, Rule.L5)
#: after one of these the offsets and epochs of a log are not what its other files describe
_LOG_RULES = frozenset({Rule.L1, Rule.L2, Rule.L3, Rule.L4, Rule.L8, Rule.L15, *BROKEN})
#: segments of a partition whose producers an entry keeps
_KEPT = 2


@dataclass
class Part:
    """A segment of a joined partition.

    ``results`` are empty where an earlier audit had read it, and nothing has changed since.
    """

    segment: SegmentInfo
    entry: Entry
    results: list[RangeResult]
    findings: list[Finding]

    @property
    def seen(self) -> Seen:
        """Return what the checks of the whole folder need."""
        return self.entry.seen


@dataclass
class Joined:
    """A partition: its segments in order, and its unreadable files.

    ``moved``      segments that were deleted or replaced while they were read; the partition is
                   listed again
    ``unsettled``  of these, what changed each time that it was read
    ``compacted``  the cleaner has been at it
    ``transactions``  where all segments were read
    """

    parts: list[Part] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    unsettled: list[Unreadable] = field(default_factory=list)
    compacted: bool = False
    transactions: Transactions | None = None

    @property
    def transaction_rows(self) -> list[dict[str, Any]]:
        """Return rows of the partition and of its open transactions."""
        if self.transactions is None:
            return []
        segment = self.parts[0].segment
        folder = text_of(shown(folder_and_name(segment.uri)[0]))
        return rows_of(self.transactions, segment.topic, segment.partition, folder)

    @property
    def findings(self) -> list[Finding]:
        """Return all findings, segment by segment."""
        return [finding for part in self.parts for finding in part.findings]

    @property
    def is_suspect(self) -> bool:
        """Return whether a broker that was writing meanwhile may have caused the findings."""
        return bool(self.moved or self.unreadable) or any(
            one.level is Level.FINDING for one in self.findings
        )


def by_folder(
    listed: Iterable[SegmentInfo | Unreadable],
) -> dict[str, list[SegmentInfo | Unreadable]]:
    """Return the segments of each folder, in the order of base offsets; each file once, however
    often it was named."""
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

    ``known``: what an earlier audit left, by URI, of segments that have not changed or have only
    grown since.
    """
    joined = Joined()
    segments = [one for one in listed if isinstance(one, SegmentInfo)]
    thinned = any(result.thinned for one in segments for result in results.get(one, ()))
    thinned = thinned or any(known[one.uri].thinned for one in segments if one.uri in known)
    compacted = was_compacted(options, segments, thinned=thinned)
    state = Continuity(
        compacted=compacted, producer_id_expiration_ms=options.producer_id_expiration_ms
    )
    knows_producers = True
    for one in listed:
        if isinstance(one, Unreadable):
            state.damaged()
            joined.unreadable.append(one)
            base = _base_of(one)[0]
            joined.entries.append(
                Entry(None, None, base if base >= 0 else None, None, None, one.uri, one.reason)
            )
            continue
        before = known.get(one.uri)
        found = sorted(results.get(one, ()), key=lambda part: (part.range.start, part.range.end))
        if before is not None and not is_whole(one, found):
            state = copied(before.continuity, compacted=compacted)
            state.producer_id_expiration_ms = options.producer_id_expiration_ms
            knows_producers = before.knows_producers
        part = _joined(one, found, before, state, options, knows_producers)
        _take_lost(joined, part)
        part.entry.continuity = copied(state, compacted=False)
        part.entry.knows_producers = knows_producers
        joined.parts.append(part)
        joined.entries.append(part.entry)
    joined.compacted = compacted
    _check_folder(joined, state)
    for entry in joined.entries[:-_KEPT]:
        entry.continuity.producers = np.empty(0, PRODUCERS)
        entry.knows_producers = False
    return joined


def copied(continuity: Continuity, *, compacted: bool) -> Continuity:
    """Return a copy that can continue without the original."""
    new = copy.copy(continuity)
    new.compacted = compacted
    return new


def _joined(
    segment: SegmentInfo,
    results: list[RangeResult],
    before: Entry | None,
    state: Continuity,
    options: Options,
    knows_producers: bool,
) -> Part:
    entry = Entry(*segment[1:6], file=text_of(shown(segment.uri)))
    entry.is_last, entry.sides = segment.is_last, segment.sides
    carried: list[Found] = []
    if before is not None and is_whole(segment, results):
        if not knows_producers:  # the run did not read who wrote before this segment
            carried = [one for one in before.found if one.rule is Rule.L5]
    elif before is not None:
        entry.go_on(before, results)
        carried = before.carried(results, segment)
    entry.found = _found(segment, results, carried, state)
    for result in results:
        entry.batches += result.batches
        entry.records += result.records
        entry.thinned |= result.thinned
        entry.last = result.last or entry.last
    entry.seen.add(results)
    findings = [
        _finding(segment, one) for one in _folded_findings(segment, entry.found, state, options)
    ]
    return Part(segment, entry, results, findings)


def _found(
    segment: SegmentInfo, results: list[RangeResult], carried: list[Found], state: Continuity
) -> list[Found]:
    """Return the findings of the segment alone, as they were found.

    What small files alone were read for leaves the indexes as they were: ``carried`` has theirs.
    """
    checks_log = bool(log_results(segment, results))
    lost = [damage for result in results for damage in result.lost]
    all_of_them = FoundList()
    all_of_them.add(*carried)
    known = {(one.position, one.rule) for one in carried if one.rule is Rule.L5}
    between: list[Found] = []
    for result in results:
        if checks_log:
            all_of_them.extend(result.findings, state.last_offset)
        else:
            all_of_them.add(*(one for one in result.findings if one.side not in OF_THE_LOG))
        met = [found_between(one) for one in state.join(result.continuity)]
        if segment.is_tiered and result.range.start == 0:
            met = [_as_note(one, OVERLAP) for one in first_of(met)]
        between += [one for one in met if (one.position, one.rule) not in known]
        between += [
            Found(miss.position, miss.offset, Rule.L6, miss.reason, side=".index")
            for miss in result.misses
            if not covers(lost, miss.position)
        ]
    misses = [miss for result in results for miss in result.time_misses]
    if not any(one.rule in BREAKS for one in [*all_of_them, *between]):
        between += first_of(misses)  # else the batches are not those that the file was made for
    return [*all_of_them, *between]


def _folded_findings(
    segment: SegmentInfo, found: list[Found], state: Continuity, options: Options
) -> list[Found]:
    """Return the findings of a segment, folded: of its side files first, then by position."""
    if state.compacted:
        found = [one for one in found if one.rule not in LEGAL_IF_COMPACTED]
    elif options.cleanup_policy == "auto" and (why := uncertain(segment)):
        found = [_as_note(one, why) if one.rule is Rule.L3 else one for one in found]
    return fold(found)


# ---- the partition as a whole --------------------------------------------------------------------


def _check_folder(joined: Joined, state: Continuity) -> None:
    """Add the findings that need the whole folder, each at its segment."""
    moved = any(result.gone or result.changed for part in joined.parts for result in part.results)
    if moved or not joined.parts:
        return  # the folder is listed again
    _check_names(joined.parts)
    _check_ends(joined.parts)
    _check_sides_of_sealed(joined.parts)
    if not joined.unreadable:
        _check_epochs(joined.parts, state)
        _check_checkpoints(joined.parts, state)
        if not _overlap(joined.parts):
            joined.transactions = _check_transactions(joined.parts, state)


def _add(part: Part, *found: Found) -> None:
    part.findings += [_finding(part.segment, one) for one in found]


def _check_names(parts: Sequence[Part]) -> None:
    """Check L8: a name is at most the first offset, and above the last offset of the segment
    before.

    What a wrong name brings with it, at this segment and at the start of the next, is not a finding
    of its own.
    """
    end, wrong = -1, False
    for part, later in zip(parts, [*parts[1:], None], strict=True):
        span = part.seen.span
        base = part.segment.base_offset
        why = None
        first, last = span if span is not None else (None, end)
        if first is not None and base > first:
            why = f"the base offset in the name is {base}, but the first batch begins at {first}"
        elif part.segment.is_tiered:
            why = None  # the segment before may hold the same offsets
        elif first is not None and later is not None and later.segment.base_offset <= first:
            why = f"the first batch begins at offset {first}, but the next segment at {later.segment.base_offset}"
        elif first is not None and 0 <= base <= end < first:
            why = f"the base offset in the name is {base}, but the segment before ends at {end}"
        if wrong or why:
            kept = [one for one in part.findings if not _comes_of_name(one, all_of_it=bool(why))]
            follows = sum(1 + one.follows for one in part.findings if one not in kept)
            part.findings = kept
            if why:
                _add(part, Found(0, first, Rule.L8, why, follows=follows))
        wrong = bool(why)
        end = last


def _overlap(parts: Sequence[Part]) -> bool:
    """Return whether segments of tiered storage hold the same offsets."""
    spans = [
        part.seen.span for part in parts if part.segment.is_tiered and part.seen.span is not None
    ]
    return any(later[0] <= span[1] for span, later in itertools.pairwise(spans))


def _comes_of_name(finding: Finding, *, all_of_it: bool) -> bool:
    at_start = finding.position == 0 and finding.rule in (Rule.L2, Rule.L3, Rule.L4, Rule.L5)
    return at_start or (all_of_it and finding.rule in (Rule.L6, Rule.L9, Rule.L10))


def _check_ends(parts: Sequence[Part]) -> None:
    """Fold L6 of entries after the end of a segment into the gap before the next one.

    A segment that was cut off at the end of a batch shows both.
    """
    for part, later in itertools.pairwise(parts):
        gap = next((i for i, one in enumerate(later.findings) if _is_gap_before(one)), None)
        if gap is None:
            continue
        cut = [
            one for one in part.findings if one.rule is Rule.L6 and one.position >= part.entry.end
        ]
        for one in cut:
            part.findings.remove(one)
            part.entry.findings -= one.level is Level.FINDING
            follows = later.findings[gap].follows + 1 + one.follows
            later.findings[gap] = later.findings[gap]._replace(follows=follows)


def _is_gap_before(finding: Finding) -> bool:
    return finding.rule is Rule.L3 and not finding.position and finding.level is Level.FINDING


def _check_sides_of_sealed(parts: Sequence[Part]) -> None:
    """Check L6 and L9 of segments that are no longer written: files that are missing or end too
    early.
    """
    suffixes = {
        suffix
        for part in parts
        for suffix in (".index", ".timeindex")
        if part.segment.side_uri(suffix)
    }
    for part in parts:
        segment = part.segment
        if segment.is_last or not segment.size:
            continue
        for suffix, rule in ((".index", Rule.L6), (".timeindex", Rule.L9)):
            if suffix in suffixes and segment.side_uri(suffix) is None:
                _add(
                    part,
                    Found(
                        0,
                        None,
                        rule,
                        "the file is missing; other segments have theirs",
                        side=suffix,
                    ),
                )
        highest, end = part.seen.max_timestamp, part.seen.time_end
        damaged = any(one.rule is not Rule.L9 for one in part.findings)
        if (
            end is not None
            and end < highest
            and not damaged
            and not any(one.rule is Rule.L9 for one in part.findings)
        ):
            reason = f"the last entry has timestamp {end}, but the segment reaches {highest}"
            _add(part, Found(0, None, Rule.L9, reason, side=".timeindex"))


def _check_epochs(parts: Sequence[Part], state: Continuity) -> None:
    """Check L12: compare the leader-epoch-checkpoint with the epochs of the batches."""
    starts = next((part.seen.starts for part in parts if part.seen.starts is not None), None)
    if starts is None or any(one.rule in _LOG_RULES for part in parts for one in part.findings):
        return
    seen: list[EpochChange] = []
    for part in parts:
        seen += [one for one in part.seen.epochs if not seen or one.epoch != seen[-1].epoch]
    whole = parts[-1].segment.is_last
    end = _end_of(parts, state) if whole else 1 << 62
    _add(parts[0], *check_epochs(starts, seen, end, compacted=state.compacted or not whole))


def _check_checkpoints(parts: Sequence[Part], state: Continuity) -> None:
    """Check L13: compare the log folder's checkpoints with the end of the log."""
    first, last = parts[0], parts[-1].segment
    checkpoints = first.segment.checkpoints
    for name, reason in checkpoints.broken:
        _add(first, Found(0, None, Rule.L13, reason, side=f"../{name}"))
    if (
        not last.is_last
        or any(one.rule in _LOG_RULES for one in parts[-1].findings)
        or state.after_damage
    ):
        return
    end = _end_of(parts, state)
    found = []
    for name, offset in checkpoints.items():
        if offset > end:
            reason = f"the offset of {last.topic}-{last.partition} is {offset}, but the log ends at {end}"
            found.append(Found(0, offset, Rule.L13, reason, side=f"../{name}"))
    _add(first, *first_of(found))


def _check_transactions(parts: Sequence[Part], state: Continuity) -> Transactions:
    """Return the partition's transactions.

    L10: each .txnindex against the abort markers. L16: transactions that nobody will end.
    """
    transactions = Transactions()
    for part in parts:
        transactions.join(part.seen.transactions)
    log_start = parts[0].segment.base_offset
    unbroken = True  # whether the segment before is: else transactions that it began are not known
    for part in parts:
        wrong = [
            one.rule for one in part.findings if one.rule in _LOG_RULES or one.rule is Rule.L10
        ]
        if unbroken and not wrong:
            _check_transaction_index(part, transactions, log_start, state)
        unbroken = wrong in ([], [Rule.L10]) and bool(part.segment.size)
    for one in transactions.hanging():
        holder = next(part for part in parts if part.segment.base_offset == one.transaction.segment)
        level = Level.FINDING if one.is_certain else Level.NOTE
        place = one.transaction.position, one.transaction.first_offset
        _add(
            holder,
            Found(*place, Rule.L16, one.reason, one.transaction.first_timestamp, level=level),
        )
    return transactions


def _check_transaction_index(
    part: Part, transactions: Transactions, log_start: int, state: Continuity
) -> None:
    entries, span = part.seen.aborted, part.seen.span
    base = part.segment.base_offset
    aborted = transactions.aborted(base)
    if entries is None and not _has_indexes(part.segment):
        return  # a copy of the log alone
    faults = check_transaction_index(
        aborted,
        None if entries is None else [one[1:] for one in entries],
        segment=base,
        log_start=log_start,
        end=span[1] + 1 if span is not None else base,
        certain_from=transactions.certain_from,
        is_cleaned=state.compacted,
    )
    for fault in faults:
        level = Level.FINDING if fault.is_certain else Level.NOTE
        # where the entry is or should be
        position = ABORTED_ENTRY * sum(one.last_offset < fault.last_offset for one in entries or ())
        found = Found(
            position, fault.first_offset, Rule.L10, fault.reason, side=".txnindex", level=level
        )
        _add(part, found._replace(follows=fault.differences - 1))


def _has_indexes(segment: SegmentInfo) -> bool:
    return segment.side_uri(".index") is not None


def _end_of(parts: Sequence[Part], state: Continuity) -> int:
    last = -1 if state.last_offset is None else state.last_offset
    return max(last + 1, parts[-1].segment.base_offset)


def uncertain(segment: SegmentInfo) -> str | None:
    """Return why gaps may be the cleaner's, None where they are not."""
    if segment.cleaned is None:
        return "legal if the topic is compacted, which no cleaner-offset-checkpoint shows"
    if segment.in_flux:
        return "legal if the cleaner is at work: its files are in the folder"
    return None


def _as_note(found: Found, why: str) -> Found:
    return found._replace(level=Level.NOTE, reason=f"{found.reason}; {why}")


def _finding(segment: SegmentInfo, one: Found) -> Finding:
    name = folder_and_name(segment.uri)[1]
    side = one.side
    if side.startswith(".") and not side.startswith("../"):
        side = name.removesuffix(".log") + side
    if side.startswith("../"):
        file = sibling(folder_and_name(segment.uri)[0], side[3:])
    else:
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
    """Return why the parts of a segment do not fit together; None if they do.

    Each range must begin where the one before ended, the last one at the segment's end or beyond.
    Else the file has been cut off or rewritten between two reads. (Or ranges were entered at
    batches inside the value of one of more than 16 MiB, which SegmentReader.first_at may take for
    the walk.)
    """
    results = log_results(segment, results)
    at = results[0].range.start if results else segment.size
    for result in results:
        if result.first is None:
            continue
        if result.first != at:
            return (
                f"changed while it was read: the parts before and after position {at} do not meet"
            )
        at = result.end
    return (
        f"became shorter while it was read: {segment.size} bytes, then {at}"
        if at < segment.size
        else None
    )
