"""A gate in front of a real broker, and clients that know nothing of it: librdkafka, kafka-python,
aiokafka.
"""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from batchval.policy import TopicPolicy
from batchval.protocol.apis import ApiKey
from batchval.protocol.field_schema import read as read_fields
from batchval.protocol.field_schema import shape_of
from batchval.protocol.messages.produce import ProduceRequest
from batchval.protocol.primitives import Reader
from batchval.proxy.settings.config import inter_broker_rules
from batchval.proxy.settings.options import TopicPolicies
from tests.support.broker_requests import body_of, framed
from tests.support.proxy import (
    RunningProxy,
    batch,
    codes,
    damaged,
    eventually,
    produce_frame,
    read_frame,
)
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
VALUES = [b"value %d " % i * 20 for i in range(300)]


#: What a listener denies by default: no client notices.
INTER_BROKER = inter_broker_rules((), "default")
POLICIES = TopicPolicies(TopicPolicy(), {"strict-*": TopicPolicy(max_message_bytes=2000)})


@pytest.fixture(scope="module")
def proxy(broker: KafkaBroker) -> Iterator[RunningProxy]:
    with RunningProxy(broker.bootstrap, policies=POLICIES, deny=INTER_BROKER) as running:
        yield running


def fresh(kind: str = "t") -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def made(proxy: RunningProxy, topic: str, partitions: int = 1, **config: str) -> str:
    return make_topic(proxy.bootstrap, topic, partitions, **config)


def producer_of(proxy: RunningProxy, **config: object) -> Producer:
    return Producer(
        {"bootstrap.servers": proxy.bootstrap, "log_level": 0, "linger.ms": 5, **config}
    )


def consumer_of(proxy: RunningProxy, **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": proxy.bootstrap,
            "group.id": fresh("g"),
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **config,
        }
    )


def read(proxy: RunningProxy, topic: str, count: int, **config: object) -> list[bytes]:
    consumer = consumer_of(proxy, **config)
    consumer.subscribe([topic])
    values: list[bytes] = []
    until = time.monotonic() + 60
    while len(values) < count and time.monotonic() < until:
        for message in consumer.consume(500, 0.2):
            if not message.error():
                values.append(message.value())
    consumer.close()
    return values


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_all_codecs_idempotent(proxy, codec):
    topic = made(proxy, fresh())
    producer = producer_of(proxy, **{"compression.type": codec, "enable.idempotence": True})
    errors: list[object] = []
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: error and errors.append(error))
    assert producer.flush(30) == 0
    assert errors == []
    assert read(proxy, topic, len(VALUES)) == VALUES


@pytest.mark.parametrize("codec", [None, *CODECS[1:]])
def test_kafka_python_all_codecs(proxy, codec):
    topic = made(proxy, fresh())
    producer = KafkaProducer(bootstrap_servers=proxy.bootstrap, compression_type=codec, linger_ms=5)
    for future in [producer.send(topic, value) for value in VALUES]:
        future.get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=proxy.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


@pytest.mark.parametrize("codec", [None, *CODECS[1:]])
def test_aiokafka_all_codecs(proxy, codec):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic = made(proxy, fresh())

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(
            bootstrap_servers=proxy.bootstrap, compression_type=codec, enable_idempotence=True
        ) as producer:
            await asyncio.gather(*[await producer.send(topic, value) for value in VALUES])
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=proxy.bootstrap,
            group_id=fresh("g"),
            auto_offset_reset="earliest",
        ) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES


def test_transactions_commit_and_abort(proxy):
    topic = made(proxy, fresh())
    producer = producer_of(proxy, **{"transactional.id": fresh("x")})
    producer.init_transactions(30)
    for end in ("abort", "commit"):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, b"%s %d" % (end.encode(), i))
        producer.abort_transaction(30) if end == "abort" else producer.commit_transaction(30)
    expected = [b"commit %d" % i for i in range(10)]
    assert read(proxy, topic, 10, **{"isolation.level": "read_committed"}) == expected


def test_a_transaction_with_a_refused_batch_is_aborted_and_never_seen_in_part(proxy):
    topic, strict = made(proxy, fresh()), made(proxy, fresh("strict"))
    producer = producer_of(
        proxy, **{"transactional.id": fresh("x"), "message.max.bytes": 1_000_000}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"fine")
    producer.produce(strict, b"x" * 5000)
    producer.flush(30)
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"after")
    producer.commit_transaction(30)
    assert read(proxy, topic, 1, **{"isolation.level": "read_committed"}) == [b"after"]


def test_a_group_shares_partitions_and_commits(proxy):
    topic = made(proxy, fresh(), 4)
    group = fresh("g")
    one, two = (
        consumer_of(proxy, **{"group.id": group, "enable.auto.commit": False}) for _ in range(2)
    )
    seen: set[bytes] = set()
    for consumer in (one, two):
        consumer.subscribe([topic])

    def polled() -> None:
        for consumer in (one, two):
            seen.update(m.value() for m in consumer.consume(100, 0.1) if not m.error())

    eventually(lambda: polled() or len(one.assignment()) == len(two.assignment()) == 2, 60)
    producer = producer_of(proxy)
    for i in range(200):
        producer.produce(topic, b"%d" % i, partition=i % 4)
    assert producer.flush(30) == 0
    eventually(lambda: polled() or len(seen) == 200, 60)
    one.commit(asynchronous=False)
    two.commit(asynchronous=False)
    committed = one.committed([TopicPartition(topic, n) for n in range(4)], 20)
    assert sum(max(0, part.offset) for part in committed) == 200
    one.close()
    two.close()


def test_admin(proxy, broker):
    topic = made(proxy, fresh(), 2, **{"retention.ms": "3600000"})
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert (
        admin.describe_configs([resource])[resource].result(20)["retention.ms"].value == "3600000"
    )
    cluster = admin.describe_cluster().result(20)
    assert {node.port for node in cluster.nodes} <= proxy.own_ports()
    assert cluster.controller is None or cluster.controller.port in proxy.own_ports()
    assert broker.port not in {node.port for node in cluster.nodes}
    admin.delete_topics([topic])[topic].result(20)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)


def test_clients_talk_to_the_gate_alone(proxy, broker):
    # The broker's port is watched through the kernel: nobody but the gate is connected to it.
    topic = made(proxy, fresh())
    producer, consumer = producer_of(proxy, **{"enable.idempotence": True}), consumer_of(proxy)
    consumer.subscribe([topic])
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    eventually(lambda: (m := consumer.poll(0.2)) and not m.error(), 60)
    connections = list(proxy.proxy.connections)
    ours = {
        sock.getsockname()[1]
        for connection in connections
        if connection.connections.broker and connection.connections.broker.transport
        for sock in [connection.connections.broker.transport.get_extra_info("socket")]
    }
    theirs = set()
    with open("/proc/net/tcp") as table:
        for line in table.readlines()[1:]:
            _, local, remote, state = line.split()[:4]
            if state == "01" and int(remote.split(":")[1], 16) == broker.port:
                theirs.add(int(local.split(":")[1], 16))
    consumer.close()
    assert theirs
    assert theirs <= ours


# ---- refusals ------------------------------------------------------------------------------------


def test_a_refusal_is_the_brokers_own(proxy, broker):
    # Each bad batch straight to the broker and through the gate: the same code, the same record
    # errors.
    topic = made(proxy, fresh())
    good = batch(b"one", b"two")
    bad = {
        "crc": damaged(good),
        "trailing": good + good,
        "too old magic": good[:16] + b"\1" + good[17:],
        "empty": b"",
        "truncated": good[:-3],
        "codec unlike content": batch(b"x" * 300, codec=1),
        "good": good,
    }
    for name, records in bad.items():
        for version in (3, 8, 9, 12):
            answers = []
            for address in (("127.0.0.1", broker.port), proxy.address):
                with socket.create_connection(address, 10) as sock:
                    sock.sendall(produce_frame(1, (topic, 0, records), version=version))
                    answers.append(codes(read_frame(sock), version))
            assert answers[0] == answers[1], (name, version)


def test_each_client_sees_the_refusal_and_goes_on(proxy):
    strict = made(proxy, fresh("strict"))
    large = b"x" * 5000
    errors: list[object] = []
    producer = producer_of(proxy, **{"enable.idempotence": True, "linger.ms": 0})
    for value in (b"small", large, b"small too"):
        producer.produce(
            strict, value, on_delivery=lambda error, _: errors.append(error and error.name())
        )
        producer.flush(30)
    assert errors[0] is None
    assert errors[1] == "MSG_SIZE_TOO_LARGE"
    other = KafkaProducer(bootstrap_servers=proxy.bootstrap, linger_ms=0, enable_idempotence=False)
    with pytest.raises(KafkaError, match=r"(?i)large"):
        other.send(strict, large).get(30)
    other.send(strict, b"small").get(30)
    other.close()


def test_some_of_several_partitions(proxy):
    topic, strict = made(proxy, fresh(), 2), made(proxy, fresh("strict"))
    good = batch(b"one")
    with socket.create_connection(proxy.address, 10) as sock:
        frame = produce_frame(
            1,
            (topic, 0, good),
            (strict, 0, batch(b"x" * 5000)),
            (topic, 1, damaged(good)),
            version=12,
        )
        assert ProduceRequest.parse(frame[4:])[1].topic_data[0].partition_data[1].index == 1
        sock.sendall(frame)
        assert codes(read_frame(sock), 12) == {(topic, 0): 0, (strict, 0): 10, (topic, 1): 2}
    assert read(proxy, topic, 1) == [b"one"]


def asked(bootstrap: str, key: int, version: int, body: bytes) -> dict[str, Any]:
    """Return the answer to a request whose answer's header is flexible."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.sendall(framed(key, version, body))
        r = Reader(read_frame(sock), flexible=True)
    assert r.int32() == 5
    r.unknown_tags()
    return read_fields(shape_of(f"{ApiKey(key).name.title().replace('_', '')}Response", version), r)


def markers(topic: str, version: int) -> bytes:
    """Return the body of a commit marker of a transaction that never was."""
    topics = [{"Name": topic, "PartitionIndexes": [0]}]
    one = {"ProducerId": 4242, "ProducerEpoch": 0, "TransactionResult": True, "Topics": topics}
    marker = one | {"CoordinatorEpoch": 0, "TransactionVersion": version}
    return body_of(ApiKey.WRITE_TXN_MARKERS, version, Markers=[marker])


@pytest.mark.parametrize("version", [1, 2])
def test_no_client_writes_a_marker_into_a_log(proxy, broker, version):
    topic = made(proxy, fresh())
    consumer = consumer_of(proxy)
    for bootstrap, code, end in ((proxy.bootstrap, 31, 0), (broker.bootstrap, 0, 1)):
        answer = asked(bootstrap, ApiKey.WRITE_TXN_MARKERS, version, markers(topic, version))
        ((partition,),) = [one["Topics"][0]["Partitions"] for one in answer["Markers"]]
        assert partition["ErrorCode"] == code
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 30) == (0, end)
    consumer.close()


def test_the_newest_description_of_the_quorum_passes(proxy, broker):
    # kafka-metadata-quorum shows directory ids and endpoints, which version 2 has
    topics = [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]
    body = body_of(ApiKey.DESCRIBE_QUORUM, 2, Topics=topics)
    direct, gated = (
        asked(bootstrap, ApiKey.DESCRIBE_QUORUM, 2, body)
        for bootstrap in (broker.bootstrap, proxy.bootstrap)
    )
    assert gated["ErrorCode"] == 0
    assert gated["Nodes"] == direct["Nodes"] != []
    voters = [one["Topics"][0]["Partitions"][0]["CurrentVoters"] for one in (direct, gated)]
    (ids,) = {tuple((v["ReplicaId"], v["ReplicaDirectoryId"]) for v in one) for one in voters}
    assert len(ids) == 1
    # kafka-python sends the newest version that it knows, whatever the gate offers
    admin = KafkaAdminClient(bootstrap_servers=proxy.bootstrap)
    assert admin.describe_metadata_quorum()["nodes"]
    admin.close()
