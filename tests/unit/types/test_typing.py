"""Run a type checker as a user does: it accepts right uses and reports each wrong one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import ROOT

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parent / "typing"
_COMPLAINT = re.compile(r"^.*?:(\d+): error: .*\[([\w-]+)\]$")


def complaints(path: Path, tmp_path: Path) -> set[tuple[int, str]]:
    """Return (line, code) of everything that mypy --strict reports for a file."""
    config = tmp_path / "mypy.ini"
    config.write_text(
        "[mypy]\nstrict = true\n[mypy-pyarrow,lz4.*]\nignore_missing_imports = true\n"
    )
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


USER_SCRIPT = """
from batchval import LogValidator, ValidationResult, scan_batches

result: ValidationResult = LogValidator().check(b"", now_ms=1)
reveal_type(result.ok)
reveal_type(len(scan_batches(b"")))
LogValidator().check("text", now_ms=1)
"""


def test_a_user_script_in_another_folder(tmp_path: Path) -> None:
    """Check types with an editable install, whose package is a folder on the path."""
    script = tmp_path / "script.py"
    script.write_text(USER_SCRIPT)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    ran = subprocess.run(
        [*command, script.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    lines = ran.stdout.splitlines()
    assert lines[:2] == [
        'script.py:5: note: Revealed type is "bool"',
        'script.py:6: note: Revealed type is "int"',
    ], ran.stdout + ran.stderr
    assert lines[2].startswith(
        'script.py:7: error: Argument 1 to "check" of "LogValidator" has incompatible type "str"'
    )
    assert len(lines) == 3


def test_a_user_script_by_pyright(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(USER_SCRIPT)
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        "script.py",
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [
        (one["range"]["start"]["line"] + 1, one["severity"], one["message"].partition("\n")[0])
        for one in json.loads(ran.stdout)["generalDiagnostics"]
    ]
    assert found[:2] == [
        (5, "information", 'Type of "result.ok" is "bool"'),
        (6, "information", 'Type of "len(scan_batches(b""))" is "int"'),
    ]
    (line, severity, message) = found[2]
    assert (line, severity) == (7, "error")
    assert message.startswith("Argument of type \"Literal['text']\" cannot be assigned")
    assert len(found) == 3
