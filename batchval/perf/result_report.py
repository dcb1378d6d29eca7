"""Results as one self-contained HTML page: percentile curves, throughput over time, runs compared.
Nothing is fetched.

The page is result_report.html.j2. All words that come from results are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchval.errors import BatchvalError
from batchval.named_files import write_text
from batchval.perf import compare_results
from batchval.perf.figures import figures, is_better, throughput
from batchval.perf.results import Result
from batchval.perf.run_charts import percentile_chart, time_chart
from batchval.report.pages import render

__all__ = ["ReportError", "page", "write"]

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
