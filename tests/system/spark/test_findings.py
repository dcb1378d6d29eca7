"""``kafka-findings`` gives the errors/ rows of an audit, also for what lies between batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from batchval.audit.audit_run import audit, list_work
from batchval.audit.local import run_local
from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import Range
from batchval.segment.store import SegmentInfo
from batchval.spark.finding_rows import FINDINGS, Folders, KafkaFindings
from tests.system.at_rest.test_damage import DAMAGES, HEALTHY, copied
from tests.system.spark.logs import a_cluster, claimed, series, write

pytestmark = pytest.mark.jvm

ROWS = from_arrow_schema(FINDINGS)


def by_audit(paths: Iterable[Path], **options: Any) -> list[dict[str, Any]]:
    """Return the rows of an audit's errors/ table, in an order of their own."""

    def engine(ranges: Sequence[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
        return run_local(ranges, options, out, 1)

    wanted = Options(**options)
    table = audit(list_work(map(str, paths), wanted), wanted, engine).tables["errors"]
    return ordered(table.select(FINDINGS.names).to_pylist())


def ordered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in an order of their own, timestamps in seconds."""
    plain = [
        {name: one.timestamp() if isinstance(one, datetime) else one for name, one in row.items()}
        for row in rows
    ]
    return sorted(plain, key=str)


def by_reader(path: Path, **options: str) -> list[dict[str, Any]]:
    """Return the rows as tasks make them, in this process."""
    reader = KafkaFindings({"path": str(path), **options}).reader(ROWS)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return ordered(row for batch in batches for row in batch.to_pylist())


def test_lies_are_found_where_the_sample_draws_them(tmp_path: Path) -> None:
    claimed(tmp_path / "orders-0", lies=True)
    found = by_reader(tmp_path, trustClaims="0.3", seed="5")
    assert found == by_audit([tmp_path], trust_claims=0.3, seed=5)
    assert {row["rule"] for row in found} == {"L7"}
    assert len(found) < len(by_reader(tmp_path, trustClaims="1"))
    assert by_reader(tmp_path) == []


@pytest.mark.parametrize("what", [*DAMAGES, *HEALTHY])
def test_damage_is_found_as_an_audit_finds_it(tmp_path: Path, what: str) -> None:
    folder = copied(tmp_path)
    (DAMAGES[what].act if what in DAMAGES else HEALTHY[what])(folder)
    wanted = by_audit([folder], deep=True, cleanup_policy="delete")
    assert by_reader(folder, deep="true", cleanupPolicy="delete") == wanted
    assert any(row["level"] == "finding" for row in wanted) == (what in DAMAGES)


def test_rows_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Read several topics, some damaged, with a missing folder and a missing topic."""
    a_cluster(tmp_path / "made")
    for what in ("lost batch", "index offset moved"):
        (tmp_path / what).mkdir()
        DAMAGES[what].act(copied(tmp_path / what))
    paths = [tmp_path, tmp_path / "nowhere"]
    frame = spark.read.format("kafka-findings").option("topics", "orders,rolled,nobody")
    rows = frame.load([str(path) for path in paths])
    assert rows.schema == ROWS
    got = ordered(row.asDict() for row in rows.collect())
    assert got == by_audit(paths, topics=("orders", "rolled", "nobody"))
    assert {row["rule"] for row in got} >= {"L1", "L3", "L6", "UNREADABLE"}


def test_sql_and_a_narrower_schema(spark: SparkSession, tmp_path: Path) -> None:
    folder = copied(tmp_path)
    DAMAGES["lost batch"].act(folder)
    frame = spark.read.format("kafka-findings").schema("rule string, offset bigint, file string")
    frame.option("cleanupPolicy", "delete").load(str(folder)).createOrReplaceTempView("findings")
    (row,) = spark.sql("select rule, file from findings").collect()
    assert (row.rule, Path(row.file).parent.name) == ("L3", "rolled-0")


def test_a_partition_is_read_whole_and_small_ones_together(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"small-{number}", series(2, seed=number))
    for base in (0, 5000):
        with write(tmp_path / "large-0", series(4, base=base), base=base).open("ab") as file:
            file.truncate(20 << 20)
    tasks = KafkaFindings({"path": str(tmp_path)}).reader(ROWS).partitions()
    held = [
        [[one.topic for one in folder if isinstance(one, SegmentInfo)] for folder in task.listed]
        for task in tasks
        if isinstance(task, Folders)
    ]
    assert held == [[["large", "large"]], [["small"]] * 30]


def test_a_file_that_is_deleted_after_the_listing_is_not_a_finding(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    reader = KafkaFindings({"path": str(folder)}).reader(ROWS)
    tasks = reader.partitions()
    for path in folder.glob(f"{0:020}*"):
        path.unlink()
    assert [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()] == []


def test_nothing_is_lost_where_there_is_nothing() -> None:
    reader = KafkaFindings({"path": "/nowhere/at/all"}).reader(ROWS)
    (batch,) = reader.read(reader.partitions()[0])
    assert batch.to_pylist()[0]["rule"] == "UNREADABLE"
    assert list(reader.read(Folders())) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rows": "bad"}, "unknown option 'rows' of kafka-findings: expected path"),
        (
            {"cleanupPolicy": "keep"},
            "option cleanupPolicy is 'keep': expected auto, delete or compact",
        ),
        (
            {"producerIdExpirationMs": "1d"},
            "option producerIdExpirationMs is '1d': expected milliseconds",
        ),
        (
            {"producerIdExpirationMs": "0"},
            "option producerIdExpirationMs is '0': expected milliseconds",
        ),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, str], reason: str) -> None:
    with pytest.raises(BatchvalError, match=re.escape(reason)):
        KafkaFindings({"path": "/logs", **options}).reader(ROWS)


def test_a_producer_s_expiration_reaches_the_judge() -> None:
    reader = KafkaFindings({"path": "/", "producerIdExpirationMs": "60000"}).reader(ROWS)
    assert reader.options.producer_id_expiration_ms == 60_000  # type: ignore[attr-defined]


def test_it_is_not_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("kafka-findings").load(str(tmp_path))
    query = (
        stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    )
    with pytest.raises(PySparkException, match=r"BatchvalError: kafka-findings is not a stream"):
        query.awaitTermination(60)


def test_a_session_that_registered_nothing_finds_the_format(spark: SparkSession) -> None:
    rows = spark.newSession().read.format("kafka-findings").load("/nowhere/at/all").collect()
    assert [row.rule for row in rows] == ["UNREADABLE"]
