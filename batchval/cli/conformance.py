"""``batchval conformance``: compares answers with those of Apache Kafka: batchval's own, or those
of another implementation, which a runner asks.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchval.cli.commands import Command
from batchval.cli.exit import FINDINGS, UNREADABLE
from batchval.cli.options import json_option, kafka_version_option, optional_paths_argument
from batchval.cli.output import print_json, progress
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, Release
from batchval.named_files import check_outputs, write_text

if TYPE_CHECKING:
    from batchval.cli.runner import Score

_SHOWN = 20  # bad lines, and cases that are not right
_PROFILES = ("broker", "reader")


def _number(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse NaN, which is in every range."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number.", ctx, param)
    return value


@click.command(
    "conformance",
    cls=Command,
    examples=(
        "batchval conformance fixtures/golden",
        "batchval conformance --json cases.jsonl.gz",
        "batchval conformance --exec './runner --strict' --profile reader --page score.html",
    ),
)
@optional_paths_argument
@kafka_version_option(
    "Kafka that answered the cases that name no kafka_version, without --exec. Default: "
    f"{DEFAULT_KAFKA_VERSION}.",
    default=None,
)
@click.option(
    "--exec",
    "command_line",
    metavar="CMD",
    help="Command of the runner to test in place of batchval.",
)
@click.option(
    "--profile",
    type=click.Choice(_PROFILES),
    help="Profile of --exec: verdicts of a broker (default), or of a decoder of stored batches.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1, max=3600),
    callback=_number,
    metavar="SECONDS",
    help="Seconds without an answer after which --exec restarts the runner. Default: 20.",
)
@click.option(
    "--page",
    "page_path",
    type=click.Path(path_type=Path, readable=False, dir_okay=False),
    help="HTML file for the score of --exec.",
)
@json_option
def command(
    paths: tuple[Path, ...],
    kafka_version: Release | None,
    command_line: str | None,
    profile: str | None,
    timeout: float | None,
    page_path: Path | None,
    as_json: bool,
) -> int:
    """Compare answers with Apache Kafka's own, for .jsonl and .jsonl.gz files of cases, or folders
    of them.

    Prints each disagreement; the last line is `conformance: N of M agree` (with --json on stderr,
    after the summary on stdout). Exit code 0 only if all agree; 3 without cases, or if a
    line is not a case.

    With --exec it writes one case a line to the standard input of CMD, reads one verdict a line
    from its standard output, and prints a score by rule. The cases are those of the package
    batchval-fixtures unless PATHs are named. Exit code 0 if no verdict is wrong and none failed
    (skipped cases are allowed); 1 otherwise; 3 without cases, or if the runner stops answering.
    """
    if command_line is not None:
        if kafka_version is not None:
            raise click.UsageError(
                "--kafka-version cannot be combined with --exec: each case names its version in"
                ' "kafka"'
            )
        return _ask_runner(
            paths, command_line, profile or "broker", timeout or 20.0, page_path, as_json
        )
    for name, value in (("--profile", profile), ("--timeout", timeout), ("--page", page_path)):
        if value is not None:
            raise click.UsageError(f"{name} needs --exec CMD")
    if not paths:
        raise click.UsageError("missing PATH: expected files or folders of cases, or --exec CMD")
    return _compare(paths, kafka_version or DEFAULT_KAFKA_VERSION, as_json)


def _ask_runner(
    paths: tuple[Path, ...],
    command_line: str,
    profile: str,
    timeout: float,
    page_path: Path | None,
    as_json: bool,
) -> int:
    from batchval.cli.runner import (
        CasesError,
        Runner,
        RunnerStopped,
        Score,
        installed_cases,
        page,
        read,
        run,
    )
    from batchval.report.units import printable

    try:
        words = shlex.split(command_line)
    except ValueError as error:
        raise click.UsageError(f"invalid --exec {command_line!r}: {error}") from None
    if not words:
        raise click.UsageError("--exec is empty: expected a command")
    check_outputs(page_path)
    score, runner = Score(profile), Runner(words, timeout)
    stopped: str | None = None
    interrupt: KeyboardInterrupt | None = None
    try:
        cases = read(paths or (installed_cases(),), profile)
        with progress("conformance", as_json, lambda: len(cases), in_bytes=False) as advance:
            for outcome in run(runner, cases, score):
                advance(1)
                if as_json and outcome.outcome != "right":
                    print_json({"type": "verdict", **asdict(outcome)})
    except BrokenPipeError:  # that of standard output
        raise
    except (CasesError, RunnerStopped, OSError) as error:
        stopped = _say_why(error)
    except KeyboardInterrupt as error:  # the score of the cases that were asked is printed first
        interrupt, stopped = error, "it was interrupted"
    if page_path is not None:
        try:
            write_text(page_path, page(score, command_line, runner.faults, stopped))
        except (CasesError, OSError) as error:
            stopped = _say_why(error)
    for fault in runner.faults[:_SHOWN]:
        click.echo(f"batchval conformance: the runner wrote {printable(fault)}", err=True)
    if len(runner.faults) > _SHOWN:
        click.echo(f"batchval conformance: … and {len(runner.faults) - _SHOWN:,} more", err=True)
    if runner.stderr and (stopped or score.total.failed):
        click.echo(
            f"batchval conformance: its standard error ends with: {printable(runner.stderr[-400:])}",
            err=True,
        )
    if as_json:
        for document in score.documents():
            print_json(document)
    else:
        _print_score(score)
    click.echo(f"conformance: {score}", err=as_json)
    if interrupt is not None:
        raise interrupt
    if stopped:
        return UNREADABLE
    return FINDINGS if score.total.wrong or score.total.failed or runner.faults else 0


def _say_why(error: Exception) -> str:
    """Print why the score or its page is missing, and return the text."""
    from batchval.report.units import printable

    text = str(error)
    if isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
    text = printable(text)
    click.echo(f"batchval conformance: {text}", err=True)
    return text


def _print_score(score: Score) -> None:
    from batchval.cli.runner import table
    from batchval.report.units import printable

    shown = [one for one in score.outcomes if one.outcome != "skipped"]
    for one in shown[:_SHOWN]:
        rule = f"rule {one.rule}: " if one.rule else ""
        click.echo(
            printable(f"{one.case_id}: {rule}expected {one.expected}; {one.outcome}: {one.got}")
        )
    if len(shown) > _SHOWN:
        click.echo(f"… and {len(shown) - _SHOWN:,} more (--json prints all)")
    if score.rules:
        click.echo(table(score), nl=False)


def _compare(paths: tuple[Path, ...], kafka_version: str | Release, as_json: bool) -> int:
    from batchval.cli.cases import NotACase, compare, read_cases
    from batchval.report.units import printable

    total = agree = unreadable = 0
    try:
        for case in read_cases(list(paths), kafka_version):
            if isinstance(case, NotACase):
                unreadable += 1
                if unreadable <= _SHOWN:
                    click.echo(f"batchval conformance: {printable(str(case))}", err=True)
                continue
            total += 1
            found = compare(case)
            agree += not found
            for disagreement in found:
                if as_json:
                    print_json({"type": "disagreement", **disagreement._asdict()}, default=str)
                else:
                    click.echo(printable(str(disagreement)))
        if unreadable > _SHOWN:
            click.echo(f"batchval conformance: … and {unreadable - _SHOWN:,} more", err=True)
    finally:
        if as_json:
            print_json(
                {"type": "summary", "agree": agree, "total": total, "unreadable": unreadable}
            )
        click.echo(f"conformance: {agree} of {total} agree", err=as_json)
    return UNREADABLE if unreadable or not total else 0 if agree == total else FINDINGS
