"""``batchval conformance``: compares batchval's answers with cases that Apache Kafka answered."""

from __future__ import annotations

from pathlib import Path

import click

from batchval.cli.commands import Command
from batchval.cli.exit_codes import FINDINGS, UNREADABLE
from batchval.cli.options import json_option, kafka_version_option, paths_argument
from batchval.cli.output import print_json

_SHOWN = 20  # lines that are no case


@click.command(
    "conformance",
    cls=Command,
    examples=("batchval conformance fixtures/golden", "batchval conformance --json cases.jsonl.gz"),
)
@paths_argument
@kafka_version_option("Kafka that answered the cases that name no kafka_version.")
@json_option
def command(paths: tuple[Path, ...], kafka_version: str, as_json: bool) -> int:
    """Holds batchval against Apache Kafka's own answers: .jsonl and .jsonl.gz files of cases, or folders of them.

    Prints each disagreement; the last line is ``conformance: N of M agree`` (with --json on stderr, behind the summary
    on stdout). Exit code 0 only if all agree; 3 if there was no case, or a line that is none.
    """
    from batchval.cli.cases import NotACase, compare, read_cases
    from batchval.report.words import printable

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
            print_json({"type": "summary", "agree": agree, "total": total, "unreadable": unreadable})
        click.echo(f"conformance: {agree} of {total} agree", err=as_json)
    return UNREADABLE if unreadable or not total else 0 if agree == total else FINDINGS
