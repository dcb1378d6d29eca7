"""A real schema registry, a real broker, and the gate between librdkafka and both."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from batchval.protocol.messages.produce import ProduceResponse
from batchval.proxy.produce.record_parts import RecordParts
from batchval.proxy.settings.loading import settings_from
from batchval.proxy.settings.options import TopicPolicies
from tests.support.proxy import (
    RunningProxy,
    batch,
    codes,
    connected,
    eventually,
    produce_frame,
    read_frame,
)
from tests.support.schema_registry import SchemaRegistry
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker, ToolMissing

pytestmark = [pytest.mark.jvm, pytest.mark.long]

INVALID_RECORD, TIMED_OUT = 87, 7
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "%s", "type": "string"}]}'


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    try:
        with SchemaRegistry() as running:
            yield running
    except ToolMissing as missing:
        pytest.skip(str(missing))


def parts_of(registry: SchemaRegistry, on_error: str) -> RecordParts:
    """Return the part that a gate's settings make of this registry."""
    schema_id = {"registry": "main", "place": "value"}
    main = {
        "name": "main",
        "url": registry.url,
        "refresh_ms": 1000,
        "absent_ms": 100,
        "on_error": on_error,
    }
    settings = {
        "listeners": [{"address": "127.0.0.1:0"}],
        "upstream": {"bootstrap": "127.0.0.1:1"},
        "topics": {"policies": [{"match": "orders-*", "record_rules": {"schema_id": schema_id}}]},
        "schema_registries": [main],
    }
    return RecordParts(settings_from(settings))


def value_of(schema_id: int) -> bytes:
    return b"\0" + struct.pack(">i", schema_id) + b"\x06abc"


def delivered(proxy: RunningProxy, topic: str, *values: bytes) -> list[int]:
    """Produce by librdkafka, and return the error code of each record; 0 where there is none."""
    found: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": proxy.bootstrap,
            "log_level": 0,
            "compression.type": "zstd",
            "retries": 0,
        }
    )
    for value in values:
        producer.produce(
            topic,
            value,
            key=b"k",
            on_delivery=lambda error, _: found.append(error.code() if error else 0),
        )
    assert producer.flush(30) == 0
    return found


def refused(proxy: RunningProxy, topic: str, *values: bytes) -> list[Any]:
    """Return the code and the record errors of one batch."""
    with connected(proxy) as sock:
        sock.sendall(produce_frame(1, (topic, 0, batch(*values))))
        frame = read_frame(sock)
    (part,) = ProduceResponse.decode(frame, 9).responses[0].partition_responses
    assert codes(frame) == {(topic, 0): part.error_code}
    return [part.error_code, [error.batch_index for error in part.record_errors]]


@pytest.mark.parametrize("on_error", ["refuse", "pass"])
def test_schemas_are_registered_while_the_gate_runs(
    broker: KafkaBroker, registry: SchemaRegistry, on_error: str
) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    subject = f"{topic}-value"
    make_topic(broker.bootstrap, topic)
    other = make_topic(broker.bootstrap, f"other-{topic}")
    first = registry.register(subject, SCHEMA % f"a{uuid.uuid4().hex}")
    parts = parts_of(registry, on_error)
    parts.start()
    subjects = parts.registries["main"]
    try:
        with RunningProxy(
            broker.bootstrap, policies=TopicPolicies(rules=parts.topic_rules)
        ) as proxy:
            assert delivered(proxy, topic, value_of(first), value_of(first)) == [0, 0]
            unknown = first + 1
            assert refused(proxy, topic, value_of(first), value_of(unknown)) == [
                INVALID_RECORD,
                [1],
            ]
            assert delivered(proxy, topic, value_of(unknown)) == [INVALID_RECORD]
            assert delivered(proxy, other, value_of(unknown)) == [0]
            # of another subject: the id exists, and is not this topic's
            schema = SCHEMA % f"b{uuid.uuid4().hex}"
            assert registry.register(f"{subject}-2", schema) == unknown
            eventually(lambda: not subjects.is_absent(subject, unknown))
            assert delivered(proxy, topic, value_of(unknown)) == [INVALID_RECORD]
            assert registry.register(subject, schema) == unknown
            eventually(lambda: not subjects.is_absent(subject, unknown))
            assert delivered(proxy, topic, value_of(unknown), value_of(first)) == [0, 0]
            registry.stop()
            assert delivered(proxy, topic, value_of(first)) == [0]
            expected = [TIMED_OUT, []] if on_error == "refuse" else [0, []]
            assert refused(proxy, topic, value_of(first), value_of(4711)) == expected
            assert subjects.is_down
    finally:
        parts.close()
        registry.start()
