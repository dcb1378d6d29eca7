"""Topics on a real broker, made and read with librdkafka."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.processes import until

PATIENCE = 90  # seconds
#: Answers for a topic that a broker does not serve yet.
_NOT_YET = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> str:
    """Create a topic and return its name when the leaders of its partitions serve it.

    The controller answers before all brokers know the topic: they answer Produce with
    UNKNOWN_TOPIC_OR_PARTITION for a moment.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)
    places = {TopicPartition(name, one): OffsetSpec.latest() for one in range(partitions)}

    def is_served() -> bool:
        try:
            for answer in admin.list_offsets(places).values():
                answer.result(PATIENCE)
        except KafkaException as error:
            return error.args[0].code() not in _NOT_YET
        return True

    until(f"topic {name}", is_served, PATIENCE)
    return name


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
