"""The page of bench/perf_tools: perf produce and perf consume."""

from __future__ import annotations

import statistics
from typing import Any

from bench.pages.text import how, load_of, measured, page, paragraph, table, versions_of

TITLE = "Perf tools"
ABOUT = (
    "`batchval perf produce` and `perf consume`, Kafka's own tools and C programs over librdkafka"
)
COMMAND = "make bench-perf"
SOURCES = ("perf-produce", "perf-consume")

SIZE = 1000  # bytes of a value
PRODUCERS = {
    "java": "Kafka's ProducerPerformance, steady state",
    "loop": "C program over librdkafka",
    "loop defaults": "C program over librdkafka, its defaults",
    "librdkafka": "`perf produce --client librdkafka`",
    "own": "`perf produce`",
}
CONSUMERS = {
    "java": "Kafka's ConsumerPerformance",
    "loop": "C program over librdkafka",
    "loop tuned": "C program over librdkafka, `fetch.queue.backoff.ms=2`",
    "loop of drops 1": "C program that fetches and drops, 1 connection",
    "loop of drops 4": "C program that fetches and drops, 4 connections",
    "librdkafka 1": "`perf consume --client librdkafka --threads 1`",
    "headers 1": "`perf consume --decode headers --threads 1`",
    "headers 4": "`perf consume --decode headers --threads 4`",
    "records 1": "`perf consume --decode records --threads 1`",
    "records 4": "`perf consume --decode records --threads 4`",
}


def _rates(result: dict[str, Any], clients: dict[str, str]) -> str:
    rows = []
    for name, runs in result["runs"].items():
        rates = [run["rate"] for run in runs]
        middle = statistics.median(rates)
        cpu, broker = (statistics.median(run[key] for run in runs) for key in ("cpu", "broker_cpu"))
        span = f"{min(rates):,.0f} – {max(rates):,.0f}"
        megabytes = f"{middle * SIZE / 2**20:,.0f}"
        rows.append(
            [clients[name], f"{middle:,.0f}", megabytes, span, f"{cpu:.2f}", f"{broker:.2f}"]
        )
    headings = (
        "",
        "records/s",
        "MiB/s",
        "from – to",
        "CPU of the client, s per million records",
        "CPU of the broker, s per million records",
    )
    return table(headings, rows)


def _opening(result: dict[str, Any], setting: str) -> str:
    return paragraph(
        measured(result, versions_of(result)),
        f"One broker; {setting}, {result['records']:,} records of {SIZE:,} bytes; median of",
        f"{result['rounds']} rounds. The broker ran as Kafka's scripts start it, with its log in",
        f"{result['log']}.",
        load_of(result["load"]),
    )


def produce(result: dict[str, Any]) -> str:
    """Return the rates of producers."""
    took = result["nanoseconds"]
    cost = f"To stamp and record one latency takes {sum(took.values()):.1f} ns."
    setting = "one partition, acks=all, batches of 500,000 bytes"
    return page(_opening(result, setting), _rates(result, PRODUCERS), cost)


def consume(result: dict[str, Any]) -> str:
    """Return the rates of consumers."""
    return page(_opening(result, "12 partitions, uncompressed"), _rates(result, CONSUMERS))


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    opening = paragraph(
        "This page compares `batchval perf produce` and `batchval perf consume` ([perf",
        "tools](../reference/cli/perf.md)) with Kafka's own tools and with C programs over",
        "librdkafka, before the same Apache Kafka broker.",
        how("perf-tools"),
    )
    return page(
        opening,
        "## Producing",
        produce(results["perf-produce"]),
        "## Consuming",
        consume(results["perf-consume"]),
    )
