"""Releases of clients that cannot be installed next to the ones that the tests import."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"


def installed(folder: Path, *names: str) -> Path:
    """Install the pinned releases of requirements/NAME.txt into ``folder``, which is returned.

    Without names: those of old-clients.txt.
    """
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    command += ["--no-deps", "--require-hashes", "--target", str(folder)]
    for name in names or ("old-clients",):
        command += ["--requirement", str(REQUIREMENTS / f"{name}.txt")]
    subprocess.run(command, check=True)
    return folder


def run_script(folder: Path, script: str, *arguments: str) -> str:
    """Run a script with the packages of ``folder``; return what it prints. Fails if it does."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *arguments]
    run = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
