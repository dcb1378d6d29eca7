"""Results as one self-contained HTML page: percentile curves, throughput over time, runs compared.
Nothing is fetched.

The page is result_report.html.j2. All words that come from results are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchval.errors import BatchvalError
from batchval.named_files import write_text
from batchval.perf import compare_results
from batchval.perf.histogram import Histogram
from batchval.perf.results import Result, figures, is_better, throughput
from batchval.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Curve,
    linear,
    path,
    short_number,
)
from batchval.report.pages import render

__all__ = ["ReportError", "page", "percentile_chart", "time_chart", "write"]

#: Where the percentile axis has a mark.
_MARKS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)


def _place(percent: float, last: float) -> float:
    """Return a percentile's x position: each further nine has the same width."""
    nines = -math.log10(1 - percent / 100)
    return LEFT + (WIDTH - LEFT - RIGHT) * nines / last


def percentile_chart(
    runs: Sequence[tuple[str, Histogram | None, Histogram | None]],
) -> Chart | None:
    """Return the chart of latency by percentile, None without latencies.

    ``runs``: name, histogram, and the histogram from the intended send times (dashed). A curve ends
    where its count does: 1,000 records have no 99.99th percentile.

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
    high = max(
        low + 1, *(histogram.percentile(100 - 10 ** (2 - last)) for _, _, histogram, _ in drawn)
    )
    marks = [factor * 10.0**decade for decade in range(-1, 14) for factor in (1, 2, 5)]
    floor = max(us for us in marks if us <= low)
    ceiling = min(us for us in marks if us >= high)
    tall = HEIGHT - TOP - BOTTOM

    def y_of(us: float) -> float:
        return HEIGHT - BOTTOM - tall * math.log(max(us, floor) / floor) / math.log(ceiling / floor)

    chart = Chart("Latency by percentile", "percentile", "latency, ms (logarithmic)")
    chart.x_ticks = [
        (_place(p, last), f"{p:g}") for p in _MARKS if -math.log10(1 - p / 100) <= last + 1e-9
    ]
    wide_range = ceiling / floor > 5_000
    within = [
        us for us in marks if floor <= us <= ceiling and not (wide_range and f"{us:e}"[0] != "1")
    ]
    chart.y_ticks = [(y_of(us), f"{us / 1000:g}") for us in within]
    for i, name, histogram, dashed in drawn:
        known = min(last, math.log10(max(histogram.count, 2)))
        points = []
        for step in range(241):
            nines = known * step / 240
            percent = 100 * (1 - 10**-nines)
            points.append((_place(percent, last), y_of(histogram.percentile(percent))))
        words = f"{name}, from the intended send time" if dashed else name
        chart.curves.append(Curve(i, words, path(points), dashed))
    return chart


def time_chart(runs: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> Chart | None:
    """Return the chart of records a second over time; None where no run has two intervals."""
    drawn = [(i, name, points) for i, (name, points) in enumerate(runs) if len(points) > 1]
    if not drawn:
        return None
    xs = linear(max(points[-1][0] for _, _, points in drawn), 6)
    ys = linear(max(y for _, _, points in drawn for _, y in points), 5)
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + wide * x / xs[-1], HEIGHT - BOTTOM - tall * y / ys[-1]

    chart = Chart("Throughput over time", "seconds since the start", "records a second")
    chart.x_ticks = [(at(x, 0)[0], f"{x:g}") for x in xs]
    chart.y_ticks = [(at(0, y)[1], short_number(y)) for y in ys]
    for i, name, points in drawn:
        chart.curves.append(Curve(i, name, path([at(x, y) for x, y in points])))
    return chart


_TEMPLATE = Path(__file__).with_name("result_report.html.j2")


class ReportError(BatchvalError):
    """The page cannot be made."""


Named = tuple[str, Result]


def page(
    runs: Sequence[Named], sides: tuple[Sequence[Named], Sequence[Named]] | None = None
) -> str:
    """Return the page of these runs, by name.

    Compares each with the first, or one side with the other.

    """
    pairs = [sides] if sides is not None else [(runs[:1], [other]) for other in runs[1:]]
    shown = [
        {"name": n, "figures": figures(r), "date": r.date, "about": _about(r)} for n, r in runs
    ]
    charts = [
        percentile_chart([(n, r.histogram, r.histogram_intended) for n, r in runs]),
        time_chart([(n, throughput(r)) for n, r in runs]),
    ]
    names = list(dict.fromkeys(name for run in shown for name in run["figures"]))
    try:
        return render(
            _TEMPLATE,
            title=f"batchval perf {runs[0][1].kind}",
            subtitle="; ".join(
                f"{n}: {r.client}, {r.totals['records']:,} records" for n, r in runs
            ),
            charts=[chart for chart in charts if chart is not None],
            runs=shown,
            figure_names=names,
            compared=[_pair(*pair) for pair in pairs],
        )
    except ModuleNotFoundError as error:
        raise ReportError(f"a report needs {error.name}: pip install batchval[perf]") from None


def write(
    path: Path | str,
    runs: Sequence[Named],
    sides: tuple[Sequence[Named], Sequence[Named]] | None = None,
) -> None:
    """Write the page into a file. Raises OSError, ReportError."""
    write_text(Path(path), page(runs, sides))


def _pair(first: Sequence[Named], second: Sequence[Named]) -> dict[str, Any]:
    rows = []
    for name, change in compare_results.rows(
        [figures(r) for _, r in first], [figures(r) for _, r in second]
    ):
        mood = ""
        if (
            change.low is not None
            and change.high is not None
            and (change.low > 0 or change.high < 0)
        ):
            mood = "better" if is_better(name, float(change.high)) else "worse"
        rows.append(
            {
                "name": name,
                "a": str(change.a),
                "b": str(change.b),
                "change": compare_results.percent(change.change),
                "spread": compare_results.spread(change),
                "mood": mood,
            }
        )
    names = [", ".join(name for name, _ in side) for side in (first, second)]
    return {
        "a": names[0],
        "b": names[1],
        "spread": compare_results.spread_of(len(first), len(second)),
        "rows": rows,
    }


def _about(result: Result) -> list[tuple[str, str]]:
    found = {"client": result.client} | result.settings | result.machine | result.versions
    return [
        (name.replace("_", " "), _words(value))
        for name, value in found.items()
        if value not in (None, "", [], {})
    ]


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_words(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return str(value)
