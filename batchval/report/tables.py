"""Tables for a terminal, or for a file when the output is none."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from batchval.report.words import printable

__all__ = ["findings_table", "plain_table", "render"]

_UNFOLDED = 100_000  # columns: a file has no width, and lines that are not folded can be searched
_NARROW = 120  # below this a rule's slug gives way to the reason


def _terminal_width() -> int | None:
    """None where the output is no terminal."""
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else None


def render(table: Table) -> str:
    """As text: in colour and as wide as the window on a terminal, plain and unfolded elsewhere."""
    width = _terminal_width()
    out = StringIO()
    # legacy: rich would leave the window's last column free on some terminals; markup in file names is no markup
    Console(file=out, force_terminal=width is not None, width=width or _UNFOLDED, highlight=False, markup=False).print(
        table
    )
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def plain_table(*, header: bool = True) -> Table:
    """Columns with two blanks between them and no lines."""
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=header)


def findings_table(findings: Iterable[Any]) -> str:
    """File, position, offset, rule and reason of each; in a narrow window the file stands on a line of its own."""
    width = _terminal_width()
    narrow = width is not None and width < _NARROW
    table = plain_table()
    if not narrow:
        table.add_column("file", overflow="fold")
    least = (10, 8, 5) if narrow else (8, 6, 4)  # the tables of several files stand below each other
    table.add_column("position", justify="right", no_wrap=True, min_width=least[0])
    table.add_column("offset", justify="right", no_wrap=True, min_width=least[1])
    table.add_column("rule", no_wrap=True, min_width=least[2])
    table.add_column("reason", overflow="fold")
    parts: list[str] = []
    last = None
    for finding in findings:
        rule = finding.rule.id if narrow else str(finding.rule)
        row = [
            f"{finding.position}",
            "" if finding.offset is None else f"{finding.offset}",
            rule + (" (report)" if finding.reported else ""),
            printable(finding.reason),
        ]
        if narrow and finding.file != last:
            if last is not None:
                parts.append(render(table))
                table = _like(table)
            parts.append(printable(finding.file) + "\n")
            last = finding.file
        if not narrow:
            row.insert(0, printable(finding.file))
        table.add_row(*map(Text, row), style="yellow" if finding.reported else None)
    return "".join([*parts, render(table)])


def _like(table: Table) -> Table:
    """An empty table of the same columns, without their heads."""
    copy = plain_table(header=False)
    for column in table.columns:
        copy.add_column(
            justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow, min_width=column.min_width
        )
    return copy
