"""Curves as SVG paths: scales, ticks and points. Lengths are the SVG's own units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from batchval.perf.histogram import Histogram

__all__ = ["Chart", "Curve", "percentile_chart", "time_chart"]

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 14, 42
#: Where the percentile axis has a mark.
_MARKS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a chart; ``run`` is its place in the legend, and its colour."""

    run: int
    name: str
    path: str
    dashed: bool = False


@dataclass(slots=True)
class Chart:
    """What the template draws. Ticks are (place, words)."""

    title: str
    x_label: str
    y_label: str
    x_ticks: list[tuple[float, str]] = field(default_factory=list)
    y_ticks: list[tuple[float, str]] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _nice_step(span: float, steps: int) -> float:
    """1, 2 or 5 times a power of ten."""
    raw = span / steps
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 5, 10) if raw <= power * factor * 1.0001)


def _linear(high: float, steps: int) -> list[float]:
    step = _nice_step(high or 1.0, steps)
    return [i * step for i in range(math.ceil((high or 1.0) / step - 1e-9) + 1)]


def _words(value: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _place(percent: float, last: float) -> float:
    """A percentile's place: each nine more is as wide as the last; 0 to 50 takes what remains of the first."""
    nines = -math.log10(1 - percent / 100)
    return LEFT + (WIDTH - LEFT - RIGHT) * nines / last


def percentile_chart(runs: Sequence[tuple[str, Histogram | None, Histogram | None]]) -> Chart | None:
    """Latency by percentile; each run's name, its histogram, and the one from the intended send times (dashed).

    A curve goes as far as its count speaks: 1,000 records know nothing of a 99.99th. None if there is no latency.
    """
    drawn = [
        (i, name, histogram, dashed)
        for i, (name, sent, intended) in enumerate(runs)
        for histogram, dashed in ((sent, False), (intended, True))
        if histogram is not None and histogram.count > 0
    ]
    if not drawn:
        return None
    most = max(histogram.count for _, _, histogram, _ in drawn)
    last = min(6.0, max(1.0, math.log10(most)))
    low = max(min(histogram.percentile(1) for _, _, histogram, _ in drawn), 1)
    high = max(low + 1, *(histogram.percentile(100 - 10 ** (2 - last)) for _, _, histogram, _ in drawn))
    marks = [factor * 10.0**decade for decade in range(-1, 14) for factor in (1, 2, 5)]
    floor = max(us for us in marks if us <= low)
    ceiling = min(us for us in marks if us >= high)
    tall = HEIGHT - TOP - BOTTOM

    def y_of(us: float) -> float:
        return HEIGHT - BOTTOM - tall * math.log(max(us, floor) / floor) / math.log(ceiling / floor)

    chart = Chart("Latency by percentile", "percentile", "latency, ms (logarithmic)")
    chart.x_ticks = [(_place(p, last), f"{p:g}") for p in _MARKS if -math.log10(1 - p / 100) <= last + 1e-9]
    wide_range = ceiling / floor > 5_000
    within = [us for us in marks if floor <= us <= ceiling and not (wide_range and f"{us:e}"[0] != "1")]
    chart.y_ticks = [(y_of(us), f"{us / 1000:g}") for us in within]
    for i, name, histogram, dashed in drawn:
        known = min(last, math.log10(max(histogram.count, 2)))
        points = []
        for step in range(241):
            nines = known * step / 240
            percent = 100 * (1 - 10**-nines)
            points.append((_place(percent, last), y_of(histogram.percentile(percent))))
        chart.curves.append(Curve(i, name, _path(points), dashed))
    return chart


def time_chart(runs: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> Chart | None:
    """Records a second over the seconds of each run; None where no run has two intervals."""
    drawn = [(i, name, points) for i, (name, points) in enumerate(runs) if len(points) > 1]
    if not drawn:
        return None
    xs = _linear(max(points[-1][0] for _, _, points in drawn), 6)
    ys = _linear(max(y for _, _, points in drawn for _, y in points), 5)
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + wide * x / xs[-1], HEIGHT - BOTTOM - tall * y / ys[-1]

    chart = Chart("Throughput over time", "seconds since the start", "records a second")
    chart.x_ticks = [(at(x, 0)[0], f"{x:g}") for x in xs]
    chart.y_ticks = [(at(0, y)[1], _words(y)) for y in ys]
    for i, name, points in drawn:
        chart.curves.append(Curve(i, name, _path([at(x, y) for x, y in points])))
    return chart
