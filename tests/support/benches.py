"""Modules of bench/, which are scripts: they import one another by bare name, and put folders on sys.path for that."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"


@contextlib.contextmanager
def on_path(*folders: str) -> Iterator[None]:
    """These folders of bench/ can be imported from; afterwards sys.path is as it was, whatever a bench has added."""
    before = sys.path[:]
    sys.path[:0] = [str(BENCH / folder) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = before


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these words, in the project's folder."""
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        # or pytest-benchmark would take it for one of pytest-xdist's workers, and measure nothing
        env={key: value for key, value in os.environ.items() if key != "PYTEST_XDIST_WORKER"} | environment,
        timeout=300,
    )
