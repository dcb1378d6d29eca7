"""What ``perf produce`` and ``perf consume`` have in common: options, deprecated ones, and what is said at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchval.cli.options import F

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
    "json_file_option",
    "keep",
    "print_metrics",
    "print_metrics_option",
    "report_option",
    "say",
    "take_deprecated",
]

INT = 2**31 - 1
LONG = 2**63 - 1
FILE = click.Path(path_type=Path)


def bootstrap_option(command: F) -> F:
    return click.option("--bootstrap-server", metavar="HOST:PORT,…", help="Required: brokers to begin with.")(command)


def broker_list_option(command: F) -> F:
    return click.option("--broker-list", metavar="HOST:PORT,…", help="Deprecated: use --bootstrap-server.")(command)


def client_option(does: str) -> Callable[[F], F]:
    """``does``: sends, or reads."""
    return click.option(
        "--client",
        type=click.Choice(["batchval", "librdkafka"]),
        default="batchval",
        show_default=True,
        help=f"Who {does}.",
    )


def print_metrics_option(command: F) -> F:
    return click.option("--print-metrics", is_flag=True, help="Print the clients' metrics at the end.")(command)


def json_file_option(command: F) -> F:
    return click.option("--json", "json_file", type=FILE, metavar="FILE", help="The result, for merge and compare.")(
        command
    )


def report_option(command: F) -> F:
    return click.option("--report", type=FILE, metavar="FILE.html", help="The result as a page.")(command)


def say(tool: str, line: str) -> None:
    """One line on stderr, behind what was printed before it."""
    sys.stdout.flush()
    click.echo(" ".join(f"batchval perf {tool}: {line}".split()), err=True)


def take_deprecated(tool: str, given: dict[str, Any], instead: Mapping[str, str]) -> None:
    """Options of Kafka's old names, said and taken for the new ones, which win; of several values all are taken."""
    for old, new in instead.items():
        of, to = (flag[2:].replace("-", "_").replace(".", "_") for flag in (old, new))
        if not given[of]:
            continue
        say(tool, f"{old} is deprecated, use {new} instead")
        given[to] = given[of] + given[to] if isinstance(given[to], tuple) else given[to] or given[of]


def can_be_written(*files: Path | None) -> None:
    """Better now than after an hour. OSError."""
    for file in files:
        if file is not None:
            file.open("a").close()


def keep(given: Mapping[str, Any], result: Result) -> None:
    """As --json and --report want it."""
    if given["json_file"] is not None:
        result.write(given["json_file"])
    if given["report"] is not None:
        from batchval.perf.report import write

        write(given["report"], [("this run", result)])


def print_metrics(thread: int, metrics: Mapping[str, float | str]) -> None:
    """As Kafka's ToolsUtils does: names to the left, padded to the longest, three decimals."""
    width = max(map(len, metrics), default=0)
    click.echo(f"Metrics for thread {thread}\n\n{'Metric Name':<{width}}   Value")
    for name, value in sorted(metrics.items()):
        click.echo(f"{name:<{width}} : {value:.3f}" if isinstance(value, float) else f"{name:<{width}} : {value}")
