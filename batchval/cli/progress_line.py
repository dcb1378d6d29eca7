"""One progress line of a long run, on stderr of a terminal. It is removed at the end.

\\r ESC [K  text  written over and over; never wider than the terminal, or it could not be
                 taken back
"""

from __future__ import annotations

import os
import sys
import threading

import click

__all__ = ["ProgressLine", "how_far"]


class ProgressLine:
    """A line that ``show`` replaces. ``echo`` prints output above it. Prints nothing if stderr is
    not a terminal.
    """

    def __init__(self) -> None:
        self.watched = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._there = False

    def show(self, text: str) -> None:
        """Replace the line."""
        if self.watched:
            with self._lock:
                click.echo(f"\r\x1b[K{text[: _columns() - 1]}", nl=False, err=True)
                self._there = True

    def clear(self) -> None:
        """Remove the line until the next ``show``."""
        with self._lock:
            if self._there:
                click.echo("\r\x1b[K", nl=False, err=True)
                self._there = False

    def echo(self, line: str, *, err: bool = False) -> None:
        """Print a line of output, on stderr with ``err``; it may be the same terminal."""
        self.clear()
        click.echo(line, err=err)


def _columns() -> int:
    """Return the width of the terminal of stderr. shutil reads stdout, which may be a file."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def how_far(
    records: int, wanted: int | None, seconds: float, duration_s: float | None = None
) -> str:
    """Return a text with the number of records, their share of all (by number, or by time) and the
    rate.
    """
    shares = [100 * records / wanted] if wanted else []
    if duration_s:
        shares.append(100 * seconds / duration_s)
    share = f", {min(max(shares), 100):.0f} %" if shares else ""
    return f"{records:,} records{share}, {records / seconds if seconds > 0 else 0:,.0f} records/s"
