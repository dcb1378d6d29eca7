"""Draw docs/benchmarks/validation.svg, the chart of the README: time to validate one batch.

Plain SVG with its own background, for light and dark pages; the same input gives the same bytes.
"""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from bench.pages import tables
from bench.pages.text import date_of, micro, processor_of

GROUP = "slow path vs Kafka, 100 × 1000 B"
WIDTH, LEFT, RIGHT, TOP = 760, 76, 96, 88
BAR, BETWEEN = 15, 14  # height of a bar; space between codecs
STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  .ink { fill: #1f2328 } .faint { fill: #59636e }
  .ours { fill: #1f6feb } .other { fill: #c9792f }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    .ink { fill: #f0f6fc } .faint { fill: #9198a1 }
    .ours { fill: #58a6ff } .other { fill: #d99e5f }
  }
"""
FONTS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def text(x: float, y: float, words: str, kind: str = "ink", size: int = 13, more: str = "") -> str:
    """Return an element of text."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{kind}"{more}>{escape(words)}</text>'
    )


def label(y: float, codec: str, height: int) -> str:
    """Return the name of a codec, left of its bars."""
    return text(LEFT - 10, y + height + 4, codec, more=' text-anchor="end"')


def bar(y: float, width: float, kind: str, words: str, height: int = BAR, size: int = 12) -> str:
    """Return a bar, and the words at its end."""
    place = f'<rect x="{LEFT}" y="{y:g}" width="{width:.1f}" height="{height}" rx="2"'
    end = text(LEFT + width + 7, y + size, words, "faint", size)
    return f'{place} class="{kind}"/>\n{end}'


def framed(title: str, height: float, legend: list[str], parts: list[str], footer: str) -> str:
    """Return a chart of this height with its title, legend, elements and footer."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" font-family="{FONTS}" role="img" aria-labelledby="t">',
        f'<title id="t">{escape(title)}, by codec</title>',
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8" class="page"/>',
        text(20, 32, title, size=16, more=' font-weight="600"'),
    ]
    end = text(20, height - 12, footer, "faint", 11)
    return "\n".join([*head, *legend, *parts, end, "</svg>"]) + "\n"


def measured(result: dict[str, Any]) -> str:
    """Return processor, day and commit of a result, as a footer begins."""
    commit = result["machine"]["commit"]
    return f"{processor_of(result)}; {date_of(result)}, commit {commit}; "


def draw(result: dict[str, Any]) -> str:
    """Return the chart of a validation result."""
    rows = tables.of_groups(result["rows"], GROUP)
    most = max((max(row["ours_ns"], row["peer_ns"]) for row in rows), default=1.0)
    scale = (WIDTH - LEFT - RIGHT) / most
    parts, y = [], float(TOP)
    for row in rows:
        parts.append(label(y, row["name"].split()[0], BAR))
        for kind, key in (("ours", "ours_ns"), ("other", "peer_ns")):
            parts.append(bar(y, max(row[key] * scale, 1.0), kind, f"{micro(row[key])} µs"))
            y += BAR + 1
        y += BETWEEN
    kafka = result["machine"]["kafka"].split()[0]
    footer = f"{measured(result)}batchval: median, Kafka: best iteration"
    legend = [
        '<rect x="20" y="50" width="12" height="12" rx="2"',
        f'class="ours"/>{text(38, 61, "batchval")} <rect x="116" y="50" width="12" height="12"',
        'rx="2" class="other"/>',
        text(134, 61, f"Apache Kafka {kafka}, LogValidator in the JVM"),
    ]
    title = "Time to validate one record batch: 100 records of 1,000 bytes"
    return framed(title, y + 22, legend, parts, footer)
