"""Run benches in processes of their own, and let them save elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import pages

ROOT = Path(__file__).resolve().parents[2]


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
        | {"PYTHONPATH": str(ROOT)}
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
    monkeypatch.setattr(pages, "REPORTS", tmp_path / "reports")
    shutil.copytree(pages.ROOT / "docs" / "reports", tmp_path / "reports")
    return results, docs
