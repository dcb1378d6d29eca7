"""Running the command line: in this process where that is enough, else in one of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "batchval"]


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Return a function: ``run("check", path)`` returns exit code, stdout and stderr. Fails on a
    stack trace.
    """
    from batchval.cli import main

    def call(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["batchval", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert isinstance(end.value.code, int)
        return Ran(end.value.code, out, err)

    return call


@pytest.fixture
def run_apart() -> Callable[..., Ran]:
    """Return the same function for a separate process."""

    def call(*words: object, **more: object) -> Ran:
        options = {"capture_output": True, "text": True, "timeout": 60, "cwd": ROOT} | more
        done = subprocess.run([*COMMAND, *map(str, words)], check=False, **options)  # type: ignore[call-overload]
        assert "Traceback" not in (done.stderr or "")
        return Ran(done.returncode, done.stdout, done.stderr)

    return call
