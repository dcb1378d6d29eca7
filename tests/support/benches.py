"""Modules of bench/, which are scripts: they import one another by bare name, and put folders on
sys.path for that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import pages

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"


@contextlib.contextmanager
def on_path(*folders: str) -> Iterator[None]:
    """Make these folders of bench/ importable; restore sys.path afterwards, also after a bench's
    changes.
    """
    before = sys.path[:]
    sys.path[:0] = [str(BENCH / folder) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = before


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the project's folder."""
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        # or pytest-benchmark would take it for one of pytest-xdist's workers, and measure nothing
        env={key: value for key, value in os.environ.items() if key != "PYTEST_XDIST_WORKER"}
        | environment,
        timeout=300,
    )


def folders_to_save_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Let benches save into a copy of bench/results; return it and the folder for the pages."""
    results, docs = tmp_path / "results", tmp_path / "benchmarks"
    shutil.copytree(pages.RESULTS, results)
    for name in ("concepts/kip.md", "guide/old-clients.md"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(pages.DOCS.parent / name, tmp_path / name)
    monkeypatch.setattr(pages, "RESULTS", results)
    monkeypatch.setattr(pages, "DOCS", docs)
    return results, docs
