"""A bar of bytes, for commands that read files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


@contextmanager
def progress(name: str, as_json: bool, total: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where somebody watches it, and no JSON lines run through it; else nothing."""
    if not sys.stderr.isatty() or (as_json and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total())
        yield lambda n: bar.advance(task, n)
