"""``batchval perf merge``: results of runs side by side, on one machine or many, as one."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("merge", short_help="Add results of runs side by side.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="A.json B.json…")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the JSON there; print the line.")
def command(files: tuple[Path, ...], output: Path | None) -> int:
    """Adds results that --json wrote: histograms exactly, records and bytes as sums, the time of the longest run."""
    from batchval.perf.merge import merge
    from batchval.perf.results import Result

    seen = {path.resolve() for path in files}
    if len(seen) < len(files):
        raise click.UsageError("a file is given twice: it would count twice.")
    merged = merge([Result.read(path) for path in files])
    if output is None:
        click.echo(json.dumps(merged.to_json(), indent=1))
        return 0
    merged.write(output)
    if merged.kind == "produce" and merged.histogram is not None:
        from batchval.perf.lines import total_line

        click.echo(total_line(merged.histogram, merged.totals["bytes"], merged.totals["elapsed_ns"]))
    else:
        from batchval.perf.figures import figures

        shown = ", ".join(f"{figure} {name}" for name, figure in figures(merged).items())
        click.echo(f"{merged.totals['records']} records: {shown}")
    return 0
