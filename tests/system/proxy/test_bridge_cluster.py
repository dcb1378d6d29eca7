"""Old consumers through a gate to a real broker: they read what today's consumer reads."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.fixtures import running_kafka
from tests.support.old_fetches import Message, OldConsumer
from tests.support.processes import until
from tests.support.proxy import RunningProxy
from tests.support.topics import await_markers, make_topic
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.jvm, pytest.mark.long]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START = 1_700_000_000_000
HOUR = 3_600_000
PATIENCE = 90
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "60000",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with running_kafka(
        config={"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 100}
    ) as running:
        yield running


def producer(broker: KafkaBroker, **config: object) -> Producer:
    return Producer(
        {"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 20, **config}
    )


def mixed(broker: KafkaBroker) -> str:
    """Return a topic with every codec, headers, nulls, and transactions that ended both ways."""
    topic = make_topic(broker.bootstrap, "mixed")
    for codec in CODECS:
        sender = producer(broker, **{"compression.type": codec, "batch.num.messages": 50})
        for i in range(200):
            key = None if i % 7 == 0 else b"key %d" % i
            value = None if i % 11 == 0 else (codec.encode() + b" %d " % i) * 10
            headers = [("header", b"value")] if i % 3 == 0 else None
            sender.produce(topic, value, key, headers=headers, timestamp=START + i)
        assert sender.flush(PATIENCE) == 0
    sender = producer(broker, **{"transactional.id": "bridge", "compression.type": "zstd"})
    sender.init_transactions()
    for n in range(4):
        sender.begin_transaction()
        for i in range(20):
            sender.produce(topic, b"transaction %d, record %d" % (n, i))
        assert sender.flush(PATIENCE) == 0
        if n % 2:
            sender.commit_transaction()
        else:
            sender.abort_transaction()
    await_markers(broker.bootstrap, topic)
    return topic


def compacted(broker: KafkaBroker) -> str:
    """Return a topic with gaps, and with batches that compaction has emptied."""
    topic = make_topic(broker.bootstrap, "compacted", **COMPACTED)
    count = 0
    for n in range(6):
        # each has a producer id of its own, and segments that the next one closes
        sender = producer(broker, **{"enable.idempotence": True, "compression.type": CODECS[n % 5]})
        for i in range(30):
            kept = n == 2 and i % 3 == 0
            key = b"kept %d" % i if kept else b"key %d" % (i % 10)
            sender.produce(topic, b"value %d of %d" % (i, n), key, timestamp=START + n * HOUR)
            count += 1
        assert sender.flush(PATIENCE) == 0
    until("the cleaner", lambda: len(read_today(broker, topic)[0]) < count // 2, PATIENCE)
    return topic


def read_today(
    broker: KafkaBroker, topic: str, isolation: str = "read_uncommitted"
) -> tuple[list[Message], int]:
    """Return what librdkafka reads directly, and the high watermark."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "today",
            "log_level": 0,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    found = []
    while not (message := consumer.poll(PATIENCE)).error():
        found.append(
            Message(message.offset(), message.timestamp()[1], message.key(), message.value())
        )
    _, end = consumer.get_watermark_offsets(place)
    consumer.close()
    return found, end


def test_old_consumers_read_every_record_in_order_and_once(broker: KafkaBroker) -> None:
    topics = [mixed(broker), compacted(broker)]
    with RunningProxy(broker.bootstrap, bridge=("consumers",)) as gate:
        for topic in topics:
            today, end = read_today(broker, topic)
            assert today
            assert end > len(today)
            for version in range(4):
                wanted = today if version >= 2 else [one._replace(timestamp=None) for one in today]
                for max_bytes in (1 << 20, 3000):
                    consumer = OldConsumer(gate.address, version, max_bytes=max_bytes)
                    assert consumer.read(topic, 0, end) == wanted, (topic, version, max_bytes)
                    consumer.close()
        # what is left of the log is a marker: the broker waits after it
        consumer = OldConsumer(gate.address, 2)
        last = read_today(broker, topics[0])[0][-1].offset
        assert not consumer.fetch(topics[0], 0, last + 1).records
        began = time.monotonic()
        assert not consumer.fetch(topics[0], 0, last + 1, max_wait_ms=500).records
        assert time.monotonic() - began > 0.4
        consumer.close()
        assert gate.counters.fetches_unconverted_total == 0
        assert not gate.counters.connections_closed


def test_old_consumers_leave_out_aborted_records_where_the_gate_asks_for_it(
    broker: KafkaBroker,
) -> None:
    committed, end = read_today(broker, "mixed", "read_committed")
    everything, _ = read_today(broker, "mixed")
    assert len(committed) == len(everything) - 40
    options = {"bridge": ("consumers",), "bridge_isolation_level": "read_committed"}
    with RunningProxy(broker.bootstrap, **options) as gate:
        consumer = OldConsumer(gate.address, 3)
        assert consumer.read("mixed", 0, end) == committed
        consumer.close()
