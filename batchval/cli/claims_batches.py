"""Batches of a file for ``batchval claims``: read, described, and written with or without
claims.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click

from batchval.core import claims as core_claims
from batchval.core.layout import MAGIC
from batchval.errors import BatchvalError
from batchval.segment.reader import Damage, SegmentFile

__all__ = ["Batch", "batches", "named", "rewrite", "true_claims", "weaker"]


class Batch(NamedTuple):
    position: int
    data: memoryview

    @property
    def magic(self) -> int:
        return self.data[MAGIC]


class _Unreadable(OSError):
    """Bytes that are not a batch. What follows them is unknown, so nothing is written."""


def batches(file: Path) -> Iterator[Batch]:
    with SegmentFile(file, accept_claims_header=True) as source:
        for part in source.stretches():
            if isinstance(part, Damage):
                raise _Unreadable(0, f"no batch at position {part.position}", str(file))
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
    }


def true_claims(data: memoryview) -> core_claims.BatchClaims | None:
    """Return the claims that are true of a batch, None if there are none or the magic is 0 or 1."""
    return core_claims.compute(data) if data[MAGIC] >= 2 else None


def weaker(carried: core_claims.BatchClaims, true: core_claims.BatchClaims | None) -> bool:
    """Return whether claims differ from the true ones only in null_keys 0, which claims less."""
    return true is not None and carried == true._replace(null_keys=0) and true.null_keys != 1


def rewrite(file: Path, out: Path, one: Callable[[Batch], bytes | memoryview]) -> tuple[int, int]:
    """Write each batch as ``one`` returns it. Return how many were changed, and how many not.

    A file appears whole or not at all. Raises UsageError for a terminal, OSError.
    """
    if str(out) == "-":
        if sys.stdout.isatty():
            raise click.UsageError("standard output is a terminal, and batches are binary: name a file with --out")
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


def _copy(file: Path, target: BinaryIO, one: Callable[[Batch], bytes | memoryview]) -> tuple[int, int]:
    changed = kept = 0
    for batch in batches(file):
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
