"""Draw docs/benchmarks/broker.svg: CPU of a whole broker, share of a core, stock and trust.

Plain SVG with its own background, for light and dark pages; the same input gives the same bytes.
"""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from bench.pages.bars import FONTS, STYLE
from bench.pages.broker_claims import AGENTS, STOCK
from bench.pages.text import date_of, processor_of

WIDTH, LEFT, RIGHT, TOP = 760, 76, 150, 88
BAR, BETWEEN = 15, 14  # height of a bar; space between codecs
KINDS = {STOCK: "other", AGENTS: "ours"}


def _text(x: float, y: float, words: str, kind: str = "ink", size: int = 13, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{kind}"{more}>{escape(words)}</text>'


def draw(result: dict[str, Any]) -> str:
    """Return the chart of the part ``whole``; without it, a chart without bars."""
    part = result["parts"].get("whole", {"summaries": [], "settings": {"kafka": "?"}} | result)
    rows = {(row["codec"], row["way"]): row for row in part["summaries"]}
    most = max((row["cores"]["broker"] for row in rows.values()), default=1.0)
    scale = (WIDTH - LEFT - RIGHT) / most
    parts, y = [], float(TOP)
    for codec in dict.fromkeys(codec for codec, _ in rows):
        parts.append(_text(LEFT - 10, y + BAR + 4, codec, more=' text-anchor="end"'))
        for way, kind in KINDS.items():
            row = rows[codec, way]
            cores, width = row["cores"]["broker"], max(row["cores"]["broker"] * scale, 1.0)
            words = f"{cores:.0%}, {row['us']['broker']:,.0f} µs a batch"
            parts.append(f'<rect x="{LEFT}" y="{y:g}" width="{width:.1f}" height="{BAR}" rx="2" class="{kind}"/>')
            parts.append(_text(LEFT + width + 7, y + 12, words, "faint", 12))
            y += BAR + 1
        y += BETWEEN
    height = y + 22
    title = "CPU of a Kafka broker, share of one core: batches of 64 kB at 20 MB/s on the wire"
    footer = f"{processor_of(part)}; {date_of(part)}, commit {part['machine']['commit']}; one JVM, in turns"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" font-family="{FONTS}" role="img" aria-labelledby="t">',
        f'<title id="t">{escape(title)}, by codec</title>',
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8" class="page"/>',
        _text(20, 32, title, size=16, more=' font-weight="600"'),
        '<rect x="20" y="50" width="12" height="12" rx="2" class="other"/>',
        _text(38, 61, f"Apache Kafka {part['settings']['kafka']}"),
        '<rect x="190" y="50" width="12" height="12" rx="2" class="ours"/>',
        _text(208, 61, "the same with the agent, claims trusted"),
    ]
    return "\n".join([*head, *parts, _text(20, height - 12, footer, "faint", 11), "</svg>"]) + "\n"
