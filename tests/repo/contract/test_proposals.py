"""docs/reference/proposals.md: every requirement of the five proposals has a place and a test."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reference/proposals.md"
#: Rows of each proposal. A row goes only with a decision (docs/adr) that says why.
ROWS = {"C": 34, "P": 10, "N": 41, "B": 13, "S": 18}
_TESTS = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)


class Row(NamedTuple):
    number: str
    requirement: str
    path: str
    names: list[str]
    tests: list[str]


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text().splitlines():
        if re.match(r"\| [A-Z]\d+ \|", line):
            number, requirement, place, tests = (
                cell.strip() for cell in line.strip("|").split(" | ")
            )
            path, *names = re.findall(r"`([^`]+)`", place)
            found.append(Row(number, requirement, path, names, re.findall(r"`([^`]+)`", tests)))
    return found


ALL = rows()


def test_no_requirement_is_gone() -> None:
    assert Counter(row.number[0] for row in ALL) == ROWS
    for letter, count in ROWS.items():
        numbers = [row.number for row in ALL if row.number[0] == letter]
        assert numbers == [f"{letter}{i}" for i in range(1, count + 1)]


@pytest.fixture(scope="module")
def tests() -> set[str]:
    return {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in _TESTS.findall(file.read_text())
    }


@pytest.mark.parametrize("row", ALL, ids=[row.number for row in ALL])
def test_each_has_its_place_and_its_test(row: Row, tests: set[str]) -> None:
    text = (ROOT / row.path).read_text()
    assert row.names, "a place names what to look for in its file"
    for name in row.names:
        assert name in text, name
    assert row.tests
    assert set(row.tests) <= tests


def test_what_differs_names_its_decision() -> None:
    """Where a row names a decision, the decision is there."""
    for row in ALL:
        for number in re.findall(r"decision (\d{4})", row.requirement):
            assert list((ROOT / "docs/adr").glob(f"{number}-*.md")), row.number
