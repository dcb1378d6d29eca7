"""One broker for all of these tests, with an authorizer that lets all through but for what a test denies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.interop.kafka_broker import KafkaBroker
from tests.support.fixtures import running_kafka

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}

#: Makes a topic of so many partitions with so many records of 100 bytes (a key of 4 too), round robin.
MakeTopic = Callable[[str, int, int], str]


def fill(bootstrap: str, topic: str, partitions: int, records: int) -> str:
    """A topic with records in it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 100_000})
    for i in range(records):
        producer.produce(topic, b"v" * 96, key=b"k%03d" % (i % 1000), partition=i % partitions)
        if i % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return topic


def deny(bootstrap: str, kind: ResourceType, name: str) -> None:
    """Nobody may read this from now on."""
    binding = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.READ, AclPermissionType.DENY
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_acls([binding]).values():
        done.result(60)


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    with running_kafka(config=AUTHORIZER, heap="512m") as running:
        yield running


@pytest.fixture(scope="session")
def topic(broker: KafkaBroker) -> str:
    """4 partitions, 20,000 records of 100 bytes."""
    return fill(broker.bootstrap, "perf-4", 4, 20_000)
