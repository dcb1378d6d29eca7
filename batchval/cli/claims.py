"""``batchval claims``: shows, attaches, strips and verifies the claims in headers of magic 3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchval.cli.commands import Command, Group
from batchval.cli.exit_codes import FINDINGS
from batchval.cli.options import json_option, kafka_version_option
from batchval.cli.output import print_json

if TYPE_CHECKING:
    from batchval.cli.claims_batches import Batch
    from batchval.kafka_versions import KafkaVersionName


@click.group(
    "claims",
    cls=Group,
    examples=("batchval claims attach batches.bin --out claimed.bin", "batchval claims verify claimed.bin"),
)
def command() -> None:
    """Claims are facts about a batch, carried in its header, that spare a broker the decompression (KAFKA-8364).

    FILE holds batches back to back. With claims in its header a batch has magic 3, which no stock broker takes.
    """


_file = click.argument("file", type=click.Path(path_type=Path))
_out = click.option(
    "--out",
    type=click.Path(path_type=Path, allow_dash=True),
    default="-",
    help="Where the batches go. Default: standard output.",
)


@command.command(
    "show",
    cls=Command,
    short_help="Show the claims of every batch.",
    examples=("batchval claims show claimed.bin", "batchval claims show --json claimed.bin"),
)
@_file
@json_option
def show(file: Path, as_json: bool) -> int:
    """Shows, for every batch, the claims it carries and those that would be true.

    Exit code 1 if a batch carries others than those that are true.
    """
    from batchval.cli.claims_batches import batches, named, true_claims, weaker
    from batchval.core import claims as core_claims
    from batchval.core.batch import RecordBatch

    differ = False
    if not as_json:
        click.echo("position  base_offset  magic  batch.min.timestamp  records.number  all.key.is.null  carried")
    for position, data in batches(file):
        batch = RecordBatch(data)
        carried, true = core_claims.read(data), true_claims(data)
        honest = carried is None or carried == true or weaker(carried, true)
        differ = differ or not honest
        if as_json:
            row = {"type": "batch", "file": str(file), "position": position}
            row |= {"base_offset": batch.base_offset, "magic": batch.magic}
            print_json({**row, "carried": named(carried), "true": named(true), "honest": honest})
            continue
        shown = carried if carried is not None else true
        fields = ("-", "-", "-") if shown is None else tuple(shown)
        word = ("no" if true is not None else "no, and none would be true") if carried is None else "yes"
        if not honest:
            word += ", a lie: " + ("none would be true" if true is None else f"true are {tuple(true)}")
        click.echo(
            f"{position:>8}  {batch.base_offset:>11}  {batch.magic:>5}  {fields[0]:>19}  {fields[1]:>14}  "
            f"{fields[2]:>15}  {word}"
        )
    return FINDINGS if differ else 0


@command.command(
    "attach",
    cls=Command,
    short_help="Write batches with the claims that are true of them.",
    examples=("batchval claims attach batches.bin --out claimed.bin",),
)
@_file
@_out
@json_option
def attach(file: Path, out: Path, as_json: bool) -> int:
    """Writes the batches with the claims that are true of them, as batches of magic 3.

    A batch about which no claim would be true (magic 0 and 1, damaged, a wrong max timestamp, ...) stays as it is.
    --json needs --out.
    """
    from batchval.cli.claims_batches import true_claims
    from batchval.core import claims as core_claims

    def one(batch: Batch) -> bytes | memoryview:
        true = true_claims(batch.data) if batch.magic == 2 else None
        return batch.data if true is None else core_claims.attach(batch.data, true)

    return _write(file, out, as_json, one, ("with claims", "left as they are"))


@command.command(
    "strip",
    cls=Command,
    short_help="Write batches without claims.",
    examples=("batchval claims strip claimed.bin --out batches.bin", "batchval claims strip claimed.bin | wc -c"),
)
@_file
@_out
@json_option
def strip(file: Path, out: Path, as_json: bool) -> int:
    """Writes the batches without claims: those of magic 3 as the batches of magic 2 that they
    carry.

    --json needs --out.
    """
    from batchval.core import claims as core_claims
    from batchval.core.layout import CLAIMS_MAGIC

    def one(batch: Batch) -> bytes | memoryview:
        return core_claims.strip(batch.data) if batch.magic == CLAIMS_MAGIC else batch.data

    return _write(file, out, as_json, one, ("stripped", "had no claims"))


@command.command(
    "verify",
    cls=Command,
    short_help="Compare the claims of every batch with its records.",
    examples=("batchval claims verify claimed.bin",),
)
@_file
@kafka_version_option("Version of the brokers: their answers.")
@json_option
def verify(file: Path, kafka_version: KafkaVersionName, as_json: bool) -> int:
    """Compares the claims of every batch with its records. Exit code 1 if one lies, or its batch is
    refused.
    """
    from batchval.cli.claims_batches import batches, named, true_claims
    from batchval.core import claims as core_claims
    from batchval.core.layout import CLAIMS_MAGIC, MAGIC
    from batchval.core.validator import LogValidator
    from batchval.policy import TopicPolicy
    from batchval.report.words import plural

    policy = TopicPolicy(accept_claims_header=True)
    validator = LogValidator(policy, profile="log", kafka_version=kafka_version)
    honest = bad = without = 0
    for position, data in batches(file):
        if data[MAGIC] != CLAIMS_MAGIC:
            without += 1
            continue
        result = validator.rejudge_at_rest(data, 0)
        if result.ok:
            honest += 1
            continue
        bad += 1
        assert result.rule is not None
        if as_json:
            row = {"type": "finding", "file": str(file), "position": position}
            row |= {"rule": result.rule.id, "slug": result.rule.slug, "reason": result.reason}
            carried = named(core_claims.read(data))
            print_json({**row, "carried": carried, "true": named(true_claims(data))})
        else:
            click.echo(f"{file}  {position}  {result.rule}  {result.reason}")
    words = [f"{honest:,} honest"] + ([f"{bad:,} not"] if bad else [])
    words += [f"{plural(without, 'batch')} without claims"] if without else []
    if as_json:
        print_json({"type": "summary", "file": str(file), "honest": honest, "false": bad, "without": without})
    else:
        click.echo(", ".join(words), err=True)
    return FINDINGS if bad else 0


def _write(
    file: Path, out: Path, as_json: bool, one: Callable[[Batch], bytes | memoryview], words: tuple[str, str]
) -> int:
    """Write every batch as ``one`` returns it, and report how many were changed and kept."""
    from batchval.cli.claims_batches import rewrite
    from batchval.report.words import plural

    if as_json and str(out) == "-":
        raise click.UsageError("--json needs --out FILE: without it standard output carries the batches")
    changed, kept = rewrite(file, out, one)
    if as_json:
        print_json({"type": "summary", "file": str(file), "out": str(out), "changed": changed, "kept": kept})
        return 0
    line = f"{plural(changed, 'batch')} {words[0]}" + (f", {plural(kept, 'batch')} {words[1]}" if kept else "")
    click.echo(line, err=True)
    return 0
