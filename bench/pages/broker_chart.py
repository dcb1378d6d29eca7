"""Draw docs/benchmarks/broker.svg: CPU of a whole broker, share of a core, stock and trust.

One panel of the recorded requests, and one for each rate of Kafka's producer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bench.pages import bars
from bench.pages.broker_claims import AGENTS, STOCK

RIGHT, TOP = 160, 76
BAR, BETWEEN, HEADING = 13, 9, 30  # heights of a bar, between codecs, and of a panel's title
KINDS = {STOCK: "other", AGENTS: "ours"}
TITLE = "CPU of a Kafka broker, share of one core: batches of 64 kB, one partition"


class Panel(NamedTuple):
    """A title, and rows by codec and way."""

    title: str
    rows: dict[tuple[str, str], dict[str, Any]]


def panels(parts: dict[str, Any]) -> list[Panel]:
    """Return the panels that were measured."""
    found = []
    if "whole" in parts:
        rows = {(row["codec"], row["way"]): row for row in parts["whole"]["summaries"]}
        found.append(Panel("Recorded requests, 20 MB/s on the wire", rows))
    chosen = [
        row
        for row in parts.get("grid", {"summaries": []})["summaries"]
        if row["way"] in KINDS and (row["kilobytes"], row["partitions"]) == (64, 1)
    ]
    for mb in sorted({row["mb"] for row in chosen}):
        rows = {(row["codec"], row["way"]): row for row in chosen if row["mb"] == mb}
        title = f"Kafka's producer, stock and with its agent, at most {mb:g} MB/s on the wire"
        found.append(Panel(title, rows))
    return found


def _bars(panel: Panel, top: float, scale: float) -> tuple[list[str], float]:
    """Return the elements of a panel, and where it ends."""
    more = ' font-weight="600"'
    parts, y = [bars.text(20, top + 14, panel.title, size=12, more=more)], top + HEADING
    for codec in dict.fromkeys(codec for codec, _ in panel.rows):
        parts.append(bars.label(y, codec, BAR))
        for way, kind in KINDS.items():
            row = panel.rows[codec, way]
            cores = row["cores"]["broker"]
            words = f"{cores:.0%}, {row['us']['broker']:,.0f} µs a batch"
            parts.append(bars.bar(y, max(cores * scale, 1.0), kind, words, BAR, 11))
            y += BAR + 1
        y += BETWEEN
    return parts, y


def draw(result: dict[str, Any]) -> str:
    """Return the chart; without the parts ``whole`` and ``grid`` it has no bars."""
    found = panels(result["parts"])
    cores = [
        row["cores"]["broker"]
        for panel in found
        for row in panel.rows.values()
        if row["way"] in KINDS
    ]
    scale = (bars.WIDTH - bars.LEFT - RIGHT) / max(cores, default=1.0)
    parts, y = [], float(TOP)
    for panel in found:
        more, y = _bars(panel, y, scale)
        parts += more
    kafka = next(iter(result["parts"].values()))["settings"]["kafka"]
    legend = [
        '<rect x="20" y="46" width="12" height="12" rx="2" class="other"/>',
        bars.text(38, 57, f"Apache Kafka {kafka}"),
        '<rect x="190" y="46" width="12" height="12" rx="2" class="ours"/>',
        bars.text(208, 57, "the same with the agent, claims trusted"),
    ]
    footer = f"{bars.measured(result)}both in one JVM, in turns"
    return bars.framed(TITLE, y + 26, legend, parts, footer)
