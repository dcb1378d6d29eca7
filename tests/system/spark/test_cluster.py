"""A cluster in miniature: two executors with a packed environment; a worker and an executor are
killed mid-read.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.system.spark.logs import a_cluster, ordered, plain, series, write

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.jvm


@pytest.fixture
def work() -> Iterator[None]:
    """Return the folder of the program. Spark's workers write into the installed package in any
    case.
    """
    import pyspark

    folder = Path(pyspark.__file__).parent / "work"
    before = set(folder.glob("*")) if folder.is_dir() else set()
    yield
    for left in set(folder.glob("*")) - before if folder.is_dir() else ():
        shutil.rmtree(left, ignore_errors=True)
    if not before:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.alone
@pytest.mark.slow
def test_rows_of_a_cluster_that_loses_workers(tmp_path: Path, work: None) -> None:
    logs = a_cluster(tmp_path / "logs")
    for n in range(6):
        write(logs / f"more-{n}", series(300, seed=20 + n) * 8)
    archive = tmp_path / "environment.tar.gz"
    here = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, ROOT / "tests" / "system" / "spark" / "packed.py", archive],
        check=True,
        env=here,
    )
    program = ROOT / "tests" / "system" / "spark" / "cluster_program.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program, archive, logs, tmp_path],
        capture_output=True, text=True, check=False, cwd=ROOT, env=here, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    places, after = map(json.loads, done.stdout.splitlines())
    assert len(places["places"]) == 2  # each executor unpacked it
    for place in places["places"]:
        module, python = place.split()
        assert "/environment/lib/" in module
        assert python.endswith("/environment/bin/python")
    assert after["killed"] == {"pyspark.daemon": 1, "CoarseGrainedExecutorBackend": 1}
    assert after["lost"] > 0
    rows = ordered(pq.read_table(tmp_path / "rows").to_pylist())
    assert len(rows) > 14_000
    assert rows == plain(logs)
    assert not (ROOT / "environment").exists()
