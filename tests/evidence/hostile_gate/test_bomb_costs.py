"""A gate reads a bomb once, and one that is repeated not at all: a share of bomb_costs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence.hostile_gate.bomb_costs import (
    BOMBS,
    TOPICS,
    Cost,
    above,
    engine_cost,
    gate_costs,
    good_byte_s,
)
from tests.evidence.hostile_gate.gate_under_test import ROOT, GateUnderTest

#: Other work on the machine only makes a try worse.
TRIES = 3


@pytest.mark.alone
@pytest.mark.parametrize(
    "name", ["1.5 million refused records, zstd", "9 million records of one offset, zstd"]
)
def test_a_bomb_is_read_once_and_a_repeated_one_not_at_all(name: str, tmp_path: Path) -> None:
    bomb = BOMBS[name]
    with GateUnderTest(ROOT, tmp_path, TOPICS) as gate:
        for _ in range(TRIES):
            byte_s, engine = good_byte_s(), engine_cost(bomb)
            found = above(bomb, byte_s, engine, gate_costs(gate, bomb))
            if not found:
                break
    assert found == []


def test_what_is_above_a_ceiling_is_named() -> None:
    bomb = BOMBS["1.5 million refused records, zstd"]
    engine = Cost(0.03, 1_300, plain=10_000_000)
    good = (Cost(0.035, 1_350), Cost(0.001, 1_350))
    assert above(bomb, 1e-9, engine, good) == []
    assert above(bomb, 5e-10, engine, good) == ["engine: 6.0 times a good byte"]
    twice = (Cost(0.07, 1_350), Cost(0.035, 1_350))
    assert above(bomb, 1e-9, engine, twice) == [
        "first: 0.0700 s a request, allowed 0.0570 s",
        "repeated: 0.0350 s a request, allowed 0.0060 s",
    ]
