"""The option ``recordRules``: Spark finds what ``batchval check --record-rules`` finds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.segment.topic_rules import parse_topic_rules
from batchval.spark import register, validate_batches
from batchval.spark.audits import _options
from batchval.spark.batch_source import KafkaSegments
from batchval.spark.finding_rows import FINDINGS, KafkaFindings
from batchval.spark.live import KafkaBatches
from batchval.spark.spark_types import row_type
from batchval.spark.stream import stream_reader
from batchval.spark.udf import _options_of
from tests.support.batches import batch, record
from tests.system.spark.logs import CODECS, write
from tests.unit.cli.conftest import run as run  # noqa: PLC0414 (a fixture)

pytestmark = pytest.mark.jvm

WITH_ID = b"\0\0\0\0\x07text"
ORDERS = {
    "schema_id": {"ids": [7]},
    "max_key_bytes": 8,
    "max_value_bytes": 20,
    "max_headers": 2,
    "required_headers": ["trace"],
    "forbidden_headers": ["secret"],
    "tombstones": "refuse",
    "utf8_keys": True,
}
PLACE = ("file", "position")
CAUSE = ("rule", "reason")
RULES = json.dumps({"orders*": ORDERS, "*": {"max_value_bytes": 3}})
TRACE = (b"trace", b"1")
#: a record for each rule that it alone breaks
BROKEN = {
    "R1": record(1, value=b"\0\0\0\0\x09text", headers=[TRACE]),
    "R2": record(1, value=WITH_ID, key=b"k" * 9, headers=[TRACE]),
    "R3": record(1, value=WITH_ID * 3, headers=[TRACE]),
    "R4": record(1, value=WITH_ID, headers=[TRACE] * 3),
    "R5": record(1, value=WITH_ID),
    "R6": record(1, value=WITH_ID, headers=[TRACE, (b"secret", None)]),
    "R7": record(1, value=None, headers=[TRACE]),
    "R8": record(1, value=WITH_ID, key=b"\xff", headers=[TRACE]),
}
GOOD = record(value=WITH_ID, headers=[TRACE])


def batches() -> list[bytes]:
    """Return a batch for each rule, in all codecs."""
    parts = [[GOOD, broken] for broken in BROKEN.values()]
    return [
        batch(one, codec=CODECS[n % 5], base_offset=2 * n, partition_leader_epoch=1)
        for n, one in enumerate(parts)
    ]


def logs(folder: Path) -> Path:
    for topic in ("orders-0", "orders.eu-1", "other-0"):
        write(folder / topic, batches())
    return folder


def by_check(run: Any, *words: object) -> list[tuple[Any, ...]]:
    """Return (file, position, offset, rule, reason) of each finding."""
    code, out, err = run("check", "--json", *words)
    assert (code, err) == (1, "")
    lines = [json.loads(line) for line in out.splitlines()]
    found = [one for one in lines if one["type"] == "finding"]
    return [
        tuple(one[name] for name in ("file", "position", "offset", "rule", "reason"))
        for one in found
    ]


def test_findings_are_those_of_check(run: Any, spark: SparkSession, tmp_path: Path) -> None:
    """Compare rows, with both forms of the option, and kafka-findings."""
    folder = logs(tmp_path / "logs")
    (file := tmp_path / "rules.json").write_text(RULES, "utf-8")
    wanted = by_check(run, "--record-rules", file, folder)
    assert [one[3] for one in wanted] == [*BROKEN, *BROKEN, *["R3"] * 8]
    assert len({one[4] for one in wanted}) >= len(BROKEN)

    frame = spark.read.format("kafka-segments").option("deep", "true").option("rows", "bad")
    rows = frame.option("columns", "all").option("recordRules", str(file)).load(str(folder))
    assert sorted(map(tuple, rows.select(*PLACE, "base_offset", *CAUSE).collect())) == sorted(
        wanted
    )

    options = {"path": str(folder), "deep": "true", "recordRules": RULES}
    segments = KafkaSegments({**options, "rows": "bad"}).reader(row_type())
    assert read(segments, *PLACE, "base_offset", *CAUSE) == sorted(wanted)
    findings = KafkaFindings(options).reader(from_arrow_schema(FINDINGS))
    assert read(findings, *PLACE, "offset", *CAUSE) == sorted(wanted)
    assert (
        read(
            KafkaSegments({"path": str(folder), "deep": "true", "rows": "bad"}).reader(row_type()),
            *CAUSE,
        )
        == []
    )


def read(reader: Any, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows as tasks make them, in this process."""
    found = [
        row for task in reader.partitions() for one in reader.read(task) for row in one.to_pylist()
    ]
    return sorted(tuple(row[name] for name in columns) for row in found)


def test_values_have_the_rules_of_every_topic(
    run: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """Compare with check of files without a topic; in Python and in SQL."""
    rules = json.dumps({"orders*": {"max_key_bytes": 0}, "*": ORDERS})
    (file := tmp_path / "rules.json").write_text(rules, "utf-8")
    (stored := tmp_path / "kept.bin").write_bytes(b"".join(batches()))
    wanted = [one[1:] for one in by_check(run, "--as", "log", "--record-rules", rules, stored)]
    register(spark)
    frame = spark.createDataFrame([(stored.read_bytes(),)], "value binary")
    in_sql = F.expr(f"validate_batches(value, deep => true, recordRules => '{rules}')")
    (row,) = frame.select(
        validate_batches("value", deep=True, recordRules=file).alias("own"), in_sql.alias("sql")
    ).collect()
    for verdicts in (row.own, row.sql):
        found = [
            (one.position, one.base_offset, one.rule, one.reason) for one in verdicts if one.rule
        ]
        assert found == wanted
        assert [one[2] for one in found] == list(BROKEN)


def test_a_stream_that_restarts_has_the_new_rules_from_its_checkpoint_on(tmp_path: Path) -> None:
    """Check that batches that were read are not validated again: offsets hold no rules."""
    write(tmp_path / "orders-0", batches())

    def judged(start: dict[str, int], rules: dict[str, Any]) -> tuple[list[str], dict[str, int]]:
        options = {
            "path": str(tmp_path),
            "deep": "true",
            "rows": "bad",
            "recordRules": json.dumps({"*": rules}),
        }
        stream = stream_reader(options, row_type(("default",)))
        end = stream.latestOffset(start, ReadAllAvailable())
        rows = [
            row
            for part in stream.partitions(start, end)
            for one in stream.read(part)
            for row in one.to_pylist()
        ]
        return [row["rule"] for row in rows], end

    rules, end = judged({}, {"tombstones": "refuse"})
    assert rules == ["R7"]
    assert judged(end, {"max_key_bytes": 8}) == ([], end)
    write(tmp_path / "orders-0", [*batches(), *batches()])
    assert judged(end, {"max_key_bytes": 8})[0] == ["R2"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            "/nowhere/rules.json",
            "option recordRules: cannot read /nowhere/rules.json: No such file or directory",
        ),
        (
            "",
            "option recordRules: the value is empty: expected a JSON object, or the name of a file",
        ),
        ("{", "option recordRules: record rules are not JSON"),
        (
            '{"*": {"max_key": 1}}',
            "option recordRules: record rules of '*': unknown record rule 'max_key': allowed",
        ),
        (
            '{"*": {"max_key_bytes": %s}}' % ("1" * 5000),
            "record rules have a number of more than 4,300 digits",
        ),
        (None, "option recordRules needs deep=true: record rules apply to each record"),
    ],
)
def test_wrong_rules_are_refused(value: str | None, reason: str) -> None:
    options = (
        {"path": "/logs", "deep": "true", "recordRules": value}
        if value is not None
        else {"recordRules": RULES}
    )
    live = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options}
    live.pop("path", None)
    for refused in (
        lambda: KafkaSegments({"path": "/logs", **options}).reader(row_type()),
        lambda: stream_reader({"path": "/logs", **options}, row_type()),
        lambda: KafkaFindings({"path": "/logs", **options}).reader(from_arrow_schema(FINDINGS)),
        lambda: KafkaBatches(CaseInsensitiveDict(live)).reader(row_type()),
        lambda: KafkaBatches(CaseInsensitiveDict(live)).streamReader(row_type()),
        lambda: validate_batches(
            "value", **{name: one for name, one in options.items() if name != "path"}
        ),
    ):
        with pytest.raises(BatchvalError, match=re.escape(reason)):
            refused()


def test_rules_that_no_value_would_be_asked_are_refused() -> None:
    with pytest.raises(BatchvalError, match=r"option recordRules needs the pattern '\*': values"):
        validate_batches("value", deep=True, recordRules='{"orders*": {"max_key_bytes": 1}}')
    in_sql = pa.array([json.dumps({"deep": "true", "recordRules": "rules.json"})])
    with pytest.raises(BatchvalError, match=r"recordRules is 'rules.json': SQL takes"):
        _options_of(in_sql)


def test_a_wrong_rule_ends_the_query_with_its_sentence(spark: SparkSession, tmp_path: Path) -> None:
    frame = (
        spark.read.format("kafka-segments").option("deep", "true").option("recordRules", '{"*": 5}')
    )
    with pytest.raises(PySparkException) as caught:
        frame.load(str(tmp_path))
    text = str(caught.value)
    assert (
        "BatchvalError: option recordRules: record rules of '*': record rules must be a mapping, not 5"
        in text
    )
    assert "Traceback" not in text


def test_rules_of_an_audit() -> None:
    assert _options({"record_rules": RULES, "deep": True}) == Options(
        deep=True, record_rules=parse_topic_rules(RULES)
    )
    assert _options({"record_rules": parse_topic_rules(RULES), "deep": True}).record_rules
    for options, reason in (
        ({"record_rules": RULES}, "record_rules needs deep=True"),
        (
            {"record_rules": {"*": {}}, "deep": True},
            "expected a JSON object as a string, or a file",
        ),
        ({"record_rules": "{", "deep": True}, "record_rules: record rules are not JSON"),
    ):
        with pytest.raises(BatchvalError, match=reason):
            _options(options)


def test_rules_reach_workers_with_the_reader() -> None:
    from pyspark import cloudpickle

    reader = KafkaSegments({"path": "/", "deep": "true", "recordRules": RULES}).reader(row_type())
    kept: Options = cloudpickle.loads(cloudpickle.dumps(reader)).options
    assert kept.record_rules == parse_topic_rules(RULES)
