"""The messages, rules and errors of docs/troubleshooting.md are those of the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchval import ErrorCode, Rule

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
SOURCES = "\n".join(
    path.read_text("utf-8")
    for ending in ("*.py", "*.pyx")
    for path in sorted((ROOT / "batchval").rglob(ending))
)
ROWS = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| `")]
CODE = re.compile(r"`([^`]+)`")
RULE = re.compile(r"`((?:[SLR])?\d+) ([a-z0-9-]+)`")


def first_cells(heading: str) -> list[str]:
    part = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [
        CODE.findall(line.split(" | ")[0])[0]
        for line in part.splitlines()
        if line.startswith("| `")
    ]


@pytest.mark.parametrize(
    "message",
    [
        one
        for heading in ("Command line", "Library", "Gate: at the start")
        for one in first_cells(heading)
    ],
)
def test_each_message_is_in_the_sources(message: str) -> None:
    assert re.search(r"[^\n]*".join(re.escape(piece) for piece in message.split("…")), SOURCES)


@pytest.mark.parametrize("error", first_cells("Errors that a producer sees"))
def test_each_error_is_one_of_kafkas(error: str) -> None:
    assert error in ErrorCode.__members__


def test_each_rule_exists_with_this_slug() -> None:
    known = {rule.id: rule.slug for rule in Rule}
    named = RULE.findall(TEXT)
    assert len(named) > 15
    assert [one for one in named if known.get(one[0]) != one[1]] == []


def test_each_row_has_cause_and_remedy() -> None:
    assert all(len(row) >= 3 and all(cell.strip(" |") for cell in row) for row in ROWS)
