"""Output of the command line: JSON, a document a line, and progress on stderr of a terminal.

Each document has the version of its schema. Progress is a bar in bytes or in cases, or a line of a
long run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import click

from batchval.report.units import printable

if TYPE_CHECKING:
    from rich.live import Live

__all__ = [
    "SCHEMA_VERSION",
    "ProgressLine",
    "how_far",
    "note_empty_files",
    "print_json",
    "progress",
    "with_version",
]

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


@contextmanager
def progress(
    name: str, as_json: bool, total: Callable[[], int], *, in_bytes: bool = True
) -> Iterator[Callable[[int], None]]:
    """Return a progress bar on stderr where stderr is a terminal and standard output has no JSON
    lines; else one that prints nothing.
    """
    if not sys.stderr.isatty() or (as_json and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns: tuple[rich_progress.ProgressColumn, ...] = (
        rich_progress.DownloadColumn(binary_units=True),
        rich_progress.TransferSpeedColumn(),
    )
    if not in_bytes:
        columns = rich_progress.MofNCompleteColumn(), rich_progress.TimeRemainingColumn()
    bars = rich_progress.BarColumn(), *columns
    with rich_progress.Progress(*bars, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total())
        yield lambda n: bar.advance(task, n)


class ProgressLine:
    """A line that ``show`` replaces, cut to the width of the terminal. ``echo`` prints output above
    it. Prints nothing if stderr is not a terminal. Threads may share it.
    """

    def __init__(self) -> None:
        self.watched = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._live: Live | None = None

    def show(self, text: str) -> None:
        """Replace the line."""
        if not self.watched:
            return
        from rich.text import Text

        line = Text(text, no_wrap=True, overflow="crop")
        with self._lock:
            if self._live is None:
                self._live = _live()
            self._live.update(line, refresh=True)

    def clear(self) -> None:
        """Remove the line until the next ``show``."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def echo(self, line: str, *, err: bool = False) -> None:
        """Print a line of output, on stderr with ``err``; it may be the same terminal."""
        self.clear()
        click.echo(line, err=err)


def _live() -> Live:
    """Start a display on stderr, without a thread. Standard output stays as it is: it may be a
    file.
    """
    from rich.console import Console
    from rich.live import Live

    live = Live(
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    live.start()
    live.console.show_cursor()  # a run that is killed must not take it along
    return live


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
