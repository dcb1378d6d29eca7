"""Streams: every batch once, across restarts; what is half written waits; a file that changed is
read again.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from batchval.audit.arrow_rows import UNREADABLE
from batchval.errors import BatchvalError
from batchval.spark.spark_types import row_type
from batchval.spark.stream import SegmentsStreamReader, stream_reader
from tests.system.spark.logs import flipped, ordered, plain, series, write

ALL = ReadAllAvailable()


def reader(path: Path, **options: str) -> SegmentsStreamReader:
    return stream_reader({"path": str(path), **options}, row_type(("default",)))


def between(
    stream: SegmentsStreamReader, start: dict[str, int], end: dict[str, int]
) -> list[dict[str, Any]]:
    """Return the rows of one micro-batch; offsets go through JSON, as Spark's do."""
    planned = stream.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    return ordered(
        row for piece in planned for rows in stream.read(piece) for row in rows.to_pylist()
    )


def everything(
    stream: SegmentsStreamReader, start: dict[str, int], most: int
) -> tuple[list[Any], dict[str, int], int]:
    """Yield micro-batches of ``most`` bytes until no more come."""
    rows: list[Any] = []
    for count in range(1000):
        end = stream.latestOffset(start, ReadMaxBytes(most))
        if end == start:
            return ordered(rows), end, count
        rows += between(stream, start, end)
        start = end
    raise AssertionError("the stream goes on for ever")


@pytest.mark.parametrize("most", [1 << 40, 30_000, 4096, 501])
def test_micro_batches_of_any_size_give_the_rows_of_a_plain_loop(tmp_path: Path, most: int) -> None:
    parts = series(80, seed=6)
    parts[30], parts[50] = flipped(parts[30]), b"\xff" * 900
    write(tmp_path / "a-0", parts)
    write(tmp_path / "b-0", series(20, seed=7))
    write(tmp_path / "b-0", series(20, seed=8, base=900), base=900)
    rows, _, count = everything(reader(tmp_path, splitBytes="7000"), {}, most)
    assert rows == plain(tmp_path)
    assert (count == 1) == (most == 1 << 40)


def test_a_batch_that_is_half_written_waits(tmp_path: Path) -> None:
    parts = series(20)
    log = write(tmp_path / "t-0", [*parts[:10], parts[10][:40]])
    stream = reader(tmp_path)
    first = stream.latestOffset({}, ALL)
    assert first == {str(log): sum(map(len, parts[:10]))}
    assert len(between(stream, {}, first)) == 10
    assert stream.latestOffset(first, ALL) == first
    write(tmp_path / "t-0", parts)
    second = stream.latestOffset(first, ALL)
    assert [row["rule"] for row in between(stream, first, second)] == [None] * 10


def test_zeros_allocated_ahead_and_an_unproven_last_batch_wait(tmp_path: Path) -> None:
    parts = series(6)
    log = write(tmp_path / "t-0", [*parts[:4], parts[4][:-2], bytes(5000)])
    stream = reader(tmp_path)
    offset = stream.latestOffset({}, ALL)
    assert offset == {str(log): sum(map(len, parts[:4]))}
    write(tmp_path / "t-0", [b"x"], base=1000)  # the segment has rolled: what it has now it keeps
    rolled = stream.latestOffset(offset, ALL)
    assert rolled[str(log)] == log.stat().st_size
    rows = [row for row in between(stream, offset, rolled) if row["segment"] == 0]
    assert rows == [row for row in plain(tmp_path) if row["segment"] == 0][4:]
    assert rows[-1]["rule"] == "L1"


def test_damage_in_the_newest_segment_is_reported_once_a_proven_batch_follows(
    tmp_path: Path,
) -> None:
    parts = series(9)
    write(tmp_path / "t-0", [*parts[:4], b"\x07" * 300])
    stream = reader(tmp_path)
    offset = stream.latestOffset({}, ALL)
    assert len(between(stream, {}, offset)) == 4
    write(tmp_path / "t-0", [*parts[:4], b"\x07" * 300, *parts[4:]])
    rows = between(stream, offset, stream.latestOffset(offset, ALL))
    assert [row["rule"] for row in rows] == ["4", *[None] * 5]


def test_a_file_that_shrank_is_read_again_and_one_that_is_gone_forgotten(tmp_path: Path) -> None:
    cleaned, gone = write(tmp_path / "a-0", series(10)), write(tmp_path / "b-0", series(10))
    stream = reader(tmp_path)
    offset = stream.latestOffset({}, ALL)
    write(tmp_path / "a-0", series(10)[::2])
    gone.unlink()
    after = stream.latestOffset(offset, ALL)
    assert after == {str(cleaned): cleaned.stat().st_size}
    assert len(between(stream, offset, after)) == 5
    assert stream.latestOffset(after, ALL) == after


def test_what_cannot_be_listed_is_one_row_once(tmp_path: Path) -> None:
    stream = reader(tmp_path / "nothing")
    offset = stream.latestOffset({}, ALL)
    (row,) = between(stream, {}, offset)
    assert row["rule"] == UNREADABLE
    assert "No such file" in row["reason"]
    assert stream.latestOffset(offset, ALL) == offset
    write(tmp_path / "nothing" / "t-0", series(3))
    later = stream.latestOffset(offset, ALL)
    assert len(between(stream, offset, later)) == 3


def test_a_file_that_goes_before_it_is_read_is_a_row(tmp_path: Path) -> None:
    log = write(tmp_path / "t-0", series(3))
    stream = reader(tmp_path)
    offset = stream.latestOffset({}, ALL)
    log.unlink()
    rows = between(stream, {}, offset)
    assert [row["rule"] for row in rows] == [UNREADABLE]
    assert str(log) in rows[0]["reason"]


def test_available_now_ends_at_what_was_there(tmp_path: Path) -> None:
    log = write(tmp_path / "t-0", series(8))
    stream = reader(tmp_path, maxBytesPerTrigger="1k")
    assert stream.getDefaultReadLimit() == ReadMaxBytes(1024)
    stream.prepareForTriggerAvailableNow()
    there = log.stat().st_size
    write(tmp_path / "t-0", series(30))
    write(tmp_path / "u-0", series(3))
    rows, offset, count = everything(stream, {}, 1024)
    assert (len(rows), offset) == (8, {str(log): there})
    assert count > 1


def test_wrong_options_are_refused() -> None:
    with pytest.raises(BatchvalError, match="maxBytesPerTrigger is 'much'"):
        stream_reader({"path": "/logs", "maxBytesPerTrigger": "much"}, row_type())
    with pytest.raises(BatchvalError, match="unknown option 'maxFiles' of kafka-segments"):
        stream_reader({"path": "/logs", "maxFiles": "1"}, row_type())


# ---- with Spark: its checkpoint, its sink --------------------------------------------------------


def _query(spark: SparkSession, folder: Path, **trigger: Any) -> StreamingQuery:
    source = (
        spark.readStream.format("kafka-segments")
        .option("maxBytesPerTrigger", "8k")
        .load(str(folder / "logs"))
    )
    writer = source.writeStream.format("parquet").option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    return writer.option("path", str(folder / "rows")).trigger(**trigger).start()


def _rows(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    return ordered(
        spark.read.schema(row_type(("default",))).parquet(str(folder / "rows")).collect()
    )


def _until_rows_came(query: StreamingQuery) -> None:
    deadline = time.monotonic() + 120
    while not any(progress["numInputRows"] for progress in query.recentProgress):
        assert time.monotonic() < deadline
        assert query.exception() is None
        time.sleep(0.1)


@pytest.mark.jvm
@pytest.mark.long
def test_a_stream_that_is_stopped_and_started_again_has_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Stop a stream while it runs, at any point, and start it from its checkpoint after the logs
    have grown.
    """
    parts = series(150, seed=11)
    parts[60] = flipped(parts[60])
    log = write(tmp_path / "logs" / "t-0", parts[:100])
    running = _query(spark, tmp_path, processingTime="0 seconds")
    try:
        _until_rows_came(running)
    finally:
        running.stop()
    before = len(_rows(spark, tmp_path))
    assert before > 0
    write(tmp_path / "logs" / "t-0", parts)
    _query(spark, tmp_path, availableNow=True).awaitTermination(240)
    rows = _rows(spark, tmp_path)
    assert len(rows) > before
    assert rows == plain(tmp_path / "logs")
    assert [row["rule"] for row in rows].count(None) == 149
    again = _query(spark, tmp_path, availableNow=True)
    assert again.awaitTermination(240)
    assert _rows(spark, tmp_path) == rows
    assert log.exists()
