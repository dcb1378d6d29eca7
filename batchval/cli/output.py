"""Output of the command line. JSON: one document a line, each with the version of its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

import click

from batchval.report.units import printable

__all__ = ["SCHEMA_VERSION", "note_empty_files", "print_json", "with_version"]

#: Version of all JSON that --json prints; docs/reference/cli/json.md describes the fields.
SCHEMA_VERSION = 1


def with_version(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with ``schema_version`` before its fields."""
    return {"schema_version": SCHEMA_VERSION, **row}


def print_json(row: Mapping[str, Any], *, default: Callable[[Any], Any] | None = None) -> None:
    """Print a row as one line of JSON. ``default`` converts values that JSON does not have."""
    import json

    click.echo(json.dumps(with_version(row), default=default))


def note_empty_files(command: str, paths: Iterable[Path]) -> None:
    """Print a line on stderr for each path that is an empty file: it holds no batch to show."""
    for path in paths:
        with suppress(OSError):
            status = path.stat()
            if S_ISREG(status.st_mode) and status.st_size == 0:
                line = f"batchval {command}: {printable(str(path))}: the file is empty"
                click.echo(line, err=True)
