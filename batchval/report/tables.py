"""Tables for a terminal, or for a file when the output is none."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["findings_table", "human_bytes", "render"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024


def human_bytes(count: float) -> str:
    """``12.3 MiB``; powers of 1024."""
    for unit in _UNITS:
        if count < _STEP or unit == _UNITS[-1]:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= _STEP
    return ""


def render(table: Table) -> str:
    """As text: in colour and as wide as the window on a terminal, plain and wide elsewhere."""
    on_terminal = sys.stdout.isatty()
    out = StringIO()
    width = shutil.get_terminal_size((160, 24)).columns if on_terminal else 240
    Console(file=out, force_terminal=on_terminal, width=width, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def findings_table(findings: Iterable[Any]) -> str:
    """File, position, offset, rule and reason of each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("file", overflow="fold")
    table.add_column("position", justify="right", no_wrap=True)
    table.add_column("offset", justify="right", no_wrap=True)
    table.add_column("rule", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for finding in findings:
        name = str(finding.rule) + (" (report)" if finding.reported else "")
        table.add_row(
            str(finding.file),
            f"{finding.position}",
            "" if finding.offset is None else f"{finding.offset}",
            name,
            finding.reason,
            style="yellow" if finding.reported else None,
        )
    return render(table)
