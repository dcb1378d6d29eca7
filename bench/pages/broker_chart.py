"""Draw docs/benchmarks/broker.svg: CPU of a whole broker, share of a core, stock and trust.

One panel of the recorded requests, and one for each rate of Kafka's producer. Plain SVG with its
own background, for light and dark pages; the same input gives the same bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from bench.pages.bars import FONTS, STYLE
from bench.pages.broker_claims import AGENTS, STOCK
from bench.pages.text import date_of, processor_of

WIDTH, LEFT, RIGHT, TOP = 760, 76, 160, 76
BAR, BETWEEN, HEADING = 13, 9, 30  # heights of a bar, between codecs, and of a panel's title
KINDS = {STOCK: "other", AGENTS: "ours"}
TITLE = "CPU of a Kafka broker, share of one core: batches of 64 kB, one partition"


class Panel(NamedTuple):
    """A title, and rows by codec and way."""

    title: str
    rows: dict[tuple[str, str], dict[str, Any]]


def _text(x: float, y: float, words: str, kind: str = "ink", size: int = 13, more: str = "") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{kind}"{more}>{escape(words)}</text>'
    )


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
    parts, y = [_text(20, top + 14, panel.title, size=12, more=' font-weight="600"')], top + HEADING
    for codec in dict.fromkeys(codec for codec, _ in panel.rows):
        parts.append(_text(LEFT - 10, y + BAR + 4, codec, more=' text-anchor="end"'))
        for way, kind in KINDS.items():
            row = panel.rows[codec, way]
            cores = row["cores"]["broker"]
            width = max(cores * scale, 1.0)
            bar = f'<rect x="{LEFT}" y="{y:g}" width="{width:.1f}" height="{BAR}" rx="2"'
            words = f"{cores:.0%}, {row['us']['broker']:,.0f} µs a batch"
            parts += [
                f'{bar} class="{kind}"/>',
                _text(LEFT + width + 7, y + 11, words, "faint", 11),
            ]
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
    scale = (WIDTH - LEFT - RIGHT) / max(cores, default=1.0)
    parts, y = [], float(TOP)
    for panel in found:
        more, y = _bars(panel, y, scale)
        parts += more
    height = y + 26
    kafka = next(iter(result["parts"].values()))["settings"]["kafka"]
    footer = f"{processor_of(result)}; {date_of(result)}, commit {result['machine']['commit']}; "
    footer += "both in one JVM, in turns"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" font-family="{FONTS}" role="img" aria-labelledby="t">',
        f'<title id="t">{escape(TITLE)}, by codec</title>',
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8" class="page"/>',
        _text(20, 32, TITLE, size=16, more=' font-weight="600"'),
        '<rect x="20" y="46" width="12" height="12" rx="2" class="other"/>',
        _text(38, 57, f"Apache Kafka {kafka}"),
        '<rect x="190" y="46" width="12" height="12" rx="2" class="ours"/>',
        _text(208, 57, "the same with the agent, claims trusted"),
    ]
    return "\n".join([*head, *parts, _text(20, height - 12, footer, "faint", 11), "</svg>"]) + "\n"
