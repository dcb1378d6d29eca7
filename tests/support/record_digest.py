"""The digest of a topic's records, which clients in several languages print; the Python clients.

The digest is SHA-256 over the canonical form of each record, in the order of offsets. Numbers are
big-endian:

    record   int64 offset | int64 timestamp | bytes key | bytes value | int32 headers | headers
    header   bytes key | bytes value
    bytes    int32 length | data                          length -1 and no data: null

Each program prints the client's version, then ``TOPIC RECORDS DIGEST`` for each topic. Here:

    python -m tests.support.record_digest CLIENT BOOTSTRAP TOPIC=COUNT...
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple, Protocol

__all__ = ["CLIENTS", "Digest", "Headers", "canonical"]

Headers = Iterable[tuple[str, bytes | None]]


def canonical(
    offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """Return the canonical form of a record."""
    listed = list(headers)
    parts = [
        struct.pack(">qq", offset, timestamp),
        _sized(key),
        _sized(value),
        struct.pack(">i", len(listed)),
    ]
    parts += [_sized(name.encode()) + _sized(data) for name, data in listed]
    return b"".join(parts)


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


class Digest:
    """Counts records and hashes their canonical forms."""

    def __init__(self) -> None:
        self.records = 0
        self._hash = hashlib.sha256()

    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Take in the record of the next offset."""
        self.add_at(self.records, timestamp, key, value, headers)

    def add_at(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        """Take in the record of this offset."""
        self._hash.update(canonical(offset, timestamp, key, value, headers))
        self.records += 1

    def text(self) -> str:
        """Return ``RECORDS DIGEST``."""
        return f"{self.records} {self._hash.hexdigest()}"


class _Record(Protocol):
    """A record of kafka-python or aiokafka."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any


class _Client(NamedTuple):
    version: Callable[[], str]
    #: (bootstrap, topic, count) -> digest of the first ``count`` records
    read: Callable[[str, str, int], Digest]


def _confluent_version() -> str:
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])


def _confluent(bootstrap: str, topic: str, count: int) -> Digest:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "digest", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    digest = Digest()
    while digest.records < count:
        for message in consumer.consume(min(10_000, count - digest.records), 1.0):
            if message.error():
                raise KafkaException(message.error())
            timestamp, headers = message.timestamp()[1], message.headers() or ()
            digest.add_at(message.offset(), timestamp, message.key(), message.value(), headers)
    consumer.close()
    return digest


def _kafka_python_version() -> str:
    import kafka

    return str(kafka.__version__)


def _kafka_python(bootstrap: str, topic: str, count: int) -> Digest:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, check_crcs=True, fetch_max_wait_ms=20)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    digest = Digest()
    for record in islice(consumer, count):
        _add(digest, record)
    consumer.close()
    return digest


def _aiokafka_version() -> str:
    import aiokafka

    return str(aiokafka.__version__)


def _aiokafka(bootstrap: str, topic: str, count: int) -> Digest:
    return asyncio.run(_read_with_aiokafka(bootstrap, topic, count))


async def _read_with_aiokafka(bootstrap: str, topic: str, count: int) -> Digest:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, check_crcs=True, auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    digest = Digest()
    while digest.records < count:
        fetched = await consumer.getmany(
            timeout_ms=1000, max_records=min(10_000, count - digest.records)
        )
        for records in fetched.values():
            for record in records:
                _add(digest, record)
    await consumer.stop()
    return digest


def _add(digest: Digest, record: _Record) -> None:
    digest.add_at(record.offset, record.timestamp, record.key, record.value, record.headers)


CLIENTS = {
    "librdkafka": _Client(_confluent_version, _confluent),
    "kafka-python": _Client(_kafka_python_version, _kafka_python),
    "aiokafka": _Client(_aiokafka_version, _aiokafka),
}


def main() -> None:
    name, bootstrap, *topics = sys.argv[1:]
    client = CLIENTS[name]
    print(client.version())
    for wanted in topics:
        topic, count = wanted.split("=")
        print(topic, client.read(bootstrap, topic, int(count)).text())


if __name__ == "__main__":
    main()
