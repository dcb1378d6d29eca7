"""A real broker behind the gate, and clients that know nothing of it: librdkafka, kafka-python, aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from batchval.policy import TopicPolicy
from batchval.protocol.messages.produce import ProduceRequest
from batchval.proxy.options import TopicPolicies
from tests.interop.kafka_broker import KafkaBroker, ToolMissing
from tests.support.proxy import (
    RunningProxy,
    batch,
    codes,
    damaged,
    eventually,
    produce_frame,
    read_frame,
)
from tests.support.record_checker import Checker, value_of

pytestmark = pytest.mark.jvm

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
VALUES = [b"value %d " % i * 20 for i in range(300)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    try:
        with KafkaBroker() as running:
            yield running
    except ToolMissing as missing:
        pytest.skip(str(missing))


POLICIES = TopicPolicies(TopicPolicy(), {"strict-*": TopicPolicy(max_message_bytes=2000)})


@pytest.fixture(scope="module")
def proxy(broker: KafkaBroker) -> Iterator[RunningProxy]:
    with RunningProxy(broker.bootstrap, policies=POLICIES) as running:
        yield running


def fresh(kind: str = "t") -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def made(proxy: RunningProxy, topic: str, partitions: int = 1, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(20)
    return topic


def producer_of(proxy: RunningProxy, **config: object) -> Producer:
    return Producer({"bootstrap.servers": proxy.bootstrap, "log_level": 0, "linger.ms": 5, **config})


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
        topic, bootstrap_servers=proxy.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
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
            topic, bootstrap_servers=proxy.bootstrap, group_id=fresh("g"), auto_offset_reset="earliest"
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
    producer = producer_of(proxy, **{"transactional.id": fresh("x"), "message.max.bytes": 1_000_000})
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
    one, two = (consumer_of(proxy, **{"group.id": group, "enable.auto.commit": False}) for _ in range(2))
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
    assert admin.describe_configs([resource])[resource].result(20)["retention.ms"].value == "3600000"
    cluster = admin.describe_cluster().result(20)
    assert {node.port for node in cluster.nodes} <= proxy.own_ports()
    assert cluster.controller is None or cluster.controller.port in proxy.own_ports()
    assert broker.port not in {node.port for node in cluster.nodes}
    admin.delete_topics([topic])[topic].result(20)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)


def test_clients_talk_to_the_gate_alone(proxy, broker):
    """The broker's port is watched through the kernel: nobody but the gate is connected to it."""
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
        if connection.upstream and connection.upstream.transport
        for sock in [connection.upstream.transport.get_extra_info("socket")]
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


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_a_refusal_is_the_brokers_own(proxy, broker):
    """Each bad batch straight to the broker and through the gate: the same code, the same record errors."""
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
            said = []
            for address in (("127.0.0.1", broker.port), proxy.address):
                with socket.create_connection(address, 10) as sock:
                    sock.sendall(produce_frame(1, (topic, 0, records), version=version))
                    said.append(codes(read_frame(sock), version))
            assert said[0] == said[1], (name, version)


def test_each_client_sees_the_refusal_and_goes_on(proxy):
    strict = made(proxy, fresh("strict"))
    large = b"x" * 5000
    errors: list[object] = []
    producer = producer_of(proxy, **{"enable.idempotence": True, "linger.ms": 0})
    for value in (b"small", large, b"small too"):
        producer.produce(strict, value, on_delivery=lambda error, _: errors.append(error and error.name()))
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
            1, (topic, 0, good), (strict, 0, batch(b"x" * 5000)), (topic, 1, damaged(good)), version=12
        )
        assert ProduceRequest.parse(frame[4:])[1].topic_data[0].partition_data[1].index == 1
        sock.sendall(frame)
        assert codes(read_frame(sock), 12) == {(topic, 0): 0, (strict, 0): 10, (topic, 1): 2}
    assert read(proxy, topic, 1) == [b"one"]


# ---- kills ---------------------------------------------------------------------------------------------------------


def test_no_acknowledged_record_is_lost_doubled_moved_or_reordered(tmp_path):
    """Idempotent producers, while the gate is killed again and again and the broker twice: the short form."""
    try:
        broker = KafkaBroker(tmp_path).start()
    except ToolMissing as missing:
        pytest.skip(str(missing))
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(broker.stop)
        listen = ("127.0.0.1", _free())
        options = {"listen": listen, "first_broker_port": _free()}
        proxy = RunningProxy(broker.bootstrap, **options).__enter__()
        made(proxy, "a", 3)
        made(proxy, "b", 3)
        checker = Checker()
        stop = threading.Event()
        threads = [
            threading.Thread(target=_produce, args=(n, f"{listen[0]}:{listen[1]}", checker, stop)) for n in range(3)
        ]
        for thread in threads:
            thread.start()
        rng = random.Random(11)
        for n in range(8):
            time.sleep(rng.uniform(0.3, 0.8))
            if n in (3, 6):
                broker.kill()
                broker.start()
            else:
                _kill(proxy)
                proxy = RunningProxy(broker.bootstrap, **options).__enter__()
        time.sleep(1.0)
        stop.set()
        for thread in threads:
            thread.join(90)
            assert not thread.is_alive()
        records = _everything(broker.bootstrap, ("a", "b"), 3)
        assert len(checker.acknowledged) > 3000
        assert checker.findings(records) == []
        proxy.stop(0.5)


def _free() -> int:
    from tests.interop.kafka_broker import free_port

    return free_port()


def _kill(proxy: RunningProxy) -> None:
    """As a kill -9 looks from outside: every socket is reset, nothing is drained."""

    def now() -> None:
        proxy.proxy.cluster.close()
        for connection in list(proxy.proxy.connections):
            connection.abort("killed")

    proxy.loop.call_soon_threadsafe(now)
    proxy.stop(0.0)


def _produce(who: int, bootstrap: str, checker: Checker, stop: threading.Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "log_level": 0,
            "compression.type": ("none", "lz4", "zstd")[who % 3],
            "reconnect.backoff.max.ms": 300,
            "message.timeout.ms": 60_000,
        }
    )
    number = 0
    while not stop.is_set():
        topic, partition = "ab"[number % 2], number // 2 % 3
        checker.sent[who, number] = (topic, partition)

        def delivered(error, message, key=(who, number)):
            if error is None:
                checker.acknowledged[key] = (message.topic(), message.partition(), message.offset())

        with contextlib.suppress(BufferError):
            producer.produce(topic, value_of(who, number, topic, partition), partition=partition, on_delivery=delivered)
        producer.poll(0)
        number += 1
        if number % 50 == 0:
            time.sleep(0.01)
    producer.flush(60)


def _everything(bootstrap: str, topics: tuple[str, ...], partitions: int) -> list[tuple[str, int, int, bytes]]:
    """Straight from the broker, each partition to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh("check"),
            "check.crcs": True,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, n, 0) for topic in topics for n in range(partitions)])
    ended: set[tuple[str, int]] = set()
    records = []
    until = time.monotonic() + 60
    while len(ended) < len(topics) * partitions:
        assert time.monotonic() < until
        for message in consumer.consume(1000, 0.5):
            if message.error():
                ended.add((message.topic(), message.partition()))
            else:
                records.append((message.topic(), message.partition(), message.offset(), message.value()))
    consumer.close()
    return records
