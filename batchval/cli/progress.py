"""A progress bar in bytes, for commands that read files, or in cases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


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
