"""``batchval conformance``: the command around batchval.cli.cases."""

from __future__ import annotations

import json
from pathlib import Path

import click

from batchval.cli.cases import compare, read_cases
from batchval.cli.options import json_option, paths_argument


@click.command("conformance")
@paths_argument
@json_option
def command(paths: tuple[Path, ...], as_json: bool) -> int:
    """Holds batchval against Apache Kafka's own answers: .jsonl and .jsonl.gz files of cases, or folders of them.

    Prints each disagreement; the last line is ``conformance: N of M agree``. Exit code 0 only if all agree.
    """
    total = agree = 0
    for case in read_cases(list(paths)):
        total += 1
        found = compare(case)
        agree += not found
        for disagreement in found:
            if as_json:
                click.echo(json.dumps({"type": "disagreement", **disagreement._asdict()}, default=str))
            else:
                click.echo(str(disagreement))
    if as_json:
        click.echo(json.dumps({"type": "summary", "agree": agree, "total": total}))
    click.echo(f"conformance: {agree} of {total} agree")
    return 0 if agree == total else 1
