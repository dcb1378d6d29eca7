"""``--engine local``: when its workers are made ready. (What they find is in test_audit.py and
tests/system/spark.)
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from batchval.audit import local
from batchval.audit.audit_run import list_work
from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.segment.ranges import Range
from batchval.segment.store import SegmentInfo
from tests.support.batches import batch, record

ROOT = Path(__file__).parents[3]


def test_workers_are_made_ready_while_the_rest_is_imported() -> None:
    """Check imports: listing needs neither Parquet nor the reduce step, and one process needs no
    server.
    """
    script = """
        import sys
        from multiprocessing.forkserver import _forkserver as server
        from batchval.audit.local import run_local, start_early
        from batchval.segment.options import Options
        from batchval.audit.audit_run import list_work
        options = Options()
        ranges = list_work(["fixtures/segments"], options).ranges
        start_early(ranges)
        assert server._forkserver_pid is None, "so few bytes are for one process"
        start_early(ranges, 2)
        assert server._forkserver_pid is not None
        late = {"pyarrow.parquet", "pyarrow.compute", "batchval.audit.reduce", "batchval.audit.task"} & set(sys.modules)
        assert not late, late
        first = server._forkserver_pid
        assert len(list(run_local(ranges, options, None, 2))) == len(ranges) > 2
        assert server._forkserver_pid == first, "the workers come from it"
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_long_path_of_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the error of the real socket (3.14 takes another folder instead)."""

    def ensure_running() -> None:
        socket.socket(socket.AF_UNIX).bind("/tmp/" + 120 * "long")

    monkeypatch.setattr(local.forkserver, "ensure_running", ensure_running)
    monkeypatch.setattr(local.tempfile, "gettempdir", lambda: "/long")
    says = "'/long' is too long for the socket .* set TMPDIR to a shorter"
    with pytest.raises(BatchvalError, match=says):
        local._context()


def test_cores_where_no_affinity_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove sched_getaffinity, which macOS does not have."""
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda pid: {0, 1, 5}, raising=False)
    assert local._cores() == 3
    monkeypatch.delattr(local.os, "sched_getaffinity")
    monkeypatch.setattr(local.os, "cpu_count", lambda: 6)
    assert local._cores() == 6
    monkeypatch.setattr(local.os, "cpu_count", lambda: None)
    assert local._cores() == 1


def test_workers_are_started_where_they_are_worth_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "_cores", lambda: 4)

    def processes(size: int, deep: bool = False, uri: str = "/l/0.log") -> int:
        segment = SegmentInfo(uri, "t", 0, 0, size, 0)
        return local._processes([Range(segment, n, n + size // 8) for n in range(8)], None, deep)

    assert (processes(0), processes(1 << 30), processes(3 << 30), processes(9 << 30)) == (
        1,
        1,
        3,
        4,
    )
    assert (processes(60 << 20, deep=True), processes(200 << 20, deep=True)) == (1, 4)
    assert processes(200 << 20, uri="s3://bucket/0.log") == 4


@pytest.mark.long
@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_audit_imports_no_pandas(processes: str, tmp_path: Path) -> None:
    """Check imports: pandas costs 0.17 s of CPU in each process. ``to_pandas`` works afterwards."""
    (tmp_path / "pandas.py").write_text("import sys; print('pandas was imported', file=sys.stderr)")
    words = ["--processes", processes, "--split-bytes", "4096", "--out", str(tmp_path / "out")]
    command = [
        sys.executable,
        "-m",
        "batchval",
        "audit",
        "--engine",
        "local",
        *words,
        "fixtures/segments",
    ]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.returncode, done.stderr) == (0, "")
    script = "import batchval.audit.without_pandas, pyarrow; print(len(pyarrow.table({'a': [1, 2]}).to_pandas()))"
    assert (
        subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True
        ).stdout
        == b"2\n"
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_counts_bytes_while_a_range_is_read(tmp_path: Path, processes: int) -> None:
    """Check that progress shows bytes more often than ranges end. Lost counts of workers are added
    at the ends.
    """
    one = batch([record(0, value=bytes(40_000))], partition_leader_epoch=4)
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(struct.pack(">q", i) + one[8:] for i in range(4000)))
    options = Options(split_bytes=80 << 20)
    ranges = list_work([str(tmp_path)], options).ranges
    seen: list[int] = []
    assert (
        len(list(local.run_local(ranges, options, None, processes, seen.append)))
        == len(ranges)
        == 2
    )
    assert sum(seen) == log.stat().st_size
    assert len([step for step in seen if step]) > (2 if processes == 1 else 0)


def test_progress_is_between_what_ended_and_what_began() -> None:
    seen: list[int] = []
    shown = local.Progress(seen.append)
    first, second = (
        Range(SegmentInfo("/l/t-0/0.log", "t", 0, 0, 100, 0), start, start + 50)
        for start in (0, 50)
    )
    shown.show(20, [], [first])
    shown.show(90, [], [first])
    shown.show(10, [first], [first, second])
    shown.show(70, [], [second])
    shown.show(0, [second], [second])
    assert seen == [20, 30, 0, 20, 30]
