"""A progress bar in bytes, for commands that read files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


@contextmanager
def progress(name: str, as_json: bool, total: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """Return a progress bar on stderr where stderr is a terminal and standard output has no JSON
    lines; else one that prints nothing.
    """
    if not sys.stderr.isatty() or (as_json and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total())
        yield lambda n: bar.advance(task, n)
