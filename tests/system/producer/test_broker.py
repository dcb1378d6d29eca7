"""With a real Apache Kafka broker: what was sent is what another client reads, byte for byte."""

from __future__ import annotations

import array
import asyncio
import random
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

import pytest

from batchval.producer import BatchDone, Producer, ProducerOptions, RecordMetadata
from batchval.producer.errors import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
)
from batchval.producer.murmur2 import partition_of
from tests.support.deliveries import acked, outcome
from tests.support.topics import await_markers
from tests.system.interop.kafka_broker import KafkaBroker

kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

pytestmark = pytest.mark.jvm

Read = tuple[
    int, int, bytes | None, bytes | None, Any, int
]  # partition, offset, key, value, headers, timestamp


def run(work: Coroutine[Any, Any, Any], fast: bool = False) -> Any:
    return (uvloop.run if fast else asyncio.run)(asyncio.wait_for(work, 120))


def read_all(broker: KafkaBroker, topic: str, committed: bool = False) -> list[Read]:
    """Everything in a topic, through librdkafka, each partition in its order."""
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    found: list[Read] = []
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        if committed:
            await_markers(broker.bootstrap, topic, len(partitions))
        consumer.assign([kafka.TopicPartition(topic, number, 0) for number in partitions])
        left = set(partitions)
        while left:
            message = consumer.poll(30)
            assert message is not None, f"nothing more of {left}"
            if message.error() is not None:
                assert message.error().code() == kafka.KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
                continue
            time = message.timestamp()[1]
            found.append(
                (
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.headers(),
                    time,
                )
            )
    finally:
        consumer.close()
    return sorted(found, key=lambda one: one[:2])


def options(broker: KafkaBroker, **more: Any) -> ProducerOptions:
    return ProducerOptions(bootstrap_servers=[broker.bootstrap], **more)


@pytest.mark.parametrize(
    ("codec", "claims"),
    [
        *(
            (codec, claims)
            for codec in ("none", "gzip", "snappy", "lz4", "zstd")
            for claims in ("none", "tag")
        ),
        *(("gzip", "payload"), ("zstd", "payload")),
    ],
)
def test_records_of_all_kinds_come_back(broker: KafkaBroker, codec: str, claims: str) -> None:
    topic = f"kinds-{codec}-{claims}"
    chance = random.Random(codec)
    records = []
    for n in range(400):
        key = None if n % 3 == 0 else b"key-%d" % chance.randrange(50)
        value = (
            None if n % 50 == 49 else chance.randbytes(chance.choice([0, 1, 60, 2000])) + b"a" * n
        )
        heads = [("first", b"1"), ("none", None), ("ü", b"")] if n % 4 == 0 else []
        records.append((key, value, heads, 1_700_000_000_000 + n))
    reported: list[tuple[int, RecordMetadata]] = []

    async def work() -> None:
        async with Producer(
            options(broker, compression_type=codec, batch_size=20_000, claims=claims)
        ) as producer:
            for n, (key, value, heads, timestamp) in enumerate(records):
                delivery = await producer.send(topic, value, key, heads, timestamp_ms=timestamp)
                delivery.add_done_callback(lambda one, n=n: reported.append((n, one.result())))
            await producer.flush()
            assert len(reported) == len(records)
            assert producer.buffer_used == 0
            assert producer.metrics.records_acked == len(records)

    run(work())
    found = {(partition, offset): rest for partition, offset, *rest in read_all(broker, topic)}
    assert len(found) == len(records)
    last: dict[int, int] = defaultdict(lambda: -1)
    for n, metadata in reported:
        key, value, heads, timestamp = records[n]
        assert found[metadata.partition, metadata.offset] == [key, value, heads or None, timestamp]
        assert metadata.offset > last[metadata.partition], "callbacks in order per partition"
        last[metadata.partition] = metadata.offset
        if key is not None:
            assert metadata.partition == partition_of(key, 3)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"partitioner": "round_robin"},
        {"acks": 1, "enable_idempotence": False, "mute_partitions": True},
        {"max_in_flight": 1, "compression_type": "lz4"},
    ],
)
def test_many_with_their_stamps(broker: KafkaBroker, more: dict[str, Any], fast: bool) -> None:
    topic = f"many-{abs(hash(tuple(more.items())))}-{fast}"
    count = 30_000
    values = [b"%08d" % n + b"x" * (n % 500) for n in range(count)]
    done: list[BatchDone] = []

    async def work() -> None:
        async with Producer(
            options(broker, batch_size=100_000, buffer_memory=1_000_000, **more)
        ) as producer:
            producer.on_batch = done.append
            at = 0
            while at < count:
                part = values[at : at + 777]
                stamps = array.array("q", range(at, at + len(part)))
                taken = producer.send_many(topic, part, stamps)
                assert producer.buffer_used <= 1_000_000 + 10_000
                at += taken
                if taken < len(part):
                    await producer.wait_for_space()
            await producer.flush()
            assert producer.buffer_used == 0
            assert max(producer.metrics.highest_in_flight.values()) <= more.get("max_in_flight", 5)

    run(work(), fast)
    placed = {}
    for batch in done:
        assert batch.error is None
        for n, stamp in enumerate(batch.stamps):
            placed[batch.partition, batch.base_offset + n] = stamp
    assert sorted(placed.values()) == list(range(count))
    found = read_all(broker, topic)
    assert [(partition, offset) for partition, offset, *_ in found] == sorted(placed)
    for partition, offset, _, value, _, _ in found:
        assert value == values[placed[partition, offset]]
    if "partitioner" in more:
        assert all(stamp % 3 == partition for (partition, _), stamp in placed.items())
    for number in range(3):
        of_one = [stamp for (partition, _), stamp in sorted(placed.items()) if partition == number]
        assert of_one == sorted(of_one)


def test_acks_0(broker: KafkaBroker) -> None:
    reported: list[Any] = []

    async def work() -> None:
        async with Producer(options(broker, acks=0, enable_idempotence=False)) as producer:
            for n in range(100):
                delivery = await producer.send("acks-0", b"%d" % n, partition=0)
                delivery.add_done_callback(lambda one: reported.append(outcome(one)))

    run(work())
    assert [error for _, error in reported] == [None] * 100
    assert {metadata.offset for metadata, _ in reported} == {-1}
    assert [value for _, _, _, value, _, _ in read_all(broker, "acks-0")] == [
        b"%d" % n for n in range(100)
    ]


def test_a_batch_that_is_too_large_is_split(broker: KafkaBroker) -> None:
    """The topic takes 1 MiB; the first batch is of five."""
    values = [random.Random(n).randbytes(50_000) for n in range(100)]

    async def work() -> None:
        more = {"batch_size": 5_000_000, "max_request_size": 5_000_000, "linger_ms": 10_000}
        async with Producer(options(broker, **more)) as producer:
            done: list[BatchDone] = []
            producer.on_batch = done.append
            await producer.partitions_for("split")
            assert (
                producer.send_many("split", values, array.array("q", range(100)), partition=1)
                == 100
            )
            await producer.flush()
            assert producer.metrics.splits >= 4
            assert [stamp for batch in done for stamp in batch.stamps] == list(range(100))
            assert not any(batch.error for batch in done)
            assert producer.buffer_used == 0

    run(work())
    assert [value for _, _, _, value, _, _ in read_all(broker, "split")] == values


def test_a_topic_that_there_cannot_be(broker: KafkaBroker) -> None:
    async def work() -> None:
        async with Producer(options(broker, max_block_ms=2_000)) as producer:
            with pytest.raises(Exception, match="INVALID_TOPIC_EXCEPTION"):
                await producer.send("no topic", b"x")
            assert producer.send_many("no topic", b"x", array.array("q", [1])) == 0
            with pytest.raises(Exception, match="INVALID_TOPIC_EXCEPTION"):
                await producer.wait_for_space()

    run(work())


def test_transactions(broker: KafkaBroker) -> None:
    async def work() -> None:
        async with Producer(options(broker, transactional_id="t-1")) as producer:
            with pytest.raises(TransactionStateError, match="not initialised"):
                producer.begin_transaction()
            await producer.init_transactions()
            with pytest.raises(TransactionStateError, match="no transaction"):
                await producer.send("tx", b"outside")
            for n in range(6):
                producer.begin_transaction()
                reported: list[Any] = []
                for m in range(30):
                    delivery = await producer.send("tx", b"%d-%d" % (n, m), partition=m % 3)
                    delivery.add_done_callback(
                        lambda one, reported=reported: reported.append(outcome(one))
                    )
                if n % 2:
                    await producer.abort_transaction()
                    assert all(
                        error is None or isinstance(error, TransactionAbortedError)
                        for _, error in reported
                    )
                else:
                    await producer.commit_transaction()
                    assert [error for _, error in reported] == [None] * 30
                assert len(reported) == 30
            assert producer.buffer_used == 0

    run(work())
    values = [value for _, _, _, value, _, _ in read_all(broker, "tx", committed=True)]
    assert sorted(values) == sorted(b"%d-%d" % (n, m) for n in (0, 2, 4) for m in range(30))


def test_an_aborted_transaction_whose_records_were_sent(broker: KafkaBroker) -> None:
    async def work() -> None:
        async with Producer(options(broker, transactional_id="t-sent")) as producer:
            await producer.init_transactions()
            for n in range(3):
                producer.begin_transaction()
                for m in range(10):
                    await producer.send("tx-sent", b"%d-%d" % (n, m), partition=0)
                await producer.flush()
                await (producer.abort_transaction() if n == 1 else producer.commit_transaction())

    run(work())
    committed = [value for _, _, _, value, _, _ in read_all(broker, "tx-sent", committed=True)]
    assert committed == [b"%d-%d" % (n, m) for n in (0, 2) for m in range(10)]
    assert len(read_all(broker, "tx-sent")) == 30


@pytest.mark.parametrize("turns", [0, 2])
def test_aborted_before_the_coordinator_knows_of_it(broker: KafkaBroker, turns: int) -> None:
    """The request that adds partitions may be under way: what it would begin is ended too, and
    nothing is refused.
    """
    topic = f"tx-early-{turns}"

    async def work() -> None:
        async with Producer(options(broker, transactional_id=topic, linger_ms=0)) as producer:
            await producer.init_transactions()
            for n in range(12):
                producer.begin_transaction()
                await producer.send(topic, b"%d" % n, partition=n % 3)
                for _ in range(turns):
                    await asyncio.sleep(0)
                await (producer.abort_transaction() if n % 2 else producer.commit_transaction())

    run(work())
    values = [value for _, _, _, value, _, _ in read_all(broker, topic, committed=True)]
    assert sorted(values) == sorted(b"%d" % n for n in range(0, 12, 2))


def test_a_fenced_producer(broker: KafkaBroker) -> None:
    async def work() -> None:
        first = Producer(options(broker, transactional_id="t-2"))
        await first.init_transactions()
        first.begin_transaction()
        await acked(first, "fenced", b"of the first", partition=0)
        async with Producer(options(broker, transactional_id="t-2")) as second:
            await second.init_transactions()
            second.begin_transaction()
            await acked(second, "fenced", b"of the second", partition=0)
            await second.commit_transaction()
            with pytest.raises(ProducerFencedError):
                await first.commit_transaction()
            with pytest.raises(ProducerFencedError):
                first.begin_transaction()
            with pytest.raises(ProducerFencedError):
                await first.send("fenced", b"more")
        await first.close(1_000)
        assert first.buffer_used == 0

    run(work())
    assert [value for _, _, _, value, _, _ in read_all(broker, "fenced", committed=True)] == [
        b"of the second"
    ]


def test_without_idempotence_a_warning(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with Producer(options(broker, enable_idempotence=False)) as producer:
            metadata = await acked(producer, "plain", b"value", b"key")
            assert metadata.offset >= 0
            with pytest.raises(ValueError, match="invalid partition 3 of plain: expected 0 to 2"):
                await acked(producer, "plain", b"value", partition=3)

    run(work())
    assert sum("may reorder" in line for line in caplog.messages) == 1
