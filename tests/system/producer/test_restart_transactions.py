"""A real broker killed amid transactions: each is committed or aborted as reported, whole, once,
and in order.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from batchval.fetch import Consumer, ConsumerOptions
from batchval.producer import Producer, ProducerOptions
from batchval.producer.errors import TransactionAbortedError
from tests.support.deliveries import outcome
from tests.support.network import until
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.producer.test_broker import read_all

pytestmark = pytest.mark.jvm

PARTITIONS, RECORDS = 3, 300


async def read_committed(broker: KafkaBroker, topic: str) -> list[tuple[int, int, bytes | None]]:
    """As the own consumer reads it."""
    options = ConsumerOptions(
        bootstrap_servers=[broker.bootstrap],
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    found: list[tuple[int, int, bytes | None]] = []
    async with Consumer(options) as consumer:
        partitions = [(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = await consumer.offsets_for(dict.fromkeys(partitions, "latest"))
        while any((consumer.position(one) or 0) < end for one, end in ends.items()):
            found += [(one.partition, one.offset, one.value) for one in await consumer.poll(100)]
    return sorted(found)


@pytest.mark.long
def test_killed_amid_transactions(broker: KafkaBroker) -> None:
    topic = make_topic(broker.bootstrap, "killed-tx", PARTITIONS)

    async def work() -> list[int]:
        committed: list[int] = []
        more: dict[str, Any] = {"batch_size": 2_000, "linger_ms": 0, "request_timeout_ms": 10_000}
        options = ProducerOptions(
            bootstrap_servers=[broker.bootstrap], transactional_id=topic, **more
        )
        async with Producer(options) as producer:
            await producer.init_transactions()
            reported: list[tuple[Any, Exception | None]] = []

            async def send(number: int) -> None:
                for n in range(RECORDS):
                    value = b"%d %d" % (number, n)
                    delivery = await producer.send(topic, value * 20, partition=n % PARTITIONS)
                    delivery.add_done_callback(lambda one: reported.append(outcome(one)))

            async def killed() -> None:
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)

            for number, what in enumerate(
                [
                    "commit",
                    "abort",
                    "sent, commit",
                    "commit",
                    "sent, abort",
                    "commit",
                    "ending",
                    "commit",
                    "abort",
                ]
            ):
                producer.begin_transaction()
                reported.clear()
                if what == "ending":  # killed with the request to commit in its buffers
                    await send(number)
                    await producer.flush()
                    broker.pause()
                    ending = asyncio.create_task(producer.commit_transaction())
                    await until(lambda: producer._client.network.in_flight_count() > 0)
                    await killed()
                    await ending
                elif what.startswith(
                    "sent"
                ):  # killed with records in its buffers, and some of them in its log
                    await send(number)
                    await until(lambda: reported)
                    broker.pause()
                    await send(number + 100)
                    await until(lambda: producer._client.network.in_flight_count() > 0)
                    killing = asyncio.create_task(killed())
                    await (
                        producer.commit_transaction()
                        if what.endswith("commit")
                        else producer.abort_transaction()
                    )
                    await killing
                else:
                    await send(number)
                    await (
                        producer.commit_transaction()
                        if what == "commit"
                        else producer.abort_transaction()
                    )
                if what.endswith("abort"):
                    assert all(
                        error is None or isinstance(error, TransactionAbortedError)
                        for _, error in reported
                    )
                else:
                    assert [error for _, error in reported] == [None] * len(reported)
                    committed += [number, number + 100] if what.startswith("sent") else [number]
                assert len(reported) == (2 * RECORDS if what.startswith("sent") else RECORDS)
            assert producer.buffer_used == 0
            assert producer.metrics.retries > 0
        return committed

    committed = asyncio.run(asyncio.wait_for(work(), 240))
    expected = [
        (partition, b"%d %d" % (number, n) * 20)
        for partition in range(PARTITIONS)
        for number in committed
        for n in range(partition, RECORDS, PARTITIONS)
    ]
    found = read_all(broker, topic, committed=True)
    assert [(partition, value) for partition, _, _, value, _, _ in found] == expected
    own = asyncio.run(asyncio.wait_for(read_committed(broker, topic), 60))
    assert own == [(partition, offset, value) for partition, offset, _, value, _, _ in found]
    assert len(read_all(broker, topic)) > len(found)  # what was aborted is in the log
