"""Replicas of the same partitions, compared with each other (L17).

    named        a folder of one broker: its log folder, or one partition's folder
    matched      by topic and partition
    walked       batchval.segment.replica_walk, within the listing that the audit used
    seen twice   where a folder changed meanwhile, differences are looked for again in a new listing
    folded       into the findings that the replica has at the same place; what is left is L17, one
                 finding for each replica of a partition

The high watermarks and log starts are those of the checkpoints next to the partitions' folders,
which are read before the segments are listed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from batchval.rules import Rule
from batchval.segment.file_names import LOG_START_CHECKPOINT, REPLICATION_CHECKPOINT
from batchval.segment.findings import BROKEN, Finding, Level
from batchval.segment.folders import PAUSE_S, ROUNDS
from batchval.segment.options import Options, Replica
from batchval.segment.partition import Joined, Part
from batchval.segment.range_check import was_compacted
from batchval.segment.replica_walk import Difference, Held, Side, Walk
from batchval.segment.store import SegmentInfo, Store, Unreadable, folder_and_name, one_line, shown

__all__ = ["compare_replicas", "name_of"]

#: rules that explain a batch which is damaged, lost, repeated or moved
_EXPLAINING = BROKEN | {Rule.L1, Rule.L2, Rule.L3, Rule.L4, Rule.L8, Rule.L15}


def name_of(uri: str, replicas: Sequence[Replica]) -> str | None:
    """Return the name of the replica that a file or folder belongs to."""
    for name, root in _roots(tuple(replicas)):
        if _path_of(uri) == root or _path_of(uri).startswith(root.rstrip("/") + "/"):
            return name
    return None


@functools.lru_cache(maxsize=8)
def _roots(replicas: tuple[Replica, ...]) -> tuple[tuple[str, str], ...]:
    """Return names and URIs, the longest first."""
    placed = [(one.name, Store.of(one.path)) for one in replicas]
    roots = [(name, _path_of(store.uri(path))) for name, (store, path) in placed]
    return tuple(sorted(roots, key=lambda one: -len(one[1])))


def _path_of(uri: str) -> str:
    return uri.partition("?")[0] if "://" in uri else uri


class _Copy(NamedTuple):
    """A replica of a partition."""

    name: str
    joined: Joined


def compare_replicas(
    partitions: Sequence[Joined],
    options: Options,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Compare the partitions that two or more replicas have; add what differs to their findings.

    ``progress`` gets bytes of all replicas as they are read. A replica that has no partition of the
    others is noted as unreadable: nothing was compared.
    """
    matched: dict[tuple[str, int], dict[str, _Copy]] = {}
    for joined in partitions:
        if not joined.parts:
            continue
        segment = joined.parts[0].segment
        name = segment.broker
        copies = matched.setdefault((segment.topic, segment.partition), {})
        if name is not None and (
            name not in copies or len(copies[name].joined.parts) < len(joined.parts)
        ):
            copies[name] = _Copy(name, joined)
    _note_unmatched(partitions, matched.values(), options)
    order = [one.name for one in options.replicas]
    for copies in matched.values():
        if len(copies) > 1:
            _compare([copies[name] for name in order if name in copies], options, progress)


def _note_unmatched(
    partitions: Sequence[Joined], matched: Iterable[dict[str, _Copy]], options: Options
) -> None:
    shared = {name for copies in matched if len(copies) > 1 for name in copies}
    for name, path in options.replicas:
        of_it = [one for one in partitions if one.parts and one.parts[0].segment.broker == name]
        if of_it and name not in shared:
            reason = f"no other replica has a partition of {name}: nothing was compared"
            of_it[0].unreadable.append(
                Unreadable(shown(Store.of(path)[0].uri(Store.of(path)[1])), reason)
            )


# ---- one partition -------------------------------------------------------------------------------


class _Outcome(NamedTuple):
    """The result of a comparison. ``doubt``: why its differences are uncertain."""

    differences: list[Difference]
    sides: list[Side]
    agreed: dict[int, int]
    is_cut_short: bool
    doubt: str | None


def _compare(copies: Sequence[_Copy], options: Options, progress: Callable[[int], None]) -> None:
    thinned = any(part.entry.thinned for one in copies for part in one.joined.parts)
    sides = [_side(one.name, [part.segment for part in one.joined.parts]) for one in copies]
    try:
        outcome = _settled(sides, options, progress, thinned=thinned)
    except (OSError, MemoryError) as error:
        names = " and ".join(one.name for one in copies)
        folder = folder_and_name(copies[0].joined.parts[0].segment.uri)[0]
        lost = Unreadable(shown(folder), f"{names} were not compared to the end: {one_line(error)}")
        copies[0].joined.unsettled.append(lost)
        return
    about: dict[int, list[Difference]] = {}
    for difference in outcome.differences:
        for number in _culprits(difference):
            if not _explained(difference, number, copies, outcome):
                about.setdefault(number, []).append(difference)
    for number, differences in about.items():
        _add(copies, number, differences, outcome)


def _side(name: str, segments: Sequence[SegmentInfo]) -> Side:
    """Return a replica with its range. A checkpoint of log starts names only those that are above
    the first segment's base offset."""
    checkpoints = segments[0].checkpoints
    start = max(checkpoints.get(LOG_START_CHECKPOINT, 0), segments[0].base_offset, 0)
    return Side(name, tuple(segments), start, checkpoints.get(REPLICATION_CHECKPOINT))


def _settled(
    sides: list[Side], options: Options, progress: Callable[[int], None], *, thinned: bool
) -> _Outcome:
    """Compare until nothing differs, nothing has changed meanwhile, or what differs was seen
    twice."""
    walk = Walk(options, progress)
    seen: list[Difference] | None = None
    compacted = _compacted(sides, options, thinned=thinned)
    for attempt in range(ROUNDS):
        error: OSError | None = None
        try:
            walk.run(sides, compacted=compacted)
        except OSError as problem:
            error = problem
        else:
            if seen is not None:
                walk.differences = _seen_twice(seen, walk.differences)
            if not walk.differences:
                return _outcome(walk, sides, None)
        later = _listed_again(sides)
        same, sides = later == sides and not any(one.segments[0].in_flux for one in later), later
        was, compacted = compacted, _compacted(sides, options, thinned=thinned)
        if error is not None:
            if attempt == ROUNDS - 1 or same:
                raise error
        elif (same or seen is not None) and was == compacted:
            return _compared(walk, sides, options, compacted=compacted)
        elif attempt == ROUNDS - 1:
            break
        else:
            seen = walk.differences
            walk = Walk(options, progress, at=seen[0].offset)
        time.sleep(PAUSE_S * 2**attempt)
    return _outcome(walk, sides, "the folders changed during each reading")


def _listed_again(sides: Sequence[Side]) -> list[Side]:
    """Return the current listing of the folders; a deleted folder stays as it was."""
    found = []
    for side in sides:
        store, _ = Store.of(side.segments[0].uri)
        folder = Store.of(folder_and_name(side.segments[0].uri)[0])[1]
        listed = (
            [one for one in store.list_segments(folder) if isinstance(one, SegmentInfo)]
            if store.grows
            else []
        )
        named = [one._replace(broker=side.name) for one in listed]
        named.sort(key=lambda one: one.base_offset)
        found.append(_side(side.name, named) if named else side)
    return found


def _compacted(sides: Sequence[Side], options: Options, *, thinned: bool) -> bool:
    """Return whether records are compared: one replica that the cleaner has rewritten is enough."""
    return was_compacted(options, [one for side in sides for one in side.segments], thinned=thinned)


def _compared(walk: Walk, sides: list[Side], options: Options, *, compacted: bool) -> _Outcome:
    """Return what was seen. Where nothing says whether the topic is compacted, batches that differ
    count only if their records do."""
    unknown = options.cleanup_policy == "auto" and any(
        one.cleaned is None for side in sides for one in side.segments
    )
    if compacted or not unknown:
        return _outcome(walk, sides, None)
    records = Walk(options, walk.progress, at=walk.differences[0].offset)
    records.run(sides, compacted=True)
    if records.differences:
        return _outcome(records, sides, None)
    return _outcome(
        walk, sides, "legal if the topic is compacted, which no cleaner-offset-checkpoint shows"
    )


def _outcome(walk: Walk, sides: list[Side], doubt: str | None) -> _Outcome:
    return _Outcome(walk.differences, sides, walk.agreed, walk.is_full, doubt)


def _seen_twice(earlier: Sequence[Difference], later: Sequence[Difference]) -> list[Difference]:
    before = {(one.offset, one.majority) for one in earlier}
    return [one for one in later if (one.offset, one.majority) in before]


# ---- findings ------------------------------------------------------------------------------------


def _culprits(difference: Difference) -> list[int]:
    """Return the replicas that findings are about: those that the majority contradicts, else the
    one that is damaged by itself, else the first."""
    if difference.majority:
        return [number for number in difference.held if number not in difference.majority]
    damaged = [number for number, held in difference.held.items() if not held.is_sound]
    return (damaged or list(difference.held))[:1]


def _explained(
    difference: Difference, culprit: int, copies: Sequence[_Copy], outcome: _Outcome
) -> bool:
    """Return whether a replica's own findings name the cause; add what the others have there."""
    for number in [culprit] if difference.majority else difference.held:
        held = difference.held[number]
        for part in copies[number].joined.parts:
            if part.segment.uri != held.segment.uri:
                continue
            for i, one in enumerate(part.findings):
                if _explains(one, held, difference):
                    part.findings[i] = _with_others(one, difference, number, outcome)
                    return True
    return False


def _explains(finding: Finding, held: Held, difference: Difference) -> bool:
    """Return whether a finding and a difference have one cause.

    A batch that was lost, repeated or moved shows in a difference at its place and in what follows;
    a batch whose bytes differ only at its place.
    """
    is_of_batch = finding.rule in _EXPLAINING or not finding.rule.id.startswith("L")
    if not is_of_batch or finding.file != shown(held.segment.uri):
        return False
    if finding.position == held.position or (
        finding.rule is Rule.L4 and finding.position == held.end
    ):
        return True  # a leader epoch that is too high shows at the next batch
    moved = len({one.has_batch for one in difference.held.values()}) > 1
    return moved and bool(finding.follows) and finding.position <= held.position


def _with_others(
    finding: Finding, difference: Difference, number: int, outcome: _Outcome
) -> Finding:
    others = [n for n, held in difference.held.items() if n != number and held.is_sound]
    if not others or " at offset " in finding.reason:
        return finding
    offset = difference.offset
    what = "another batch" if difference.held[others[0]].has_batch else "no batch"
    return finding._replace(
        reason=f"{finding.reason}; {_names(others, outcome)} {_do(others, 'have')} {what} at offset {offset}"
    )


def _names(numbers: Iterable[int], outcome: _Outcome) -> str:
    names = [outcome.sides[number].name for number in numbers]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _add(
    copies: Sequence[_Copy], number: int, differences: Sequence[Difference], outcome: _Outcome
) -> None:
    """Add the finding about one replica, at the first place where it differs."""
    first, last = differences[0], differences[-1]
    held = first.held[number]
    doubt = outcome.doubt or _doubt(differences, number, outcome)
    reason = _reason(first, last, number, outcome)
    parts = copies[number].joined.parts
    part = next((one for one in parts if one.segment.uri == held.segment.uri), parts[-1])
    finding = Finding(
        file=shown(held.segment.uri),
        position=held.position,
        offset=first.offset,
        rule=Rule.L17,
        reason=f"{reason}; {doubt}" if doubt else reason,
        level=Level.NOTE if doubt else Level.FINDING,
        follows=len(differences) - 1,
        topic=held.segment.topic,
        partition=held.segment.partition,
        segment=held.segment.base_offset,
        max_timestamp=held.max_timestamp if held.max_timestamp >= 0 else None,
        broker=outcome.sides[number].name,
        cluster=held.segment.cluster,
    )
    _append(part, finding)


def _append(part: Part, finding: Finding) -> None:
    part.findings.append(finding)
    part.entry.findings += finding.level is Level.FINDING


def _doubt(differences: Sequence[Difference], number: int, outcome: _Outcome) -> str | None:
    """Return why the end of a log may differ. Batches above the high watermark are not committed:
    a follower may yet cut them off."""
    first = differences[0]
    unknown = [outcome.sides[n].name for n in first.held if outcome.sides[n].high_watermark is None]
    if not unknown or outcome.agreed.get(number, -1) > first.offset:
        return None
    return f"no later batch is equal, and the high watermark of {unknown[0]} is unknown: it may not be committed"


def _reason(first: Difference, last: Difference, number: int, outcome: _Outcome) -> str:
    """Return what differs, from where to where, and the leader epochs of both sides there."""
    others = list(first.majority) or [n for n in first.held if n != number]
    here, there = first.held[number], first.held[others[0]]
    name, names = outcome.sides[number].name, _names(others, outcome)
    if first.record is not None:
        what = f"the record at offset {first.record} has another key or value on {name} than on {names}"
    elif here.has_batch and there.has_batch:
        what = f"the batch at offset {first.offset} has other bytes on {name} than on {names}"
    elif here.has_batch:
        what = f"{name} has a batch at offset {first.offset} that {names} {_do(others, 'lack')}"
    else:
        what = f"{name} lacks the batch at offset {first.offset} that {names} {_do(others, 'have')}"
    what += f" (leader epoch {here.epoch} on {name}, {there.epoch} on {names})"
    until = f"offsets {first.offset} to {last.last_offset} differ"
    if outcome.is_cut_short:
        until = f"at least {until}"
    return f"{what}; {until}" + ("" if first.majority else "; no majority shows which is right")


def _do(numbers: Sequence[int], verb: str) -> str:
    """Return the verb for one name or several."""
    return verb if len(numbers) > 1 else {"lack": "lacks", "have": "has"}[verb]
