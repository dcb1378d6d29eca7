"""Tests that measure time or memory have the marker ``alone``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.sources import ROOT

#: names whose use in a test means that it measures
MEASURES = {
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    *("perf_counter", "perf_counter_ns", "getrusage", "peak_bytes", "cpu_seconds"),
}
#: seconds of wall time that limit a hang, and measure nothing
LEAST_HANG_S = 10
#: files in which such a name is something else
EXEMPT = {
    "tests/audit/test_report.py": {"cpu_seconds"},
    "tests/proxy/test_record_rules.py": {"thread_time"},
}


def unmarked(root: Path) -> Iterator[str]:
    """Yield each test that uses such a name without the marker, as ``file: test: name``."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        file = str(path.relative_to(root))
        tree = ast.parse(path.read_text("utf-8"))
        if any(_is_alone(node) for node in tree.body if isinstance(node, ast.Assign)):
            continue
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not node.name.startswith("test_") or any(map(_is_alone, node.decorator_list)):
                continue
            used = {found.attr for found in ast.walk(node) if isinstance(found, ast.Attribute)}
            used |= {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}
            if any(map(_bounds_time, ast.walk(node))):
                yield f"{file}: {node.name}: monotonic"
            for name in sorted(used & MEASURES - EXEMPT.get(file, set())):
                yield f"{file}: {node.name}: {name}"


def _bounds_time(node: ast.AST) -> bool:
    """Return whether time has to pass in less than LEAST_HANG_S: ``monotonic() - began < 1``."""
    if not (isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp)):
        return False
    is_elapsed = isinstance(node.left.op, ast.Sub) and "time.monotonic()" in ast.unparse(node.left)
    least: Any = getattr(node.comparators[0], "value", 0)  # of a constant
    is_limit = isinstance(least, int | float) and least >= LEAST_HANG_S
    return is_elapsed and isinstance(node.ops[0], ast.Lt | ast.LtE) and not is_limit


def _is_alone(node: ast.AST) -> bool:
    return any(
        isinstance(found, ast.Attribute) and found.attr == "alone" for found in ast.walk(node)
    )


def test_every_test_that_measures_is_marked() -> None:
    assert list(unmarked(ROOT)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def test_a():\n    time.process_time()\n", ["tests/test_x.py: test_a: process_time"]),
        ("async def test_a():\n    peak_bytes()\n", ["tests/test_x.py: test_a: peak_bytes"]),
        (
            "def test_a():\n    assert time.monotonic() - began < LIMIT\n",
            ["tests/test_x.py: test_a: monotonic"],
        ),
        ("def test_a():\n    assert time.monotonic() - began < 10\n", []),
        ("def test_a():\n    assert time.monotonic() - began > 0.5\n", []),
        ("@pytest.mark.alone\ndef test_a():\n    peak_bytes()\n", []),
        (
            "pytestmark = [pytest.mark.jvm, pytest.mark.alone]\ndef test_a():\n    peak_bytes()\n",
            [],
        ),
        ("def helper():\n    peak_bytes()\n", []),
    ],
)
def test_an_unmarked_test_is_found(tmp_path: Path, text: str, found: list[str]) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(text)
    assert list(unmarked(tmp_path)) == found


def test_the_makefile_runs_both_stages() -> None:
    """Find every test in one of the stages, whatever its markers."""
    text = (ROOT / "Makefile").read_text("utf-8")
    assert "-m '$(1)not alone'" in text
    assert "-n 0 -m '$(1)alone' $(ALONE)" in text
