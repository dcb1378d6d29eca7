"""Tables of an earlier audit (batchval.audit.outputs): summary/, errors/ and segments/ of its
folder, anywhere.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from batchval.audit.arrow_rows import TABLES_VERSION
from batchval.audit.outputs import ERRORS, place_of
from batchval.audit.totals import Facts, gather, is_finding, is_note, is_unreadable, rules_of
from batchval.errors import BatchvalError
from batchval.segment.store import one_line, shown

__all__ = ["OutputError", "facts_of", "read"]

#: more findings than these are not put in order: the first that are found stand for all
_SORTED = 200_000
_PLACE = ("topic", "partition", "segment", "position")


class OutputError(BatchvalError):
    """A folder does not hold the tables of an audit."""


def _dataset(out: str, name: str) -> Any:
    try:
        place, path = place_of(out)
        found = ds.dataset(f"{path}/{name}", filesystem=place, format="parquet")
    except (FileNotFoundError, NotADirectoryError):
        why = "expected a folder that --out of an audit wrote"
        raise OutputError(f"{shown(out)}: no {name}/ of an audit: {why}") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise OutputError(f"{shown(out)}: no {name}/ of an audit: {one_line(error)}") from None
    version = (found.schema.metadata or {}).get(b"schema_version", b"1").decode()
    if version != str(TABLES_VERSION):
        why = f"has schema_version {version}, but this release reads {TABLES_VERSION}"
        raise OutputError(f"{shown(out)}: {name}/ {why}: audit the logs again")
    return found.replace_schema(ERRORS) if name == "errors" else found


def read(out: str, name: str, columns: list[str] | None = None) -> pa.Table:
    """Return a whole table. Raises OutputError."""
    dataset = _dataset(out, name)
    try:
        return dataset.to_table(columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"{shown(out)}: {name}/ cannot be read: {one_line(error)}") from None


def facts_of(out: str, findings: int = 200) -> Facts:
    """Return all that the outputs in this folder say; with the first findings. OutputError."""
    errors = _dataset(out, "errors")
    try:
        columns = ["topic", "partition", "rule", "max_timestamp"]
        rules = rules_of(errors.to_table(columns=columns, filter=is_finding()))
        found, notes = (_first(errors, one(), findings) for one in (is_finding, is_note))
        unreadable = errors.to_table(filter=is_unreadable())
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"{shown(out)}: errors/ cannot be read: {one_line(error)}") from None
    return gather(read(out, "summary"), rules, found, notes, read(out, "segments"), unreadable)


def _first(errors: Any, which: Any, most: int) -> tuple[pa.Table, int]:
    """Return the first rows of a kind, and how many there are."""
    count = errors.count_rows(filter=which)
    first = errors.to_table(filter=which) if count <= _SORTED else errors.head(most, filter=which)
    if first.num_rows:
        first = first.sort_by([(name, "ascending") for name in _PLACE])
    return first.slice(0, most), count
