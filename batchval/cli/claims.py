"""``batchval claims``: shows, attaches, removes and verifies the claims of batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from batchval.cli.commands import Command, Group
from batchval.cli.exit import FINDINGS
from batchval.cli.options import FILE, json_option, kafka_version_option
from batchval.cli.output import note_empty_files, print_json

if TYPE_CHECKING:
    from batchval.cli.claims_batches import Batch
    from batchval.kafka_versions import KafkaVersionName


@click.group(
    "claims",
    cls=Group,
    examples=(
        "batchval claims attach batches.bin --out claimed.bin",
        "batchval claims verify claimed.bin",
    ),
)
def command() -> None:
    """Show, attach, remove and verify claims: facts about a batch that spare a broker the
    decompression (KAFKA-8364).

    A batch carries them in its payload (zstd and gzip), which brokers and clients pass over, or in
    a header of magic 3, which stock brokers refuse. FILE holds batches back to back.
    """


_file = click.argument("file", type=FILE)
_out = click.option(
    "--out",
    type=click.Path(path_type=Path, readable=False, allow_dash=True),
    default="-",
    help="Output file of the batches. Default: standard output.",
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
    """Show the claims that each batch carries, or those that would be true.

    Exit code 1 if a batch carries others than those that are true.
    """
    from batchval.cli.claims_batches import batches, named, shown
    from batchval.core.layout import MAGIC

    differ = False
    if not as_json:
        click.echo(
            "position  base_offset  magic  carrier  batch.min.timestamp  records.number  "
            "all.key.is.null  uncompressed.bytes  max.record.bytes  honest"
        )
    for position, data in batches(file):
        found = shown(data)
        differ = differ or found.honest is False
        if as_json:
            row: dict[str, object] = {"type": "batch", "file": str(file), "position": position}
            row |= {
                "base_offset": found.base_offset,
                "magic": data[MAGIC],
                "carrier": found.carrier,
            }
            carried, true = named(found.carried), named(found.true)
            print_json(
                {**row, "carried": carried, "true": true, "honest": found.honest is not False}
            )
            continue
        claims = found.carried or found.true
        fields = (
            ["-"] * 5
            if claims is None
            else ["-" if value is None else str(value) for value in claims[:5]]
        )
        click.echo(
            f"{position:>8}  {found.base_offset:>11}  {data[MAGIC]:>5}  "
            f"{found.carrier or 'none':<7}  "
            f"{fields[0]:>19}  {fields[1]:>14}  {fields[2]:>15}  {fields[3]:>18}  {fields[4]:>16}  "
            f"{found.words}"
        )
    note_empty_files("claims show", [file])
    return FINDINGS if differ else 0


@command.command(
    "attach",
    cls=Command,
    short_help="Attach true claims to batches.",
    examples=(
        "batchval claims attach batches.bin --out claimed.bin",
        "batchval claims attach --carrier payload batches.bin --out claimed.bin",
    ),
)
@_file
@_out
@click.option(
    "--carrier",
    type=click.Choice(["header", "payload"]),
    default="header",
    show_default=True,
    help="Place of the claims: a header of magic 3, or the payload of zstd and gzip batches.",
)
@click.option(
    "--max-message-bytes",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help=(
        "Largest batch with claims: a batch that would become larger stays unchanged. "
        "Default: no limit."
    ),
)
@json_option
def attach(
    file: Path,
    out: Path,
    carrier: Literal["header", "payload"],
    max_message_bytes: int | None,
    as_json: bool,
) -> int:
    """Write the batches with the claims that are true of them.

    A batch stays as it is if no claim would be true of it (magic 0 and 1, damaged, a wrong max
    timestamp, ...), or if it cannot carry claims there. --json needs --out.
    """
    from batchval.cli.claims_batches import attached

    def one(batch: Batch) -> bytes | memoryview:
        return attached(batch, carrier, max_message_bytes)

    return _write(file, out, as_json, one, ("with claims", "left as they are"))


@command.command(
    "strip",
    cls=Command,
    short_help="Remove the claims from batches.",
    examples=(
        "batchval claims strip claimed.bin --out batches.bin",
        "batchval claims strip claimed.bin | wc -c",
    ),
)
@_file
@_out
@json_option
def strip(file: Path, out: Path, as_json: bool) -> int:
    """Write the batches without the claims in their headers and payloads, as batches of magic 2.

    --json needs --out.
    """
    from batchval.core import claims as core_claims

    def one(batch: Batch) -> bytes | memoryview:
        carried = core_claims.carrier_of(batch.data)
        return batch.data if carried is None else core_claims.strip(batch.data)

    return _write(file, out, as_json, one, ("stripped", "had no claims"))


@command.command(
    "verify",
    cls=Command,
    short_help="Compare the claims of every batch with its records.",
    examples=("batchval claims verify claimed.bin", "batchval claims verify --json claimed.bin"),
)
@_file
@kafka_version_option("Version of the brokers, whose answers apply.")
@json_option
def verify(file: Path, kafka_version: KafkaVersionName, as_json: bool) -> int:
    """Compare the claims of every batch with its records. Exit code 1 if a claim is false, or a
    batch is refused.
    """
    from batchval.cli.claims_batches import batches, named, refuted, true_claims
    from batchval.core import claims as core_claims
    from batchval.core.validator import LogValidator
    from batchval.policy import TopicPolicy
    from batchval.report.units import plural

    policy = TopicPolicy(accept_claims_header=True)
    validator = LogValidator(policy, profile="log", kafka_version=kafka_version)
    honest = bad = without = 0
    for position, data in batches(file):
        if core_claims.carrier_of(data) is None:
            without += 1
            continue
        refusal = refuted(validator.rejudge_at_rest(data, 0))
        if refusal is None:
            honest += 1
            continue
        bad += 1
        rule, reason = refusal
        if as_json:
            row = {"type": "finding", "file": str(file), "position": position}
            row |= {"rule": rule.id, "slug": rule.slug, "reason": reason}
            carried = named(core_claims.read(data))
            print_json({**row, "carried": carried, "true": named(true_claims(data))})
        else:
            click.echo(f"{file}  {position}  {rule}  {reason}")
    words = [f"{honest:,} honest"] + ([f"{bad:,} not"] if bad else [])
    words += [f"{plural(without, 'batch')} without claims"] if without else []
    if as_json:
        print_json(
            {
                "type": "summary",
                "file": str(file),
                "honest": honest,
                "false": bad,
                "without": without,
            }
        )
    else:
        click.echo(", ".join(words), err=True)
    note_empty_files("claims verify", [file])
    return FINDINGS if bad else 0


def _write(
    file: Path,
    out: Path,
    as_json: bool,
    one: Callable[[Batch], bytes | memoryview],
    words: tuple[str, str],
) -> int:
    """Write every batch as ``one`` returns it, and report how many were changed and kept."""
    from batchval.cli.claims_batches import rewrite
    from batchval.report.units import plural

    if as_json and str(out) == "-":
        raise click.UsageError(
            "--json needs --out FILE: without it standard output carries the batches"
        )
    changed, kept = rewrite(file, out, one)
    if as_json:
        print_json(
            {
                "type": "summary",
                "file": str(file),
                "out": str(out),
                "changed": changed,
                "kept": kept,
            }
        )
        return 0
    line = f"{plural(changed, 'batch')} {words[0]}" + (
        f", {plural(kept, 'batch')} {words[1]}" if kept else ""
    )
    click.echo(line, err=True)
    return 0
