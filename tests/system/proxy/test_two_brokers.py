"""A gate in front of two real brokers: leaders that change under producers, and a broker that stops
without a word.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from batchval.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from batchval.protocol.messages.produce import ProduceResponse
from tests.support.fixtures import needs_kafka
from tests.support.proxy import RunningProxy, batch, eventually, produce_frame, read_frame
from tests.support.record_checker import Stored, check, unpacked
from tests.system.chain.senders import IDEMPOTENT, JavaSender, Sender, read_all
from tests.system.interop.kafka_broker import KafkaBroker, two_brokers

pytestmark = [pytest.mark.jvm, pytest.mark.alone]

NOT_LEADER = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    needs_kafka()
    with two_brokers() as running:
        yield running


@pytest.fixture
def gate(cluster: tuple[KafkaBroker, KafkaBroker]) -> Iterator[RunningProxy]:
    with RunningProxy(cluster[0].bootstrap) as running:
        eventually(lambda: len(running.proxy.listening) == 2)
        yield running


def made(gate: RunningProxy, topic: str, *replicas: list[int]) -> str:
    """Create a topic whose partition n has these replicas, the first of them its leader."""
    admin = AdminClient({"bootstrap.servers": gate.bootstrap})
    admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=list(replicas))])[
        topic
    ].result(20)
    eventually(lambda: leaders(gate, topic) == [them[0] for them in replicas], 20)
    return topic


def leaders(gate: RunningProxy, topic: str) -> list[int]:
    partitions = (
        AdminClient({"bootstrap.servers": gate.bootstrap})
        .list_topics(topic, 10)
        .topics[topic]
        .partitions
    )
    return [partitions[n].leader for n in sorted(partitions)]


class Nodes:
    """Every address that a librdkafka client has ever known, by its own statistics."""

    def __init__(self) -> None:
        self.ports: set[int] = set()
        self.config = {"statistics.interval.ms": 50, "stats_cb": self.on_statistics}

    def on_statistics(self, statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            if not broker["nodename"].startswith(("GroupCoordinator", ":")):
                self.ports.add(int(broker["nodename"].rpartition(":")[2]))


def sending(sender: Sender, until: threading.Event) -> threading.Thread:
    """Send ten records about every ten milliseconds."""

    def run() -> None:
        while not until.is_set():
            for _ in range(10):
                sender.send()
            sender.producer.poll(0.01)
        sender.finish(60)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def to_the_wrong_one(
    gate: RunningProxy, node: int, topic: str, version: int = 12
) -> ProduceResponse:
    """Return the answer of a broker that is not the leader."""
    with socket.create_connection(gate.proxy.listening[node], 10) as sock:
        sock.sendall(produce_frame(1, (topic, 0, batch(b"astray")), version=version))
        return ProduceResponse.decode(read_frame(sock), version)


def leads(gate: RunningProxy, node: int, topic: str) -> bool:
    """Return whether the broker takes itself for partition 0's leader: it learns of a new one with
    a delay.
    """
    asked = ListOffsetsRequest(
        -1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, -1)])], api_version=5
    )
    with socket.create_connection(gate.proxy.listening[node], 10) as sock:
        sock.sendall(b"".join(asked.encode(1, "test")))
        answer = ListOffsetsResponse.decode(read_frame(sock), 5)
        return answer.topics[0].partitions[0].error_code != NOT_LEADER


def test_leaders_change_under_producers(
    cluster: tuple[KafkaBroker, KafkaBroker], gate: RunningProxy, request: pytest.FixtureRequest
) -> None:
    # Nothing of an idempotent producer is lost, doubled or reordered; nothing of another is lost.
    #
    # The idempotent one is Java's. librdkafka's (2.16) may send a batch to the new leader before
    # the one that the old leader has refused is back in its queue. It goes on with another epoch
    # then, which doubles what was under way to other leaders, without the gate, too (its issue
    # 4953).
    topic = made(gate, "moving", [1, 2], [2, 1])
    own, brokers = gate.own_ports(), {broker.port for broker in cluster}
    nodes, stop = Nodes(), threading.Event()
    exact = JavaSender(
        0, gate.bootstrap, topic, 2, share=1000, seconds=1.0, codec="none", in_flight=5
    )
    request.addfinalizer(exact.process.kill)
    exact.await_first()
    config = {**IDEMPOTENT, "enable.idempotence": False, **nodes.config, "linger.ms": 1}
    other = Sender(1, gate.bootstrap, topic, 2, config)
    thread = sending(other, stop)
    admin = KafkaAdminClient(bootstrap_servers=gate.bootstrap)
    request.addfinalizer(admin.close)  # its thread would go on through other tests
    for change in range(6):
        before = exact.acknowledged(), len(other.acked)
        eventually(lambda: exact.acknowledged() > before[0] + 200, 30)  # noqa: B023
        eventually(lambda: len(other.acked) > before[1] + 200, 30)  # noqa: B023
        first, second = (2, 1) if change % 2 == 0 else (1, 2)
        wanted = {
            TopicPartition(topic, 0): [first, second],
            TopicPartition(topic, 1): [second, first],
        }
        admin.alter_partition_reassignments(wanted)
        eventually(lambda: not admin.list_partition_reassignments(), 20)
        admin.elect_leaders(0, {topic: [0, 1]}, raise_errors=False)
        eventually(lambda: leaders(gate, topic) == [first, second], 20)  # noqa: B023
        eventually(lambda: not leads(gate, second, topic), 20)  # noqa: B023
        answer = to_the_wrong_one(gate, second, topic)
        (answered,) = answer.responses[0].partition_responses
        assert (answered.error_code, answered.current_leader.leader_id) == (NOT_LEADER, first)
        assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == [
            (first, *gate.proxy.listening[first])
        ]
    stop.set()
    exact.finish(60)
    thread.join(90)
    assert (exact.errors, other.errors) == ([], [])
    assert {port for _, port in gate.proxy.listening.values()} <= nodes.ports <= own
    assert not own & brokers
    assert (len(exact.acked), len(other.acked)) == (exact.sent, other.sent)
    stored = read_all(cluster[0].bootstrap, topic, 2)
    found = check(exact.acked, of_producer(stored, 0), {0: exact.sent})
    assert not found, str(found)
    found = check(other.acked, of_producer(stored, 1), {1: other.sent})
    assert not {"lost", "damaged", "unknown"} & found.counts.keys(), str(found)


def of_producer(stored: list[Stored], producer: int) -> list[Stored]:
    """Return the records of one producer, and those that no producer has sent."""
    found = [(one, unpacked(one.value)) for one in stored]
    return [one for one, who in found if who is None or who[0] == producer]


@pytest.mark.parametrize("seconds", [4.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_a_broker_that_stops(
    cluster: tuple[KafkaBroker, KafkaBroker], gate: RunningProxy, seconds: float
) -> None:
    # SIGSTOP: its connections stay, nothing is answered. The other's go on; the client's own
    # timeout ends it.
    topic = made(gate, f"stopping-{seconds:.0f}", [1], [2], [2])
    stop = threading.Event()
    sender = Sender(0, gate.bootstrap, topic, 2, IDEMPOTENT)
    hasty = Producer(
        {"bootstrap.servers": gate.bootstrap, "message.timeout.ms": 1500, "log_level": 0}
    )
    came: list[KafkaError | None] = []

    def sent_in_haste() -> KafkaError | None:
        hasty.produce(
            topic, b"in haste", partition=2, on_delivery=lambda error, _: came.append(error)
        )
        hasty.flush(20)
        return came.pop()

    thread = sending(sender, stop)

    def acked(partition: int) -> int:
        return sum(ack.partition == partition for ack in list(sender.acked))

    eventually(lambda: acked(1) > 100, 30)
    eventually(lambda: sent_in_haste() is None, 20)
    before = gate.counters.connections_open
    with socket.create_connection(gate.proxy.listening[2], 10) as sock:
        sock.sendall(produce_frame(1, (topic, 2, batch(b"one that waits")), acks=-1))
        read_frame(sock)
        eventually(lambda: gate.counters.connections_open > before)
        cluster[1].pause()
        try:
            sock.sendall(produce_frame(2, (topic, 2, batch(b"one that waits")), acks=-1))
            paused = time.monotonic()
            time.sleep(0.5)  # what was under way has arrived
            other, stuck = acked(0), acked(1)
            sock.settimeout(1.0)
            with pytest.raises(TimeoutError):
                sock.recv(1)
            sock.close()
            eventually(
                lambda: gate.counters.connections_open <= before
            )  # the gate does not hang on
            error = sent_in_haste()
            assert error is not None
            assert error.code() == KafkaError._MSG_TIMED_OUT
            time.sleep(max(0.0, seconds - (time.monotonic() - paused)))
            assert (
                acked(0) - other > 50 * seconds
            )  # half of a thousand a second, less than a half of that asked for
            assert acked(1) == stuck
        finally:
            cluster[1].resume()
    eventually(lambda: sent_in_haste() is None, 60)
    eventually(lambda: acked(1) > stuck + 100, 60)
    stop.set()
    thread.join(90)
    assert sender.errors == []
    assert len(sender.acked) == sender.sent
    found = check(sender.acked, read_all(cluster[0].bootstrap, topic, 2), {0: sender.sent})
    assert not found, str(found)
