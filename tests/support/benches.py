"""Run benches in processes of their own, and let them save elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
