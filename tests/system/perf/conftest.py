"""One broker for all of these tests, with an authorizer that lets all through but for what a test
denies.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.fixtures import running_kafka
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}

CLIENTS = ["batchval", "librdkafka"]
#: For what takes ten seconds each: the other one in make test-full.
ONE_CLIENT = ["batchval", pytest.param("librdkafka", marks=pytest.mark.slow)]


def fill(bootstrap: str, topic: str, partitions: int, records: int) -> str:
    """A topic with records of 100 bytes in it, of which 4 are the key, round robin."""
    make_topic(bootstrap, topic, partitions)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 100_000})
    for i in range(records):
        producer.produce(topic, b"v" * 96, key=b"k%03d" % (i % 1000), partition=i % partitions)
        if i % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return topic


def rule(
    bootstrap: str,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.DENY,
) -> None:
    """Nobody may do this from now on; or everybody may."""
    binding = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission
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
