"""Three real brokers of one cluster: each in turn is stopped, and the gate goes on without it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.fixtures import needs_kafka
from tests.support.proxy import eventually
from tests.support.record_checker import check
from tests.system.auth.gates import RunningSettings
from tests.system.chain.senders import JavaSender, read_all
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.jvm, pytest.mark.alone, pytest.mark.long]

PARTITIONS = 3


@pytest.fixture
def cluster() -> Iterator[list[KafkaBroker]]:
    """Run nodes 1, 2 and 3, each of them broker and controller."""
    needs_kafka()
    first = KafkaBroker()
    brokers = [first, *(KafkaBroker(cluster_id=first.cluster_id) for _ in range(2))]
    voters = ",".join(f"{n}@{one.host}:{one.controller_port}" for n, one in enumerate(brokers, 1))
    for n, one in enumerate(brokers, 1):
        one.config |= {"node.id": n, "controller.quorum.voters": voters}
        one.config |= {"default.replication.factor": 3, "offsets.topic.replication.factor": 3}
    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(KafkaBroker.start, brokers))
        yield brokers
    finally:
        for one in brokers:
            one._forget()


def gate_of(cluster: list[KafkaBroker], state: Path) -> RunningSettings:
    upstream = ",".join(one.bootstrap for one in cluster)
    return RunningSettings(upstream, metrics={"address": "127.0.0.1:0"}, state_directory=str(state))


def readiness(gate: RunningSettings) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{gate.gate.metrics_at}/readyz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Watch:
    """A thread that reads /readyz 20 times a second; ``seen`` are the answers other than 200."""

    def __init__(self, gate: RunningSettings) -> None:
        self.gate = gate
        self.count = 0
        self.seen: list[tuple[int, str]] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self.over.wait(0.05):
            answer = readiness(self.gate)
            self.count += 1
            if answer[0] != 200:
                self.seen.append(answer)

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join(15)


def new_client_writes_and_reads(gate: RunningSettings, topic: str) -> None:
    """Run a producer and a consumer that know nothing but the gate's bootstrap address."""
    mark = uuid.uuid4().bytes
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": gate.bootstrap, "acks": "all", "log_level": 0, "linger.ms": 0}
    )
    for partition in range(PARTITIONS):
        producer.produce(
            topic, mark, partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(30) == 0
    assert errors == [None] * PARTITIONS
    consumer = Consumer({"bootstrap.servers": gate.bootstrap, "group.id": "reader", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found: set[int] = set()
        until = time.monotonic() + 30
        while len(found) < PARTITIONS and time.monotonic() < until:
            for message in consumer.consume(1000, 0.2):
                if not message.error() and message.value() == mark:
                    found.add(message.partition())
        assert found == set(range(PARTITIONS))
    finally:
        consumer.close()


def has_all_replicas(admin: AdminClient, topic: str) -> bool:
    partitions = admin.list_topics(topic, 10).topics[topic].partitions.values()
    return all(len(one.isrs) == 3 and one.leader >= 0 for one in partitions)


def listens(at: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(at, 5):
        return True
    return False


def test_any_one_broker_may_stop(cluster: list[KafkaBroker], tmp_path: Path) -> None:
    with gate_of(cluster, tmp_path) as gate:
        proxy = gate.gate.proxies["default"]
        eventually(lambda: set(proxy.listening) == {1, 2, 3}, 30)
        ports = dict(proxy.listening)
        topic, admin = (
            "replicated",
            AdminClient({"bootstrap.servers": gate.bootstrap, "log_level": 0}),
        )
        made = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([made])[topic].result(60)
        eventually(lambda: has_all_replicas(admin, topic), 30)
        # not librdkafka's: see test_leaders_change_under_producers
        sender = JavaSender(
            0, gate.bootstrap, topic, PARTITIONS, share=500, seconds=2.0, codec="none", in_flight=5
        )
        sender.await_first()
        try:
            with Watch(gate) as watch:
                for broker in cluster:
                    broker.stop()
                    before = sender.acknowledged()
                    new_client_writes_and_reads(gate, topic)
                    eventually(lambda: sender.acknowledged() > before + 50, 30)  # noqa: B023
                    broker.start()
                    eventually(lambda: has_all_replicas(admin, topic), 30)
        finally:
            sender.finish(90)
        assert watch.seen == []
        assert watch.count > 50
        assert proxy.listening == ports
        assert sender.errors == []
        assert len(sender.acked) == sender.sent
        stored = [
            one for one in read_all(cluster[0].bootstrap, topic, PARTITIONS) if len(one.value) > 16
        ]
        found = check(sender.acked, stored, {0: sender.sent})
        assert not found, str(found)

    for broker in cluster:
        broker.kill()
    with gate_of(cluster, tmp_path) as gate:  # with no broker to ask
        assert gate.gate.proxies["default"].listening == ports
        assert all(map(listens, ports.values()))
        eventually(lambda: "Connection refused" in readiness(gate)[1])
        status, why = readiness(gate)
        assert status == 503
        assert all(broker.bootstrap in why for broker in cluster)
