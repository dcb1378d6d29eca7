"""Kafka's clients of a rehearsal, on the host: librdkafka, and Produce requests made by hand.

librdkafka builds good batches only. Damaged batches, and batches with claims, are sent as they are.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from batchval.errors import ErrorCode
from tests.support import proxy as requests
from tools.rehearsal.steps import StepFailed, expect

DEADLINE_S = 60.0
#: librdkafka writes warnings to the terminal, for example while a coordinator loads
LOG_LEVEL = 3
RECORDS_IN_A_BATCH = 50


def produce(bootstrap: str, topic: str, values: Sequence[bytes], codec: str) -> None:
    """Send values to partition 0 through librdkafka, in several batches.

    StepFailed unless each is acknowledged.
    """
    failed: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    settings = {"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL, "compression.type": codec}
    settings |= {
        "acks": "all",
        "enable.idempotence": True,
        "batch.num.messages": RECORDS_IN_A_BATCH,
    }
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    left = producer.flush(DEADLINE_S)
    expect(
        not left, f"{left} of {len(values)} records were not acknowledged within {DEADLINE_S:g} s"
    )
    expect(not failed, f"{len(failed)} of {len(values)} records were refused: {failed[:1]}")


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Return the values of the first records of partition 0. StepFailed if fewer arrive."""
    settings = {"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL}
    settings |= {"group.id": "rehearsal", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        while len(values) < count:
            more = consumer.consume(count - len(values), DEADLINE_S)
            expect(more, f"{topic} has {len(values)} records, expected {count}")
            if failure := next((message.error() for message in more if message.error()), None):
                raise StepFailed(f"{topic}: {failure}")
            values += [message.value() or b"" for message in more]
        return values
    finally:
        consumer.close()


def send_batch(
    bootstrap: str, topic: str, batch: bytes, tag: tuple[int, bytes] | None = None
) -> ErrorCode:
    """Send one batch in a Produce request, with a tagged field if any; return the error code."""
    host, _, port = bootstrap.rpartition(":")
    tags = () if tag is None else (tag,)
    with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
        connection.sendall(requests.produce_frame(7, (topic, 0, batch), acks=-1, tags=tags))
        return ErrorCode(requests.codes(requests.read_frame(connection))[topic, 0])
