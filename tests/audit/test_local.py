"""``--engine local``: when its workers are made ready. (What they find is in test_audit.py and tests/spark.)"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from batchval.audit import local

ROOT = Path(__file__).parents[2]


def test_workers_are_made_ready_while_the_rest_is_imported() -> None:
    """Listing needs neither Parquet nor the reduce step; and where one process will do, no server is started."""
    script = """
        import sys
        from multiprocessing.forkserver import _forkserver as server
        from batchval.audit.local import run_local, start_early
        from batchval.segment.options import Options
        from batchval.audit.run import list_work
        options = Options()
        ranges = list_work(["fixtures/segments"], options).ranges
        start_early(ranges)
        assert server._forkserver_pid is None, "so few bytes are for one process"
        start_early(ranges, 2)
        assert server._forkserver_pid is not None
        late = {"pyarrow.parquet", "pyarrow.compute", "batchval.audit.reduce", "batchval.audit.work"} & set(sys.modules)
        assert not late, late
        first = server._forkserver_pid
        assert len(list(run_local(ranges, options, None, 2))) == len(ranges) > 2
        assert server._forkserver_pid == first, "the workers come from it"
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_cores_where_no_affinity_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no sched_getaffinity."""
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda pid: {0, 1, 5}, raising=False)
    assert local._cores() == 3
    monkeypatch.delattr(local.os, "sched_getaffinity")
    monkeypatch.setattr(local.os, "cpu_count", lambda: 6)
    assert local._cores() == 6
    monkeypatch.setattr(local.os, "cpu_count", lambda: None)
    assert local._cores() == 1
