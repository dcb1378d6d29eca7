"""``kafka-batches`` at a real broker: the rows of its segments, each once, in batches and streams;
alone, no broker.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from batchval.audit.arrow_rows import UNREADABLE
from batchval.errors import BatchvalError
from batchval.producer import Producer, ProducerOptions
from batchval.segment.topic_rules import parse_topic_rules
from batchval.spark.live import BatchesStreamReader, Cluster, KafkaBatches, OffsetRange
from batchval.spark.spark_types import row_type
from tests.support.ports import free_port
from tests.system.interop.kafka_broker import KafkaBroker, ToolMissing
from tests.system.spark.logs import ordered, plain

#: what a file knows and a topic does not
PLACES = {"segment", "position", "broker", "magic"}
#: with the column by which the tail that a broker allocates ahead is left out
DEFAULT = ("default", "magic")


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaBroker]:
    broker = KafkaBroker(config={"num.partitions": 3})
    try:
        broker.start()
    except ToolMissing as error:
        pytest.skip(str(error))
    try:
        yield broker
    finally:
        broker.stop()
        broker._forget()


def produce(kafka: KafkaBroker, topic: str, count: int, codec: str = "none") -> None:
    async def send() -> None:
        options = ProducerOptions(
            bootstrap_servers=[kafka.bootstrap], linger_ms=0, batch_size=400, compression_type=codec
        )
        async with Producer(options) as producer:
            for n in range(count):
                await producer.send(topic, b"value %d" % n, key=b"key %d" % n)
            await producer.flush()

    asyncio.run(send())


def comparable(rows: Any) -> list[dict[str, Any]]:
    kept = [
        {name: value for name, value in row.items() if name not in PLACES} for row in ordered(rows)
    ]
    return sorted(kept, key=lambda row: (row["topic"], row["partition"], row["base_offset"]))


def at_rest(kafka: KafkaBroker, *topics: str) -> list[dict[str, Any]]:
    """Return the rows of what the broker has written, without its preallocated tail."""
    rows = plain(kafka.data, topics=topics, columns=DEFAULT)
    return comparable(row for row in rows if row["magic"] is not None)


def connector_options(kafka: KafkaBroker, topic: str, **options: str) -> CaseInsensitiveDict:
    return CaseInsensitiveDict(
        {"kafka.bootstrap.servers": kafka.bootstrap, "topics": topic, **options}
    )


@pytest.mark.jvm
def test_rows_are_those_of_the_segments(spark: SparkSession, kafka: KafkaBroker) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(kafka, "live-batch", 60, codec)
    rows = (
        spark.read.format("kafka-batches")
        .options(**connector_options(kafka, "live-batch"))
        .load()
        .collect()
    )
    assert len({row.partition for row in rows}) == 3
    assert {row.compression_type for row in rows} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {(row.segment, row.position) for row in rows} == {(None, None)}
    assert comparable(rows) == at_rest(kafka, "live-batch")
    deep = spark.read.format("kafka-batches").options(
        **connector_options(kafka, "live-batch", deep="true", rows="bad")
    )
    assert deep.load().count() == 0


@pytest.mark.jvm
@pytest.mark.slow
def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    def run() -> list[dict[str, Any]]:
        options = connector_options(kafka, "live-stream", maxOffsetsPerTrigger="70")
        source = spark.readStream.format("kafka-batches").options(**options).load()
        writer = source.writeStream.format("parquet").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query = writer.option("path", str(tmp_path / "rows")).trigger(availableNow=True).start()
        assert query.awaitTermination(240)
        return comparable(
            spark.read.schema(row_type(("default",))).parquet(str(tmp_path / "rows")).collect()
        )

    produce(kafka, "live-stream", 200)
    assert run() == at_rest(kafka, "live-stream")
    produce(kafka, "live-stream", 100, "lz4")
    rows = run()
    assert rows == at_rest(kafka, "live-stream")
    assert sum(row["records_count"] for row in rows) == 300
    assert run() == rows


@pytest.mark.jvm
def test_stretches_that_meet_within_a_batch_have_it_once(kafka: KafkaBroker) -> None:
    """Use offsets of any checkpoint, also in the middle of a batch."""
    produce(kafka, "live-cut", 150)
    stream = KafkaBatches(connector_options(kafka, "live-cut")).streamReader(row_type(("default",)))
    start, end = (
        stream.initialOffset(),
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable()),
    )
    assert sum(end["live-cut"].values()) == 150
    rows: list[dict[str, Any]] = []
    for middle in (
        {"live-cut": {number: at * n // 5 for number, at in end["live-cut"].items()}}
        for n in range(1, 6)
    ):
        for stretch in stream.partitions(start, middle):
            rows += [row for found in stream.read(stretch) for row in found.to_pylist()]
        start = middle
    assert comparable(rows) == at_rest(kafka, "live-cut")


@pytest.mark.jvm
def test_topics_by_the_words_of_spark_s_own_connector(
    spark: SparkSession, kafka: KafkaBroker
) -> None:
    """Use ``subscribe``, ``subscribePattern`` and ``assign``, in batches and streams."""
    for topic in ("live-words-a", "live-words-b"):
        produce(kafka, topic, 40)

    def rows(**options: str) -> list[dict[str, Any]]:
        frame = spark.read.format("kafka-batches").option(
            "kafka.bootstrap.servers", kafka.bootstrap
        )
        return comparable(frame.options(**options).load().collect())

    both = at_rest(kafka, "live-words-a", "live-words-b")
    assert rows(subscribe="live-words-b, live-words-a") == both
    assert rows(subscribePattern="live-words-.*") == both
    assert rows(subscribePattern="live-words") == []
    one = [row for row in both if row["topic"] == "live-words-a" and row["partition"] in (0, 2)]
    assert rows(assign='{"live-words-a": [2, 0]}') == one
    options = CaseInsensitiveDict(
        {"kafka.bootstrap.servers": kafka.bootstrap, "subscribePattern": ".*-words-b"}
    )
    reach = KafkaBatches(options).streamReader(row_type()).latestOffset({}, ReadAllAvailable())
    assert {topic: sum(ends.values()) for topic, ends in reach.items()} == {"live-words-b": 40}


@pytest.mark.jvm
def test_partitions_that_a_topic_lacks_are_refused(kafka: KafkaBroker) -> None:
    produce(kafka, "live-few", 1)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "assign": '{"live-few": [1, 3]}'}
    with pytest.raises(BatchvalError, match="live-few-3, but live-few has 3 partitions"):
        KafkaBatches(CaseInsensitiveDict(options)).reader(row_type()).partitions()


@pytest.mark.jvm
def test_record_rules_by_topic(spark: SparkSession, kafka: KafkaBroker) -> None:
    """Compare with the offsets, rules and reasons of the broker's segments by the same rules."""
    for topic, codec in (("live-ruled-a", "none"), ("live-ruled-b", "zstd"), ("live-free", "none")):
        produce(kafka, topic, 12, codec)
    rules = '{"*-ruled-b": {"required_headers": ["trace"]}, "*-ruled-*": {"max_value_bytes": 7}}'
    topics = ("live-ruled-a", "live-ruled-b", "live-free")
    options = connector_options(kafka, ",".join(topics), deep="true", rows="bad", recordRules=rules)
    rows = comparable(spark.read.format("kafka-batches").options(**options).load().collect())
    wanted = plain(
        kafka.data, topics=topics, deep=True, record_rules=parse_topic_rules(rules), columns=DEFAULT
    )
    assert rows == comparable(row for row in wanted if row["magic"] is not None and row["rule"])
    assert {(row["topic"], row["rule"]) for row in rows} == {
        ("live-ruled-a", "R3"),
        ("live-ruled-b", "R5"),
    }


@pytest.mark.jvm
def test_offsets_that_are_gone_are_a_row(kafka: KafkaBroker) -> None:
    produce(kafka, "live-gone", 10)
    reader = KafkaBatches(connector_options(kafka, "live-gone")).reader(row_type())
    (rows,) = reader.read(OffsetRange("live-gone", 0, 5000, 6000))
    (row,) = rows.to_pylist()
    assert (row["rule"], row["topic"], row["partition"]) == (UNREADABLE, "live-gone", 0)
    assert "offsets from 5000 on are no longer in the log" in row["reason"]


def test_a_broker_that_is_not_there_is_a_row_in_time() -> None:
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{free_port()}",
        "topics": "t",
        "timeoutMs": "1500",
    }
    reader = KafkaBatches(CaseInsensitiveDict(options)).reader(row_type())
    (rows,) = reader.read(OffsetRange("t", 1, 0, 10))
    (row,) = rows.to_pylist()
    assert row["rule"] == UNREADABLE
    assert row["reason"]


def stream_of(**options: str) -> BatchesStreamReader:
    """Return a stream of the topic ``t`` that has not asked a broker yet."""
    passed = {"kafka.bootstrap.servers": "127.0.0.1:1", "topics": "t", **options}
    stream = KafkaBatches(CaseInsensitiveDict(passed)).streamReader(row_type())
    assert isinstance(stream, BatchesStreamReader)
    return stream


def test_a_partition_that_appears_later_begins_at_its_log_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = {"t": {"0": 1000, "1": 900}, "new": {"0": 50}, "deleted": {"0": 7}}
    log_starts = {"t": {"0": 100, "1": 800}, "new": {"0": 40}}
    now = {"latest": ends, "earliest": log_starts}
    monkeypatch.setattr(Cluster, "offsets", lambda cluster, where: now[where])
    stream, start = stream_of(), {"t": {"0": 990}}
    assert stream.latestOffset(start, ReadMaxRows(8)) == {
        "t": {"0": 993, "1": 802},
        "new": {"0": 43},
        "deleted": {"0": 7},
    }
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == ends
    assert stream.partitions(start, end) == [
        OffsetRange("t", 0, 990, 1000),
        OffsetRange("t", 1, 800, 900),
        OffsetRange("new", 0, 40, 50),
    ]


def test_a_limit_is_dealt_out_and_what_one_leaves_is_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Cluster, "offsets", lambda *_: {"t": {"0": 0, "1": 0, "2": 0}})
    stream = stream_of(maxOffsetsPerTrigger="100")
    assert stream.getDefaultReadLimit() == ReadMaxRows(100)
    stream.target = {"t": {"0": 1000, "1": 10, "2": 500}}
    assert stream.latestOffset({"t": {"2": 490}}, ReadMaxRows(100)) == {
        "t": {"0": 80, "1": 10, "2": 500}
    }
    assert stream.latestOffset({"t": {"2": 490}}, ReadAllAvailable()) == stream.target
    assert stream.latestOffset(stream.target, ReadMaxRows(100)) == stream.target
    (left,) = stream.partitions({"t": {"0": 1000, "1": 10}}, {"t": {"0": 1000, "1": 10, "2": 7}})
    assert left == OffsetRange("t", 2, 0, 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "t"}, "option kafka.bootstrap.servers is missing"),
        (
            {"kafka.bootstrap.servers": "a:1"},
            "option subscribe is missing: expected a comma-separated list of topics",
        ),
        (
            {"kafka.bootstrap.servers": "a:1", "topics": "t", "subscribe": "t"},
            "options topics and subscribe cannot be combined: both name topics",
        ),
        ({"kafka.bootstrap.servers": "a:1", "subscribe": " , "}, "option subscribe is ' , '"),
        (
            {"kafka.bootstrap.servers": "a:1", "subscribePattern": "a("},
            "option subscribePattern is 'a('",
        ),
        *(
            (
                {"kafka.bootstrap.servers": "a:1", "assign": text},
                f"option assign is {text!r}: expected topics",
            )
            for text in (
                "orders",
                "[1]",
                "{}",
                '{"t": []}',
                '{"t": [-1]}',
                '{"t": ["0"]}',
                '{"t": 3}',
                '{"t": [true]}',
            )
        ),
        ({"kafka.bootstrap.servers": "a", "topics": "t"}, "invalid server 'a': expected host:port"),
        (
            {"kafka.bootstrap.servers": "a:1", "topics": "t", "startingOffsets": "now"},
            "option startingOffsets is 'now'",
        ),
        *(
            (
                {"kafka.bootstrap.servers": "a:1", "topics": "t", "timeoutMs": text},
                f"option timeoutMs is {text!r}: expected milliseconds, from 1 to 2147483647",
            )
            for text in ("256m", "x", "0", "-1", "2147483648", "9" * 5000, "٣")
        ),
        (
            {"kafka.bootstrap.servers": "a:1", "topics": "t", "path": "/x"},
            "unknown option 'path' of kafka-batches",
        ),
        (
            {"kafka.bootstrap.servers": "a:1", "topics": "t", "splitBytes": "1"},
            "unknown option 'splitbytes' of kafka-batches",
        ),
        (
            {"kafka.bootstrap.servers": "a:1", "topics": "t", "kafka.security.protocol": "MAGIC"},
            "security.protocol MAGIC",
        ),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(BatchvalError, match=re.escape(message)):
        KafkaBatches(CaseInsensitiveDict(options)).reader(row_type())


@pytest.mark.parametrize("text", ["x", "70k", "0", "-1", "", "9" * 5000])
def test_a_wrong_count_of_offsets_is_refused(text: str) -> None:
    message = f"option maxOffsetsPerTrigger is {text!r}: expected a whole number of offsets"
    with pytest.raises(BatchvalError, match=re.escape(message)):
        stream_of(maxOffsetsPerTrigger=text)


def test_a_password_is_in_no_message() -> None:
    options = {
        "kafka.bootstrap.servers": "a:1", "topics": "t", "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "NONE", "kafka.sasl.username": "u", "kafka.sasl.password": "hush-hush",
    }  # fmt: skip
    with pytest.raises(BatchvalError) as caught:
        KafkaBatches(CaseInsensitiveDict(options)).reader(row_type())
    assert "hush-hush" not in str(caught.value)
