"""A broker of Apache Kafka 3.9, the last release before 4.0: clients are answered what it and the
gate both know.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from batchval.policy import TopicPolicy
from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.messages.api_versions import ApiVersionsRequest
from batchval.proxy.settings.options import TopicPolicies
from tests.support.fixtures import running_kafka
from tests.support.proxy import (
    RunningProxy,
    batch,
    codes,
    damaged,
    eventually,
    produce_frame,
    read_frame,
)
from tests.support.topics import consumed, make_topic
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.jvm, pytest.mark.slow]  # a broker and jars of its own

PRODUCE, FETCH, METADATA = 0, 1, 3


@pytest.fixture(scope="module")
def older() -> Iterator[KafkaBroker]:
    with running_kafka(profile="3.9") as running:
        yield running


@pytest.fixture(scope="module")
def gate(older: KafkaBroker) -> Iterator[RunningProxy]:
    policies = TopicPolicies(TopicPolicy(), {"small-*": TopicPolicy(max_message_bytes=1000)})
    with RunningProxy(older.bootstrap, policies=policies) as running:
        eventually(lambda: running.proxy.listening)
        yield running


def fresh(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def offered(address: tuple[str, int], version: int) -> tuple[int, dict[int, tuple[int, int]]]:
    with socket.create_connection(address, 10) as sock:
        request = ApiVersionsRequest("test", "1", api_version=version)
        sock.sendall(b"".join(request.encode(1, "test")))
        answer = request.decode(read_frame(sock))
    return answer.error_code, {
        api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
    }


@pytest.mark.parametrize("version", [0, 3])
def test_versions_are_those_of_both(older: KafkaBroker, gate: RunningProxy, version: int) -> None:
    code, theirs = offered((older.host, older.port), version)
    assert code == 0
    own = carried_versions()
    both = {
        key: (max(low, own[key][0]), min(high, own[key][1]))
        for key, (low, high) in theirs.items()
        if key in own
    }
    assert offered(gate.address, version) == (
        0,
        {key: span for key, span in both.items() if span[0] <= span[1]},
    )
    assert theirs[PRODUCE] == (0, 11)  # 3.9 it is: 4.0 ended at 12, and took the first three away
    assert both[PRODUCE] == (0, 11)
    assert theirs[FETCH][1] == 17
    assert theirs[FETCH][0] == theirs[METADATA][0] == 0


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_produce_refuse_consume(gate: RunningProxy, codec: str) -> None:
    topic = make_topic(gate.bootstrap, fresh("small"))
    answers: list[str | None] = []
    who = {"bootstrap.servers": gate.bootstrap, "log_level": 0}
    producer = Producer(
        {**who, "enable.idempotence": True, "linger.ms": 0, "compression.type": codec}
    )
    large = bytes(range(256)) * 20 if codec == "none" else fresh("x").encode() + random_bytes(3000)
    for value in (b"one", large, b"two"):
        producer.produce(
            topic, value, on_delivery=lambda error, _: answers.append(error and error.name())
        )
        assert producer.flush(20) == 0
    assert answers == [None, "MSG_SIZE_TOO_LARGE", None]
    assert consumed(who, topic, 2) == [b"one", b"two"]


def random_bytes(count: int) -> bytes:
    return b"".join(uuid.uuid4().bytes for _ in range(count // 16))


def test_kafka_python(gate: RunningProxy) -> None:
    topic = fresh("t")
    producer = KafkaProducer(bootstrap_servers=gate.bootstrap, compression_type="lz4", linger_ms=5)
    for future in [producer.send(topic, b"%d" % i) for i in range(50)]:
        future.get(20)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=gate.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    assert [next(consumer).value for _ in range(50)] == [b"%d" % i for i in range(50)]
    consumer.close()


def test_a_transaction(gate: RunningProxy) -> None:
    topic = fresh("t")
    producer = Producer({"bootstrap.servers": gate.bootstrap, "transactional.id": fresh("x")})
    producer.init_transactions(30)
    for end in ("abort", "commit"):
        producer.begin_transaction()
        producer.produce(topic, end.encode())
        producer.abort_transaction(30) if end == "abort" else producer.commit_transaction(30)
    config = {
        "bootstrap.servers": gate.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    message = eventually(lambda: (m := consumer.poll(0.2)) and not m.error() and m, 30)
    assert message.value() == b"commit"
    consumer.close()


def test_a_refusal_is_the_brokers_own(older: KafkaBroker, gate: RunningProxy) -> None:
    topic = make_topic(gate.bootstrap, fresh("t"))
    good = batch(b"one", b"two")
    bad = {
        "crc": damaged(good),
        "two batches": good + good,
        "magic 1": good[:16] + b"\1" + good[17:],
        "truncated": good[:-3],
        "good": good,
    }
    for name, records in bad.items():
        for version in (3, 8, 9, 11):
            answers = []
            for address in ((older.host, older.port), gate.address):
                with socket.create_connection(address, 10) as sock:
                    sock.sendall(produce_frame(1, (topic, 0, records), version=version))
                    answers.append(codes(read_frame(sock), version))
            assert answers[0] == answers[1], (name, version)


def test_produce_before_3_is_not_carried(older: KafkaBroker, gate: RunningProxy) -> None:
    # The broker would take records of 2016 in it; through the gate the connection ends.
    topic = make_topic(gate.bootstrap, fresh("t"))
    name = topic.encode()
    body = b"\0\1" + (1000).to_bytes(
        4, "big"
    )  # acks, timeout; no transactional id before version 3
    body += (
        b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\0\0\0\1" + b"\0\0\0\0" + b"\0\0\0\0"
    )
    request = b"\0\0\0\2\0\0\0\1\0\4test" + body
    for address, is_answered in (((older.host, older.port), True), (gate.address, False)):
        with socket.create_connection(address, 10) as sock:
            sock.sendall(len(request).to_bytes(4, "big") + request)
            if is_answered:
                assert read_frame(sock)[:4] == b"\0\0\0\1"
            else:
                with pytest.raises(EOFError):
                    read_frame(sock)
    assert gate.counters.connections_closed["version_too_old"] == 1
