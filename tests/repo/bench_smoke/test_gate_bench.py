"""What the gate's bench measures with: an open loop keeps its rate, greedy clients come and go, the
library validates what the gate is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.proxy import ends, load


@pytest.fixture(scope="module")
def answers() -> Path:
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    return load.answers(ends.BUILD / "answers.bin")


@pytest.fixture(scope="module")
def broker(answers: Path) -> Iterator[ends.Process]:
    found = ends.broker(answers, ends.Place())
    yield found
    found.stop()


def test_an_open_loop_keeps_its_rate_next_to_greedy_clients(
    answers: Path, broker: ends.Process
) -> None:
    of = load.make(ends.BUILD, "1 kB", quick=True)
    place = ends.Place()
    with ends.greedy(broker.port, of.path, answers, place, 2):
        found = ends.open_loop(
            broker.port, of.path, answers, place, connections=7, rate=500, seconds=0.4
        )
    assert found["requests"] == 200
    assert found["seconds"] >= 199 / 500
    assert 0 < found["p50_us"] <= found["p99_us"]


def test_the_library_validates_each_batch_of_a_file() -> None:
    of = load.make(ends.BUILD, "64 kB", "lz4", quick=True)
    found = ends.library(of.path, ends.Place(), 0.1)
    assert found["requests"] > 0 == found["requests"] % 4
    assert found["cpu_s"] > 0
