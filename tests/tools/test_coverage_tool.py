"""tools/coverage.py: what it prints, and that numbers which are none are never taken for 100 %."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "coverage.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(lines: int, missing: list[int]) -> dict[str, Any]:
    ran = [n for n in range(lines) if n not in missing]
    summary = {"num_statements": lines, "missing_lines": len(missing), "covered_lines": len(ran)}
    return {"summary": summary, "executed_lines": ran, "missing_lines": missing}


def test_the_table(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "batchval/core/a.pyx": measured(30, [4, 5, 6]),
        "batchval/core/b.pyx": measured(10, []),
    }
    assert tool.table(files, list(files), missing=True) == 92.5
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["module", "lines", "missed", "covered"],
        ["a.pyx", "30", "3", "90.0%"],
        ["4,", "5,", "6"],
        ["b.pyx", "10", "0", "100.0%"],
        ["total", "40", "3", "92.5%"],
    ]


@pytest.mark.parametrize(
    "files", [{}, {"a.pyx": measured(0, [])}, {"a.pyx": measured(9, list(range(9)))}]
)
def test_a_module_of_which_nothing_was_measured(tool: ModuleType, files: dict[str, Any]) -> None:
    with pytest.raises(tool.NothingMeasured, match=r"a\.pyx"):
        tool.table(files, ["a.pyx"], missing=False)


@pytest.mark.parametrize(
    ("passed", "floor", "code"), [(True, 90.0, 0), (True, 90.1, 1), (False, 0.0, 1)]
)
def test_exit_codes(
    tool: ModuleType,
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
    monkeypatch.setattr(tool, "measure", lambda tree, tests: (files, passed))
    monkeypatch.setattr(sys, "argv", ["coverage.py", "--floor", str(floor)])
    assert tool.main() == code
    monkeypatch.setattr(tool, "measure", lambda tree, tests: ({}, True))
    assert tool.main() == 4


def test_the_report_has_a_share_of_each_module(tool: ModuleType) -> None:
    kept = tool.measurement(
        {"batchval/core/b.pyx": measured(1000, [7]), "batchval/core/a.pyx": measured(10, [])}
    )
    run = {"date": "2026-01-02", "machine": {"commit": "0123abcd", "python": "3.11.7"}}
    text = tool.reports.render(run | kept).splitlines()
    assert any(
        line.startswith("2026-01-02, commit `0123abcd`, Python 3.11.7, Cython ") for line in text
    )
    assert [line for line in text if line.startswith("|")][2:] == [
        "| a | 10 | 0 | 100.0 % |",
        "| b | 1,000 | 1 | 99.9 % |",
        "| **total** | 1,010 | 1 | 99.9 % |",
    ]


def test_a_copy_has_no_built_files(tool: ModuleType, tmp_path: Path) -> None:
    tool.copy_tree(tmp_path / "tree")
    core = tmp_path / "tree" / "batchval" / "core"
    assert sorted(p.name for p in core.glob("*.c")) == ["crc_kernels.c", "inflate.c"]
    assert not list(core.glob("*.so"))
    assert (core / "analyze.pyx").is_file()
