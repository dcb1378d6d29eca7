"""Options, deprecated options and final output of the perf commands, each declared once.

bootstrap_option, client_option, properties_options    which cluster, which client, its settings
result_options                                         what becomes of the result, see ``Kept``
deprecated_option                                      Kafka's older names, see ``renamed``
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchval.cli.options import FILE, F
from batchval.cli.output import print_json

if TYPE_CHECKING:
    from batchval.perf.results import Result

__all__ = [
    "INT",
    "LONG",
    "Kept",
    "bootstrap_option",
    "broker_list_option",
    "client_option",
    "deprecated_option",
    "latency_unit_option",
    "output_option",
    "print_metrics",
    "print_metrics_option",
    "print_result",
    "properties_options",
    "renamed",
    "reporting_interval_option",
    "result_options",
    "say",
]

INT = 2**31 - 1
LONG = 2**63 - 1


def bootstrap_option(command: F) -> F:
    return click.option(
        "--bootstrap-server", metavar="HOST:PORT,…", help="Bootstrap brokers (required)."
    )(command)


class _Deprecated(click.Option):
    """An older name of the option ``instead``."""

    def __init__(self, *args: Any, instead: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.instead = instead


def deprecated_option(old: str, instead: str, **more: Any) -> Callable[[F], F]:
    """Return an option whose values ``renamed`` gives to the option ``instead``."""
    name = old[2:].replace("-", "_").replace(".", "_")
    text = f"Deprecated: use {instead}."
    return click.option(old, name, cls=_Deprecated, instead=instead, help=text, **more)


def broker_list_option(command: F) -> F:
    return deprecated_option("--broker-list", "--bootstrap-server", metavar="HOST:PORT,…")(command)


def properties_options(
    of: str, property_help: str, *, metavar: str = "NAME=VALUE", files: bool = True
) -> Callable[[F], F]:
    """Return the options --command-config and --command-property. ``of``: whose properties;
    ``files``: more than one file is allowed.
    """

    def both(command: F) -> F:
        of_property = click.option(
            "--command-property", multiple=True, metavar=metavar, help=property_help
        )
        of_file = click.option(
            "--command-config",
            type=FILE,
            multiple=files,
            metavar="FILE",
            help=f"File with properties of {of}, by Kafka's names.",
        )
        return of_file(of_property(command))

    return both


def reporting_interval_option(help: str) -> Callable[[F], F]:
    return click.option(
        "--reporting-interval",
        type=click.IntRange(1, INT),
        default=5000,
        show_default=True,
        metavar="MS",
        help=help,
    )


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


def result_options(command: F) -> F:
    """Add the options of ``Kept``."""
    report = click.option(
        "--report", type=FILE, metavar="FILE.html", help="HTML page for the result."
    )
    as_json = click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="JSON result on standard output, text lines on stderr.",
    )
    return output_option(as_json(report(command)))


@dataclass(frozen=True, slots=True)
class Kept:
    """What becomes of a result: --output, --json and --report."""

    output: Path | None
    as_json: bool
    report: Path | None

    def __bool__(self) -> bool:
        return self.as_json or self.output is not None or self.report is not None

    def keep(self, result: Result) -> None:
        """Write and print a result."""
        if self.output is not None:
            result.write(self.output)
        if self.as_json:
            print_result(result)
        if self.report is not None:
            from batchval.perf.result_report import write

            write(self.report, [("this run", result)])


def say(tool: str, line: str) -> None:
    """Print one line on stderr, after all earlier output."""
    sys.stdout.flush()
    click.echo(" ".join(f"batchval perf {tool}: {line}".split()), err=True)


def renamed(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the running command with the values of deprecated options at their
    new names, and print a warning for each. The new option wins; an option with several values gets
    all.
    """
    found = dict(arguments)
    for option in click.get_current_context().command.params:
        if not isinstance(option, _Deprecated):
            continue
        value = found.pop(str(option.name))
        if not value:
            continue
        say(tool, f"{option.opts[0]} is deprecated, use {option.instead} instead")
        to = option.instead[2:].replace("-", "_")
        found[to] = value + found[to] if isinstance(found[to], tuple) else found[to] or value
    return found


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
