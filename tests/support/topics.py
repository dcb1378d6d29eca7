"""Topics on a real broker, made and read with librdkafka."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.processes import until

PATIENCE = 90  # seconds
#: What a new client gets while a partition has no leader, or its broker does not know it yet.
_NO_LEADER_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> str:
    """Create a topic and return its name once the leader of each partition serves it.

    The controller answers before the leaders know the topic: they answer Produce with
    UNKNOWN_TOPIC_OR_PARTITION for a moment. Until then a broker may also refuse the first batch of
    an idempotent producer and take the second, after which it refuses the first one for ever as out
    of order (KAFKA-14359).
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)
    until_s = time.monotonic() + PATIENCE
    for partition in range(partitions):
        log_end(bootstrap, TopicPartition(name, partition), until_s)
    return name


def log_end(bootstrap: str, partition: TopicPartition, until_s: float) -> int:
    """Return the offset after the last record; wait for the partition's leader.

    Each attempt is a new client's: librdkafka keeps "no leader" of its first metadata answer for as
    long as a topic is not consumed (rd_kafka_topic_partition_list_get_leaders: a permanent error).
    """
    while True:
        client = Consumer({"bootstrap.servers": bootstrap, "group.id": "log-end", "log_level": 0})
        try:
            ends: tuple[int, int] = client.get_watermark_offsets(partition, 20)
            return ends[1]
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() > until_s:
                raise
            time.sleep(0.2)
        finally:
            client.close()


def await_groups(bootstrap: str, topic: str) -> None:
    """Wait until the broker coordinates groups: the first request of one creates its topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first", "log_level": 0})

    def coordinates() -> bool:
        try:
            (committed,) = consumer.committed([TopicPartition(topic, 0)], 10)
        except KafkaException:
            return False
        return committed.error is None

    try:
        until("the coordinator of groups", coordinates, PATIENCE)
    finally:
        consumer.close()


def stable_offset(admin: AdminClient, topic: str, partition: int = 0) -> int:
    """Return the last stable offset of a partition."""
    return _end(admin, topic, partition, IsolationLevel.READ_COMMITTED)


def await_markers(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Wait until no transaction is open in partitions 0 to ``partitions`` - 1.

    A broker answers EndTxn before it writes the markers.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def all_ended() -> bool:
        return all(
            stable_offset(admin, topic, one)
            == _end(admin, topic, one, IsolationLevel.READ_UNCOMMITTED)
            for one in range(partitions)
        )

    until(f"the markers of {topic}", all_ended, PATIENCE)


def _end(admin: AdminClient, topic: str, partition: int, isolation: IsolationLevel) -> int:
    place = TopicPartition(topic, partition)
    (answer,) = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation).values()
    return int(answer.result(PATIENCE).offset)


def consumed(config: dict[str, Any], topic: str, count: int) -> list[bytes]:
    """Return the values of a topic's first records, as many as come within half a minute."""
    own = {"group.id": f"g-{uuid.uuid4().hex[:8]}", "auto.offset.reset": "earliest"}
    consumer = Consumer(own | config)
    consumer.subscribe([topic])
    values: list[bytes] = []
    end = time.monotonic() + 30
    while len(values) < count and time.monotonic() < end:
        messages = consumer.consume(100, 0.2)
        values += [message.value() or b"" for message in messages if not message.error()]
    consumer.close()
    return values
