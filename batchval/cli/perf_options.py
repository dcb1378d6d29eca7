"""What ``perf produce`` and ``perf consume`` have in common: options, deprecated ones, and what is
said at the end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchval.cli.options import F
from batchval.cli.output import print_json

if TYPE_CHECKING:
    from batchval.perf.results import Result

__all__ = [
    "FILE",
    "INT",
    "LONG",
    "bootstrap_option",
    "broker_list_option",
    "can_be_written",
    "client_option",
    "keep",
    "latency_unit_option",
    "output_option",
    "print_metrics",
    "print_metrics_option",
    "print_result",
    "report_option",
    "result_option",
    "say",
    "take_deprecated",
]

INT = 2**31 - 1
LONG = 2**63 - 1
FILE = click.Path(path_type=Path)


def bootstrap_option(command: F) -> F:
    return click.option(
        "--bootstrap-server", metavar="HOST:PORT,…", help="Required: brokers to begin with."
    )(command)


def broker_list_option(command: F) -> F:
    return click.option(
        "--broker-list", metavar="HOST:PORT,…", help="Deprecated: use --bootstrap-server."
    )(command)


def client_option(does: str) -> Callable[[F], F]:
    """``does``: sends, or reads."""
    return click.option(
        "--client",
        type=click.Choice(["batchval", "librdkafka"]),
        default="batchval",
        show_default=True,
        help=f"Who {does}.",
    )


def latency_unit_option(command: F) -> F:
    return click.option(
        "--latency-unit",
        type=click.Choice(["us", "ms"]),
        default="us",
        show_default=True,
        help="us: three decimals of ms. ms: Kafka's whole ms, and no details on stderr.",
    )(command)


def print_metrics_option(command: F) -> F:
    return click.option(
        "--print-metrics", is_flag=True, help="Print the clients' metrics at the end."
    )(command)


def output_option(command: F) -> F:
    return click.option(
        "--output",
        type=FILE,
        metavar="FILE",
        help="Write the result as JSON, for merge and compare.",
    )(command)


def result_option(command: F) -> F:
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print the result as JSON on standard output, and the text lines on stderr.",
    )(command)


def report_option(command: F) -> F:
    return click.option("--report", type=FILE, metavar="FILE.html", help="The result as a page.")(
        command
    )


def say(tool: str, line: str) -> None:
    """One line on stderr, behind what was printed before it."""
    sys.stdout.flush()
    click.echo(" ".join(f"batchval perf {tool}: {line}".split()), err=True)


def take_deprecated(tool: str, given: dict[str, Any], instead: Mapping[str, str]) -> None:
    """Options of Kafka's old names, said and taken for the new ones, which win; of several values
    all are taken.
    """
    for old, new in instead.items():
        of, to = (flag[2:].replace("-", "_").replace(".", "_") for flag in (old, new))
        if not given[of]:
            continue
        say(tool, f"{old} is deprecated, use {new} instead")
        given[to] = (
            given[of] + given[to] if isinstance(given[to], tuple) else given[to] or given[of]
        )


def can_be_written(*files: Path | None) -> None:
    """Better now than after an hour. OSError."""
    for file in files:
        if file is not None:
            file.open("a").close()


def keep(given: Mapping[str, Any], result: Result) -> None:
    """Write and print a result as --output, --json and --report ask."""
    if given["output"] is not None:
        result.write(given["output"])
    if given["as_json"]:
        print_result(result)
    if given["report"] is not None:
        from batchval.perf.result_report import write

        write(given["report"], [("this run", result)])


def print_result(result: Result) -> None:
    """Print a result as one line of JSON; perf merge and compare read it too."""
    print_json({"type": "result", **result.to_json()})


def print_metrics(thread: int, metrics: Mapping[str, float | str], *, err: bool) -> None:
    """Print metrics as Kafka's ToolsUtils does: names padded to the longest, three decimals."""
    from batchval.perf.producer_lines import fixed

    width = max(map(len, metrics), default=0)
    click.echo(f"Metrics for thread {thread}\n\n{'Metric Name':<{width}}   Value", err=err)
    for name, value in sorted(metrics.items()):
        shown = value if isinstance(value, str) else "NaN" if math.isnan(value) else fixed(value, 3)
        click.echo(f"{name:<{width}} : {shown}", err=err)
