"""The targets that change buffers in use: that somebody writes, and that what they look for would
be seen.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import textwrap
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from bench.pages import reports
from tests.evidence.hostile import fuzz
from tests.evidence.hostile.buffers import PAGE
from tests.evidence.hostile.marked import POISON_FREE, Case, cases, has_poison
from tests.evidence.hostile.mutated import KINDS, execute
from tests.evidence.hostile.operations import OPERATIONS, Operation, output_of
from tests.evidence.hostile.seeds import NOW
from tests.evidence.hostile.writers import Scene

ROOT = Path(__file__).resolve().parents[3]
NUMBER = {case.name: i for i, case in enumerate(cases())}


@pytest.mark.parametrize(
    "case", [case for case in cases() if case.kind == "batch"], ids=lambda case: case.name
)
def test_cases_are_valid_and_hold_no_poison(case: Case) -> None:
    for data in filter(None, (case.data, case.twin)):
        assert LogValidator().check(data, now_ms=NOW).ok
        records = list(RecordBatch(data).records())
        assert records
        if case.marked:
            assert not has_poison(data[61:])
            assert not any(has_poison(record.key, record.value) for record in records)


@pytest.mark.parametrize("kind", KINDS.values())
def test_operations_find_nothing_in_buffers_that_stand_still(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that operations succeed: one that always fails would check nothing."""
    scene = Scene(cases(), kind, 1)  # type: ignore[arg-type]
    monkeypatch.setattr(scene, "hurt", lambda: None)
    for operation in OPERATIONS.values():
        if operation.own_memory and kind == "process":
            continue
        for i, case in enumerate(cases()):
            if case.kind not in operation.kinds:
                continue
            scene.enter(i, None if operation.second is None else NUMBER[operation.second])
            for _ in range(8):
                scene.turn += 1
                try:
                    assert operation.run(scene) == []
                except BatchvalError as error:
                    pytest.fail(f"{operation.name} of {case.name}: {error}")


def test_operations_hold_no_scene() -> None:
    """A block that one holds would be in the number of bytes held of each later gate."""
    scene = Scene(cases(), "thread", 1)
    scene.enter(NUMBER["some-0"])
    assert OPERATIONS["validate"].run(scene) == []
    freed = weakref.ref(scene)
    del scene
    gc.collect()
    assert freed() is None


@pytest.mark.parametrize("kind", KINDS.values())
def test_somebody_writes_while_a_function_runs(kind: str) -> None:
    """Validate one batch repeatedly: some calls see its own bytes, others hostile ones."""
    scene = Scene(cases(), kind, 2)  # type: ignore[arg-type]
    scene.enter(NUMBER["some-0"])
    validator, seen, until = LogValidator(), set(), time.monotonic() + 60
    with scene.writing():
        while seen != {True, False} and time.monotonic() < until:
            seen.add(validator.check(scene.buffer, now_ms=NOW).ok)
    assert seen == {True, False}
    assert scene.writes > 0


def test_the_writer_never_writes_poison() -> None:
    scene = Scene(cases(), "thread", 3)
    scene.enter(NUMBER["some-0"])
    for _ in range(20_000):
        scene.hurt()
        assert not has_poison(memoryview(scene.buffer)[61:])


def test_poison_follows_a_shared_case() -> None:
    """Read too far: the function reads poison, or a forbidden page."""
    scene = Scene(cases(), "process", 4)
    number = next(i for i in range(0, len(cases()), 2) if cases()[i].name.startswith("some"))
    scene.enter(number)
    start = ctypes.addressof(ctypes.c_char.from_buffer(scene.buffer))
    assert ctypes.string_at(start + len(scene.case.data), PAGE) == bytes((POISON_FREE,)) * PAGE


def test_foreign_bytes_are_found() -> None:
    scene = Scene(cases(), "thread", 5)
    scene.enter(NUMBER["one-0"])
    good = scene.case.data
    leaking = good[:-10] + bytes((POISON_FREE,)) * 4 + good[-6:]
    for data, expected in ((good, False), (leaking, True)):
        result = SimpleNamespace(ok=True, output=data)
        assert (
            any("foreign" in what for what in output_of(scene, result, crc_counts=False))
            is expected
        )


def test_an_output_that_is_not_valid_is_found() -> None:
    scene = Scene(cases(), "thread", 6)
    scene.enter(NUMBER["some-0"])
    good = scene.case.data
    for data in (good[:-1] + b"z", good[:60] + b"\5" + good[61:]):
        result = SimpleNamespace(ok=True, output=data)
        assert any("refused" in what for what in output_of(scene, result, crc_counts=True))
    assert output_of(scene, SimpleNamespace(ok=True, output=good), crc_counts=True) == []


def test_undocumented_exceptions_are_found() -> None:
    def fails(error: Exception) -> Operation:
        def run(_: Scene) -> list[str]:
            raise error

        return Operation("check", run, ("batch",))

    scene = Scene(cases(), "thread", 7)
    assert execute(fails(SystemError("Negative size")), scene) == [
        "exception SystemError: Negative size"
    ]
    assert execute(fails(BatchvalError("refused")), scene) == []


@pytest.mark.skipif(
    os.environ.get("BATCHVAL_BUILD") == "asan", reason="AddressSanitizer handles SIGSEGV itself"
)
@pytest.mark.parametrize("target", KINDS)
def test_the_fuzzer_names_the_operation_that_crashed(target: str, tmp_path: Path) -> None:
    script = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        import multiprocessing.connection
        from tests.evidence.hostile import fuzz, mutated, operations
        mutated._REPLAY_S = 0.5
        def crash(scene):
            if scene.case.name == "many-0":
                os.kill(os.getpid(), 9)
            return []
        operations.OPERATIONS.clear()
        operations.OPERATIONS["scan"] = operations.Operation("scan", crash, ("batch",))
        sys.argv = ["fuzz.py", "--target", {target!r}, "--seconds", "60", "--seed", "3"]
        sys.argv += ["--out", {str(tmp_path)!r}]
        sys.exit(fuzz.main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    (saved,) = tmp_path.iterdir()
    (finding,) = [json.loads(line) for line in saved.read_text().splitlines()]
    assert finding["cfg"] == {"operation": "scan", "case": "many-0"}
    assert finding["what"] == ["the process ended with -9"]


def test_a_long_run_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: dict[str, Any] = {}
    monkeypatch.setattr(reports, "here", lambda: {"commit": "0123abcd"})
    monkeypatch.setattr(reports, "save", lambda name, found: saved.update({name: found}))
    targets = ("--target", "histogram", "--target", "snappy")
    command = ["fuzz.py", "--cpu-hours", "0.0002", "--jobs", "2", "--report", *targets]
    monkeypatch.setattr(sys, "argv", command)
    assert fuzz.main() == 0
    found = saved["hostile-runs"]
    assert found["commit"] == "0123abcd"
    assert found["title"].endswith(", 2 targets")
    (table,) = found["tables"]
    assert table["headings"] == [
        *("target", "executions", "CPU seconds", "writes to buffers in use", "findings"),
    ]
    assert [row[0].strip("`") for row in table["rows"]] == ["snappy", "histogram"]
    assert all(row[1] > 0 for row in table["rows"])
    assert [row[4] for row in table["rows"]] == [0, 0]
