"""``batchval claims``: shows, attaches, removes and verifies the claims of batches."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple

import click

from batchval.cli.commands import Command, Group
from batchval.cli.exit import FINDINGS
from batchval.cli.options import FILE, json_option, kafka_version_option
from batchval.cli.output import note_empty_files, print_json

if TYPE_CHECKING:
    from batchval.core import claims as core_claims
    from batchval.core.batches.result import ValidationResult
    from batchval.kafka_versions import Release
    from batchval.rules import Rule

__all__ = [
    "Batch",
    "Shown",
    "attached",
    "batches",
    "named",
    "refuted",
    "rewrite",
    "shown",
    "true_claims",
]


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
    from batchval.core.format.layout import MAGIC

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
@kafka_version_option("Release of the brokers, whose answers apply.")
@json_option
def verify(file: Path, kafka_version: Release, as_json: bool) -> int:
    """Compare the claims of every batch with its records. Exit code 1 if a claim is false, or a
    batch is refused.
    """
    from batchval.core import claims as core_claims
    from batchval.core.batches.validator import LogValidator
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
                "kafka_version": kafka_version.name,
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


class Batch(NamedTuple):
    position: int
    data: memoryview

    @property
    def magic(self) -> int:
        from batchval.core.format.layout import MAGIC

        return self.data[MAGIC]


class _Unreadable(OSError):
    """Bytes that are not a batch. The bytes after them are unknown, so nothing is written."""


def batches(file: Path) -> Iterator[Batch]:
    from batchval.segment.file_formats import START_SIZE, foreign_reason
    from batchval.segment.findings import damage_reason
    from batchval.segment.reader import Damage, SegmentFile

    with SegmentFile(file, accept_claims_header=True) as source:
        for part in source.stretches():
            if isinstance(part, Damage):
                what = damage_reason(part, source.size)[1]
                reason = f"no batch at position {part.position}: {what}"
                if part.position == 0 and part.size >= source.size:
                    reason = foreign_reason(file, bytes(source.read(0, START_SIZE))) or reason
                raise _Unreadable(0, reason, str(file))
            sizes = part.columns["size_in_bytes"].tolist()
            for start, size in zip(part.columns["position"].tolist(), sizes, strict=True):
                yield Batch(part.position + start, part.data[start : start + size])


def named(claims: core_claims.BatchClaims | None) -> dict[str, object] | None:
    """Return claims by the names of KAFKA-8364."""
    if claims is None:
        return None
    return {
        "batch.min.timestamp": claims.batch_min_timestamp,
        "records.number": claims.records_number,
        "all.key.is.null": claims.null_keys,
        "uncompressed.bytes": claims.uncompressed_bytes,
        "max.record.bytes": claims.max_record_bytes,
    }


def true_claims(data: memoryview, *, schema_ids: bool = False) -> core_claims.BatchClaims | None:
    """Return the claims that are true of a batch, None if there are none or the magic is 0 or 1."""
    from batchval.core import claims as core_claims
    from batchval.core.format.layout import MAGIC

    return core_claims.compute(data, schema_ids=schema_ids) if data[MAGIC] >= 2 else None


class Shown(NamedTuple):
    """What a batch carries, and what would be true of it.

    ``honest``  None for a batch without claims
    ``words``   the same for people
    """

    base_offset: int
    carrier: str | None
    carried: core_claims.BatchClaims | None
    true: core_claims.BatchClaims | None
    honest: bool | None
    words: str


def shown(data: memoryview) -> Shown:
    """Return the claims of a batch, compared with its records."""
    from batchval.core import claims as core_claims
    from batchval.core.batches.batch import RecordBatch

    carrier, carried = core_claims.carrier_of(data), core_claims.read(data)
    true = true_claims(data, schema_ids=carried is not None and carried.schema_ids is not None)
    honest: bool | None = None
    if carrier is None:
        words = "-" if true is not None else "no claim would be true"
    elif carried is None:
        honest, words = False, "no: the claims cannot be read"
    else:
        honest = core_claims.are_honest(carried, true)
        known = None if true is None else true[: 3 if carried.version == 1 else 5]
        words = (
            "yes"
            if honest
            else "no: no claim would be true"
            if known is None
            else f"no: true are {known}"
        )
    return Shown(RecordBatch(data).base_offset, carrier, carried, true, honest, words)


def attached(
    batch: Batch, carrier: Literal["header", "payload"], max_message_bytes: int | None
) -> bytes | memoryview:
    """Return a batch with its true claims, or as it is where it cannot carry any."""
    from batchval.core import claims as core_claims
    from batchval.errors import BatchvalError

    true = true_claims(batch.data) if batch.magic == 2 else None
    if true is None:
        return batch.data
    try:
        out = core_claims.attach(batch.data, true, carrier=carrier)
    except BatchvalError:
        if carrier == "payload":  # of a codec, or with a gzip header, that carries none
            return batch.data
        raise
    return batch.data if max_message_bytes is not None and len(out) > max_message_bytes else out


def refuted(result: ValidationResult) -> tuple[Rule, str] | None:
    """Return what is wrong with a batch of a log and its claims: a rule, and the reason."""
    from batchval.rules import Rule

    if result.rule is not None:
        return result.rule, result.reason
    if result.claims == "lying":
        return Rule.L7, "the claims in the payload are not what the records say"
    return (
        (Rule.L7, "the claims in the payload cannot be read")
        if result.claims == "unbound"
        else None
    )


def rewrite(file: Path, out: Path, one: Callable[[Batch], bytes | memoryview]) -> tuple[int, int]:
    """Write each batch as ``one`` returns it. Return how many were changed, and how many not.

    A file appears whole or not at all. Raises UsageError for a terminal, OSError.
    """
    import tempfile

    from batchval.named_files import naming, open_to_write

    if str(out) == "-":
        if sys.stdout.isatty():
            raise click.UsageError(
                "standard output is a terminal, and batches are binary: name a file with --out"
            )
        return _copy(file, sys.stdout.buffer, one)
    if out.exists() and not out.is_file():  # a pipe or a device is written, not replaced
        with naming(out), open_to_write(out) as target:
            return _copy(file, target, one)
    try:
        descriptor, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(out)) from None
    try:
        with naming(out), open(descriptor, "wb") as target:
            counts = _copy(file, target, one)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, out.stat().st_mode & 0o777 if out.exists() else 0o666 & ~umask)
        os.replace(name, out)
    except BaseException:
        os.unlink(name)
        raise
    return counts


def _copy(
    file: Path, target: BinaryIO, one: Callable[[Batch], bytes | memoryview]
) -> tuple[int, int]:
    from batchval.errors import BatchvalError

    changed = kept = 0
    for batch in batches(file):
        try:
            data = one(batch)
        except BatchvalError as error:
            raise _Unreadable(
                0, f"batch at position {batch.position}: {error}", str(file)
            ) from None
        if data is batch.data:
            kept += 1
        else:
            changed += 1
        target.write(data)
    target.flush()
    return changed, kept
