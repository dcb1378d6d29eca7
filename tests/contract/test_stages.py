"""Tests that measure time or memory have the marker ``alone``, and no ceiling of time is absolute:
CPU time is compared as tests/support/calibration.py has it, and wall time limits a hang alone.
"""

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
#: of tests/support/calibration.py
CALIBRATED = {"cpu_s", "slowness"}
#: seconds of wall time that limit a hang, and measure nothing
LEAST_HANG_S = 10
CPU_CLOCKS = {
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    *("perf_counter", "perf_counter_ns", "getrusage"),
}
#: tests that read a clock themselves -> what they compare with
OWN_CLOCKS = {
    "tests/at_rest/test_hostile_segments.py": "the cost of an ordinary byte",
    "tests/bench_smoke/test_spark_bench.py": "another clock",
    "tests/hostile/test_bounds.py": "a fourth of the input",
    "tests/hostile/test_gil.py": "the cost of an ordinary byte",
    "tests/hostile_gate/test_harness.py": "what it uses up itself",
    "tests/proxy/test_custom_rules.py": "nothing: it uses CPU up",
    "tests/proxy/test_handshakes.py": "slowness, measured meanwhile",
    "tests/proxy/test_known_refusals.py": "nothing: a clock of the test's own",
    "tests/proxy/test_long_judging.py": "the first of two tries",
    "tests/proxy/test_record_rules.py": "nothing: a clock of the test's own",
}
#: files that measure memory with it
MEMORY = {"tests/proxy/test_faults.py", "tests/segment/test_reader.py"}
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
            names = {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}
            if any(map(_bounds_time, ast.walk(node))):
                yield f"{file}: {node.name}: monotonic"
            measures = (used | names) & MEASURES | names & CALIBRATED
            for name in sorted(measures - EXEMPT.get(file, set())):
                yield f"{file}: {node.name}: {name}"


def _bounds_time(node: ast.AST) -> bool:
    """Return whether time has to pass in less than LEAST_HANG_S: ``monotonic() - began < 1``."""
    if not isinstance(node, ast.Compare):
        return False
    terms = (node.left, *node.comparators)
    return any(
        isinstance(op, ast.Lt | ast.LtE) and _is_elapsed(left) and not _is_limit(right)
        for left, op, right in zip(terms, node.ops, terms[1:], strict=False)
    )


def _is_elapsed(node: ast.AST) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
        return False
    return any(clock in ast.unparse(node) for clock in ("time.monotonic()", "loop.time()"))


def _is_limit(node: ast.AST) -> bool:
    least: Any = getattr(node, "value", 0)  # of a constant
    return isinstance(least, int | float) and least >= LEAST_HANG_S


def absolute(root: Path) -> Iterator[str]:
    """Yield each clock of CPU time that a test reads itself, and each bound of wall time that is
    shorter than a hang, as ``file: name``.
    """
    for path in sorted((root / "tests").rglob("test_*.py")):
        file = str(path.relative_to(root))
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute)} & CPU_CLOCKS
        if file not in OWN_CLOCKS:
            yield from (f"{file}: {name}" for name in sorted(used) if file not in MEMORY)
        for node in nodes:
            if isinstance(node, ast.Assert) and any(map(_bounds_time, ast.walk(node))):
                yield f"{file}: {ast.unparse(node)}"


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
        ("def test_a():\n    cpu_s(step)\n", ["tests/test_x.py: test_a: cpu_s"]),
        ("def test_a():\n    verdict.cpu_s\n", []),
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


def test_no_ceiling_of_time_is_absolute() -> None:
    assert list(absolute(ROOT)) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("best = time.thread_time() - began", "thread_time"),
        ("assert 0 < time.monotonic() - began < 5", "assert 0 < time.monotonic() - began < 5"),
        ("assert loop.time() - began <= LIMIT", "assert loop.time() - began <= LIMIT"),
        ("assert loop.time() - began < 30", None),
        ("while time.monotonic() - began < 2: pass", None),
        ("assert cpu_s(step) < 0.005", None),
    ],
)
def test_an_absolute_ceiling_is_found(tmp_path: Path, line: str, found: str | None) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(f"def test_a():\n    {line}\n")
    assert list(absolute(tmp_path)) == ([f"tests/test_x.py: {found}"] if found else [])


def test_the_makefile_runs_both_stages() -> None:
    """Find every test in one of the stages, whatever its markers."""
    text = (ROOT / "Makefile").read_text("utf-8")
    assert "-m '$(1)not alone'" in text
    assert "-n 0 -m '$(1)alone' $(ALONE)" in text
