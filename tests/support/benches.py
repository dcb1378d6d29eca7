"""Modules of bench/, which are scripts: they import one another by bare name, and put folders on sys.path for that."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"


@contextlib.contextmanager
def on_path(*folders: str) -> Iterator[None]:
    """These folders of bench/ can be imported from; afterwards sys.path is as it was, whatever a bench has added."""
    before = sys.path[:]
    sys.path[:0] = [str(BENCH / folder) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = before
