"""Prometheus' promtool: from PATH, or taken out of the distribution's package ``prometheus``.

The package is unpacked into build/peers: nothing is installed, no service starts.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.support.fetching import fetching, locked
from tests.support.go import BUILT

__all__ = ["PromtoolMissing", "find_promtool"]


class PromtoolMissing(RuntimeError):
    """No promtool, and no package of it: a reason to skip, where a test may be skipped."""


def find_promtool() -> Path:
    """Return the path of promtool. Raises PromtoolMissing."""
    if found := shutil.which("promtool"):
        return Path(found)
    program = BUILT / "promtool"
    BUILT.mkdir(parents=True, exist_ok=True)
    with locked(BUILT / "promtool.lock"):  # several test processes may want it at once
        if not program.exists():
            _unpack(program)
    return program


def _unpack(program: Path) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PromtoolMissing("promtool is needed: not found on PATH, nor is apt-get")
    folder = program.with_suffix(".new")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        _run(["apt-get", "-qq", "download", "prometheus"], folder)
        (package,) = folder.glob("prometheus_*.deb")
        _run(["dpkg-deb", "--extract", package.name, "tree"], folder)
        (folder / "tree" / "usr" / "bin" / "promtool").replace(program)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], folder: Path) -> None:
    done = fetching(command, cwd=folder, environment=os.environ)
    if done.returncode:
        raise PromtoolMissing(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
