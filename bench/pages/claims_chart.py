"""Draw docs/benchmarks/claims.svg: CPU share of one core at a fixed rate, by path, and the
proposal's.

Plain SVG without a script or fonts; the same input gives the same bytes.
"""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from bench.pages import claims
from bench.pages.text import date_of, processor_of

WIDTH = 860
LEFT, RIGHT = 268, 118  # of the bars
BAR, GAP, GROUP = 8, 2, 12
INK, FAINT, RULE = "#24292f", "#57606a", "#d0d7de"
FONTS = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"
HALO = ' paint-order="stroke" stroke="#ffffff" stroke-width="3"'  # words stand before lines
BOLD = ' font-weight="600"'
HUES = {  # one bar a number of partitions, light to dark
    "kafka": ("#f2b38b", "#e0803f", "#a8521a"),
    "batchval": ("#8fc3e8", "#3d8fc9", "#1b5a8a"),
    "proposal": ("#b5bcc4", "#b5bcc4", "#b5bcc4"),
}


def text(
    x: float,
    y: float,
    words: str,
    size: int = 12,
    fill: str = INK,
    anchor: str = "start",
    more: str = "",
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f"<text {place}{HALO}{more}>{escape(words)}</text>"


def percent(value: float) -> str:
    return f"{value:.1f} %" if value < 10 else f"{value:.0f} %"


class Drawing:
    def __init__(self, most: float) -> None:
        self.most = most
        self.parts: list[str] = []
        self.y = 0.0

    def x(self, value: float) -> float:
        return LEFT + value / self.most * (WIDTH - LEFT - RIGHT)

    def bar(self, value: float, fill: str, words: str) -> None:
        width = max(self.x(value) - LEFT, 1.0)
        self.parts.append(
            f'<rect x="{LEFT}" y="{self.y:.1f}" width="{width:.1f}" height="{BAR}" rx="1" fill="{fill}"/>'
        )
        self.parts.append(text(LEFT + width + 5, self.y + BAR, words, size=10, fill=FAINT))
        self.y += BAR + GAP

    def group(self, label: str, bars: list[tuple[float, str, str]]) -> None:
        middle = self.y + (len(bars) * (BAR + GAP) - GAP) / 2 + 4
        self.parts.append(text(LEFT - 10, middle, label, anchor="end"))
        for value, fill, words in bars:
            self.bar(value, fill, words)
        self.y += GROUP - GAP

    def title(self, words: str) -> None:
        self.y += 18
        self.parts.append(text(16, self.y, words, size=13, more=BOLD))
        self.y += 12

    def grid(self, top: float) -> list[str]:
        step = next(
            each for each in (10, 20, 25, *(50 << n for n in range(40))) if self.most / each <= 8
        )
        lines = []
        for value in range(0, int(self.most) + 1, step):
            x, dark = self.x(value), value == 100
            dash = "" if value in (0, 100) else ' stroke-dasharray="2 3"'
            stroke = FAINT if dark else RULE
            lines.append(
                f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{self.y:.1f}" stroke="{stroke}"{dash}/>'
            )
            words = text(
                x,
                self.y + 14,
                f"{value} %",
                size=10,
                fill=FAINT,
                anchor="middle",
                more=BOLD if dark else "",
            )
            lines.append(words)
            if dark:
                lines.append(text(x, self.y + 27, "one core", size=10, fill=FAINT, anchor="middle"))
        return lines


def draw(result: dict[str, Any]) -> str:
    """Return the chart of a result's paced rows, of one codec."""
    rows = [row for row in result["paced"] if row["codec"] == claims.CODEC]
    machine = result["machine"]
    rates = sorted({row["mb_per_second"] for row in rows})
    counts = sorted({row["partitions"] for row in rows})
    found = {(row["way"], row["mb_per_second"], row["partitions"]): row for row in rows}
    most = (
        max([100.0, *(row["cores"] * 100 for row in found.values() if row["way"] != "none")]) * 1.02
    )
    drawing = Drawing(most)
    drawing.y = 58
    drawing.title("What KAFKA-8364 says of its server (everything a broker does, all cores)")
    for words, cpu, value in claims.PROPOSAL:
        drawing.group(words, [(value, HUES["proposal"][0], cpu)])
    for mb in rates:
        rate = f"{mb} MB/s" if mb < 1000 else f"{mb / 1000:g} GB/s"
        drawing.title(
            f"{rate} of uncompressed records, {claims.CODEC}: validation alone, share of one core"
        )
        for way, name in claims.PACED.items():
            if way == "none":
                continue
            hues = HUES["kafka" if name.startswith("Kafka") else "batchval"]
            bars = []
            for n, fill in zip(counts, hues, strict=True):
                row = found.get((way, mb, n))
                if row is not None:
                    fed = "" if row["fed"] >= 0.98 else f" (fed {row['fed']:.0%})"
                    bars.append((row["cores"] * 100, fill, percent(row["cores"] * 100) + fed))
            if bars:
                drawing.group(name, bars)
    grid = drawing.grid(66)
    height = drawing.y + 46
    few, middle, many = counts
    legend = f"Three bars each: {few}, {middle} and {many} partitions, light to dark. Streams of 16 producers. "
    legend += "fed: as much of the pace as one thread could take."
    footer = f"{processor_of(result)}; {date_of(result)}, commit {machine['commit']}; "
    footer += f"Kafka {machine['kafka'].partition(',')[0]}"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" font-family="{FONTS}" role="img" aria-labelledby="t">',
        '<title id="t">CPU share of one core at 600 MB/s and 1 GB/s, by path</title>',
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
        text(16, 26, "What validating compressed produce requests costs", size=16, more=BOLD),
        text(16, 46, legend, fill=FAINT),
    ]
    tail = [text(16, height - 10, footer, size=10, fill=FAINT), "</svg>"]
    return "\n".join([*head, *grid, *drawing.parts, *tail]) + "\n"
