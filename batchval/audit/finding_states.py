"""States of findings: the findings of an audit compared with those of the audit before.

    new    the earlier audit did not have it
    open   it had it; it was found again, or its place was not read again
    gone   it had it; the place was read again and is sound, or the segment is deleted

A finding is the same one if broker, file, topic, partition, rule and position are the same
(Finding.identity). What cannot be read now is not gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import pyarrow as pa

from batchval.audit.arrow_rows import UNREADABLE
from batchval.audit.outputs import with_numbers
from batchval.rules import Rule
from batchval.segment.findings import Finding, Level, State
from batchval.segment.options import Options
from batchval.segment.store import Store, Unreadable, folder_and_name, shown

__all__ = ["Scope", "compared", "findings_of", "unreadable_of"]

Partition: TypeAlias = tuple[str, int]

_RULES = {rule.id: rule for rule in Rule}


def findings_of(errors: pa.Table) -> list[Finding]:
    """Return the findings and notes of an earlier errors/ that were there then. Raises KeyError for
    a rule that does not exist."""
    rows = with_numbers(errors).to_pylist()
    return [
        _finding(row) for row in rows if row["state"] != State.GONE and row["rule"] != UNREADABLE
    ]


def unreadable_of(errors: pa.Table) -> dict[str, int]:
    """Return the files that could not be read, with the times when that was seen first."""
    rows = with_numbers(errors).to_pylist()
    return {row["file"]: row["first_seen"] for row in rows if row["rule"] == UNREADABLE}


def _finding(row: dict[str, Any]) -> Finding:
    values = {name: row[name] for name in Finding._fields}
    values |= {
        "rule": _RULES[row["rule"]],
        "level": Level(row["level"]),
        "state": State(row["state"]),
    }
    return Finding(**values)


def compared(
    found: Iterable[Finding], earlier: Sequence[Finding], scope: Scope, now_ms: int
) -> tuple[list[Finding], list[Finding]]:
    """Return what is there with its states, and what is gone.

    A finding that was a note then is new. One that is a note now is not gone.
    """
    known = {(one.identity, one.level): one.first_seen for one in earlier}
    there: list[Finding] = []
    for one in found:
        first_seen = known.get((one.identity, one.level))
        state = State.NEW if first_seen is None else State.OPEN
        there.append(
            one._replace(state=state, first_seen=now_ms if first_seen is None else first_seen)
        )
    seen = {one.identity for one in there}
    gone: list[Finding] = []
    for one in earlier:
        if one.level is Level.FINDING and one.identity not in seen and scope.has(one):
            is_lost = scope.has_lost(one)
            (there if is_lost else gone).append(
                one._replace(state=State.OPEN if is_lost else State.GONE)
            )
    return there, gone


class Scope:
    """The scope of a run.

    ``paths``, ``options``  that were named
    ``partitions``  (topic, partition) that it listed
    ``unsure``      of these, those of which it could not read all
    ``lost``        what it could not read
    """

    def __init__(
        self,
        paths: Iterable[str],
        options: Options,
        partitions: Set[Partition],
        unsure: Set[Partition],
        lost: Iterable[Unreadable],
    ) -> None:
        self._options, self._partitions, self._unsure = options, partitions, unsure
        self._roots = {shown(store.uri(path)) for store, path in map(Store.of, paths)}
        self._lost = {one.uri for one in lost}

    def has(self, finding: Finding) -> bool:
        """Return whether the run would have seen a finding there."""
        topics = self._options.topics
        if topics is not None and not any(fnmatchcase(finding.topic, one) for one in topics):
            return False
        if finding.rule is Rule.L17 and not self._options.replicas:
            return False
        return _partition(finding) in self._partitions or not self._roots.isdisjoint(
            _above(finding.file)
        )

    def has_lost(self, finding: Finding) -> bool:
        """Return whether its file, or another one of its partition, could not be read."""
        return _partition(finding) in self._unsure or not self._lost.isdisjoint(
            _above(finding.file)
        )


def _partition(finding: Finding) -> Partition:
    return finding.topic, finding.partition


def _above(file: str) -> Iterator[str]:
    """Yield a file and the folders that it lies in."""
    while file:
        yield file
        file = folder_and_name(file)[0]
    yield "/"
