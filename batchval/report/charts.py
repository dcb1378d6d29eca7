"""Charts as SVG shapes: scales, ticks, curves, stacked bars. draw.html.j2 draws them. Lengths are
the SVG's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = [
    "BOTTOM",
    "COLOURS",
    "HEIGHT",
    "LEFT",
    "RIGHT",
    "TOP",
    "WIDTH",
    "Bar",
    "Chart",
    "Curve",
    "linear",
    "path",
    "short_number",
    "stacked",
]

#: by place in the legend; page.html.j2 has them from here
COLOURS = ("#2463b4", "#d1690e", "#2c8a57", "#8a4fbe", "#b3306b", "#6b7280", "#b3261e", "#0e8a9a")
WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 14, 42
_LETTER = 7  # the width of one, about


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a chart. ``run`` is its place in the legend, and its colour."""

    run: int
    name: str
    path: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle; ``run`` is its place in the legend, and its colour. ``words`` are shown where
    the pointer rests.
    """

    run: int
    x: float
    y: float
    width: float
    height: float
    words: str


@dataclass(slots=True)
class Chart:
    """The data of the template. Ticks are (place, label)."""

    title: str
    x_label: str
    y_label: str
    x_ticks: list[tuple[float, str]] = field(default_factory=list)
    y_ticks: list[tuple[float, str]] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    #: what the bars' colours are, by run
    legend: list[tuple[int, str]] = field(default_factory=list)
    #: whether a grid line stands at each tick of x: bars need none
    x_grid: bool = True
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def path(points: Sequence[tuple[float, float]]) -> str:
    """Return the ``d`` of a line through these points."""
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _nice_step(span: float, steps: int) -> float:
    """Return 1, 2 or 5 times a power of ten."""
    raw = span / steps
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 5, 10) if raw <= power * factor * 1.0001)


def linear(high: float, steps: int) -> list[float]:
    """Return ticks from 0 to at least ``high``, about ``steps`` of them."""
    step = _nice_step(high or 1.0, steps)
    return [i * step for i in range(math.ceil((high or 1.0) / step - 1e-9) + 1)]


def short_number(value: float) -> str:
    """Return a number as ``1.5 M``, in powers of 1000."""
    for size, unit in ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def stacked(
    title: str,
    x_label: str,
    y_label: str,
    columns: Sequence[tuple[str, Sequence[float]]],
    parts: Sequence[tuple[int, str]],
    *,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Chart | None:
    """Return a column for each (label, amounts of the parts), with the parts stacked. None where
    all amounts are 0.

    ``parts`` are (colour, name) from the bottom up. As many columns as fit get their labels below
    them, and the last one if it can.
    """
    most = max((sum(amounts) for _, amounts in columns), default=0)
    if not most > 0:
        return None
    chart = Chart(
        title, x_label, y_label, x_grid=False, width=width, right=width - RIGHT, height=height
    )
    chart.bottom = height - BOTTOM
    ys = linear(most, 5)
    wide, tall = chart.right - chart.left, chart.bottom - chart.top
    chart.y_ticks = [(chart.bottom - tall * y / ys[-1], short_number(y)) for y in ys]
    step = wide / len(columns)
    thick = min(step * 0.82 if step > 3 else step, 64)
    longest = max(len(words) for words, _ in columns)
    every = math.ceil((longest + 3) * _LETTER / step)
    for i, (words, amounts) in enumerate(columns):
        middle, base = chart.left + step * (i + 0.5), float(chart.bottom)
        if i % every == 0:
            chart.x_ticks.append((middle, words))
        for (run, name), amount in zip(parts, amounts, strict=True):
            if amount > 0:
                high = tall * amount / ys[-1]
                base -= high
                chart.bars.append(
                    Bar(
                        run,
                        middle - thick / 2,
                        base,
                        thick,
                        high,
                        f"{words}: {name} {short_number(float(f'{amount:.4g}'))}",
                    )
                )
    last, middle = columns[-1][0], chart.left + step * (len(columns) - 0.5)
    if middle - chart.x_ticks[-1][0] > (longest + len(last) + 3) * _LETTER / 2:
        chart.x_ticks.append((middle, last))
    chart.legend = [
        part for i, part in enumerate(parts) if any(amounts[i] > 0 for _, amounts in columns)
    ]
    return chart
