"""JSON of the command line: one document a line, each with the version of its schema."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

__all__ = ["SCHEMA_VERSION", "discard_output", "print_json", "with_version"]

#: Version of all JSON that --json prints; docs/reference/cli/json.md describes the fields.
SCHEMA_VERSION = 1


def with_version(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with ``schema_version`` before its fields."""
    return {"schema_version": SCHEMA_VERSION, **row}


def print_json(row: Mapping[str, Any], *, default: Callable[[Any], Any] | None = None) -> None:
    """Print a row as one line of JSON. ``default`` converts values that JSON does not have."""
    click.echo(json.dumps(with_version(row), default=default))


def discard_output() -> None:
    """Open the null device as standard output, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
