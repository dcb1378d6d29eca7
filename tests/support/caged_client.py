"""A client that produces and consumes, in a process that can be put where only the gate is to be
reached.

python -m tests.support.caged_client L|K|A BOOTSTRAP TOPIC COUNT [HOST:PORT that must be out of
reach]...

Says "out of reach" for each address that is, then "N of COUNT".
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
import time


def values(count: int) -> list[bytes]:
    return [b"caged %d" % n for n in range(count)]


def librdkafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer, Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    errors: list[object] = []
    for value in values(count):
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: error and errors.append(error)
        )
    assert producer.flush(40) == 0
    assert errors == []
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **group})
    consumer.subscribe([topic])
    read: list[bytes] = []
    until = time.monotonic() + 40
    while len(read) < count and time.monotonic() < until:
        read += [
            message.value() or b""
            for message in consumer.consume(count, 0.2)
            if not message.error()
        ]
    consumer.close()
    return read


def kafka_python(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for future in [producer.send(topic, value, partition=0) for value in values(count)]:
        future.get(40)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=40_000,
    )
    read = [record.value for record in itertools.islice(consumer, count)]
    consumer.close()
    return read


def aiokafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True
        ) as producer:
            await asyncio.gather(
                *[await producer.send(topic, value, partition=0) for value in values(count)]
            )
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 40)).value for _ in range(count)]

    return asyncio.run(run())


CLIENTS = {"L": librdkafka, "K": kafka_python, "A": aiokafka}


def main() -> None:
    kind, bootstrap, topic, count, *elsewhere = sys.argv[1:]
    for address in elsewhere:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), 5).close()
        except OSError:
            print("out of reach")
    read = CLIENTS[kind](bootstrap, topic, int(count))
    assert read == values(int(count)), read
    print(f"{len(read)} of {count}")


if __name__ == "__main__":
    main()
