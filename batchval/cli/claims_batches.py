"""Batches of a file for ``batchval claims``: read, described, and written with or without
claims.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import click

from batchval.core import claims as core_claims
from batchval.core.batch import RecordBatch
from batchval.core.layout import MAGIC
from batchval.core.result import ValidationResult
from batchval.errors import BatchvalError
from batchval.named_files import naming, open_to_write
from batchval.rules import Rule
from batchval.segment.findings import damage_reason
from batchval.segment.foreign import START_SIZE, foreign_reason
from batchval.segment.reader import Damage, SegmentFile

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


class Batch(NamedTuple):
    position: int
    data: memoryview

    @property
    def magic(self) -> int:
        return self.data[MAGIC]


class _Unreadable(OSError):
    """Bytes that are not a batch. The bytes after them are unknown, so nothing is written."""


def batches(file: Path) -> Iterator[Batch]:
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
