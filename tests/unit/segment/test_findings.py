"""Folding: one fault is one finding, at its first place."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from batchval.rules import Rule
from batchval.segment.findings import MAX_FINDINGS_PER_RULE, Finding, Found, FoundList, Level, fold
from tests.unit.segment.test_check import check, series, starts, write

PARTS = series(12)


def found(folder: Path, *parts: bytes) -> list[tuple[Rule, int, int]]:
    """Return (rule, position, follows) of a segment whose index was made for PARTS."""
    at = starts(PARTS)
    write(folder, *parts)
    entries = [(3 * i + 2, at[i]) for i in range(1, 12)]
    name = f"{0:020}.index"
    write(folder, *(struct.pack(">ii", *entry) for entry in entries), name=name)
    findings: list[Finding] = check(folder)[0]
    return [(one.rule, one.position, one.follows) for one in findings]


def test_a_batch_that_is_lost(tmp_path: Path) -> None:
    """Check that no index entry after it points at the batch that it names."""
    assert found(tmp_path, *PARTS[:4], *PARTS[5:]) == [(Rule.L3, starts(PARTS)[4], 8)]


def test_a_batch_that_is_repeated(tmp_path: Path) -> None:
    ((rule, position, follows),) = found(tmp_path, *PARTS[:5], *PARTS[4:])
    assert (rule, position) == (Rule.L2, starts(PARTS)[5])
    assert follows == 0  # all batches are of one size, so each entry still points at one


def test_two_batches_that_changed_places(tmp_path: Path) -> None:
    """Expect a gap, offsets that go back, and another gap."""
    ((rule, position, follows),) = found(tmp_path, *PARTS[:4], PARTS[5], PARTS[4], *PARTS[6:])
    assert (rule, position) == (Rule.L3, starts(PARTS)[4])
    assert follows == 3


def test_an_offset_that_changed(tmp_path: Path) -> None:
    """Change a base offset, which the checksum does not cover."""
    moved = struct.pack(">q", 1000) + PARTS[4][8:]
    ((rule, position, follows),) = found(tmp_path, *PARTS[:4], moved, *PARTS[5:])
    assert (rule, position) == (Rule.L3, starts(PARTS)[4])
    assert follows == 2


def test_two_faults_are_two_findings(tmp_path: Path) -> None:
    at = starts(PARTS)
    assert [rule for rule, *_ in found(tmp_path, *PARTS[:2], *PARTS[3:7], *PARTS[8:])] == [
        Rule.L3
    ] * 2
    bad = PARTS[3][:-1] + b"\xff"
    assert found(tmp_path, *PARTS[:3], bad, *PARTS[4:]) == [(Rule.CRC_MISMATCH, at[3], 0)]


def test_a_note_becomes_a_finding_by_what_follows() -> None:
    gap = Found(100, 5, Rule.L3, "a gap", level=Level.NOTE, previous=50)
    back = Found(150, 3, Rule.L2, "back", previous=100)
    assert fold([back, gap]) == [
        gap._replace(rule=Rule.L2, reason="back", level=Level.FINDING, follows=1)
    ]
    assert fold([gap, back._replace(previous=120)]) == [gap, back._replace(previous=120)]


@pytest.mark.parametrize("cuts", range(5))
def test_counts_do_not_depend_on_cuts(cuts: int) -> None:
    chance = random.Random(cuts)
    rules = [chance.choice((Rule.CRC_MISMATCH, Rule.S5)) for _ in range(3 * MAX_FINDINGS_PER_RULE)]
    all_of_them = [Found(i, i, rule, str(i)) for i, rule in enumerate(rules)]
    whole = FoundList()
    whole.add(*all_of_them)
    joined = FoundList()
    places = sorted(chance.sample(range(len(rules)), cuts))
    for start, end in zip([0, *places], [*places, len(rules)], strict=True):
        part = FoundList()
        part.add(*all_of_them[start:end])
        joined.extend(part)
    assert list(joined) == list(whole)
    assert sum(1 + one.follows for one in whole) == len(rules)
    for rule in set(rules):
        assert sum(one.rule is rule for one in whole) == MAX_FINDINGS_PER_RULE
