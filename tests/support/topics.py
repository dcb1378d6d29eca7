"""Topics on a real broker."""

from __future__ import annotations

import time

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PATIENCE = 90  # seconds


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> str:
    """Returns when it is made: its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)
    return name


def stable_offset(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Return the last stable offset of a partition."""
    return _end(bootstrap, topic, partition, IsolationLevel.READ_COMMITTED)


def await_markers(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Wait until no transaction is open in partitions 0 to ``partitions`` - 1.

    A broker answers EndTxn before it writes the markers.
    """
    until = time.monotonic() + PATIENCE
    for partition in range(partitions):
        while stable_offset(bootstrap, topic, partition) != _end(
            bootstrap, topic, partition, IsolationLevel.READ_UNCOMMITTED
        ):
            assert time.monotonic() < until, f"a transaction is open in {topic}-{partition}"
            time.sleep(0.02)


def _end(bootstrap: str, topic: str, partition: int, isolation: IsolationLevel) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    place = TopicPartition(topic, partition)
    (answer,) = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation).values()
    return int(answer.result(PATIENCE).offset)
