"""``batchval claims``: shows, attaches, strips and verifies the claims in headers of magic 3."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click

from batchval.cli.options import json_option, kafka_version_option
from batchval.core import claims as core_claims
from batchval.core.batch import RecordBatch
from batchval.core.layout import CLAIMS_MAGIC, MAGIC
from batchval.core.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.kafka_versions import KafkaVersionName
from batchval.policy import TopicPolicy
from batchval.report.words import plural
from batchval.segment.reader import Damage, SegmentFile


class _Batch(NamedTuple):
    position: int
    data: memoryview

    @property
    def magic(self) -> int:
        return self.data[MAGIC]


class _Unreadable(OSError):
    """Bytes that are no batch: what stands behind them is not known, so nothing is written."""


def _batches(file: Path) -> Iterator[_Batch]:
    with SegmentFile(file, accept_claims_header=True) as source:
        for part in source.stretches():
            if isinstance(part, Damage):
                raise _Unreadable(0, f"no batch at position {part.position}", str(file))
            sizes = part.columns["size_in_bytes"].tolist()
            for start, size in zip(part.columns["position"].tolist(), sizes, strict=True):
                yield _Batch(part.position + start, part.data[start : start + size])


def _named(claims: core_claims.BatchClaims | None) -> dict[str, object] | None:
    """By the names of the proposal."""
    if claims is None:
        return None
    return {
        "batch.min.timestamp": claims.batch_min_timestamp,
        "records.number": claims.records_number,
        "all.key.is.null": claims.null_keys,
    }


@click.group("claims", short_help="Show, attach, strip and verify claims about batches.")
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


@command.command("show")
@_file
@json_option
def show(file: Path, as_json: bool) -> int:
    """Shows, for every batch, the claims it carries and those that would be true.

    Exit code 1 if a batch carries others than those that are true.
    """
    differ = False
    if not as_json:
        click.echo("position  base_offset  magic  batch.min.timestamp  records.number  all.key.is.null  carried")
    for position, data in _batches(file):
        batch = RecordBatch(data)
        carried, true = core_claims.read(data), _true_claims(data)
        honest = carried is None or carried == true or _weaker(carried, true)
        differ = differ or not honest
        if as_json:
            row = {"file": str(file), "position": position, "base_offset": batch.base_offset, "magic": batch.magic}
            click.echo(json.dumps({**row, "carried": _named(carried), "true": _named(true), "honest": honest}))
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
    return 1 if differ else 0


def _true_claims(data: memoryview) -> core_claims.BatchClaims | None:
    """None for magic 0 and 1 too, which have no place for claims."""
    return core_claims.compute(data) if data[MAGIC] >= 2 else None


def _weaker(carried: core_claims.BatchClaims, true: core_claims.BatchClaims | None) -> bool:
    """0 may be said where 2 would be true: it says less."""
    return true is not None and carried == true._replace(null_keys=0) and true.null_keys != 1


@command.command("attach")
@_file
@_out
def attach(file: Path, out: Path) -> int:
    """Writes the batches with the claims that are true of them, as batches of magic 3.

    A batch about which no claim would be true (magic 0 and 1, damaged, a wrong max timestamp, ...) stays as it is.
    """

    def one(batch: _Batch) -> bytes | memoryview:
        true = _true_claims(batch.data) if batch.magic == 2 else None
        return batch.data if true is None else core_claims.attach(batch.data, true)

    changed, kept = _rewrite(file, out, one)
    _tell(f"{plural(changed, 'batch')} with claims" + (f", {plural(kept, 'batch')} left as they are" if kept else ""))
    return 0


@command.command("strip")
@_file
@_out
def strip(file: Path, out: Path) -> int:
    """Writes the batches without claims: those of magic 3 as the batches of magic 2 that they carry."""

    def one(batch: _Batch) -> bytes | memoryview:
        return core_claims.strip(batch.data) if batch.magic == CLAIMS_MAGIC else batch.data

    changed, kept = _rewrite(file, out, one)
    _tell(f"{plural(changed, 'batch')} stripped" + (f", {plural(kept, 'batch')} had no claims" if kept else ""))
    return 0


@command.command("verify")
@_file
@kafka_version_option("Version of the brokers: their answers.")
@json_option
def verify(file: Path, kafka_version: KafkaVersionName, as_json: bool) -> int:
    """Holds the claims of every batch against its records. Exit code 1 if one lies, or its batch is refused."""
    policy = TopicPolicy(accept_claims_header=True)
    validator = LogValidator(policy, profile="log", kafka_version=kafka_version)
    honest = bad = without = 0
    for position, data in _batches(file):
        if data[MAGIC] != CLAIMS_MAGIC:
            without += 1
            continue
        result = validator.rejudge_at_rest(data, 0)
        if result.ok:
            honest += 1
            continue
        bad += 1
        assert result.rule is not None
        carried = core_claims.read(data)
        if as_json:
            row = {"file": str(file), "position": position, "rule": result.rule.id, "reason": result.reason}
            click.echo(json.dumps({**row, "carried": _named(carried), "true": _named(_true_claims(data))}))
        else:
            click.echo(f"{file}  {position}  {result.rule}  {result.reason}")
    words = [f"{honest:,} honest"] + ([f"{bad:,} not"] if bad else [])
    words += [f"{plural(without, 'batch')} without claims"] if without else []
    _tell(", ".join(words))
    return 1 if bad else 0


def _tell(line: str) -> None:
    """Beside the output, not in it."""
    click.echo(line, err=True)


def _rewrite(file: Path, out: Path, one: Callable[[_Batch], bytes | memoryview]) -> tuple[int, int]:
    """How many batches were changed, and how many not. A file appears whole or not at all."""
    if str(out) == "-":
        if sys.stdout.isatty():
            raise click.UsageError("batches are no text for a terminal: name a file with --out")
        return _copy(file, sys.stdout.buffer, one)
    try:
        descriptor, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(out)) from None
    try:
        with open(descriptor, "wb") as target:
            counts = _copy(file, target, one)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, out.stat().st_mode & 0o777 if out.exists() else 0o666 & ~umask)
        os.replace(name, out)
    except BaseException:
        os.unlink(name)
        raise
    return counts


def _copy(file: Path, target: BinaryIO, one: Callable[[_Batch], bytes | memoryview]) -> tuple[int, int]:
    changed = kept = 0
    for batch in _batches(file):
        try:
            data = one(batch)
        except BatchvalError as error:
            raise _Unreadable(0, f"batch at position {batch.position}: {error}", str(file)) from None
        if data is batch.data:
            kept += 1
        else:
            changed += 1
        target.write(data)
    target.flush()
    return changed, kept
