"""The tables of what the tool adds, and their verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from bench.perf_tools import accuracy


def result(whole: int, wire: int, sent: float) -> dict[str, Any]:
    def of(median: int) -> dict[str, int]:
        return {"5": median - 1, "50": median, "99": 1500}

    both = {"intended": of(whole), "send": of(whole - 10)}
    return {
        "date": "2026-01-01T00:00:00",
        "machine": {"commit": "0", "processor": "p", "system": "s", "python": "3"},
        "load": (0.0, 1.0),
        "seconds": 60.0,
        "latencies": [
            {
                "delay_us": 137,
                "rate": 1000,
                "batchval": both | {"wire": of(wire)},
                "librdkafka": both,
            }
        ],
        "rates": [
            {"delay_us": 0, "rate": 500, "cap": 5, "sent_per_second": sent, "printed": 499.0}
        ],
    }


@pytest.mark.parametrize(
    ("figures", "verdicts"),
    [
        ((250, 60, 502.5), ["met"] * 3),
        ((251, 61, 497.4), ["**missed**"] * 3),
        ((90, 70, 500.0), ["met", "**missed**", "met"]),
    ],
)
def test_verdicts(figures: tuple[int, int, float], verdicts: list[str]) -> None:
    rows = accuracy.goals(result(*figures)).splitlines()[-3:]
    assert [row.split(" | ")[-1].removesuffix(" |") for row in rows] == verdicts
    assert rows[0].startswith("| median beyond the delay, at 137 µs | ≤ 250 µs | ")


def test_the_page_shows_medians_and_rates() -> None:
    text = accuracy.page.accuracy(result(200, 20, 499.9))
    assert "| 137 | 1,000 | batchval | 200 (1,500) | 190 (1,500) | 20 (1,500) |" in text
    assert "| 137 | 1,000 | librdkafka | 200 (1,500) | 190 (1,500) |  |" in text
    assert "| 0 | 500 | 5 | 499.900 | -0.020% | 499.0 |" in text


@pytest.mark.parametrize(("delay_us", "rate", "cap"), [(0, 2_000, 5), (140_000, 12_000, 20)])
def test_a_cap_that_cannot_carry_the_rate_is_widened(delay_us: int, rate: int, cap: int) -> None:
    found = accuracy.rate_kept(delay_us, rate, 0.1)
    assert found["cap"] == cap
    assert found["sent_per_second"] > 0
