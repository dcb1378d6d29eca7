"""``batchval dump``: the header fields of every batch, and records when asked for."""

from __future__ import annotations

from pathlib import Path

import click

from batchval.cli.commands import Command
from batchval.cli.options import accept_claims_option, json_option, paths_argument

_LONG = 2**63 - 1


@click.command(
    "dump",
    cls=Command,
    examples=(
        "batchval dump 00000000000000000000.log",
        "batchval dump --records --offset 117 --limit 1 /var/lib/kafka/data/orders-0",
        "batchval dump --bad --json /var/lib/kafka/data/orders-0",
        "cat 00000000000000000000.log | batchval dump -",
    ),
)
@paths_argument
@click.option("--records", "with_records", is_flag=True, help="Also the records of every batch.")
@click.option(
    "--offset",
    type=click.IntRange(0, _LONG),
    metavar="N",
    help="First offset to show, in every file.",
)
@click.option(
    "--limit", type=click.IntRange(1, _LONG), metavar="N", help="Largest number of batches to show."
)
@click.option(
    "--bad", "only_bad", is_flag=True, help="Only the batches that check refuses, and damage."
)
@accept_claims_option
@json_option
def command(
    paths: tuple[Path, ...],
    with_records: bool,
    offset: int | None,
    limit: int | None,
    only_bad: bool,
    accept_claims_header: bool,
    as_json: bool,
) -> int:
    """Show every batch of PATH…: segments (.log), folders of segments, files of batches in a row.

    PATH may be - for standard input. All header fields have Kafka's names; on a terminal a shorter
    form is shown. Exit code 1 if bytes are damaged, a checksum is wrong, --bad shows a batch, or
    records that were asked for cannot be read; 3 if a file cannot be read.
    """
    from batchval.cli.dump_rows import Selection
    from batchval.cli.dumping import Dump

    dump = Dump(
        Selection(offset, only_bad),
        limit=limit,
        with_records=with_records,
        accept_claims_header=accept_claims_header,
        as_json=as_json,
    )
    return dump.run(paths)
