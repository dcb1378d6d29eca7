"""tools/coverage.py: its exit codes, and that numbers which are none are never taken for 100 %."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tools import coverage as tool


def measured(lines: int, missing: list[int]) -> dict[str, Any]:
    ran = [n for n in range(lines) if n not in missing]
    summary = {"num_statements": lines, "missing_lines": len(missing), "covered_lines": len(ran)}
    return {"summary": summary, "executed_lines": ran, "missing_lines": missing}


@pytest.mark.parametrize(
    "files", [{}, {"a.pyx": measured(0, [])}, {"a.pyx": measured(9, list(range(9)))}]
)
def test_a_module_of_which_nothing_was_measured(files: dict[str, Any]) -> None:
    with pytest.raises(tool.NothingMeasured, match=r"a\.pyx"):
        tool.total(files, ["a.pyx"])


@pytest.mark.parametrize(
    ("passed", "floor", "code"), [(True, 90.0, 0), (True, 90.1, 1), (False, 0.0, 1)]
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    passed: bool,
    floor: float,
    code: int,
) -> None:
    (tmp_path / "batchval" / "core").mkdir(parents=True)
    (tmp_path / "batchval" / "core" / "a.pyx").touch()
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    files = {"batchval/core/a.pyx": measured(10, [7])}
    monkeypatch.setattr(tool, "measure", lambda tree, tests, missing: (files, passed))
    monkeypatch.setattr(sys, "argv", ["coverage.py", "--floor", str(floor)])
    assert tool.main() == code
    monkeypatch.setattr(tool, "measure", lambda tree, tests, missing: ({}, True))
    assert tool.main() == 4
