"""Options, deprecated options and final output that ``perf produce`` and ``perf consume`` share."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from batchval.cli.options import FILE, F
from batchval.cli.output import print_json

if TYPE_CHECKING:
    from batchval.perf.results import Result

__all__ = [
    "INT",
    "LONG",
    "bootstrap_option",
    "broker_list_option",
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


def bootstrap_option(command: F) -> F:
    return click.option(
        "--bootstrap-server", metavar="HOST:PORT,…", help="Bootstrap brokers (required)."
    )(command)


def broker_list_option(command: F) -> F:
    return click.option(
        "--broker-list", metavar="HOST:PORT,…", help="Deprecated: use --bootstrap-server."
    )(command)


def client_option(does: str) -> Callable[[F], F]:
    """Return the option --client. ``does``: sends, or reads."""
    return click.option(
        "--client",
        type=click.Choice(["batchval", "librdkafka"]),
        default="batchval",
        show_default=True,
        help=f"Client that {does}.",
    )


def latency_unit_option(command: F) -> F:
    return click.option(
        "--latency-unit",
        type=click.Choice(["us", "ms"]),
        default="us",
        show_default=True,
        help=(
            "Unit of latencies: ms with three decimals (us), or Kafka's whole ms without "
            "details (ms)."
        ),
    )(command)


def print_metrics_option(command: F) -> F:
    return click.option(
        "--print-metrics", is_flag=True, help="Metrics of the clients, printed at the end."
    )(command)


def output_option(command: F) -> F:
    return click.option(
        "--output",
        type=FILE,
        metavar="FILE",
        help="JSON file for the result, which merge and compare read.",
    )(command)


def result_option(command: F) -> F:
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="JSON result on standard output, text lines on stderr.",
    )(command)


def report_option(command: F) -> F:
    return click.option(
        "--report", type=FILE, metavar="FILE.html", help="HTML page for the result."
    )(command)


def say(tool: str, line: str) -> None:
    """Print one line on stderr, after all earlier output."""
    sys.stdout.flush()
    click.echo(" ".join(f"batchval perf {tool}: {line}".split()), err=True)


def take_deprecated(tool: str, arguments: dict[str, Any], instead: Mapping[str, str]) -> None:
    """Copy values of Kafka's deprecated options to the new ones and print a warning. The new option
    wins; an option with several values gets all.
    """
    for old, new in instead.items():
        of, to = (flag[2:].replace("-", "_").replace(".", "_") for flag in (old, new))
        if not arguments[of]:
            continue
        say(tool, f"{old} is deprecated, use {new} instead")
        arguments[to] = (
            arguments[of] + arguments[to]
            if isinstance(arguments[to], tuple)
            else arguments[to] or arguments[of]
        )


def keep(arguments: Mapping[str, Any], result: Result) -> None:
    """Write and print a result as --output, --json and --report ask."""
    if arguments["output"] is not None:
        result.write(arguments["output"])
    if arguments["as_json"]:
        print_result(result)
    if arguments["report"] is not None:
        from batchval.perf.result_report import write

        write(arguments["report"], [("this run", result)])


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
