"""``batchval perf compare``: two results, figure by figure, and what their printed digits can say (KAFKA-7722)."""

from __future__ import annotations

from pathlib import Path

import click

from batchval.cli.commands import Command
from batchval.cli.options import json_option
from batchval.cli.output import print_json


@click.command(
    "compare",
    cls=Command,
    examples=("batchval perf compare before.json after.json", "batchval perf compare --json before.json after.json"),
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="A.json B.json")
@json_option
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help="A page with curves.")
def command(files: tuple[Path, ...], as_json: bool, report: Path | None) -> int:
    """From A to B: each figure's change, and the spread that half a unit of the last printed place leaves it.

    More files are compared with A one after the other.
    """
    from batchval.perf import compare, figures
    from batchval.perf.results import Result, ResultError

    if len(files) < 2:
        raise click.UsageError(f"got {len(files)} results: expected at least two, A.json B.json")
    results = [(path.stem, Result.read(path)) for path in files]
    if len({result.kind for _, result in results}) > 1:
        raise ResultError("a producer's result cannot be compared with a consumer's")
    names = [path.stem for path in files]
    if len(set(names)) < len(names):
        results = [(str(path), result) for path, (_, result) in zip(files, results, strict=True)]
    (first, a), said = results[0], []
    for other, b in results[1:]:
        rows = compare.rows(figures.figures(a), figures.figures(b))
        if as_json:
            said.append({"a": first, "b": other, "figures": {name: change.as_json() for name, change in rows}})
            continue
        click.echo(f"{first} to {other}")
        lines = [("", "from", "to", "change", "spread")]
        lines += [(n, f"{c.a:f}", f"{c.b:f}", compare.percent(c.change), compare.spread(c)) for n, c in rows]
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        for line in lines:
            cells = [line[0].ljust(widths[0])] + [line[i].rjust(widths[i]) for i in range(1, 5)]
            click.echo("  ".join(cells).rstrip())
    if as_json:
        print_json({"type": "comparison", "compared": said})
    if report is not None:
        from batchval.perf.report import write

        write(report, results)
    return 0
