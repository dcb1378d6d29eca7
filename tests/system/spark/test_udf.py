"""``validate_batches`` answers for each value what the library answers for its bytes."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.spark import register, validate_batches
from batchval.spark.options import row_options
from batchval.spark.udf import _options_of, verdict_type, verdicts_of
from tests.system.spark.logs import claimed, flipped, series

ROOT = Path(__file__).resolve().parents[3]


def corpus() -> list[bytes]:
    with gzip.open(ROOT / "fixtures" / "corpus" / "sample.jsonl.gz") as lines:
        found = [bytes.fromhex(json.loads(line)["batch_hex"]) for line in lines]
    for file in sorted((ROOT / "fixtures" / "golden").rglob("*.jsonl")):
        found += [
            bytes.fromhex(json.loads(line)["batch_hex"]) for line in file.read_text().splitlines()
        ]
    return found


def library(value: bytes, mode: str = "strict", deep: bool = False) -> list[tuple[int, Any, int]]:
    """Return (position, rule, error code) of each batch that the log profile sees before the first
    damage.
    """
    columns = LogValidator(mode=mode, profile="log").check_batches(value, deep=deep)  # type: ignore[arg-type]
    rules = [row["rule"] for row in columns.rows()]
    return list(
        zip(columns["position"].tolist(), rules, columns["error_code"].tolist(), strict=True)
    )


def values_of(count: int = 60) -> list[bytes | None]:
    chance = random.Random(9)
    parts = series(200)
    values: list[bytes | None] = []
    for n in range(count):
        value = b"".join(parts[n * 3 : n * 3 + chance.randint(0, 4)])
        kind = chance.randint(0, 5)
        values.append(
            None
            if kind == 0
            else flipped(value)
            if kind == 1 and value
            else value[:-kind]
            if kind == 2
            else value
        )
    return values


def test_claims_in_values_are_trusted(tmp_path: Path) -> None:
    value = claimed(tmp_path / "orders-0").read_bytes()
    for values in ([value, None, b""], [value[:-1], value]):
        answers = verdicts_of(
            pa.array(values, pa.binary()), row_options({"trustClaims": "0.3", "seed": "5"})
        ).to_pylist()
        found = {
            one["figures"]
            for answer in answers
            if answer
            for one in answer
            if one["magic"] is not None
        }
        assert found == {"claims", "sample"}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_values_are_judged_alike_alone_and_together(kind: Any) -> None:
    values = values_of()
    together = verdicts_of(pa.array(values, kind), Options()).to_pylist()
    assert together == [
        verdicts_of(pa.array([value], kind), Options()).to_pylist()[0] for value in values
    ]
    assert [one is None for one in together] == [value is None for value in values]
    assert verdicts_of(pa.array(values, kind).slice(7, 20), Options()).to_pylist() == together[7:27]
    sound: list[bytes | None] = [
        value
        for value in values
        if value is not None and LogValidator(profile="log").check(value).ok
    ]
    assert len(sound) > 20
    for value, got in zip(
        sound, verdicts_of(pa.array(sound, kind), Options()).to_pylist(), strict=True
    ):
        assert value is not None
        assert [(row["position"], row["rule"], row["error_code"] or 0) for row in got] == library(
            value
        )


def test_a_size_that_leads_into_the_next_value_is_seen() -> None:
    first, second, third = series(3)
    long = bytearray(first)
    long[8:12] = (len(first) + len(second) - 12).to_bytes(4, "big")
    verdicts = verdicts_of(pa.array([bytes(long), second, third]), Options()).to_pylist()
    assert [[row["rule"] for row in one] for one in verdicts] == [["L1"], [None], [None]]


def test_nothing_in_nothing_out() -> None:
    assert verdicts_of(pa.array([], pa.binary()), Options()).to_pylist() == []
    assert verdicts_of(pa.array([b"", None], pa.binary()), Options()).to_pylist() == [[], None]


def test_wrong_options_are_refused() -> None:
    with pytest.raises(BatchvalError, match="unknown option 'rows' of validate_batches"):
        validate_batches("value", rows="bad")
    with pytest.raises(BatchvalError, match="option maxDecompressedBytes is '-5'"):
        validate_batches("value", maxDecompressedBytes=-5)


@pytest.mark.parametrize("values", [pa.array(["text", None]), pa.array([7]), pa.array([[1]])])
def test_a_column_of_other_things_than_bytes_is_refused(values: pa.Array) -> None:
    with pytest.raises(BatchvalError, match=f"not one of {re.escape(str(values.type))}"):
        verdicts_of(values, Options())


def test_nulls_without_a_type_are_nulls() -> None:
    assert verdicts_of(pa.nulls(2), Options()).to_pylist() == [None, None]


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("mode", "deep"),
    [
        pytest.param("strict", True, marks=pytest.mark.long),
        pytest.param("kafka", True, marks=pytest.mark.slow),
        pytest.param("strict", False, marks=pytest.mark.slow),
    ],
)
def test_the_corpus_through_spark_has_the_library_s_verdicts(
    spark: SparkSession, mode: str, deep: bool
) -> None:
    values = corpus()
    assert len(values) > 3000
    frame = spark.createDataFrame(
        pa.table({"n": list(range(len(values))), "value": values})
    ).repartition(4)
    got = (
        frame.select("n", validate_batches("value", mode=mode, deep=str(deep).lower()).alias("v"))
        .orderBy("n")
        .collect()
    )
    refused = damaged = 0
    for value, row in zip(values, got, strict=True):
        damage = min((one.position for one in row.v if one.magic is None), default=len(value))
        verdicts = [
            (one.position, one.rule, one.error_code or 0) for one in row.v if one.position < damage
        ]
        assert verdicts == [one for one in library(value, mode, deep) if one[0] < damage]
        assert (damage < len(value)) == (
            sum(one.size_in_bytes for one in row.v if one.magic is not None) < len(value)
        )
        damaged += damage < len(value)
        refused += any(one.rule for one in row.v)
    assert refused > (1000 if deep else 500)
    assert damaged > 50


@pytest.mark.jvm
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("kind", ["string", "int", "array<binary>"])
def test_a_column_of_another_type_is_refused_by_the_analysis(
    spark: SparkSession, kind: str, ansi: str
) -> None:
    """Check that no task runs: a select that is not collected is refused."""
    frame = spark.createDataFrame([], f"value {kind}")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises(AnalysisException) as caught:
            frame.select(validate_batches("value", deep=True))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    line = str(caught.value).partition("\n")[0]
    assert "the argument of validate_batches" in line
    assert 'requires the "BINARY" type, however' in line
    assert f'has the type "{kind.upper()}"' in line


@pytest.mark.jvm
def test_the_check_of_the_type_costs_nothing(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.createDataFrame([], "value binary")
    frame.select(validate_batches("value")).explain()
    plan = capsys.readouterr().out
    assert "ArrowEvalPython" in plan
    assert "bitmap" not in plan


@pytest.mark.jvm
def test_sql(spark: SparkSession) -> None:
    register(spark)
    values = [flipped(series(3)[1]), b"".join(series(4)), None, b""]
    frame = spark.createDataFrame([(value,) for value in values], "value binary")
    frame.createOrReplaceTempView("kept")
    for sql, options in (
        ("", {}),
        (", deep => true", {"deep": True}),
        (", mode => 'kafka', kafkaVersion => '3.9'", {"mode": "kafka", "kafkaVersion": "3.9"}),
    ):
        got = spark.sql(f"select validate_batches(value{sql}) as v from kept").collect()
        assert got == frame.select(validate_batches("value", **options).alias("v")).collect()
    assert [row.v and [one.rule for one in row.v] for row in got] == [["14"], [None] * 4, None, []]
    exploded = spark.sql("select inline(v) from (select validate_batches(value) as v from kept)")
    assert exploded.columns == verdict_type().names
    assert exploded.count() == 5


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("validate_batches(1)", 'cannot cast "INT" to "BINARY"'),
        ("validate_batches(X'00', depp => true)", "argument named `depp`"),
    ],
)
def test_sql_that_the_analysis_refuses(spark: SparkSession, call: str, reason: str) -> None:
    register(spark)
    with pytest.raises(AnalysisException, match=re.escape(reason)):
        spark.sql(f"select {call}")


@pytest.mark.jvm
def test_wrong_options_in_sql_are_a_sentence(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(PySparkException) as caught:
        spark.sql("select validate_batches(X'00', mode => 'lax') from range(1)").collect()
    assert "BatchvalError: option mode is 'lax': expected strict or kafka" in str(caught.value)
    assert "File " not in str(caught.value)


def test_options_that_differ_from_row_to_row_are_refused() -> None:
    assert _options_of(pa.array(['{"deep": "true"}'] * 2)) == row_options({"deep": "true"})
    assert _options_of(pa.array([], pa.string())) == row_options({})
    with pytest.raises(BatchvalError, match="they cannot differ between rows"):
        _options_of(pa.array(["{}", '{"deep": "true"}']))


@pytest.mark.jvm
def test_the_answer_can_be_exploded(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(bytes(b"".join(series(5))),), (None,)], "value binary")
    exploded = frame.select(
        F.explode(validate_batches(F.col("value"), deep="true")).alias("v")
    ).select("v.*")
    assert exploded.columns == verdict_type().names
    assert exploded.filter("rule is null").count() == 5
