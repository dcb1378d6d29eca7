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
SOURCES = ("perf-produce", "perf-consume", "perf-cost", "perf-accuracy")

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


def more(rounds: list[dict[str, Any]], key: str) -> tuple[float, float]:
    """Return by which share runs with latencies take more: the median, and half the span between
    the quartiles.
    """
    ratios = [one["on"][key] / one["off"][key] - 1 for one in rounds]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return middle, (high - low) / 2


def cost(result: dict[str, Any]) -> str:
    """Return what recording latencies adds to a run."""
    rows = []
    for key, name in (("time", "time per record, µs"), ("cpu", "CPU per record, µs")):
        off, on = (
            statistics.median(one[way][key] for one in result["rounds"]) for way in ("off", "on")
        )
        middle, spread = more(result["rounds"], key)
        rows.append([name, f"{off:.3f}", f"{on:.3f}", f"{middle:+.1%}", f"{spread:.1%}"])
    opening = paragraph(
        measured(result, versions_of(result)),
        f"{result['records']:,} records of {SIZE:,} bytes per run; median of",
        f"{len(result['rounds'])} pairs of runs, spread: half the span between the quartiles.",
        load_of(result["load"]),
    )
    return page(opening, table(("", "latencies off", "latencies on", "more", "spread"), rows))


def accuracy(result: dict[str, Any]) -> str:
    """Return what the tool adds to latencies of a known broker, and how exactly it keeps rates."""
    parts = ("intended", "send", "wire")
    rows = []
    for one in result["latencies"]:
        for client in ("batchval", "librdkafka"):
            found = [one[client].get(part) for part in parts]
            figures = ["" if part is None else f"{part['50']:,} ({part['99']:,})" for part in found]
            rows.append([f"{one['delay_us']:,}", f"{one['rate']:,}", client, *figures])
    headings = (
        "delay, µs",
        "records/s",
        "client",
        "from the intended time",
        "from the send",
        "on the wire",
    )
    kept = []
    for one in result["rates"]:
        asked, kept_rate = one["rate"], one["sent_per_second"]
        share = f"{kept_rate / asked - 1:+.3%}"
        kept.append(
            [
                f"{one['delay_us']:,}",
                f"{asked:,}",
                str(one["cap"]),
                f"{kept_rate:,.3f}",
                share,
                f"{one['printed']:,.1f}",
            ]
        )
    opening = paragraph(
        measured(result),
        "The broker of `--calibrate` answers after a fixed delay. µs beyond the delay, median and",
        "99th percentile in parentheses; nothing is subtracted but the delay. As many requests may",
        "be in flight as the rate needs. At 20 records/s every code path is cold.",
        load_of(result["load"]),
    )
    rates = paragraph(
        f"Rates over {result['seconds']:g} s, records of {SIZE:,} bytes, batches of 64 kB, four",
        "partitions: from the first send to the last, and as Kafka's line counts, to the last",
        "answer.",
    )
    sent = ("first to last send", "off by", "in the line")
    names = ("delay, µs", "records/s asked for", "in flight at most", *sent)
    return page(opening, table(headings, rows), rates, table(names, kept))


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
        "## What recording latencies costs",
        cost(results["perf-cost"]),
        "## What the tool adds to a latency",
        accuracy(results["perf-accuracy"]),
    )
