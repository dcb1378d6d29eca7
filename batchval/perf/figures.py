"""The figures of a result as compare and the report print them.

Latencies are milliseconds with three decimals; a consumer's are those of its row.
"""

from __future__ import annotations

from typing import Any

from batchval.perf.consumer_lines import fixed4, rate
from batchval.perf.histogram import Histogram
from batchval.perf.producer_lines import in_ms
from batchval.perf.results import Result

__all__ = ["PERCENTILES", "figures", "is_better", "latencies_us", "latency_from", "throughput"]

PERCENTILES = (50.0, 75.0, 95.0, 99.0, 99.9)
_MB = 1024 * 1024


def latencies_us(histogram: Histogram) -> dict[str, Any]:
    """Return the latencies of a producer's totals, by their names in a result; microseconds."""
    return {
        "avg_us": histogram.mean,
        "stddev_us": histogram.stddev,
        "max_us": histogram.max,
        "percentiles_us": {
            f"{percent:g}": histogram.percentile(percent)
            for percent in (50, 75, 95, 99, 99.9, 99.99)
        },
    }


def figures(result: Result) -> dict[str, str]:
    """Name to figure, in the order of printing."""
    totals = result.totals
    records, nbytes, elapsed_ms = totals["records"], totals["bytes"], totals["elapsed_ns"] / 1e6
    if result.kind == "consume":
        mb = nbytes / _MB
        return {
            "MB.sec": fixed4(rate(mb, elapsed_ms)),
            "nMsg.sec": fixed4(rate(records, elapsed_ms)),
            "rebalance.time.ms": str(int(totals["rebalance_ms"])),
            "fetch.time.ms": str(int(totals["fetch_ms"])),
            "fetch.MB.sec": fixed4(rate(mb, totals["fetch_ms"])),
            "fetch.nMsg.sec": fixed4(rate(records, totals["fetch_ms"])),
        }
    found = {
        "records/sec": f"{rate(records, elapsed_ms):.1f}",
        "MB/sec": f"{rate(nbytes / _MB, elapsed_ms):.2f}",
    }
    histogram = result.headline
    if histogram is not None and histogram.count:
        found["ms avg latency"] = in_ms(round(histogram.mean))
        found["ms max latency"] = in_ms(histogram.max)
        found |= {
            f"ms {percent:g}th": in_ms(histogram.percentile(percent)) for percent in PERCENTILES
        }
    return found


def is_better(name: str, share: float) -> bool:
    """Return whether a change of this figure by this share is better: more throughput, less
    time.
    """
    return share > 0 if name.lower().endswith("sec") else share < 0


def throughput(result: Result) -> list[tuple[float, float]]:
    """Return seconds since the start and records a second, at the end of each interval.

    A rest shorter than a tenth of an interval is part of the last one: its own rate would mean
    nothing.

    """
    parts: list[tuple[float, float, int]] = []  # end and length in ms, records
    before = 0.0
    for interval in result.intervals:
        took = interval["t_ms"] - before
        if took > 0:
            parts.append((interval["t_ms"], took, interval["records"]))
            before = interval["t_ms"]
    if len(parts) > 1 and parts[-1][1] < parts[-2][1] / 10:
        (_, length, records), (end, rest, more) = parts[-2:]
        parts[-2:] = [(end, length + rest, records + more)]
    return [(end / 1000, records / took * 1000) for end, took, records in parts]


def latency_from(result: Result) -> str:
    """Return from which instant the latencies of the figures are: ``intended``, ``send``, or
    nothing.
    """
    if result.headline is None:
        return ""
    return "send" if result.histogram_intended is None else "intended"
