"""Two pages agree with the sources: the messages, rules and errors of docs/troubleshooting.md are
theirs, and docs/guide/gate-writes.md has every API of Kafka, and says what the gate does with it.

A new API fails this until somebody has decided what it writes and what the gate does with it.
"""

from __future__ import annotations

import re

import pytest

from batchval import ErrorCode, Rule
from batchval.protocol.apis import APIS
from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.walkers.broker_requests import BROKER_APIS, SHARED_WITH_BROKERS
from tests.support.sources import ROOT

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


PAGE = (ROOT / "docs" / "guide" / "gate-writes.md").read_text("utf-8")
MAX_CELL_WORDS = 30  # of a cell


def listed_apis() -> dict[str, tuple[str, str]]:
    """Return API -> (what it stores, what the gate does)."""
    cells = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in PAGE.splitlines()
        if line.startswith("| ")
    ]
    names = {api.name for api in APIS.values()}
    listed = [(row[0], (row[1], row[2])) for row in cells if len(row) == 3 and row[0] in names]
    assert len(listed) == len(dict(listed))
    return dict(listed)


def silent() -> list[str]:
    """Return the APIs that write nothing."""
    section = PAGE.partition("## Requests that write nothing\n")[2].strip().partition("\n\n")[0]
    return re.findall(r"\w+", section)


def keys_of(names: set[str]) -> set[int]:
    return {api.key for api in APIS.values() if api.name in names}


def test_each_api_of_kafka_is_in_a_table_or_writes_nothing() -> None:
    tables, nothing = set(listed_apis()), silent()
    assert len(nothing) == len(set(nothing))
    assert not tables & set(nothing)
    assert tables | set(nothing) == {api.name for api in APIS.values()}


def test_the_page_says_what_the_gate_does() -> None:
    done = {name: gate for name, (_, gate) in listed_apis().items()}
    assert set(done.values()) - {"validated", "passed", "denied", "not carried"} == {
        "denied of a replica, else passed",
        "denied from version 4 on, else passed",
        "denied for that coordinator, else passed",
    }
    assert keys_of({name for name, gate in done.items() if gate == "denied"}) == BROKER_APIS
    shared = {name for name, gate in done.items() if gate.startswith("denied ")}
    assert keys_of(shared) == SHARED_WITH_BROKERS
    absent = {name for name, gate in done.items() if gate == "not carried"}
    assert keys_of(absent) == APIS.keys() - carried_versions().keys()
    assert [name for name, gate in done.items() if gate == "validated"] == ["Produce"]
    assert all(what for what, _ in listed_apis().values())


def test_cells_are_short() -> None:
    cells = (cell for line in PAGE.splitlines() if line.startswith("|") for cell in line.split("|"))
    assert [cell for cell in cells if len(cell.split()) > MAX_CELL_WORDS] == []
