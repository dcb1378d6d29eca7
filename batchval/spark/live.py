"""The format ``kafka-batches``: batches of live topics, as brokers send them, validated as those at
rest.

A task reads one range of offsets of one partition. A batch belongs to the range that its last
offset lies in: a fetch gives the batch in which its offset lies, whole, so each batch is in one
range, wherever ranges meet. An offset of a stream is ``{topic: {partition: next offset}}``.
``segment`` and ``position`` are null: no file is known.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from batchval.audit.arrow_rows import to_rows, unreadable_row
from batchval.errors import BatchvalError, NotABatch
from batchval.fetch import Consumer, ConsumerOptions, OffsetOutOfRangeError, TopicPartition
from batchval.network.security import PROPERTIES, Security
from batchval.segment.options import Options, validator_of
from batchval.segment.store import SegmentInfo, one_line
from batchval.spark.options import (
    CHECK_OPTIONS,
    MAX_LONG,
    count,
    known,
    milliseconds,
    one_of,
    row_options,
    topics,
)
from batchval.spark.refusal import sentences, stream_or_refusal
from batchval.spark.spark_types import Shape, row_type
from batchval.spark.tasks import placeless

__all__ = ["BatchesReader", "BatchesStreamReader", "KafkaBatches", "OffsetRange"]

#: as Spark's own connector has them: the client's settings begin with ``kafka.``
_PREFIX: Final = "kafka."
#: which topics: the first is that of the other formats, the others are Spark's own
_TOPICS: Final = ("topics", "subscribe", "subscribePattern", "assign")
BATCH_OPTIONS: Final = (
    "kafka.bootstrap.servers",
    *(_PREFIX + name for name in sorted(PROPERTIES)),
    *_TOPICS,
    "startingOffsets",
    "rows",
    "columns",
    *CHECK_OPTIONS,
    "timeoutMs",
)
STREAM_OPTIONS: Final = (*BATCH_OPTIONS, "maxOffsetsPerTrigger")

_NO_FILE: Final = ("segment", "position")

TopicOffsets = dict[str, dict[str, int]]


@dataclass
class OffsetRange(InputPartition):
    """Offsets of one partition: from ``start`` to before ``end``."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Wanted:
    """The partitions to read.

    ``topics``   names
    ``pattern``  topics whose whole names match it, instead
    ``numbers``  the partitions of each topic; None for all
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    numbers: Mapping[str, tuple[int, ...]] | None = None

    @classmethod
    def of(cls, passed: Mapping[str, str]) -> Wanted:
        """Read the one option that names topics. Raises BatchvalError."""
        names = [name for name in _TOPICS if name in passed]
        if not names:
            raise BatchvalError(
                "option subscribe is missing: expected a comma-separated list of topics"
            )
        if len(names) > 1:
            raise BatchvalError(
                f"options {' and '.join(names)} cannot be combined: both name topics"
            )
        text = passed[names[0]]
        if names[0] == "subscribePattern":
            return cls(pattern=_checked_pattern(text))
        if names[0] == "assign":
            numbers = _assigned(text)
            return cls(tuple(numbers), numbers=numbers)
        return cls(topics(passed, names[0]) or ())

    async def partitions(self, consumer: Consumer) -> dict[str, tuple[int, ...]]:
        """Return the partitions of each topic, in order, as the brokers have them."""
        names = self.topics
        if self.pattern is not None:
            names = tuple(await consumer.topics_matching(self.pattern))
        counts = {name: await consumer.partitions_for(name) for name in sorted(names)}
        if self.numbers is None:
            return {name: tuple(range(number)) for name, number in counts.items()}
        for name, number in counts.items():
            if self.numbers[name][-1] >= number:
                highest = self.numbers[name][-1]
                raise BatchvalError(
                    f"option assign names {name}-{highest}, but {name} has {number} partitions"
                )
        return {name: self.numbers[name] for name in counts}


def _checked_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise BatchvalError(f"option subscribePattern is {text!r}: {error}") from None
    return text


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    """Return the partitions of each topic, in order."""
    try:
        numbers = json.loads(text)
        found = {name: tuple(sorted(set(several))) for name, several in numbers.items()}
    except (ValueError, TypeError, AttributeError):
        found = {}
    flat = [number for several in found.values() for number in several]
    if not all(found.values()) or not flat or not all(type(n) is int and n >= 0 for n in flat):
        example = '{"orders": [0, 1]}'
        raise BatchvalError(f"option assign is {text!r}: expected topics such as {example}")
    return found


@dataclass(frozen=True)
class Cluster:
    """The client's settings and the partitions to read, pickled to workers, which connect."""

    bootstrap_servers: tuple[str, ...]
    properties: Mapping[str, str]
    wanted: Wanted
    starting: str
    timeout_ms: int

    @classmethod
    def of(cls, passed: Mapping[str, str]) -> Cluster:
        """Return the options. Raises BatchvalError for a missing or invalid one."""
        servers = passed.get("kafka.bootstrap.servers", "")
        if not servers.strip():
            raise BatchvalError(
                "option kafka.bootstrap.servers is missing: expected host:port with "
                "commas between them"
            )
        wanted = Wanted.of(passed)
        lower = {key.lower(): value for key, value in passed.items()}
        properties = {name: lower[_PREFIX + name] for name in PROPERTIES if _PREFIX + name in lower}
        cluster = cls(
            bootstrap_servers=tuple(one.strip() for one in servers.split(",") if one.strip()),
            properties=properties,
            wanted=wanted,
            starting=one_of(passed, "startingOffsets", ("earliest", "latest")),
            timeout_ms=milliseconds(passed, "timeoutMs", 60_000),
        )
        cluster.consumer()  # refuses invalid settings here, before a worker starts
        return cluster

    def consumer(self) -> Consumer:
        """Return a new consumer, to be opened."""
        return Consumer(
            ConsumerOptions(
                bootstrap_servers=self.bootstrap_servers,
                client_id="batchval-spark",
                auto_offset_reset="none",
                allow_auto_create_topics=False,
                default_api_timeout_ms=self.timeout_ms,
                max_partition_fetch_bytes=8 << 20,
                security=Security.from_properties(self.properties),
            )
        )

    def offsets(self, where: str) -> TopicOffsets:
        """Return the ``earliest`` or ``latest`` offsets of all partitions, in order."""

        async def ask() -> TopicOffsets:
            async with self.consumer() as consumer:
                partitions = await self.wanted.partitions(consumer)
                found = await consumer.offsets_for(
                    {(topic, n): where for topic, numbers in partitions.items() for n in numbers}
                )
                return {
                    topic: {str(n): found[TopicPartition(topic, n)] for n in numbers}
                    for topic, numbers in partitions.items()
                }

        with sentences():
            return asyncio.run(ask())


class KafkaBatches(DataSource):
    """The format ``kafka-batches``, in batches and streams. Options: docs/guide/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "kafka-batches"

    def schema(self) -> StructType:
        with sentences():
            return row_type(row_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        with sentences():
            known(self.options, BATCH_OPTIONS, self.name())
            shape = Shape(schema)
            return BatchesReader(
                Cluster.of(self.options), shape.options(row_options(self.options)), shape
            )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        def make() -> DataSourceStreamReader:
            known(self.options, STREAM_OPTIONS, f"{self.name()} (streaming)")
            most = count(self.options, "maxOffsetsPerTrigger", 0)
            cluster, shape = Cluster.of(self.options), Shape(schema)
            return BatchesStreamReader(
                cluster, shape.options(row_options(self.options)), shape, most
            )

        return stream_or_refusal(make)


class BatchesReader(DataSourceReader):
    """A reader of all batches up to the time when the DataFrame is planned."""

    def __init__(self, cluster: Cluster, options: Options, shape: Shape) -> None:
        self.cluster = cluster
        self.options = options
        self.shape = shape

    def partitions(self) -> list[InputPartition]:
        start = self.cluster.offsets(self.cluster.starting)
        return _offset_ranges(self.cluster, start, self.cluster.offsets("latest"))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.shape(_rows(self.cluster, partition, self.options))


class BatchesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream's reader. ``most``: offsets of a micro-batch, dealt out evenly; 0: all."""

    def __init__(self, cluster: Cluster, options: Options, shape: Shape, most: int) -> None:
        self.cluster = cluster
        self.options = options
        self.shape = shape
        self.most = most
        self.target: TopicOffsets | None = None

    def initialOffset(self) -> TopicOffsets:
        return self.cluster.offsets(self.cluster.starting)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.most) if self.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self.cluster.offsets("latest")

    def latestOffset(self, start: TopicOffsets, limit: ReadLimit) -> TopicOffsets:
        reach = self.target or self.cluster.offsets("latest")
        begun = _begun(self.cluster, start, reach)
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else MAX_LONG
        lag = {
            (topic, number): max(end - begun[topic][number], 0)
            for topic, ends in reach.items()
            for number, end in ends.items()
        }
        taken: dict[tuple[str, str], int] = {}
        waiting = sorted(lag, key=lambda one: lag[one])
        for n, one in enumerate(waiting):  # those with little first: what they leave is the others'
            taken[one] = min(lag[one], -(-left // (len(waiting) - n)))
            left -= taken[one]
        return {
            topic: {number: begun[topic][number] + taken[topic, number] for number in ends}
            for topic, ends in reach.items()
        }

    def partitions(self, start: TopicOffsets, end: TopicOffsets) -> list[InputPartition]:
        return _offset_ranges(self.cluster, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.shape(_rows(self.cluster, partition, self.options))

    def commit(self, end: TopicOffsets) -> None:
        """Do nothing: Spark's checkpoint holds the offsets, without a consumer group."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""


def _begun(cluster: Cluster, start: TopicOffsets, reach: TopicOffsets) -> TopicOffsets:
    """Return where each partition of ``reach`` begins: at its offset in ``start``. A partition that
    appeared later begins at its log start, as in Spark's own connector.
    """
    if all(number in start.get(topic, {}) for topic, ends in reach.items() for number in ends):
        return start
    earliest = cluster.offsets("earliest")
    # one that was deleted since has nothing to read: it begins at its end
    log_starts = {topic: {**ends, **earliest.get(topic, {})} for topic, ends in reach.items()}
    return {topic: {**starts, **start.get(topic, {})} for topic, starts in log_starts.items()}


def _offset_ranges(
    cluster: Cluster, start: TopicOffsets, end: TopicOffsets
) -> list[InputPartition]:
    begun = _begun(cluster, start, end)
    return [
        OffsetRange(topic, int(number), begun[topic][number], reached)
        for topic, ends in end.items()
        for number, reached in ends.items()
        if begun[topic][number] < reached
    ]


def _rows(cluster: Cluster, part: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. An error is a row with the reason."""
    if not isinstance(part, OffsetRange):
        return  # Spark's own empty one, where there is nothing to read
    source = SegmentInfo("", part.topic, part.partition, base_offset=-1, size=0, mtime_ns=0)
    validator = validator_of(options, topic=part.topic)
    check = functools.partial(
        validator.check_batches, deep=options.deep, trust_claims=options.sample
    )
    try:
        for data in _fetched(cluster, part):
            columns = check(data)
            beyond = np.flatnonzero(columns["last_offset"] >= part.end)
            if len(beyond):
                columns = check(data[: int(columns["position"][beyond[0]])])
            yield placeless(to_rows(columns, source, 0, options), _NO_FILE)
            if len(beyond):
                return
    except (OSError, NotABatch, BatchvalError) as error:
        yield placeless(unreadable_row(source, one_line(error), options), _NO_FILE)


def _fetched(cluster: Cluster, part: OffsetRange) -> Iterator[memoryview]:
    """Yield batches of the range, perhaps some after it. Raises OSError if none come for long."""
    place = (part.topic, part.partition)
    with asyncio.Runner() as runner:
        consumer = cluster.consumer()
        runner.run(consumer.__aenter__())
        try:
            consumer.assign([place])
            runner.run(consumer.seek(place, part.start))
            at, patience = part.start, time.monotonic() + cluster.timeout_ms / 1000
            while at < part.end:
                try:
                    polled = runner.run(consumer.poll_batches(timeout_ms=500))
                except OffsetOutOfRangeError as error:
                    raise OSError(
                        f"offsets from {at} on are no longer in the log ({error})"
                    ) from None
                for one in polled:
                    yield one.records
                    at, patience = one.next_offset, time.monotonic() + cluster.timeout_ms / 1000
                if time.monotonic() > patience:
                    raise OSError(
                        f"no batch of {place[0]}-{place[1]} came in {cluster.timeout_ms} ms (offset {at})"
                    )
        finally:
            runner.run(consumer.close())
