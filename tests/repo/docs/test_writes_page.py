"""docs/guide/gate-writes.md has every API of Kafka, and says what the gate does with it.

A new API fails this until somebody has decided what it writes and what the gate does with it.
"""

from __future__ import annotations

import re
from pathlib import Path

from batchval.protocol.apis import APIS
from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.walkers.broker_requests import BROKER_APIS, SHARED_WITH_BROKERS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "guide" / "gate-writes.md").read_text("utf-8")
MAX_CELL_WORDS = 30  # of a cell


def rows() -> dict[str, tuple[str, str]]:
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
    tables, nothing = set(rows()), silent()
    assert len(nothing) == len(set(nothing))
    assert not tables & set(nothing)
    assert tables | set(nothing) == {api.name for api in APIS.values()}


def test_the_page_says_what_the_gate_does() -> None:
    done = {name: gate for name, (_, gate) in rows().items()}
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
    assert all(what for what, _ in rows().values())


def test_cells_are_short() -> None:
    cells = (cell for line in PAGE.splitlines() if line.startswith("|") for cell in line.split("|"))
    assert [cell for cell in cells if len(cell.split()) > MAX_CELL_WORDS] == []
