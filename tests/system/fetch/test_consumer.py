"""The consumer at a real broker: codecs, control records, positions, offsets that are gone, groups,
and restarts.
"""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from batchval.core.fetched import walk_fetched
from batchval.errors import ArgumentValueError
from batchval.fetch import (
    CommitFailedError,
    Consumer,
    ConsumerOptions,
    ConsumerRecord,
    FetchError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicPartition,
)
from batchval.network.errors import RequestTimeoutError, UnknownTopicOrPartitionError
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm


def made(kafka: KafkaBroker, partitions: int = 1, **config: str) -> str:
    """A new topic."""
    return make_topic(kafka.bootstrap, f"fetch-{uuid.uuid4().hex[:12]}", partitions, **config)


def filled(
    kafka: KafkaBroker, topic: str, values: list[bytes], partition: int = 0, **config: Any
) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "log_level": 0, **config}
    )
    for value in values:
        producer.produce(topic, value, key=b"k", partition=partition, headers=[("h", b"x")])
    assert producer.flush(30) == 0


def values(count: int, mark: str = "") -> list[bytes]:
    return [b"%s value %d" % (mark.encode(), n) for n in range(count)]


def options(kafka: KafkaBroker, **more: Any) -> ConsumerOptions:
    options = {
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 100,
        "retry_backoff_ms": 50,
        **more,
    }
    return ConsumerOptions(bootstrap_servers=[kafka.bootstrap], **options)


async def read(
    consumer: Consumer, count: int, seconds: float = 40, **more: Any
) -> list[ConsumerRecord]:
    """So many records, or what came in that time."""
    records: list[ConsumerRecord] = []
    deadline = asyncio.get_running_loop().time() + seconds
    while len(records) < count and asyncio.get_running_loop().time() < deadline:
        records += await consumer.poll(200, **more)
    return records


async def polled_until(
    condition: Callable[[], object], *consumers: Consumer, seconds: float = 40
) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        for consumer in consumers:
            await consumer.poll(20)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_all_codecs_raw_and_one_by_one(kafka: KafkaBroker, codec: str) -> None:
    topic, sent = made(kafka), values(3000)
    filled(kafka, topic, sent, **{"compression.type": codec})
    async with Consumer(
        options(kafka, max_partition_fetch_bytes=20_000, check_crcs=True)
    ) as consumer:
        consumer.assign([(topic, 0)])
        records = await read(consumer, 3000)
        assert [one.value for one in records] == sent
        assert [one.offset for one in records] == list(range(3000))
        assert records[0][:2] == (topic, 0)
        assert records[0].key == b"k"
        assert records[0].headers == (("h", b"x"),)
        assert consumer.position((topic, 0)) == 3000
        await consumer.seek_to_beginning()
        count = size = 0
        while count < 3000:
            for one in await consumer.poll_batches(500):
                found = walk_fetched(one.records, one.fetch_offset, check_crcs=True)
                assert found.next_offset == one.next_offset
                assert one.high_watermark == 3000
                count, size = count + found.records, size + found.key_value_bytes
        assert (count, size) == (3000, sum(map(len, sent)) + 3000)
        assert consumer.metrics.requests >= 2
        assert consumer.metrics.bytes > 0


async def test_control_records_are_passed_and_not_returned(kafka: KafkaBroker) -> None:
    topic = made(kafka)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0}
    )
    await asyncio.to_thread(producer.init_transactions, 30)
    for n, ending in enumerate(
        [producer.commit_transaction, producer.abort_transaction, producer.commit_transaction]
    ):
        producer.begin_transaction()
        for value in values(5, str(n)):
            producer.produce(topic, value)
        assert (
            await asyncio.to_thread(producer.flush, 30) == 0
        )  # or an abort would drop what is not sent yet
        await asyncio.to_thread(ending, 30)
    async with Consumer(options(kafka)) as consumer:
        consumer.assign([(topic, 0)])
        records = await read(consumer, 15)
        assert [one.value for one in records] == values(5, "0") + values(5, "1") + values(5, "2")
        await polled_until(lambda: consumer.position((topic, 0)) == 18, consumer)
        assert await consumer.offsets_for({(topic, 0): "latest"}) == {(topic, 0): 18}


async def test_seek_pause_position_and_offsets_in_the_middle_of_a_batch(kafka: KafkaBroker) -> None:
    topic = made(kafka, 2)
    for partition in (0, 1):
        filled(kafka, topic, values(1000), partition)
    async with Consumer(options(kafka)) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        assert consumer.assignment() == [(topic, 0), (topic, 1)]
        assert consumer.position((topic, 0)) is None
        await consumer.seek((topic, 0), 700)
        consumer.pause((topic, 1))
        assert consumer.paused() == [(topic, 1)]
        records = await read(consumer, 300)
        assert [one.offset for one in records] == list(range(700, 1000))
        assert await consumer.poll(300) == []
        assert consumer.position((topic, 1)) in (0, None)
        consumer.resume((topic, 1))
        assert len(await consumer.poll(10_000, max_records=7)) == 7
        assert consumer.position((topic, 1)) == 7
        consumer.pause((topic, 1))
        assert await consumer.poll(300) == []
        consumer.resume((topic, 1))
        assert (await consumer.poll(10_000, max_records=1))[0].offset == 7
        await consumer.seek((topic, 1), 3)
        assert (await consumer.poll(10_000, max_records=1))[0].offset == 3
        (batches,) = await polled_batches(consumer)
        assert batches.fetch_offset == 4  # what poll had not returned yet
        await consumer.seek_to_end((topic, 1))
        await polled_until(lambda: consumer.position((topic, 1)) == 1000, consumer)
        assert await consumer.offsets_for({(topic, 0): "earliest", (topic, 1): 2**60}) == {
            (topic, 0): 0,
            (topic, 1): -1,
        }
        for wrong in (consumer.position, consumer.pause, consumer.resume):
            with pytest.raises(FetchError, match="is not assigned"):
                wrong((topic, 2))
        with pytest.raises(ArgumentValueError, match="invalid offset -1: expected 0 to"):
            await consumer.seek((topic, 0), -1)


async def polled_batches(consumer: Consumer) -> list[Any]:
    while True:
        if found := await consumer.poll_batches(1000):
            return found


async def test_an_offset_that_is_gone(kafka: KafkaBroker) -> None:
    topic = made(kafka)
    filled(kafka, topic, values(100))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 40)]).values():
        future.result(30)
    for policy, first in (("earliest", 40), ("latest", None)):
        async with Consumer(options(kafka, auto_offset_reset=policy)) as consumer:
            consumer.assign([(topic, 0)])
            await consumer.seek((topic, 0), 10)
            if first is not None:
                assert (await read(consumer, 60))[0].offset == first
            else:
                await polled_until(lambda c=consumer: c.position((topic, 0)) == 100, consumer)
    async with Consumer(options(kafka, auto_offset_reset="none")) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(NoOffsetForPartitionError, match=f"{topic}-0 has no committed offset"):
            await read(consumer, 1)
        await consumer.seek((topic, 0), 10)
        with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-0 at offset 10: not in the log"):
            await read(consumer, 1)
        await consumer.seek((topic, 0), 99)
        while True:
            try:
                assert (await read(consumer, 1))[0].offset == 99
                break
            except OffsetOutOfRangeError:  # reported once more by what was in flight
                continue


async def test_committed_offsets_of_a_group_without_members(kafka: KafkaBroker) -> None:
    topic = made(kafka)
    filled(kafka, topic, values(50))
    async with Consumer(options(kafka, group_id=f"g-{topic}")) as consumer:
        consumer.assign([(topic, 0)])
        assert await consumer.committed() == {}
        assert len(await read(consumer, 50)) == 50
        await consumer.commit({(topic, 0): 20})
        assert await consumer.committed([(topic, 0)]) == {(topic, 0): 20}
        await consumer.commit()
        assert await consumer.committed() == {(topic, 0): 50}
        await consumer.commit({(topic, 0): 30})
    async with Consumer(options(kafka, group_id=f"g-{topic}", enable_auto_commit=True)) as consumer:
        consumer.assign([(topic, 0)])
        records = await read(consumer, 10, max_records=10)
        assert [one.offset for one in records] == list(range(30, 40))
    async with Consumer(options(kafka, group_id=f"g-{topic}")) as consumer:
        assert await consumer.committed([(topic, 0)]) == {(topic, 0): 40}  # by closing


async def test_two_members_share_and_one_that_leaves_gives_back(kafka: KafkaBroker) -> None:
    topic = made(kafka, 4)
    for partition in range(4):
        filled(kafka, topic, values(10, str(partition)), partition)
    shared = {"group_id": f"g-{topic}", "heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
    calls: list[tuple[str, str, list[TopicPartition]]] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        calls.append(("a", "assigned", partitions))

    async with Consumer(options(kafka, **shared)) as a:
        a.subscribe(
            [topic], assigned, lambda partitions: calls.append(("a", "revoked", partitions))
        )
        assert len(await read(a, 40)) == 40
        assert len(a.assignment()) == 4
        await a.commit()
        async with Consumer(options(kafka, **shared)) as b:
            b.subscribe(re.compile(re.escape(topic)))
            await polled_until(lambda: len(a.assignment()) == len(b.assignment()) == 2, a, b)
            assert sorted(a.assignment() + b.assignment()) == [(topic, n) for n in range(4)]
            stretches = [[n for _, n in one.assignment()] for one in (a, b)]
            assert sorted(stretches) == [[0, 1], [2, 3]]
            filled(kafka, topic, values(5, "more"), 3)
            records = []
            while len(records) < 5:
                records += await a.poll(50) + await b.poll(50)
            assert [one.offset for one in records] == list(
                range(10, 15)
            )  # what was committed is not returned again
            with pytest.raises(RuntimeError, match="has subscribed"):
                b.assign([(topic, 0)])
        await polled_until(lambda: len(a.assignment()) == 4, a)
        assert a.metrics.rebalances == 3
        assert 0 < a.metrics.rebalance_time_ms < 60_000
    every = [TopicPartition(topic, n) for n in range(4)]
    assert calls[0] == ("a", "assigned", every)
    assert calls[1] == ("a", "revoked", every)
    assert [what for _, what, _ in calls] == ["assigned", "revoked"] * 2 + ["assigned"]


async def test_a_member_that_is_killed_is_missed_and_a_late_commit_fails(
    kafka: KafkaBroker,
) -> None:
    topic = made(kafka, 2)
    filled(kafka, topic, values(10))
    shared = {"group_id": f"g-{topic}", "heartbeat_interval_ms": 200, "session_timeout_ms": 2_000}
    async with Consumer(options(kafka, **shared)) as a, Consumer(options(kafka, **shared)) as b:
        a.subscribe(topic)
        b.subscribe(topic)
        await polled_until(lambda: len(a.assignment()) == len(b.assignment()) == 1, a, b)
        assert a._group is not None
        a._group._stop_heartbeats()  # as one that hangs
        await polled_until(lambda: len(b.assignment()) == 2, b)
        held = a.assignment()
        with pytest.raises(CommitFailedError, match="nothing was committed"):
            await a.commit({held[0]: 1})
        await polled_until(lambda: len(a.assignment()) == len(b.assignment()) == 1, a, b)


async def test_who_does_not_poll_is_put_out(kafka: KafkaBroker) -> None:
    topic = made(kafka, 2)
    shared = {"group_id": f"g-{topic}", "heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
    async with (
        Consumer(options(kafka, **shared, max_poll_interval_ms=700)) as a,
        Consumer(options(kafka, **shared)) as b,
    ):
        lost: list[Any] = []
        a.subscribe(topic, on_revoked=lost.append)
        await polled_until(lambda: len(a.assignment()) == 2, a)
        b.subscribe(topic)
        await polled_until(lambda: len(b.assignment()) == 2, b)
        assert lost == []
        await polled_until(lambda: len(a.assignment()) == len(b.assignment()) == 1, a, b)
        assert lost == [[(topic, 0), (topic, 1)]]


async def test_a_group_with_javas_kind_of_member(kafka: KafkaBroker) -> None:
    """librdkafka's, by the same range assignor."""
    topic = made(kafka, 4)
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": f"g-{topic}",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 100,
        }
    )
    try:
        theirs.subscribe([topic])
        async with Consumer(
            options(kafka, group_id=f"g-{topic}", heartbeat_interval_ms=100)
        ) as mine:
            mine.subscribe(topic)

            def both() -> bool:
                theirs.poll(0.02)
                theirs_now = {(one.topic, one.partition) for one in theirs.assignment()}
                return (
                    len(theirs_now) == 2
                    and not theirs_now & set(mine.assignment())
                    and len(mine.assignment()) == 2
                )

            await polled_until(both, mine)
    finally:
        theirs.close()


async def test_used_from_two_threads_or_two_tasks(kafka: KafkaBroker) -> None:
    topic = made(kafka)
    consumer = Consumer(options(kafka))
    with pytest.raises(RuntimeError, match="opened first"):
        consumer.assignment()
    async with consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(RuntimeError, match="group_id"):
            consumer.subscribe(topic)
        with pytest.raises(RuntimeError, match="group_id"):
            await consumer.commit()
        seen: list[BaseException] = []

        def elsewhere() -> None:
            for use in (
                consumer.assignment,
                lambda: asyncio.run(consumer.poll()),
                lambda: consumer.assign([]),
            ):
                try:
                    use()
                except RuntimeError as error:
                    seen.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert [str(error).startswith("a consumer belongs to the thread") for error in seen] == [
            True
        ] * 3
        first = asyncio.create_task(consumer.poll(500))
        await asyncio.sleep(0.05)
        with pytest.raises(RuntimeError, match="another task"):
            await consumer.poll_batches(1)
        assert await first == []
    with pytest.raises(RuntimeError, match="closed"):
        await consumer.poll()
    await consumer.close()


async def test_subscribing_after_assigning(kafka: KafkaBroker) -> None:
    async with Consumer(options(kafka, group_id="either")) as consumer:
        topic = made(kafka)
        consumer.assign([(topic, 0)])
        with pytest.raises(RuntimeError, match="unsubscribe first"):
            consumer.subscribe(topic)
        await consumer.unsubscribe()
        consumer.subscribe(topic)
        await polled_until(consumer.assignment, consumer)


async def test_what_is_not_there(kafka: KafkaBroker) -> None:
    async with Consumer(options(kafka, allow_auto_create_topics=False)) as consumer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.partitions_for("fetch-never", 500)
        consumer.assign([("fetch-never", 0)])
        assert await consumer.poll(300) == []
    async with Consumer(ConsumerOptions(bootstrap_servers=["127.0.0.1:1"])) as consumer:
        with pytest.raises(RequestTimeoutError, match="no metadata"):
            await consumer.partitions_for("t", 300)


async def test_the_broker_restarts(kafka: KafkaBroker) -> None:
    """Last of this file: positions stay, nothing comes twice, the group comes together again."""
    topic = made(kafka, 2)
    filled(kafka, topic, values(100))
    shared = {"group_id": f"g-{topic}", "heartbeat_interval_ms": 200}
    async with Consumer(options(kafka, **shared)) as member, Consumer(options(kafka)) as alone:
        member.subscribe(topic)
        alone.assign([(topic, 0)])
        assert len(await read(member, 100)) == 100
        assert len(await read(alone, 100)) == 100
        await member.commit()
        await asyncio.to_thread(kafka.restart)
        await asyncio.to_thread(filled, kafka, topic, values(50, "after"))
        assert [one.value for one in await read(alone, 50)] == values(50, "after")
        assert [one.value for one in await read(member, 50)] == values(50, "after")
        await member.commit()
        assert (await member.committed())[TopicPartition(topic, 0)] == 150
