"""``--engine spark`` does what local processes do: the same results, the same files; over Spark
Connect too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from batchval.audit.audit_run import Engine, audit, list_work
from batchval.audit.local import run_local
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import Range
from batchval.spark.engine import run_spark
from tests.support.batches import NOW
from tests.system.spark.logs import a_cluster, ordered, plain

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_cluster(tmp_path_factory.mktemp("logs"))


def outputs(folder: Path) -> dict[str, list[str]]:
    """Return the rows of all Parquet files, by their places."""
    files = sorted(path for path in folder.rglob("*.parquet") if path.parent.name != "runs")
    return {
        str(file.relative_to(folder)): [
            json.dumps(row, default=str) for row in pq.read_table(file).to_pylist()
        ]
        for file in files
    }


def run(engine: Engine, logs: Path, out: Path, **options: Any) -> dict[str, list[str]]:
    chosen = Options(now_ms=NOW, **options)
    audit(list_work([str(logs)], chosen), chosen, engine, str(out))
    return outputs(out)


def on_spark(ranges: Sequence[Range], options: Options, out: str | None) -> Iterable[RangeResult]:
    return run_spark(ranges, options, out)


def in_this_process(
    ranges: Sequence[Range], options: Options, out: str | None
) -> Iterable[RangeResult]:
    return run_local(ranges, options, out, processes=1)


@pytest.mark.parametrize(
    "options", [{"rows": "all", "split_bytes": 6000}, {"rows": "bad", "deep": True}]
)
def test_outputs_are_those_of_local_processes(
    spark: SparkSession, logs: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    expected = run(in_this_process, logs, tmp_path / "local", **options)
    assert any(name.startswith("errors") for name in expected)
    assert run(on_spark, logs, tmp_path / "spark", **options) == expected
    assert spark.range(3).count() == 3  # a session that was there before stays


def test_progress_counts_the_bytes_of_all_ranges(spark: SparkSession, logs: Path) -> None:
    options = Options(rows="none", split_bytes=1500)
    todo = list_work([str(logs)], options)
    seen: list[int] = []
    results = list(run_spark(todo.ranges, options, None, progress=seen.append))
    assert sum(seen) == todo.bytes
    assert sorted((one.range for one in results), key=str) == sorted(todo.ranges, key=str)
    assert len(seen) > 1  # waves


CONNECTED = """
import json, sys
from batchval.audit.local import run_local
from batchval.segment.options import Options
from batchval.audit.audit_run import list_work
from batchval.spark import session, validate_batches
from batchval.spark.engine import run_spark
server, logs = sys.argv[1:]
spark = session(server)
rows = spark.read.format("kafka-segments").option("splitBytes", "5000").load(logs).collect()
options = Options(rows="none", split_bytes=9000)
ranges = list_work([logs], options).ranges
results = list(run_spark(ranges, options, None, master=server))
value = bytes(open(sys.argv[2] + "/orders-0/00000000000000000000.log", "rb").read())
judged = spark.createDataFrame([(value,)], "value binary").select(validate_batches("value")).collect()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
def ends(results):
    return sorted([one.range.segment.uri, one.range.start, one.end] for one in results)

print(json.dumps({
    "rows": [row.asDict() for row in rows],
    "ends": ends(results),
    "expected": ends(run_local(ranges, options, None, processes=1)),
    "judged": len(judged[0][0]),
}, default=str))
"""


@pytest.mark.long
def test_spark_connect_has_the_same_rows(connect: str, logs: Path) -> None:
    """Use a client without its own JVM: rows, the UDF, and the engine."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CONNECTED, connect, str(logs)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
        env={**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere:/bin:/usr/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    expected = plain(logs)
    for row in expected:
        row["max_timestamp"] = row["max_timestamp"] and str(
            row["max_timestamp"].astimezone().replace(tzinfo=None)
        )
    assert ordered(printed["rows"]) == expected
    assert printed["ends"] == printed["expected"]
    assert printed["judged"] == 120
