"""``audit(spark, paths)``: its DataFrames are the tables that local processes write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from batchval.audit.audit_run import audit as audit_here
from batchval.audit.audit_run import list_work
from batchval.audit.local import run_local
from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.spark import SparkAudit, audit
from tests.system.spark.logs import a_cluster, claimed, series, write

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = a_cluster(tmp_path_factory.mktemp("logs"))
    write(folder / "007-0", series(30, seed=7))  # Spark must not take a topic for a number
    return folder


@pytest.fixture(scope="module")
def found(spark: SparkSession, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> SparkAudit:
    return audit(
        spark, str(logs), out=str(tmp_path_factory.mktemp("out") / "audit"), split_bytes=6000
    )


@pytest.fixture(scope="module")
def local(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("local")
    options = Options(split_bytes=6000)
    audit_here(
        list_work([str(logs)], options),
        options,
        lambda *what: run_local(*what, processes=1),
        str(out),
    )
    return out


def rows(table: Any) -> list[str]:
    return sorted(str(sorted((name, str(value)) for name, value in row.items())) for row in table)


def test_batches_are_those_of_local_processes(found: SparkAudit, local: Path) -> None:
    frame = found.batches()
    assert dict(frame.dtypes)["topic"] == dict(frame.dtypes)["hour"] == "string"
    assert frame.columns[0] == "topic"
    seen = {row.topic: (row.rows, row.last) for row in _sums(frame).collect()}
    expected: dict[str, tuple[int, int]] = {}
    for topic, last in _pairs(local):
        count, highest = expected.get(topic, (0, -1))
        expected[topic] = count + 1, max(highest, last)
    assert seen == expected
    assert "007" in seen


def _sums(frame: Any) -> Any:
    return frame.groupBy("topic").agg(
        F.count("*").alias("rows"), F.max(F.coalesce("last_offset", F.lit(-1))).alias("last")
    )


def _pairs(out: Path) -> Iterator[tuple[str, int]]:
    for file in (out / "batches").rglob("*.parquet"):
        topic = file.parent.parent.name.removeprefix("topic=")
        for last in pq.ParquetFile(file).read(["last_offset"])["last_offset"].to_pylist():
            yield topic, -1 if last is None else last


def test_topic_and_hour_choose_files(found: SparkAudit) -> None:
    frame = found.batches()
    [hour] = {row.hour for row in frame.filter("topic = '007'").select("hour").distinct().collect()}
    chosen = frame.filter(f"topic = '007' and hour = '{hour}'")
    assert chosen.count() == 30
    plan = chosen._jdf.queryExecution().toString()  # type: ignore[operator]
    assert "PartitionFilters: [isnotnull(topic" in plan
    assert "Batched: true" in plan


def test_the_other_tables_and_the_result(found: SparkAudit, local: Path) -> None:
    for frame, name in ((found.errors(), "errors"), (found.segments(), "segments")):
        table = pq.ParquetFile(local / name / "part-0.parquet").read()
        assert frame.columns == table.column_names
        assert frame.count() == table.num_rows > 0
    sums = found.summary().agg(F.sum("batches"), F.sum("records")).first()
    assert tuple(sums) == (found.found.batches, found.found.records)
    assert found.errors().filter("level = 'finding'").count() == len(found.findings) > 0
    assert found.exit_code == 1


def test_nothing_found_and_no_rows(spark: SparkSession, logs: Path) -> None:
    clean = audit(spark, [str(logs / "007-0")], rows="bad")
    assert (clean.exit_code, clean.findings, clean.unreadable) == (0, [], [])
    assert clean.batches().columns[0] == "topic"
    assert clean.batches().count() == clean.errors().filter("level <> 'note'").count() == 0
    assert Path(clean.out).name.startswith("batchval-audit-")
    assert audit(spark, str(logs / "nowhere")).exit_code == 3


def test_wrong_options_are_named(spark: SparkSession, logs: Path) -> None:
    with pytest.raises(BatchvalError, match="unknown option 'depth': expected rows, "):
        audit(spark, str(logs), depth=True)
    with pytest.raises(BatchvalError, match="topics is 'orders': expected a list"):
        audit(spark, str(logs), topics="orders")


@pytest.mark.long
def test_over_spark_connect_a_folder_must_be_named(
    connect: str, logs: Path, tmp_path: Path
) -> None:
    program = """
import sys
from batchval.errors import BatchvalError
from batchval.spark import audit, session
server, logs, out = sys.argv[1:]
spark = session(server)
try:
    audit(spark, logs)
except BatchvalError as error:
    print(str(error).partition(":")[0])
found = audit(spark, logs, out=out)
print(found.batches().count(), found.found.batches, found.exit_code)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, connect, str(logs), str(tmp_path / "out")],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "out is required with Spark Connect",
    ), done.stderr
    assert done.stdout.splitlines()[1].endswith(" 1")


def test_claims_are_trusted_in_workers_as_here(spark: SparkSession, tmp_path: Path) -> None:
    claimed(tmp_path / "logs" / "orders-0")
    options: dict[str, Any] = {"trust_claims": 0.3, "seed": 5, "split_bytes": 2048}
    found = audit(spark, str(tmp_path / "logs"), **options)
    wanted = Options(**options)
    todo = list_work([str(tmp_path / "logs")], wanted)
    here = audit_here(todo, wanted, lambda *what: run_local(*what, processes=1))
    assert (found.found.trust, found.findings) == (here.trust, [])
    assert found.found.trust.claimed > found.found.trust.verified > 0
    by_claims = (
        found.summary().agg(F.sum("figures_by_claims"), F.sum("uncompressed_bytes")).collect()
    )
    assert by_claims[0][0] == here.trust.claimed
    assert by_claims[0][1] > 0
