"""Standard input as a file: ``-``, or the path of a pipe such as /dev/stdin.

A segment is read at any position and more than once, so a pipe is copied to a temporary file first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

__all__ = ["DASH", "spooled"]

DASH = Path("-")
_ALIASES = (DASH, Path("/dev/stdin"), Path("/dev/fd/0"), Path("/proc/self/fd/0"))


@contextmanager
def spooled(paths: tuple[Path, ...]) -> Iterator[tuple[list[Path], Path | None]]:
    """Yield the paths with standard input replaced by a temporary file, and that file or None.

    The file's name ends in .log: standard input is judged as a segment unless --as says otherwise.
    It is removed at the end. Raises UsageError for a terminal, OSError if the disk is full.
    """
    if not any(path in _ALIASES for path in paths):
        yield list(paths), None
        return
    if sys.stdin is None or sys.stdin.isatty():
        what = "closed" if sys.stdin is None else "a terminal"
        raise click.UsageError(
            f"standard input is {what}: expected a pipe or a file, as in `cat FILE | … -`"
        )
    import shutil
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="batchval-stdin-", suffix=".log") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy, 1 << 20)
        copy.flush()
        file = Path(copy.name)
        replaced = [file if path in _ALIASES else path for path in paths]
        yield list(dict.fromkeys(replaced)), file
