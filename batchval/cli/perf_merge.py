"""``batchval perf merge``: results of runs side by side, on one machine or many, as one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchval.cli.commands import Command
from batchval.cli.options import FILE, json_option
from batchval.cli.perf_options import latency_unit_option, output_option, print_result
from batchval.named_files import check_outputs

if TYPE_CHECKING:
    from batchval.perf.results import Result


@click.command(
    "merge",
    cls=Command,
    examples=(
        "batchval perf merge host1.json host2.json",
        "batchval perf merge host1.json host2.json --output both.json",
    ),
)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=FILE,
    metavar="A.json B.json…",
)
@latency_unit_option
@output_option
@json_option
def command(files: tuple[Path, ...], latency_unit: str, output: Path | None, as_json: bool) -> int:
    """Add results that --output wrote: histograms exactly, records and bytes as sums, the time of
    the longest run. Print the total line of Kafka's producer tool, and that of the steady state if
    all results have one.
    """
    from batchval.perf.results import Result, merge

    seen = {path.resolve() for path in files}
    if len(seen) < len(files):
        raise click.UsageError("a file is named twice and would count twice: name each result once")
    check_outputs(output)
    merged = merge([Result.read(path) for path in files])
    if output is not None:
        merged.write(output)
    if as_json:
        print_result(merged)
    else:
        for line in _lines(merged, latency_unit):
            click.echo(line)
    return 0


def _lines(merged: Result, unit: str) -> Iterator[str]:
    """Yield the total lines of Kafka's producer tool, or one of a consumer's figures."""
    if merged.kind == "produce" and merged.headline is not None:
        from batchval.perf.histogram import Histogram
        from batchval.perf.producer_lines import total_line

        totals = merged.totals
        yield total_line(merged.headline, totals["bytes"], totals["elapsed_ns"], unit)
        steady = totals.get("steady_state")
        if steady is not None and steady.get("histogram") is not None:
            histogram = Histogram.from_json(steady["histogram"])
            yield total_line(
                histogram, steady["bytes"], steady["elapsed_ns"], unit, steady_state=True
            )
        return
    from batchval.perf.results import figures

    shown = ", ".join(f"{figure} {name}" for name, figure in figures(merged).items())
    yield f"{merged.totals['records']} records: {shown}"
