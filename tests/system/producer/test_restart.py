"""A real broker killed with five requests in flight, which all go again: nothing lost, doubled,
reordered, leaked.
"""

from __future__ import annotations

import array
import asyncio
from typing import Any

import pytest

from batchval.producer import BatchDone, Producer, ProducerOptions
from tests.support.deliveries import acked
from tests.support.network import until
from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.producer.test_broker import read_all

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("codec", [pytest.param("none", marks=pytest.mark.slow), "lz4"])
def test_killed_with_five_in_flight(broker: KafkaBroker, codec: str) -> None:
    topic, kills, size = f"killed-{codec}", 2, 700

    async def work() -> tuple[int, list[BatchDone]]:
        more: dict[str, Any] = {
            "batch_size": 50_000,
            "buffer_memory": 4_000_000,
            "compression_type": codec,
        }
        options = ProducerOptions(bootstrap_servers=[broker.bootstrap], **more)
        async with Producer(options) as producer:
            done: list[BatchDone] = []
            producer.on_batch = done.append
            await producer.partitions_for(topic)
            stopped, sent = False, 0

            async def produce() -> None:
                nonlocal sent
                while not stopped:
                    values = [b"%09d" % n * (size // 9) for n in range(sent, sent + 500)]
                    at = 0
                    while at < len(values):
                        stamps = array.array("q", range(sent, sent + len(values) - at))
                        taken = producer.send_many(topic, values[at:], stamps, partition=0)
                        at += taken
                        sent += taken
                        await producer.wait_for_space()

            task = asyncio.create_task(produce())
            for _ in range(kills):
                before = len(done)
                await until(lambda before=before: len(done) > before + 40)
                broker.pause()  # requests pile up unanswered, some of them in its buffers
                await until(lambda: producer._client.network.in_flight_count() == 5)
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            before = len(done)
            await until(lambda: len(done) > before + 40)
            stopped = True
            await task
            await producer.flush(60_000)
            assert producer.buffer_used == 0
            assert producer.metrics.retries >= 5 * kills
            assert max(producer.metrics.highest_in_flight.values()) == 5
            return sent, done

    sent, done = asyncio.run(asyncio.wait_for(work(), 200))
    assert not [batch.error for batch in done if batch.error]
    assert [stamp for batch in done for stamp in batch.stamps] == list(range(sent))
    values = [value for _, _, _, value, _, _ in read_all(broker, topic)]
    assert [int((value or b"")[:9]) for value in values] == list(range(sent))


def test_killed_after_five_were_stored_and_not_answered(broker: KafkaBroker) -> None:
    """It knows the fifth alone when it is up again, and calls the four before it out of order."""
    topic = "stored-and-killed"

    async def work() -> list[int]:
        options = ProducerOptions(
            bootstrap_servers=[broker.bootstrap], batch_size=1_000, linger_ms=0
        )
        async with Producer(options) as producer:
            offsets: list[Any] = [(await acked(producer, topic, b"0", partition=0)).offset]
            connection = producer._client.network.connection(producer._metadata.leader(topic, 0))
            assert connection is not None
            connection._transport.pause_reading()
            for n in range(1, 9):
                value = b"%d" % n * 900  # a batch of its own
                delivery = await producer.send(topic, value, partition=0)
                delivery.add_done_callback(
                    lambda one: offsets.append(one.exception() or one.result().offset)
                )
            await until(lambda: producer._client.network.in_flight_count() == 5)
            log = broker.data / f"{topic}-0" / "00000000000000000000.log"
            await until(lambda: log.read_bytes().count(b"5" * 900) == 1)
            await asyncio.to_thread(broker.kill)
            connection._transport.abort()  # the answers lie unread
            await asyncio.to_thread(broker.start)
            await until(lambda: len(offsets) == 9)
            return offsets

    offsets = asyncio.run(asyncio.wait_for(work(), 120))
    assert offsets == [0, -1, -1, -1, -1, 5, 6, 7, 8]
    assert [value[:1] for _, _, _, value, _, _ in read_all(broker, topic)] == [
        b"%d" % n for n in range(9)
    ]
