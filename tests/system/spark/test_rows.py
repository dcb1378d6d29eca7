"""``kafka-segments`` gives the rows of a plain loop, for every split, and refuses wrong options and
schemas.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from batchval.audit.arrow_rows import DEFAULT_COLUMNS, ROW_SCHEMA, UNREADABLE, read_range
from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.segment.ranges import Range
from batchval.segment.store import SegmentInfo
from batchval.spark.batch_source import KafkaSegments, Piece, pieces
from batchval.spark.spark_types import TOGETHER, Shape, row_type
from tests.system.spark.logs import a_cluster, claimed, ordered, plain, series, write

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_cluster(tmp_path_factory.mktemp("logs"))


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.read.format("kafka-segments").options(**options).load(str(path))


@pytest.mark.parametrize("split", ["256m", "32k", "4096", "997"])
def test_rows_are_those_of_a_plain_loop(spark: SparkSession, logs: Path, split: str) -> None:
    rows = ordered(load(spark, logs, splitBytes=split).collect())
    assert len(rows) > 300
    assert {row["rule"] for row in rows} >= {None, "L1"}
    assert rows == plain(logs)


def test_columns_and_types_are_the_schema(spark: SparkSession, logs: Path) -> None:
    assert load(spark, logs).columns == list(DEFAULT_COLUMNS)
    assert load(spark, logs).schema == row_type(("default",))
    assert load(spark, logs, columns="all").schema == row_type()
    assert load(spark, logs, columns="file, rule").columns == ["file", "rule"]


def test_all_columns_are_those_of_a_plain_loop(spark: SparkSession, logs: Path) -> None:
    rows = ordered(load(spark, logs, columns="all").collect())
    assert {row["file"] for row in rows} == {str(path) for path in logs.glob("*/*.log")}
    assert rows == plain(logs, columns=("all",))


def test_deep_mode_and_topics_reach_the_reader(spark: SparkSession, logs: Path) -> None:
    chosen = {"deep": "true", "mode": "kafka", "topics": "orders,nested", "rows": "bad"}
    rows = ordered(load(spark, logs, **chosen).collect())
    assert {row["topic"] for row in rows} == {"orders"}
    assert rows == plain(logs, deep=True, mode="kafka", topics=("orders", "nested"), rows="bad")


def test_claims_are_trusted_but_for_the_sample(spark: SparkSession, tmp_path: Path) -> None:
    claimed(tmp_path / "orders-0")
    columns = "default,figures,uncompressed_size"
    drawn = {"trustClaims": "0.3", "seed": "5", "columns": columns}
    rows = ordered(load(spark, tmp_path, splitBytes="4k", **drawn).collect())
    assert rows == plain(tmp_path, trust_claims=0.3, seed=5, columns=tuple(columns.split(",")))
    assert {row["figures"] for row in rows} == {"claims", "sample"}
    assert all(row["uncompressed_size"] for row in rows)


def test_no_rows(spark: SparkSession, logs: Path) -> None:
    assert load(spark, logs, rows="none").count() == 0


def test_a_narrower_schema_is_the_projection(spark: SparkSession, logs: Path) -> None:
    reader = spark.read.format("kafka-segments").schema(
        "position bigint, rule string, topic string"
    )
    rows = reader.load(str(logs)).collect()
    assert rows[0].__fields__ == ["position", "rule", "topic"]
    expected = [(row["position"], row["rule"], row["topic"]) for row in plain(logs)]
    assert sorted(map(str, map(tuple, rows))) == sorted(map(str, expected))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            StructType([StructField("position", IntegerType())]),
            "column position is a bigint, not a int",
        ),
        (
            StructType([StructField("offset", LongType())]),
            "rows have no column 'offset': they have schema_version",
        ),
        (StructType([]), "the schema names no column"),
        (
            StructType([StructField("position", LongType())] * 2),
            "the schema names column 'position' twice",
        ),
    ],
)
def test_a_schema_that_rows_do_not_have_is_refused(schema: StructType, message: str) -> None:
    with pytest.raises(BatchvalError, match=re.escape(message)):
        KafkaSegments({"path": "/logs"}).reader(schema)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "some"}, "option rows is 'some': expected all, bad or none"),
        (
            {"splitBytes": "12q"},
            "option splitBytes is '12q': expected a number of bytes such as 256m",
        ),
        ({"splitBytes": "0"}, "at least 1"),
        ({"columns": "offset"}, "unknown column 'offset': expected default, all or schema_version"),
        ({"deep": "maybe"}, "option deep is 'maybe': expected false or true"),
        ({"mode": "lax"}, "option mode is 'lax'"),
        ({"kafkaVersion": "2.7"}, "option kafkaVersion must be a release from 2.8.0 to 4.4.0"),
        (
            {"cleanupPolicy": "delete"},
            "kafka-segments has no option 'cleanupPolicy': it matters between batches",
        ),
        ({"topics": " , "}, "option topics is ' , '"),
        (
            {"trustClaims": "0"},
            "option trustClaims: invalid rate '0': expected a number above 0 and at most 1",
        ),
        (
            {"trustClaims": "0.1", "mode": "kafka"},
            "trust_claims cannot be combined with mode kafka",
        ),
        (
            {"trustClaims": "0.1", "seed": "-1"},
            "option seed is '-1': expected a whole number from 0 to",
        ),
        ({"seed": "1"}, "seed 1 needs trust_claims"),
        ({"acceptClaimsHeader": "1"}, "option acceptClaimsHeader is '1'"),
        ({"splitbites": "1"}, "unknown option 'splitbites' of kafka-segments: expected path"),
        ({"maxBytesPerTrigger": "1g"}, "unknown option 'maxBytesPerTrigger' of kafka-segments"),
        ({"path": ""}, "the path is missing"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(BatchvalError, match=re.escape(message)):
        KafkaSegments({"path": "/logs", **options}).reader(row_type())


def test_options_in_any_case_and_sizes_with_units() -> None:
    chosen = {
        "path": "/logs",
        "SPLITBYTES": "64MiB",
        "Deep": "TRUE",
        "Rows": "bad",
        "topics": "a, b,a",
    }
    options = KafkaSegments(CaseInsensitiveDict(chosen)).reader(row_type(("default",))).options
    assert options == Options(
        columns=DEFAULT_COLUMNS, split_bytes=64 << 20, deep=True, rows="bad", topics=("a", "b")
    )
    options = (
        KafkaSegments(CaseInsensitiveDict({"path": "/", "kafkaversion": "3.9"}))
        .reader(row_type(("default",)))
        .options
    )
    assert options == Options(columns=DEFAULT_COLUMNS, kafka_version="3.9")


def test_a_refusal_ends_the_query_with_its_sentence(spark: SparkSession, logs: Path) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, logs, rows="some").collect()
    assert "BatchvalError: option rows is 'some': expected all, bad or none" in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("schema", ["position int", "offset bigint", "rule string, rule string"])
def test_a_wrong_schema_ends_the_analysis(spark: SparkSession, logs: Path, schema: str) -> None:
    """Check that Spark's one line has the sentence, and no task runs: it asks for the reader when
    it plans.
    """
    frame = spark.read.format("kafka-segments").schema(schema).load(str(logs))
    with pytest.raises(AnalysisException) as caught:
        frame.collect()
    text = str(caught.value)
    assert text.startswith("[PYTHON_DATA_SOURCE_ERROR] ")
    assert "BatchvalError: " in text.partition("\n")[0]
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"maxBytesPerTrigger": "-5"}, "topic string", "option maxBytesPerTrigger is '-5'"),
        ({}, "offset bigint", "rows have no column 'offset'"),
    ],
)
def test_a_stream_s_refusal_is_its_sentence_too(
    spark: SparkSession,
    logs: Path,
    tmp_path: Path,
    options: dict[str, str],
    schema: str,
    message: str,
) -> None:
    stream = (
        spark.readStream.format("kafka-segments").options(**options).schema(schema).load(str(logs))
    )
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination(60)
    assert f"BatchvalError: {message}" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(BatchvalError, match="gopher"):
        KafkaSegments({"path": "gopher://x/y"}).reader(row_type()).partitions()


def test_what_cannot_be_read_is_a_row_and_the_rest_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "good-0", series(5))
    (tmp_path / "gone-0").mkdir()
    (tmp_path / "gone-0" / "00000000000000000000.log").symlink_to(tmp_path / "nowhere")
    rows = ordered(load(spark, tmp_path).collect())
    assert sum(row["topic"] == "good" for row in rows) == 5
    (bad,) = (row for row in rows if row["rule"] == UNREADABLE)
    assert "gone-0" in bad["reason"]
    assert bad["position"] is None


def test_no_such_path_and_an_empty_folder_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    (row,) = load(spark, tmp_path / "nothing").collect()
    assert (row.rule, row.topic) == (UNREADABLE, None)
    assert "No such file" in row.reason
    (row,) = load(spark, tmp_path).collect()
    assert "no segments" in row.reason


def test_a_file_that_goes_between_listing_and_reading_is_a_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    going = write(tmp_path / "a-0", series(4))
    write(tmp_path / "b-0", series(4))
    frame = load(spark, tmp_path)
    assert frame.count() == 8  # the listing is kept with the DataFrame
    going.unlink()
    rows = ordered(frame.collect())
    assert [row["topic"] for row in rows] == ["a", *["b"] * 4]
    assert rows[0]["rule"] == UNREADABLE


def test_many_paths(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "x" / "a-0", series(3))
    write(tmp_path / "y" / "b-0", series(4))
    paths = [str(tmp_path / "x"), str(tmp_path / "y")]
    rows = spark.read.format("kafka-segments").load(paths).collect()
    assert sorted(row.topic for row in rows) == [*"aaa", *"bbbb"]


def test_what_two_paths_lead_to_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a-0", series(3))
    paths = [
        str(tmp_path),
        str(tmp_path / "a-0"),
        str(tmp_path / "nowhere"),
        str(tmp_path / "nowhere"),
    ]
    rows = spark.read.format("kafka-segments").load(paths).collect()
    assert sorted(str(row.topic) for row in rows) == ["None", *"aaa"]


def test_a_topic_that_is_nowhere_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a-0", series(3))
    rows = ordered(load(spark, tmp_path, topics="a,orders").collect())
    assert [row["topic"] for row in rows if row["rule"] is None] == [*"aaa"]
    (lost,) = (row for row in rows if row["rule"] == UNREADABLE)
    assert lost["reason"].endswith("topic not found: orders")


def test_a_session_that_registered_nothing_finds_the_format(
    spark: SparkSession, logs: Path
) -> None:
    """Use another session of the same JVM, which has the installed format and nothing that was
    registered.
    """
    another = spark.newSession()
    assert another.read.format("kafka-segments").load(str(logs)).count() == len(plain(logs))


def test_many_small_files_share_tasks(spark: SparkSession, tmp_path: Path) -> None:
    for n in range(200):
        write(tmp_path / f"small-{n}", series(2, seed=n))
    frame = load(spark, tmp_path)
    assert frame.rdd.getNumPartitions() <= 8
    assert frame.count() == 400


def _range(start: int, end: int) -> Range:
    return Range(SegmentInfo("/l/t-0/00000000000000000000.log", "t", 0, 0, end, 0), start, end)


def test_large_ranges_come_first_and_have_a_task_each() -> None:
    sizes = [1 << 20, 256 << 20, 100, 256 << 20, 20 << 20]
    found = pieces([_range(0, size) for size in sizes], [], 256 << 20)
    held = [[one.end for one in piece.ranges] for piece in found if isinstance(piece, Piece)]
    assert held == [[256 << 20], [256 << 20], [20 << 20], [1 << 20, 100]]


def test_the_arguments_of_a_task_are_small() -> None:
    assert len(pickle.dumps(Piece((_range(0, 5),)))) < 600


def test_blocks_are_handed_over_some_thousands_of_rows_together(tmp_path: Path) -> None:
    log = write(tmp_path / "t-0", series(50))
    segment = SegmentInfo(str(log), "t", 0, 0, log.stat().st_size, 0)
    rows = list(read_range(Range(segment, 0, segment.size), Options(columns=("all",))))
    many = list(Shape(row_type())(rows * (TOGETHER // 25)))
    assert sum(one.num_rows for one in many) == 50 * (TOGETHER // 25)
    assert len(many) == 2
    assert many[0].num_rows >= TOGETHER
    assert many[0].schema.names == ROW_SCHEMA.names
    assert many[0].schema.field("max_timestamp").type == pa.timestamp("us", "UTC")
