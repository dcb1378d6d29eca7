"""Findings: a fault at one place of one file, and the number of places that follow from it.

A range of a segment finds Found values; a partition joins and folds them into Findings, so that one
fault is one finding. The level decides what a finding changes:

    finding   something is wrong: exit code 1
    note      healthy but worth a line, or uncertain: no exit code
    report    an extra of strict mode that is only reported: no exit code
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from batchval.core.batches.continuity import Finding as Between
from batchval.report.units import plural
from batchval.rules import Rule
from batchval.segment.reader import Damage
from batchval.segment.store import text_of

__all__ = [
    "BREAKS",
    "BROKEN",
    "MAX_FINDINGS_PER_RULE",
    "STRUCTURAL",
    "Finding",
    "Found",
    "FoundList",
    "Level",
    "State",
    "damage_found",
    "damage_reason",
    "damage_rule",
    "fold",
    "found_between",
]

#: findings of one rule that a segment lists; the last of them counts the others
MAX_FINDINGS_PER_RULE = 100


class Level(StrEnum):
    """The effect of a finding on the exit code."""

    FINDING = "finding"
    NOTE = "note"
    REPORT = "report"


class State(StrEnum):
    """A finding compared with an earlier audit: new, in both (open), or only in the earlier one."""

    NEW = "new"
    OPEN = "open"
    GONE = "gone"


class Found(NamedTuple):
    """A rule that one place of a segment or of a side file breaks.

    ``offset``         None where no batch can be read
    ``max_timestamp``  the batch's, milliseconds; None where it is not known or not believed
    ``side``           the suffix or name of the side file; empty for the segment itself
    ``previous``       position of the batch before, where that is known; -1: it is not
    ``follows``        places after this one that the same cause explains
    ``before``         L2, L3 and damage: the last offset of the batch before
    ``end``            of damage, the position after it
    """

    position: int
    offset: int | None
    rule: Rule
    reason: str
    max_timestamp: int | None = None
    side: str = ""
    level: Level = Level.FINDING
    previous: int = -1
    follows: int = 0
    before: int = -1
    end: int = -1


class Finding(NamedTuple):
    """A fault of a partition, at its first place. ``segment`` is a base offset, -1 for other
    files.

    ``first_seen``: the time of the first audit that saw it, milliseconds since the epoch.
    """

    file: str
    position: int
    offset: int | None
    rule: Rule
    reason: str
    level: Level = Level.FINDING
    follows: int = 0
    topic: str = ""
    partition: int = -1
    segment: int = -1
    max_timestamp: int | None = None
    broker: str | None = None
    cluster: str | None = None
    state: State = State.NEW
    first_seen: int | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Return the fields by which two audits' findings are the same one. The count of what
        follows may change.
        """
        return self.broker, text_of(self.file), self.topic, self.partition, self.rule, self.position

    @property
    def reported(self) -> bool:
        """Return whether the finding leaves the exit code unchanged."""
        return self.level is not Level.FINDING


class FoundList:
    """Findings in the order of a range, at most MAX_FINDINGS_PER_RULE of each rule and level;
    the others are counted.
    """

    def __init__(self) -> None:
        self._kept: list[Found] = []
        self._counts: Counter[tuple[Rule, Level]] = Counter()

    def free(self, rule: Rule, level: Level = Level.FINDING) -> int:
        """Return how many more findings of a rule can be kept."""
        return max(MAX_FINDINGS_PER_RULE - self._counts[rule, level], 0)

    def add(self, *found: Found) -> None:
        """Keep findings, or count them if MAX_FINDINGS_PER_RULE are kept."""
        for one in found:
            key = one.rule, one.level
            if self._counts[key] < MAX_FINDINGS_PER_RULE:
                self._kept.append(one)
            self._counts[key] += 1 + one.follows

    def count(self, rule: Rule, more: int, level: Level = Level.FINDING) -> None:
        """Count findings of a rule with MAX_FINDINGS_PER_RULE kept ones."""
        self._counts[rule, level] += more

    def extend(self, later: FoundList, last_offset: int | None = None) -> None:
        """Add what a later range of the same segment found. ``last_offset``: that before it."""
        before = -1 if last_offset is None else last_offset
        counts = later._counts.copy()
        for one in later._kept:
            counts[one.rule, one.level] -= 1 + one.follows
            is_first = one.offset is None and one.before < 0
            self.add(one._replace(before=before) if is_first else one)
        self._counts.update(counts)

    def __iter__(self) -> Iterator[Found]:
        """Yield the kept findings; the last of each rule counts the others."""
        left = self._counts.copy()
        last: dict[tuple[Rule, Level], int] = {}
        for i, one in enumerate(self._kept):
            left[one.rule, one.level] -= 1 + one.follows
            last[one.rule, one.level] = i
        for i, one in enumerate(self._kept):
            key = one.rule, one.level
            yield one._replace(follows=one.follows + left[key]) if last[key] == i else one


_DAMAGES = {
    "partial": (Rule.L1, "the size field points past the end of the file"),
    "zeros": (Rule.L1, "zero bytes"),
    "size": (Rule.BATCH_SIZE_TOO_SMALL, "the size field is {}: expected 14 to 2147483635"),
    "magic": (Rule.MAGIC_UNKNOWN, "magic is {}: expected 0, 1 or 2"),
    "crc": (Rule.CRC_MISMATCH, "wrong checksum, and no batch where the size field points"),
}


def found_between(one: Between) -> Found:
    """Return the findings of Continuity between two batches."""
    stamp = one.max_timestamp if one.max_timestamp >= 0 else None
    return Found(
        *(one.position, one.offset, one.rule, one.reason, stamp),
        previous=one.previous,
        before=one.before,
    )


def damage_rule(kind: str) -> Rule:
    """Return the rule that a kind of damage breaks."""
    return _DAMAGES[kind][0]


def damage_reason(damage: Damage, size: int) -> tuple[Rule, str]:
    """Return the rule that a damage breaks, and a line about it. ``size``: the file's, in bytes."""
    to_the_end = damage.position + damage.size >= size
    rule, text = _DAMAGES[damage.kind]
    reason = text.format(damage.value)
    if to_the_end and damage.kind == "zeros":
        reason = f"{plural(damage.size, 'zero byte')} to the end"
    elif to_the_end and damage.kind == "partial":
        reason = f"{plural(damage.size, 'byte')} of a batch that is not whole"
    elif to_the_end:
        reason += f"; no batch follows in the {plural(damage.size, 'byte')} to the end"
    else:
        reason += f"; the next batch that can be proven is {plural(damage.size, 'byte')} on"
    return rule, reason


def damage_found(damage: Damage, size: int, *, is_last: bool) -> Found:
    """Return the finding of a damage.

    Zeros at the end of a partition's newest segment are a note: ``preallocate=true`` puts them
    there.
    """
    rule, reason = damage_reason(damage, size)
    level = Level.FINDING
    if is_last and damage.kind == "zeros" and damage.position + damage.size >= size:
        level, reason = Level.NOTE, f"{reason}: preallocated for batches to come"
    return Found(
        damage.position, None, rule, reason, level=level, end=damage.position + damage.size
    )


#: rules broken by a lost, moved or repeated batch or a changed offset, at that batch and the next
STRUCTURAL = frozenset({Rule.L2, Rule.L3, Rule.L4, Rule.L5})
#: after one of these the positions of a segment differ from those that its index was made for
BROKEN = frozenset({Rule.BATCH_SIZE_TOO_SMALL, Rule.MAGIC_UNKNOWN, Rule.CRC_MISMATCH})
BREAKS = frozenset({Rule.L1, Rule.L2, Rule.L3, *BROKEN})


def fold(found: Iterable[Found]) -> list[Found]:
    """Fold the findings of one segment, so that one fault is one finding.

    * L2 to L5 of one batch, and of batches that follow each other, have one cause.
    * So have those that end what the first began: batches of another place end where the offsets
      go on; repeated batches end at the offset before them.
    * Offsets that go back right after damage have their cause there. Damage before and after
      batches whose offsets are above or below those around them is one write to a wrong place.
    * Index entries that match nothing after a batch was lost or moved follow from that.
    * Index entries that match nothing otherwise are one finding, at the first.
    """
    ordered = sorted(found, key=lambda one: (one.position, one.rule.number))
    log = _Log()
    for one in ordered:
        if not one.side:
            log.add(one)
    return [*_folded_index([one for one in ordered if one.side], log.findings), *log.findings]


class _Log:
    """The findings of a segment's batches, folded, in the order of their positions.

    ``chain``   the finding that structural findings belong to
    ``reach``   position of its last batch
    ``jump``    what opened it, while the offsets have not come back from there
    ``high``    the highest offset that a batch before a structural finding had
    ``damage``  the last findings that are bytes in no batch, at most two
    ``end``     position of the damage that ended the chain
    """

    def __init__(self) -> None:
        self.findings: list[Found] = []
        self._chain = self._reach = self._high = self._end = -1
        self._jump: Found | None = None
        self._damage: list[int] = []

    def add(self, one: Found) -> None:
        """Add the next finding: a new one, or one that follows from an earlier one."""
        if one.rule in STRUCTURAL:
            self._add_structural(one)
            return
        jump = self._jump
        if (
            one.offset is None
            and jump is not None
            and jump.rule is Rule.L2
            and 0 <= one.before < jump.before
        ):
            self._follow(self._chain, one, is_next=True)  # the offsets have not come back yet
            self._jump, self._end = None, one.position
            return
        self.findings.append(one)
        if one.offset is None:
            self._damage = [*self._damage[-1:], len(self.findings) - 1]

    def _add_structural(self, one: Found) -> None:
        cause = self._cause(one)
        if cause < 0:
            self.findings.append(one)
            cause = len(self.findings) - 1
        else:
            self._follow(cause, one, is_next=one.position != self._reach)
        if cause != self._chain or self._jump is None:
            self._jump = one if one.before >= 0 else None
        elif self._returns(one):
            self._jump = None
        self._chain, self._reach = cause, one.position
        self._high = max(self._high, one.before)

    def _follow(self, cause: int, one: Found, *, is_next: bool) -> None:
        self.findings[cause] = _chained(self.findings[cause], one, is_next)

    def _cause(self, one: Found) -> int:
        """Return the finding that explains this one; -1: none does."""
        if self._chain >= 0 and self._reach in (one.position, one.previous):
            return self._chain
        if self._chain >= 0 and 0 <= one.previous < self._end < one.position:
            return self._chain
        if one.rule in (Rule.L2, Rule.L4) and self._damage:
            start, end = self._damage[0], self._damage[-1]
            damage = self.findings[end]
            # right after it, or one batch later: the write ended in the header of that batch
            if one.previous < damage.position < one.position or one.previous == damage.end:
                return self._one_write(start, end, one)
        return self._chain if self._returns(one) or self._is_repeated(one) else -1

    def _one_write(self, start: int, end: int, one: Found) -> int:
        """Return the finding of a write to a wrong place, with damage at its start and its end."""
        if end == self._chain + 1 and self._returns(one):
            start = self._chain  # it began where a batch did
        elif one.offset is None or (
            one.rule is Rule.L2 and self.findings[start].before >= one.offset
        ):
            return end
        if not start + 1 == end == len(self.findings) - 1:
            return end  # something else lies between
        self._follow(start, self.findings.pop(), is_next=True)
        self._damage = [start] if self.findings[start].offset is None else []
        return start

    def _returns(self, one: Found) -> bool:
        """Return whether the log goes on where it was before batches of another place."""
        jump = self._jump
        if jump is None or jump.offset is None or one.offset is None or one.before < 0:
            return False
        if jump.rule is Rule.L3:
            return one.rule is Rule.L2 and jump.before < one.offset <= jump.offset
        if one.rule is Rule.L2:
            return one.offset == jump.before + 1
        return one.before <= jump.before < one.offset

    def _is_repeated(self, one: Found) -> bool:
        """Return whether a sequence goes back because its batch is there twice."""
        return one.rule is Rule.L5 and one.offset is not None and one.offset <= self._high


def _chained(first: Found, later: Found, is_next: bool) -> Found:
    """Return both as one, at the first place. A note becomes a finding by what follows."""
    follows = first.follows + later.follows + is_next
    if first.level is later.level or later.level is not Level.FINDING:
        return first._replace(follows=follows)
    return first._replace(follows=follows, level=later.level, rule=later.rule, reason=later.reason)


def _has_come_back(later: Found, entry: Found) -> bool:
    """Return whether offsets go back to where an index entry says that the log was.

    In a compacted topic nothing but this shows where batches of another place began.
    """
    if later.rule is not Rule.L2 or later.offset is None or entry.offset is None:
        return False
    return later.offset <= entry.offset + 1 and entry.offset <= later.before


def _folded_index(entries: list[Found], log: list[Found]) -> Iterator[Found]:
    """Yield the findings of side files; those of the offset index that the log explains become part
    of ``log``."""
    breaks = [i for i, one in enumerate(log) if one.rule in BREAKS]
    first: Found | None = None
    seen: set[tuple[int, int | None]] = set()
    for one in entries:
        if one.rule is not Rule.L6:
            yield one
            continue
        if (one.position, one.offset) in seen:
            continue  # out of order, and points nowhere
        seen.add((one.position, one.offset))
        cause = next((i for i in reversed(breaks) if log[i].position <= one.position), None)
        if cause is None:
            cause = next((i for i in breaks if _has_come_back(log[i], one)), None)
        if cause is not None:
            log[cause] = log[cause]._replace(follows=log[cause].follows + 1 + one.follows)
        elif first is None:
            first = one
        else:
            first = first._replace(follows=first.follows + 1 + one.follows)
    if first is not None:
        yield first
