"""What a user's type checker says: nothing of right use, and the right thing of every wrong one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.contract.sources import ROOT

FOLDER = Path(__file__).parent / "typing"
_COMPLAINT = re.compile(r"^.*?:(\d+): error: .*\[([\w-]+)\]$")


def complaints(path: Path, tmp_path: Path) -> set[tuple[int, str]]:
    """(line, code) of everything that mypy --strict finds in a file."""
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n[mypy-pyarrow,lz4.*]\nignore_missing_imports = true\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(config),
        "--no-pretty",
        "--hide-error-context",
        str(path),
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode in {0, 1}, ran.stdout + ran.stderr
    return {(int(m[1]), m[2]) for m in map(_COMPLAINT.match, ran.stdout.splitlines()) if m}


def test_right_use_is_right(tmp_path: Path) -> None:
    assert complaints(FOLDER / "right.py", tmp_path) == set()


def test_each_mistake_is_found(tmp_path: Path) -> None:
    lines = (FOLDER / "wrong.py").read_text("utf-8").splitlines()
    expected = {(n, line.split("# E: ")[1]) for n, line in enumerate(lines, 1) if "# E: " in line}
    assert len(expected) > 20
    assert complaints(FOLDER / "wrong.py", tmp_path) == expected
