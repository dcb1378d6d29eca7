"""fixtures/damaged: a log for each rule from L8 on, and the one finding that it must have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchval.rules import Rule
from batchval.segment.check import Summary, check_paths
from batchval.segment.options import Options, Replica

DAMAGED = Path(__file__).resolve().parents[3] / "fixtures" / "damaged"
EXPECTED = [json.loads(line) for line in (DAMAGED / "expected.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda one: one["folder"])
def test_the_one_finding(expected: dict[str, Any]) -> None:
    folder = DAMAGED / expected["folder"]
    replicas = tuple(Replica(path.name, str(path)) for path in sorted(folder.glob("b?")))
    found = [
        {
            "folder": folder.name,
            "rule": one.rule.id,
            "slug": one.rule.slug,
            "level": one.level.value,
            "file": str(Path(one.file).relative_to(folder)),
            "position": one.position,
            "offset": one.offset,
        }
        for one in check_paths([folder], Options(replicas=replicas), Summary())
    ]
    assert found == [expected]


def test_each_rule_of_other_files_has_one() -> None:
    rules = {rule.id for rule in Rule if rule.id.startswith("L") and int(rule.id[1:]) >= 8}
    assert {one["rule"] for one in EXPECTED} == rules
