"""Run ``batchval dump``: the rows of all files as text or JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from batchval.cli.dump_rows import Selection, rows
from batchval.cli.dump_text import HEADER, compact_lines, plain_lines
from batchval.cli.exit import FINDINGS, UNREADABLE
from batchval.cli.output import note_empty_files, print_json
from batchval.cli.standard_input import DASH, spooled
from batchval.report.units import printable
from batchval.segment.check import find_files, is_segment

__all__ = ["Dump"]


class Dump:
    """One run: prints rows, counts them, and knows the exit code."""

    def __init__(
        self,
        selection: Selection,
        *,
        limit: int | None,
        with_records: bool,
        accept_claims_header: bool,
        as_json: bool,
    ) -> None:
        self._selection = selection
        self._limit = limit
        self._with_records = with_records
        self._accept_claims_header = accept_claims_header
        self._as_json = as_json
        self._compact = not as_json and sys.stdout.isatty()
        self._printed = 0
        self._failed = self._unreadable = False

    def run(self, paths: tuple[Path, ...]) -> int:
        """Print the rows of all files and return the exit code."""
        with spooled(paths) as (files, copy):
            chosen = list(self._readable(files))
            for file in chosen:
                name = DASH if file == copy else file
                self._file(file, name, len(chosen) > 1)
                if self._is_full:
                    break
        if not self._printed and chosen and self._selection.offset is not None and not self._failed:
            _say(f"no batch has offset {self._selection.offset} or a higher one")
        note_empty_files("dump", paths)
        return UNREADABLE if self._unreadable else FINDINGS if self._failed else 0

    @property
    def _is_full(self) -> bool:
        return self._limit is not None and self._printed >= self._limit

    def _readable(self, paths: list[Path]) -> Iterator[Path]:
        """Yield the files to read: not those that end before the offset, by the next one's name."""
        wanted = self._selection.offset
        found = list(find_files(paths))
        for (file, error), (following, _) in zip(found, [*found[1:], (Path(), None)], strict=True):
            if error is not None:
                self._complain(file, error)
                continue
            neighbours = (
                is_segment(file) and is_segment(following) and file.parent == following.parent
            )
            if wanted is None or not neighbours or int(following.stem) > wanted:
                yield file

    def _file(self, file: Path, name: Path, several: bool) -> None:
        heading = True
        for row in self._rows(file, name):
            self._printed += 1
            self._failed = self._failed or not row.get("is_valid", False) or "records_error" in row
            self._failed = self._failed or row.get("rule") is not None
            if self._as_json:
                kind = "damage" if "damage" in row else "batch"
                print_json({"type": kind, "file": str(name), **row})
            else:
                for line in self._lines(row, name, several, heading):
                    click.echo(line)
            heading = False
            if self._is_full:
                return

    def _rows(self, file: Path, name: Path) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file up to the first byte that cannot be read."""
        try:
            yield from rows(file, self._with_records, self._accept_claims_header, self._selection)
        except OSError as error:
            self._complain(name, error)

    def _lines(
        self, row: dict[str, Any], name: Path, several: bool, heading: bool
    ) -> Iterator[str]:
        if not self._compact:
            yield from plain_lines({"file": str(name), **row} if several else row)
            return
        if heading:
            if several:
                yield printable(name)
            yield HEADER
        yield from compact_lines(row, shutil.get_terminal_size((80, 24)).columns)

    def _complain(self, file: Path, error: OSError) -> None:
        self._unreadable = True
        _say(f"{error.filename or file}: {error.strerror or error}")


def _say(line: str) -> None:
    sys.stdout.flush()
    click.echo(f"batchval dump: {printable(line)}", err=True)
