"""SIGTERM: no process, no temporary file, no half output is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchval.cli.exit import signals_wait
from tests.support.hostile_segments import good
from tests.support.processes import terminated, until
from tests.unit.cli.conftest import COMMAND, ROOT

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write four partitions, some seconds of work with --rows all."""
    folder = tmp_path_factory.mktemp("logs")
    data = b"".join(good(i) for i in range(400_000))
    for n in range(4):
        (folder / f"t-{n}").mkdir()
        (folder / f"t-{n}" / f"{0:020}.log").write_bytes(data)
    return folder


@pytest.mark.parametrize(
    "engine",
    [
        ["local", "--processes", "2"],
        ["local", "--processes", "1"],
        pytest.param(
            ["spark", "--conf", "spark.ui.enabled=false"], marks=[pytest.mark.jvm, pytest.mark.long]
        ),
    ],
    ids=" ".join,
)
def test_an_audit(tmp_path: Path, logs: Path, engine: list[str]) -> None:
    out, temporary = tmp_path / "out", tmp_path / "tmp"
    temporary.mkdir()
    words = ["audit", "--engine", *engine, "--split-bytes", "1m", "--out", str(out), str(logs)]
    process = subprocess.Popen(
        [*COMMAND, *words],
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    until(
        "a row is written",
        lambda: process.poll() is not None or any(out.glob("batches/**/*.parquet")),
    )
    assert process.poll() is None, process.communicate()[1]
    assert terminated(process, temporary).strip() == b"batchval audit: terminated"
    left = [path.name for path in out.rglob("*") if path.is_file()]
    assert not any(name.startswith(".") or name == "_SUCCESS" for name in left)


def test_check_of_standard_input(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [*COMMAND, "check", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    assert process.stdin is not None
    process.stdin.write(good(0) * 30_000)
    process.stdin.flush()
    until("input is copied", lambda: any(temporary.iterdir()))
    assert terminated(process, temporary).strip() == b"batchval check: terminated"
    assert list(temporary.iterdir()) == []


def test_before_anything_is_read() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    program = (
        f"from batchval.cli.exit import ends_by_sigterm\nwith ends_by_sigterm():\n    {code}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False
    )
    assert b"Terminated" in done.stderr


def test_a_process_that_is_started_meanwhile_inherits_what_is_ignored() -> None:
    ask = [sys.executable, "-c", "import signal; print(int(signal.getsignal(signal.SIGINT)))"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_wait(), subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as child:
            assert child.communicate(timeout=60)[0] == f"{int(signal.SIG_IGN)}\n"
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_takes_effect_at_the_end_of_the_block() -> None:
    done = []

    def interrupted() -> None:
        with signals_wait():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["all of it"]
