"""Compare readers of committed records with librdkafka on one broker, and on generated logs."""

from __future__ import annotations

import asyncio
import random
import struct
from itertools import pairwise
from typing import Any

import confluent_kafka
import pytest

from batchval.core.batches.batch import batches
from batchval.core.fetched import walk_fetched
from batchval.fetch import Consumer, ConsumerRecord
from batchval.fetch.fetcher import committed_parts
from tests.support.batches import batch, record, records
from tests.support.seeds import seeds
from tests.system.fetch.test_consumer import made, options
from tests.system.interop.kafka_broker import KafkaBroker

CONTROL, TRANSACTIONAL = 32, 16
Log = list[
    tuple[bytes, int, int, bool]
]  # a batch, its producer, its base offset, whether it is to be left out


def generated(seed: int) -> tuple[Log, list[tuple[int, int, int]]]:
    """A log of several producers, and its aborted transactions: producer, first offset, offset of
    the marker.
    """
    chance = random.Random(seed)
    log: Log = []
    aborted: list[tuple[int, int, int]] = []
    open_now: dict[int, tuple[int, list[int]]] = {}  # producer: first offset, places in the log
    offset = chance.choice([0, 1000])
    for _ in range(chance.randrange(1, 60)):
        producer = chance.choice([-1, 7, 8, 9])
        what = chance.random()
        if producer in {9, -1}:  # no transactions; 9 is idempotent
            count = chance.randrange(1, 4)
            log.append(
                (
                    batch(records(count), base_offset=offset, producer_id=producer),
                    producer,
                    offset,
                    False,
                )
            )
        elif producer in open_now and what < 0.4:
            first, places = open_now.pop(producer)
            abort = chance.random() < 0.5
            key = struct.pack(">hh", 0, 0 if abort else 1)
            marker = batch(
                [record(key=key, value=bytes(6))], base_offset=offset, producer_id=producer,
                attributes=TRANSACTIONAL | CONTROL,
            )  # fmt: skip
            count = 1
            log.append((marker, producer, offset, False))
            if abort:
                aborted.append((producer, first, offset))
                for place in places:
                    log[place] = (*log[place][:3], True)
        else:
            count = chance.randrange(1, 4)
            codec = chance.choice([0, 0, 3])
            data = batch(
                records(count),
                codec=codec,
                base_offset=offset,
                producer_id=producer,
                attributes=TRANSACTIONAL,
            )
            open_now.setdefault(producer, (offset, []))[1].append(len(log))
            log.append((data, producer, offset, False))
        offset += count + chance.choice([0, 0, 0, 2])  # the cleaner leaves gaps
    stable = min((first for first, _ in open_now.values()), default=offset)
    return [one for one in log if one[2] < stable], [one for one in aborted if one[1] < stable]


@pytest.mark.parametrize("seed", seeds(300))
def test_batches_of_aborted_transactions_are_left_out(seed: int) -> None:
    log, aborted = generated(seed)
    chance = random.Random(seed)
    begin = chance.randrange(len(log) + 1)
    end = chance.randrange(begin, len(log) + 1)
    read = log[begin:end]
    data = memoryview(b"".join(one[0] for one in read))
    # as a broker answers: those that reach into what is read, in any order
    reach = [
        (producer, first)
        for producer, first, marker in aborted
        if read and first <= read[-1][2] + 3 and marker >= read[0][2]
    ]
    chance.shuffle(reach)
    parts = committed_parts(data, reach)
    assert all(a < b for a, b in parts)
    assert all(before[1] < after[0] for before, after in pairwise(parts))
    assert b"".join(bytes(data[a:b]) for a, b in parts) == b"".join(
        one[0] for one in read if not one[3]
    )


def committed(kafka: KafkaBroker, topic: str, count: int) -> list[tuple[int, bytes]]:
    """So many, as librdkafka reads them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes]] = []
    try:
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            found.append((message.offset() or 0, message.value() or b""))
        assert consumer.poll(0.5) is None
        return found
    finally:
        consumer.close()


def transacted(kafka: KafkaBroker, topic: str) -> int:
    """Two producers by turns, transactions committed and aborted, one without, one left open.

    Returns where that one begins: the last stable offset, once the broker has written all markers.
    """
    chance = random.Random(3)
    producers = []
    for name in "ab":
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "transactional.id": f"{topic}-{name}",
                "linger.ms": 0,
            }
        )
        producer.init_transactions(30)
        producers.append(producer)
    plain = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    for n in range(25):
        for producer in producers:
            producer.begin_transaction()
        for part in range(3):
            for which, producer in enumerate(producers):
                producer.produce(
                    topic, b"%d %d %d" % (n, part, which) * chance.randrange(1, 50), partition=0
                )
                producer.flush(30)
            plain.produce(topic, b"%d %d" % (n, part), partition=0)
            plain.flush(30)
        for producer in producers:
            if chance.random() < 0.5:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
    opened: list[int] = []
    producers[0].begin_transaction()
    producers[0].produce(
        topic, b"open", partition=0, on_delivery=lambda _, sent: opened.append(sent.offset() or 0)
    )
    producers[0].flush(30)
    plain.produce(topic, b"after the open one", partition=0)
    plain.flush(30)
    return opened[0]


@pytest.mark.jvm
@pytest.mark.parametrize("size", [1_048_576, 300])
async def test_what_librdkafka_reads_is_what_is_read(kafka: KafkaBroker, size: int) -> None:
    topic = made(kafka)
    end = transacted(kafka, topic)
    more: dict[str, Any] = {"isolation_level": "read_committed", "max_partition_fetch_bytes": size}
    async with Consumer(options(kafka, **more)) as consumer:
        consumer.assign([(topic, 0)])
        async with asyncio.timeout(30):  # a commit is answered before its marker is written
            while await consumer.offsets_for({(topic, 0): "latest"}) != {(topic, 0): end}:
                await asyncio.sleep(0.02)
        one_by_one: list[ConsumerRecord] = []
        while (consumer.position((topic, 0)) or 0) < end:
            one_by_one += await consumer.poll(200, max_records=7)
        assert await consumer.poll(300) == []  # the open one, and what comes after it
        await consumer.seek_to_beginning()
        counted, raw = 0, []
        while (consumer.position((topic, 0)) or 0) < end:
            for part in await consumer.poll_batches(200):
                counted += walk_fetched(part.records, part.fetch_offset).records
                raw += [one for one in batches(part.records) if not one.is_control_batch]
    expected = committed(kafka, topic, len(one_by_one))
    assert [(one.offset, one.value) for one in one_by_one] == expected
    assert counted == len(expected) == sum(one.records_count or 0 for one in raw) > 100
    assert b"open" not in [value for _, value in expected]
