"""Tables for a terminal, or for a file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from io import StringIO
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from batchval.report.units import plural, printable

__all__ = ["findings_table", "plain_table", "render"]

_UNFOLDED = 100_000  # columns: a file has no width, and lines that are not folded can be searched
_NARROW = 120  # below this a finding takes two lines: its rule, then its reason


def _terminal_width() -> int | None:
    """Return the width of the terminal; None where the output is not a terminal."""
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else None


def render(table: Table) -> str:
    """Return a table as text: in colour and as wide as the window on a terminal, plain and unfolded
    elsewhere.
    """
    width = _terminal_width()
    out = StringIO()
    # legacy: rich would leave the window's last column free on some terminals; markup in file names
    # must stay text
    Console(
        file=out,
        force_terminal=width is not None,
        width=width or _UNFOLDED,
        highlight=False,
        markup=False,
    ).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def plain_table(*, header: bool = True) -> Table:
    """Return columns with two blanks between them and no lines."""
    return Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=header
    )


def findings_table(findings: Iterable[Any]) -> str:
    """Return a table of file, position, offset, rule and reason.

    In a window of less than 120 columns the file is a line before its findings, and the reason
    follows the rule on the next line. Ends a line.
    """
    width = _terminal_width()
    return (
        _narrow_table(findings) if width is not None and width < _NARROW else _wide_table(findings)
    )


def _wide_table(findings: Iterable[Any]) -> str:
    table = plain_table()
    table.add_column("file", overflow="fold")
    table.add_column("position", justify="right", no_wrap=True, min_width=8)
    table.add_column("offset", justify="right", no_wrap=True, min_width=6)
    table.add_column("rule", no_wrap=True, min_width=4)
    table.add_column("reason", overflow="fold")
    for finding in findings:
        cells = (printable(finding.file), *_place(finding), _rule(finding), _reason(finding))
        table.add_row(*map(Text, cells), style=_style(finding))
    return render(table)


def _narrow_table(findings: Iterable[Any]) -> str:
    parts: list[str] = []
    for number, (file, group) in enumerate(groupby(findings, key=lambda finding: finding.file)):
        table = plain_table(header=not number)
        # the tables of several files have the same columns
        table.add_column("position", justify="right", no_wrap=True, min_width=10)
        table.add_column("offset", justify="right", no_wrap=True, min_width=8)
        table.add_column("rule and reason", overflow="fold")
        for finding in group:
            what = Text.assemble((_rule(finding), "bold"), "\n", _reason(finding))
            table.add_row(*map(Text, _place(finding)), what, style=_style(finding))
        parts += [printable(file) + "\n", render(table)]
    return "".join(parts)


def _place(finding: Any) -> tuple[str, str]:
    return f"{finding.position}", "" if finding.offset is None else f"{finding.offset}"


def _rule(finding: Any) -> str:
    if finding.reported:
        return f"{finding.rule} ({finding.level})"
    return f"{finding.rule} ({finding.state})" if finding.state != "new" else str(finding.rule)


def _reason(finding: Any) -> str:
    """Return the reason, and how much more has the same cause."""
    if not finding.follows:
        return printable(finding.reason)
    return (
        f"{printable(finding.reason)}; {plural(finding.follows, 'more place')} with the same cause"
    )


def _style(finding: Any) -> str | None:
    return "yellow" if finding.reported else None
