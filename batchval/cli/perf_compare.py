"""``batchval perf compare``: two results, or two sides of several, figure by figure, and how much
runs differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchval.cli.commands import Command
from batchval.cli.options import FILE, json_option
from batchval.cli.output import print_json
from batchval.named_files import check_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchval.perf.results import Result

    Named = tuple[str, Result]


class _Sides(Command):
    """After --from and --to several files may follow, as a shell makes them of ``runs-*.json``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        found: list[str] = []
        side = ""
        for arg in args:
            if arg in {"--from", "--to"}:
                side = arg
            elif arg.startswith("-"):
                side = ""
            elif side and found[-1] != side:
                found.append(side)
            found.append(arg)
        return super().parse_args(ctx, found)


@click.command(
    "compare",
    cls=_Sides,
    examples=(
        "batchval perf compare before.json after.json",
        "batchval perf compare --from before-*.json --to after-*.json",
    ),
)
@click.argument("files", nargs=-1, type=FILE, metavar="[A.json B.json…]")
@click.option(
    "--from", "before", type=FILE, multiple=True, metavar="A.json…", help="Runs of one side."
)
@click.option(
    "--to", "after", type=FILE, multiple=True, metavar="B.json…", help="Runs of the other side."
)
@json_option
@click.option("--report", type=FILE, metavar="FILE.html", help="A page with curves.")
def command(
    files: tuple[Path, ...],
    before: tuple[Path, ...],
    after: tuple[Path, ...],
    as_json: bool,
    report: Path | None,
) -> int:
    """Compare two results: print each figure's change from A to B, and its spread. Latencies count
    from the intended times where the runs had a schedule.

    With two results the spread is what rounding leaves open. With several a side (--from, --to)
    medians are compared, and the spread is that of all pairs of runs. More files without --from
    are compared with A one after the other.
    """
    from batchval.perf.results import ResultError

    if (before or after) and files:
        raise click.UsageError(f"{files[0]} is on neither side: put it after --from or --to")
    if bool(before) != bool(after):
        raise click.UsageError("--from and --to go together: name the results of both sides")
    if len(files) < 2 and not before:
        raise click.UsageError(f"got {len(files)} results: expected at least two, A.json B.json")
    check_outputs(report)
    runs = _read([*files, *before, *after])
    if len(kinds := sorted({result.kind for _, result in runs})) > 1:
        raise ResultError(f"results of {' and '.join(kinds)} cannot be compared")
    sides = (runs[: len(before)], runs[len(before) :]) if before else None
    pairs = [sides] if sides is not None else [(runs[:1], [other]) for other in runs[1:]]
    compared = [_compared(a, b, as_json) for a, b in pairs]
    if as_json:
        print_json({"type": "comparison", "compared": compared})
    if report is not None:
        from batchval.perf.result_report import write

        write(report, runs, sides)
    return 0


def _read(paths: Sequence[Path]) -> list[Named]:
    """Return the results by name: that of the file, or its path where two files have one name."""
    from batchval.perf.results import Result

    names = [path.stem for path in paths]
    unique = len(set(names)) == len(names)
    return [(path.stem if unique else str(path), Result.read(path)) for path in paths]


def _compared(a: Sequence[Named], b: Sequence[Named], as_json: bool) -> dict[str, Any]:
    """Print one side's change to the other, unless it is wanted as JSON; return it."""
    from batchval.perf import compare_results, results

    names = [", ".join(name for name, _ in side) for side in (a, b)]
    rows = compare_results.rows(
        *([results.figures(result) for _, result in side] for side in (a, b))
    )
    starts = [sorted({results.latency_from(result) for _, result in side}) for side in (a, b)]
    if not as_json:
        click.echo(f"{names[0]} to {names[1]}{_of_latencies(starts)}")
        lines = [("", "from", "to", "change", compare_results.spread_of(len(a), len(b)))]
        lines += [
            (
                n,
                f"{c.a:f}",
                f"{c.b:f}",
                compare_results.percent(c.change),
                compare_results.spread(c),
            )
            for n, c in rows
        ]
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        for line in lines:
            cells = [line[0].ljust(widths[0])] + [line[i].rjust(widths[i]) for i in range(1, 5)]
            click.echo("  ".join(cells).rstrip())
    return {
        "a": names[0],
        "b": names[1],
        "runs": [len(a), len(b)],
        "spread_of": "rounding" if len(a) == len(b) == 1 else "runs",
        "latency_from": [" and ".join(side) for side in starts],
        "figures": {name: change.as_json() for name, change in rows},
    }


def _of_latencies(starts: Sequence[Sequence[str]]) -> str:
    """Return from which instant the latencies of both sides are."""
    words = {"intended": "from the intended time", "send": "from the send", "": "none"}
    first, second = (" and ".join(words[one] for one in side) for side in starts)
    if first == second:
        return "" if first == words[""] else f"; latencies {first}"
    return f"; latencies {first}, compared with those {second}: they measure different things"
