"""The figures in the project's README and in other texts, between two marks."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from typing import Any

from bench.pages import proxy, saturation, tables
from bench.pages.bars import GROUP
from bench.pages.text import date_of, machine_of, micro, number, paragraph, table

MARKS = re.compile(r"(?<=<!-- figures:start -->\n).*?(?=<!-- figures:end -->)", re.DOTALL)
PAGES = "https://github.com/batchval/batchval/blob/main/docs/benchmarks"
BATCH = "zstd 100 × 1000 B"

Results = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """One row: what was measured, both values, and where it comes from."""

    what: str
    ours: str
    other: str
    source: str  # of bench/results
    page: str  # of docs/benchmarks


def _times(rows: tables.Rows, group: str) -> tuple[str, str]:
    (row,) = (row for row in tables.of_groups(rows, group) if row["name"] == BATCH)
    return f"{micro(row['ours_ns'])} µs", f"{micro(row['peer_ns'])} µs"


def _validation(results: Results) -> Figure:
    ours, kafka = _times(results["validation"]["rows"], GROUP)
    what = "Validate a zstd batch, 100 records of 1 kB, 100 batches a call"
    peer = f"Kafka's LogValidator: {kafka}"
    return Figure(what, ours, peer, "validation", "validation")


def _claims(results: Results) -> Figure:
    rows = saturation.rows_of(results["saturation"], saturation.FULL)
    trust, stock = (
        next(row["mb_s"] for row in rows if (row["codec"], row["way"]) == ("zstd", way))
        for way in (saturation.TRUST, saturation.STOCK)
    )
    what = "A Kafka broker on one core that trusts claims, zstd batches of 64 kB"
    peer = f"the same broker without them: {number(stock)} MB/s"
    return Figure(what, f"{number(trust)} MB/s", peer, "saturation", "saturation")


def _gate(results: Results) -> Figure:
    samples = proxy.Samples(results["proxy"]["samples"])
    ours, other = (
        samples.middle("64 kB none", name, "cpu_s_a_gb") for name in ("validating", "kroxylicious")
    )
    version = results["proxy"]["settings"]["versions"]["Kroxylicious"]
    what = "Gate, validating Produce requests of 64 kB, CPU per GB"
    peer = f"Kroxylicious {version} without filters: {number(other)} s"
    return Figure(what, f"{number(ours)} s", peer, "proxy", "proxy")


def _audit(results: Results) -> Figure:
    row = max(results["dump-log"]["rows"], key=lambda one: one["batch_bytes"])
    what = f"Audit {row['bytes'] / 1e9:.1f} GB of segments, batches of {row['batch_bytes'] / 1e3:.0f} kB, all cores"
    seconds = row["seconds"]
    other = f"kafka-dump-log: {seconds['dump-log']:.1f} s"
    return Figure(what, f"{seconds['rows none']:.1f} s", other, "dump-log", "spark")


def _produce(results: Results) -> Figure:
    runs = results["perf-produce"]["runs"]
    ours, java = (statistics.median(run["rate"] for run in runs[name]) for name in ("own", "java"))
    what = "`perf produce`, records of 1 kB per second"
    return Figure(
        what, f"{ours:,.0f}", f"Kafka's ProducerPerformance: {java:,.0f}", "perf-produce", "perf"
    )


FIGURES = (_validation, _claims, _gate, _audit, _produce)
SOURCES = ("validation", "saturation", "proxy", "dump-log", "perf-produce")


def _machines(results: Results, figures: list[Figure]) -> str:
    """Return the machines and versions, with the rows that each holds for unless it is all."""
    found: dict[str, list[int]] = {}
    for number_of, figure in enumerate(figures, 1):
        found.setdefault(machine_of(results[figure.source]), []).append(number_of)
    if len(found) == 1:
        return f"All on {next(iter(found))}."
    rows = (
        f"{'row' if len(n) == 1 else 'rows'} {', '.join(map(str, n))} on {text}"
        for text, n in found.items()
    )
    return f"Measured: {'; '.join(rows)}."


def rows(results: Results) -> str:
    """Return the table and the sentence about machines and versions."""
    figures = [make(results) for make in FIGURES]
    lines = []
    for figure in figures:
        result = results[figure.source]
        when = f"{date_of(result)}, `{result['machine']['commit']}`"
        lines.append(
            [figure.what, figure.ours, figure.other, f"[{when}]({PAGES}/{figure.page}.md)"]
        )
    pythons = sorted({results[figure.source]["machine"]["python"] for figure in figures})
    kafka = results["validation"]["machine"]["kafka"].partition(",")[0]
    tools = results["dump-log"]["machine"]["kafka tools"]
    text = paragraph(
        _machines(results, figures),
        f"Python {', '.join(pythons)}; Kafka {kafka}; Kafka's command-line tools {tools}.",
    )
    return f"{table(('', 'batchval', 'compared with', 'measured'), lines)}\n\n{text}\n"


def put(text: str, figures: str) -> str:
    """Return a document with these figures between its marks. Raises SystemExit without marks."""
    text, count = MARKS.subn(lambda _: figures, text)
    if count != 1:
        raise SystemExit("the document has no <!-- figures:start --> and <!-- figures:end -->")
    return text
