"""Reads what an audit has written (batchval.audit.outputs): summary/, errors/ and segments/ of its folder, anywhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from batchval.audit.facts import Facts, gather, is_finding, is_unreadable
from batchval.audit.outputs import ERRORS, place_of
from batchval.errors import BatchvalError
from batchval.segment.store import one_line, shown

__all__ = ["OutputError", "facts_of", "read"]

#: more findings than these are not put in order: the first that are found stand for all
_SORTED = 200_000
_PLACE = ("topic", "partition", "segment", "position")


class OutputError(BatchvalError):
    """A folder does not hold what an audit writes."""


def _dataset(out: str, name: str) -> Any:
    try:
        place, path = place_of(out)
        schema = ERRORS if name == "errors" else None
        return ds.dataset(f"{path}/{name}", schema, filesystem=place, format="parquet")
    except (OSError, pa.ArrowInvalid) as error:
        raise OutputError(f"{shown(out)}: no {name}/ of an audit: {one_line(error)}") from None


def read(out: str, name: str, columns: list[str] | None = None) -> pa.Table:
    """One of the tables, whole. OutputError."""
    dataset = _dataset(out, name)
    try:
        return dataset.to_table(columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"{shown(out)}: {name}/ cannot be read: {one_line(error)}") from None


def facts_of(out: str, findings: int = 200) -> Facts:
    """All that the outputs in this folder say; with the first findings. OutputError."""
    errors = _dataset(out, "errors")
    try:
        wrong = is_finding()
        count = errors.count_rows(filter=wrong)
        first = errors.to_table(filter=wrong) if count <= _SORTED else errors.head(findings, filter=wrong)
        unreadable = errors.to_table(filter=is_unreadable())
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"{shown(out)}: errors/ cannot be read: {one_line(error)}") from None
    if first.num_rows:
        first = first.sort_by([(name, "ascending") for name in _PLACE])
    return gather(read(out, "summary"), first.slice(0, findings), count, read(out, "segments"), unreadable)
