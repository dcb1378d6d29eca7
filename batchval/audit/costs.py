"""CPU time that batches cost, as the benches measured it: costs.json, which
bench/pages/audit_costs.py computes from their results.

Nanoseconds are ``a * batches + b * records + c * bytes``, for each codec and way. Bytes are as
stored. A GB is 10^9.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any

__all__ = [
    "WAYS",
    "cpu_seconds",
    "engine",
    "engines_measured_on",
    "known",
    "measured",
    "measured_on",
]

#: Kafka's own validation; every record walked here; claims trusted here; header and CRC alone.
WAYS = ("kafka", "shallow", "claims", "header")


@functools.cache
def known() -> dict[str, Any]:
    """Return the whole file: ``sources`` (a bench's result -> machine, date, versions), ``ways``
    (way -> codec -> costs).
    """
    found: dict[str, Any] = json.loads(
        files("batchval.audit").joinpath("costs.json").read_text("utf-8")
    )
    return found


def cpu_seconds(way: str, codec: str, batches: float, records: float, size: float) -> float:
    """Return the CPU seconds of a number of batches, records and stored bytes. Claims save nothing
    without compression: those batches are walked.
    """
    ways = known()["ways"]
    costs = ways[way].get(codec) or ways["shallow"][codec]
    return (
        float(
            batches * costs["ns_a_batch"]
            + records * costs["ns_a_record"]
            + size * costs["ns_a_byte"]
        )
        / 1e9
    )


def measured(way: str, codec: str) -> tuple[float, float] | None:
    """Return CPU seconds per GB of batches of 100 records of 1,000 bytes, and the largest factor
    between a bench's cell and its sum.
    """
    costs = known()["ways"][way].get(codec)
    return None if costs is None else (costs["cpu_s_a_gb"], costs["within"])


def measured_on() -> str:
    """Return the processor, Kafka's version and the day of the bench, for people."""
    sources = known()["sources"]
    machine = sources["bench/results/validation.json"]
    days = sorted({source["date"][:10] for source in sources.values() if "kafka" in source})
    return (
        f"{machine['processor']}; Kafka {machine['kafka'].partition(',')[0]}; {' and '.join(days)}"
    )


def engine(name: str, rows: str, deep: bool) -> tuple[float, float] | None:
    """Return CPU seconds per task and per GB of a whole audit by this engine; None where that was
    not measured.
    """
    found = known()["engines"].get(name, {}).get(f"{rows}, deep" if deep else rows)
    return None if found is None else (found["cpu_s_a_task"], found["cpu_s_a_gb"])


def engines_measured_on() -> str:
    """Return the processor, the batches and the day, for people."""
    source = known()["sources"]["bench/results/audit-engines.json"]
    return f"{source['processor']}; {source['batches']}; {source['date'][:10]}"
