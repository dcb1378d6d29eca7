"""Medians and ratios of the rows of broker_parts.py, and the goals of the project for them.

A ratio is that of one round: CPU for a batch of a way over that of the stock broker in the same
round. Its median has a 95 % interval (runs.interval).
"""

from __future__ import annotations

import statistics
from typing import Any

from bench import runs
from bench.claims.broker_parts import AGENTS, RELAY, STOCK, Row

#: goals: the whole broker, agents over stock; gate and broker over the stock broker alone
WHOLE = {"gzip": 0.32, "snappy": 0.52, "zstd": 0.60, "lz4": 0.88}
GATE = {"gzip": 0.6, "snappy": 1.0, "zstd": 1.0}
#: what is compared: processes whose CPU is added up
SERVERS = ("broker", "gate", "relay")


def of_servers(sample: dict[str, Any]) -> float:
    """Return microseconds for a batch of the broker and what is before it."""
    return float(sum(us for name, us in sample["us"].items() if name in SERVERS))


def of_all(sample: dict[str, Any]) -> float:
    """Return microseconds for a batch of all processes."""
    return float(sum(sample["us"].values()))


def load_of(row: Row) -> tuple[Any, ...]:
    """Return what identifies the load of a row within its part."""
    return tuple(row[name] for name in ("part", "codec", "kilobytes", "partitions", "mb"))


def summary(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the rows with medians and ratios in place of samples."""
    stock = {load_of(row): row["samples"] for row in rows if row["way"] == STOCK}
    return [summarised(row, stock[load_of(row)]) for row in rows]


def summarised(row: Row, stock: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row with medians and, if it is not the stock broker's, ratios."""
    samples = row["samples"]
    names = samples[0]["us"]
    found = {name: row[name] for name in ("part", "way", "codec", "kilobytes", "partitions", "mb")}
    found |= {
        "rounds": len(samples),
        "batches": sum(one["batches"] for one in samples),
        "fed": statistics.median(one["fed"] for one in samples),
        "us": {name: statistics.median(one["us"][name] for one in samples) for name in names},
        "cores": {name: statistics.median(one["cores"][name] for one in samples) for name in names},
    }
    if row["way"] == STOCK:
        return found
    pairs = list(zip(samples, stock, strict=True))
    ratios = {"servers": [of_servers(one) / of_servers(other) for one, other in pairs]}
    if "producer" in names:
        ratios["all"] = [of_all(one) / of_all(other) for one, other in pairs]
        ratios["producer"] = [
            one["us"]["producer"] / other["us"]["producer"] for one, other in pairs
        ]
    found["ratios"] = {
        name: dict(
            zip(
                ("median", "low", "high"),
                (statistics.median(values), *runs.interval(values)),
                strict=True,
            )
        )
        for name, values in ratios.items()
    }
    return found


def goals(summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each goal, what was measured, and the verdict.

    The verdict is met, noise (the goal is within the interval) or missed.
    """
    found = []
    for row in summaries:
        goal = None
        if row["part"] == "whole" and row["way"] == AGENTS:
            goal, what = WHOLE[row["codec"]], "whole broker"
        elif row["part"] == "gate" and row["way"] not in (STOCK, RELAY):
            goal, what = GATE.get(row["codec"]), f"{row['way']}, and broker"
        if goal is None:
            continue
        ratio = row["ratios"]["servers"]
        verdict = (
            "met" if ratio["median"] <= goal else "noise" if ratio["low"] <= goal else "missed"
        )
        found.append(
            {"figure": f"{what}, {row['codec']}", "target": goal, **ratio, "verdict": verdict}
        )
    return found
