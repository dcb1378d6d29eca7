"""State of one segment that an audit keeps, so that a later audit continues from it.

A segment is in one of four states when a later audit lists it:

    unchanged   the log and the files next to it are as they were: nothing is read
    sides       only small files next to it are others: these are read, at the range [0, 0)
    grown       batches were added to the log: small files, and the log from its last batch on
    whole       it is new or another, or its turn has come: all of it is read

Findings that a segment shows by itself are kept as they were found, before they are folded. What
several segments show together (names, epochs, checkpoints, transactions) is found anew each time,
from what is kept in ``Seen``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from batchval.core.batches.continuity import Continuity
from batchval.rules import Rule
from batchval.segment.aux_checks import EpochChange
from batchval.segment.aux_files import Aborted, EpochStart
from batchval.segment.findings import Found, Level
from batchval.segment.range_check import Last, RangeResult
from batchval.segment.store import SegmentInfo, SideFile
from batchval.segment.transactions import Transactions

__all__ = ["OF_THE_LOG", "Entry", "Reading", "Seen", "is_whole", "log_results"]

#: side files that are compared with the batches, which needs a walk of the log
OF_THE_LOG = (".index", ".timeindex")
_RULES = {rule.id: rule for rule in Rule}


class Reading(StrEnum):
    """How much of a segment is read."""

    UNCHANGED = "unchanged"
    SIDES = "sides"
    GROWN = "grown"
    WHOLE = "whole"


def log_results(segment: SegmentInfo, results: Sequence[RangeResult]) -> list[RangeResult]:
    """Return the results of ranges of the log, without that of the files next to it alone."""
    return [result for result in results if result.range.end or not segment.size]


def is_whole(segment: SegmentInfo, results: Sequence[RangeResult]) -> bool:
    """Return whether the segment was read from its start."""
    read = log_results(segment, results)
    return bool(read) and read[0].range.start == 0


@dataclass
class Seen:
    """Values of a segment that the checks of a whole partition need. Fields as in RangeResult."""

    span: tuple[int, int] | None = None
    epochs: list[EpochChange] = field(default_factory=list)
    starts: list[EpochStart] | None = None
    aborted: list[Aborted] | None = None
    max_timestamp: int = -1
    time_end: int | None = None
    transactions: Transactions = field(default_factory=Transactions)

    def add(self, results: Sequence[RangeResult]) -> None:
        """Add the results of later ranges; the first has the files next to the segment."""
        if results and results[0].range.start == 0:
            self.starts = self.aborted = self.time_end = None
        for result in results:
            if result.span is not None:
                first = self.span[0] if self.span is not None else result.span[0]
                self.span = first, result.span[1]
            for one in result.epochs:
                if not self.epochs or one.epoch != self.epochs[-1].epoch:
                    self.epochs.append(one)
            self.starts = self.starts if result.starts is None else result.starts
            self.aborted = self.aborted if result.aborted is None else result.aborted
            self.time_end = self.time_end if result.time_end is None else result.time_end
            self.max_timestamp = max(self.max_timestamp, result.max_timestamp)
            self.transactions.join(result.transactions)


@dataclass
class Entry:
    """State of one segment, or of a file that could not be read.

    ``continuity``  where the partition was after this segment
    ``knows_producers``  whether its producers are all that the partition had until then
    ``found``       what the segment shows by itself; ``findings``: how many findings it has
    ``is_settled``  False for what was seen while the folder changed: it is read again
    ``read_at``     when all of it was read, milliseconds since the epoch
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
    knows_producers: bool = True
    is_last: bool = False
    is_settled: bool = True
    sides: tuple[SideFile, ...] = ()
    found: list[Found] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    read_at: int | None = None

    @property
    def end(self) -> int:
        """Return where the last believed batch ends."""
        return self.last.position + self.last.size if self.last else 0

    def go_on(self, before: Entry, results: Sequence[RangeResult]) -> None:
        """Add the state of the part of the segment that is not read again."""
        self.batches, self.records = before.batches, before.records
        self.thinned, self.last, self.read_at = before.thinned, before.last, before.read_at
        self.seen = copy.deepcopy(before.seen) if results else before.seen

    def is_another(self, now: SegmentInfo) -> bool:
        """Return whether the size or time of the log differs from the earlier run."""
        return (now.size, now.mtime_ns) != (self.size, self.mtime_ns)

    def reading(self, now: SegmentInfo) -> Reading:
        """Return how much of the segment must be read. GROWN is for the caller to prove."""
        if self.is_another(now):
            is_longer = self.last is not None and self.size is not None and now.size > self.size
            return (
                Reading.GROWN if is_longer and not self._has_found(*OF_THE_LOG) else Reading.WHOLE
            )
        if now.is_last != self.is_last and self.found:
            return Reading.WHOLE
        others = {side.name for side in set(now.sides) ^ set(self.sides)}
        if any(name.endswith(OF_THE_LOG) for name in others):
            return Reading.WHOLE
        return Reading.SIDES if others else Reading.UNCHANGED

    def _has_found(self, *sides: str) -> bool:
        return any(one.side in sides for one in self.found)

    def carried(self, results: Sequence[RangeResult], segment: SegmentInfo) -> list[Found]:
        """Return the findings at places that are not read again."""
        read = log_results(segment, results)
        if not results:
            return self.found
        if not read:
            return [one for one in self.found if one.side in ("", *OF_THE_LOG)]
        return [one for one in self.found if not one.side and one.position < read[0].range.start]

    def state(self) -> dict[str, Any]:
        """Return the state for a later run, as JSON values."""
        found = [[*one[:2], one.rule.id, *one[3:]] for one in self.found]
        seen = vars(self.seen) | {"transactions": self.seen.transactions.to_json()}
        return {
            "found": found,
            "sides": list(self.sides),
            "is_last": self.is_last,
            "is_settled": self.is_settled,
            "knows_producers": self.knows_producers,
            "seen": seen,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what ``state`` returned. Raises KeyError, TypeError or ValueError."""
        self.found = [_found(one) for one in state["found"]]
        self.sides = tuple(SideFile(*one) for one in state["sides"])
        for name in ("is_last", "is_settled", "knows_producers"):
            setattr(self, name, state[name])
        seen = state["seen"]
        self.seen = Seen(
            span=seen["span"] and tuple(seen["span"]),
            epochs=[EpochChange(*one) for one in seen["epochs"]],
            starts=_each(EpochStart, seen["starts"]),
            aborted=_each(Aborted, seen["aborted"]),
            max_timestamp=seen["max_timestamp"],
            time_end=seen["time_end"],
            transactions=Transactions.from_json(seen["transactions"]),
        )


def _found(values: list[Any]) -> Found:
    fields = dict(zip(Found._fields, values, strict=True))
    return Found(**fields | {"rule": _RULES[fields["rule"]], "level": Level(fields["level"])})


def _each(kind: Any, values: list[Any] | None) -> list[Any] | None:
    return None if values is None else [kind(*one) for one in values]
