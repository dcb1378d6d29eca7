"""The page of bench/spark: audits and Spark's data source over segments at rest."""

from __future__ import annotations

import statistics
from typing import Any

from bench.pages.text import how, load_of, measured, page, paragraph, table, versions_of

TITLE = "Audit and Spark"
ABOUT = "audits of segments: plain processes, PySpark, and Kafka's kafka-dump-log"
COMMAND = ""  # several
SOURCES = ("spark", "dump-log", "audit-engines")

WAYS = {
    "plain": "one plain process",
    "processes": "plain processes, one per core",
    "spark": "Spark, `rows=all`, rows dropped",
    "spark bad": "Spark, `rows=bad`, rows dropped",
    "spark parquet": "Spark, `rows=all`, Parquet by Spark",
    "processes parquet": "plain processes, `rows=all`, Parquet by the audit",
    "processes sums": "plain processes, Parquet by the audit, then sums by topic",
    "spark batches": "`audit(spark).batches()`, then sums by topic",
    "engine parquet": "`audit --engine spark`, `rows=all`, Parquet by the audit",
}
#: ways that are compared with the plain processes that do the same
SUMS = ("processes sums", "spark batches")
MEMORY = {
    "memory": "memory of a Python worker, batches of 16 MiB",
    "memory deep": "the same, with `--deep`",
}
DUMP_LOG = {
    "dump-log": "kafka-dump-log",
    "rows none": "batchval audit --rows none",
    "rows all": "batchval audit --rows all",
}
MIB = 1 << 20


def spark_body(result: dict[str, Any]) -> str:
    """Return throughput and CPU of the ways to read the same segments."""
    gb, rows = result["bytes"] / 1e9, []
    for name, runs in result["runs"].items():
        wall = statistics.median(run["wall"] for run in runs)
        costs = [run["cpu"] / gb for run in runs]
        processes = result["runs"].get("processes sums" if name in SUMS else "processes")
        pairs = zip(processes, runs, strict=True) if processes else ()
        over = [a["wall"] / b["wall"] for a, b in pairs]
        rows.append(
            [
                WAYS[name],
                f"{gb / wall:.2f}",
                f"{statistics.median(over):.2f}" if over else "",
                f"{statistics.median(costs):.3f}",
                f"{min(costs):.3f} – {max(costs):.3f}",
            ]
        )
    opening = paragraph(
        measured(result, versions_of(result)),
        f"{gb:.1f} GB in the page cache, {result['rows']:,} batches of about 16 kB, all codecs,",
        f"not deep; {result['cores']} cores, ranges of {result['split'] // MIB} MiB; median of",
        f"{result['rounds']} rounds.",
        load_of(result["load"]),
    )
    headings = ("", "GB/s", "over plain processes", "CPU s/GB", "from – to")
    memory = [
        f"Resident {MEMORY[key]}: {statistics.median(result['measured'][key]):.0f} MiB."
        for key in MEMORY
        if result["measured"].get(key)
    ]
    return page(opening, table(headings, rows), paragraph(*memory))


def dump_log_body(result: dict[str, Any]) -> str:
    """Return seconds and CPU of whole commands over the same segments."""
    rows = []
    for row in result["rows"]:
        seconds, cpu = row["seconds"], row["cpu_s"]
        for name, label in DUMP_LOG.items():
            batches = f"{row['bytes'] / 1e9:.1f} GB, batches of {row['batch_bytes']:,} bytes"
            times = "" if name == "dump-log" else f"{seconds['dump-log'] / seconds[name]:.1f}×"
            rows.append([batches, f"`{label}`", f"{seconds[name]:.1f}", times, f"{cpu[name]:.1f}"])
    machine = result["machine"]
    opening = paragraph(
        measured(result, f"Kafka's tools {machine['kafka tools']}"),
        "Whole commands in turns, medians; the audit reads with plain processes.",
        load_of(machine["load_before_and_after"]),
    )
    return page(opening, table(("segments", "command", "seconds", "faster", "CPU s"), rows))


def engines_body(result: dict[str, Any]) -> str:
    """Return what a task and a GB cost each engine of the audit."""
    machine = result["machine"]
    rows = [
        [engine, f"`rows={way}`", f"{found['cpu_s_a_task']:.3g}", f"{found['cpu_s_a_gb']:.3g}"]
        for engine, ways in result["engines"].items()
        for way, found in ways.items()
    ]
    opening = paragraph(
        measured(result),
        f"{machine['gib']:g} GiB, {machine['batches']}.",
        load_of(machine["load_before_and_after"]),
    )
    return page(opening, table(("engine", "rows", "CPU s per task", "CPU s/GB"), rows))


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    opening = paragraph(
        "This page compares ways to read the same log segments: the audit's engine in plain",
        "processes, the same engine in PySpark ([data sources](../guide/spark.md)), and Kafka's",
        "kafka-dump-log.",
        how("audit-and-spark"),
    )
    return page(
        opening,
        "## Plain processes and Spark",
        spark_body(results["spark"]),
        "## batchval audit and kafka-dump-log",
        dump_log_body(results["dump-log"]),
        "## CPU of a task and of a GB",
        engines_body(results["audit-engines"]),
    )
