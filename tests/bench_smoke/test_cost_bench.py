"""The table of what measuring costs: ratios pair by pair, and its verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from bench.perf_tools import cost


def result(*more: float) -> dict[str, Any]:
    """Return pairs of runs whose second took longer than the first by these shares."""
    pairs = [
        {"off": {"time": 5.0 + n, "cpu": 2.0}, "on": {"time": (5.0 + n) * (1 + m), "cpu": 2.02}}
        for n, m in enumerate(more)
    ]
    machine = {"commit": "0", "processor": "p", "system": "s", "python": "3"}
    return {
        "date": "2026-01-01T00:00:00", "machine": machine, "load": (0.0,), "records": 10, "rounds": pairs,
        "nanoseconds": {"stamp": 1.0, "record": 4.25},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "row"),
    [
        ([0.01, 0.01, 0.01], "+1.0% | 0.0% | met"),
        ([0.10, 0.10, 0.10], "+10.0% | 0.0% | **missed**"),
        ([-0.05, 0.05, 0.08], "+5.0% | 6.5% | noise"),
    ],
)
def test_verdicts(more: list[float], row: str) -> None:
    time, cpu, single = cost.goals(result(*more)).splitlines()[-3:]
    assert time.startswith("| time a record | ≤ 3% | ")
    assert row in time
    assert cpu.endswith("≤ 3% | +1.0% | 0.0% | met |")
    assert single == "| ns a latency, stamped and recorded | ≤ 25 | 5.2 |  | met |"


def test_the_page_shows_both_medians() -> None:
    time, cpu = cost.page.cost(result(0.01, 0.01, 0.01)).splitlines()[-2:]
    assert time == "| time per record, µs | 6.000 | 6.060 | +1.0% | 0.0% |"
    assert cpu == "| CPU per record, µs | 2.000 | 2.020 | +1.0% | 0.0% |"
