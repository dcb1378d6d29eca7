"""The client with brokers that others have written: librdkafka's mock cluster, and Apache Kafka."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import confluent_kafka
import pytest

from batchval.network.errors import DisconnectError, NetworkError, UnsupportedVersionError
from batchval.network.request import Node
from batchval.network.version_negotiation import ApiVersions
from batchval.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.fixtures import running_kafka
from tests.support.network import Calls, client, until
from tests.system.interop.kafka_broker import KafkaBroker


@pytest.fixture(scope="module")
def produce() -> ModuleType:
    """The bench's requests, in Kafka's own format."""
    from tests.support import produce_requests as module

    return module


class FromTheFuture(ApiVersions):
    """Asks first in a version that no broker knows: Kafka's way back (KIP-511) is taken each
    time.
    """

    latest = 99

    def __call__(self, version: int) -> Any:
        asked = super().__call__(min(version, ApiVersions.latest))
        return Unheard(asked) if version == 99 else asked


class Unheard:
    """An ApiVersions request of version 99."""

    api_key, api_version, expects_response = 18, 99, True

    def __init__(self, like: Any) -> None:
        self.decode = like.decode

    def encode(self, correlation_id: int, client_id: str | None) -> list[bytes | memoryview]:
        frame = struct.pack(">hhih", 18, 99, correlation_id, 2) + b"me" + b"\0"
        return [struct.pack(">i", len(frame)), frame]


class MockCluster:
    """Three brokers inside a librdkafka client."""

    def __init__(self) -> None:
        self.owner = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
        self.brokers = self.owner.list_topics(timeout=10).brokers

    def nodes(self) -> list[Node]:
        return [Node(broker.id, broker.host, broker.port) for broker in self.brokers.values()]

    def leader(self, topic: str) -> Node:
        (leader,) = {
            partition.leader
            for partition in self.owner.list_topics(topic, timeout=10)
            .topics[topic]
            .partitions.values()
            if partition.id == 0
        }
        return next(node for node in self.nodes() if node.id == leader)


@pytest.fixture(scope="module")
def mock() -> MockCluster:
    return MockCluster()


async def test_every_node_of_a_mock_cluster_answers(mock: MockCluster, produce: ModuleType) -> None:
    async with client(network_api_versions=ApiVersions()) as c:
        assert len(mock.nodes()) == 3
        futures = [
            c.send(node, produce.Metadata(b"some")) for node in mock.nodes() for _ in range(20)
        ]
        for future in futures:
            await future
        assert c.network.connections_opened == 3
        assert c.least_loaded_node(mock.nodes()) in mock.nodes()
        unknown = produce.Metadata(b"some", api_version=99)
        with pytest.raises(UnsupportedVersionError):
            await c.send(mock.nodes()[0], unknown)


@pytest.mark.parametrize("cap", [1, 5])
async def test_batches_are_in_a_mock_broker_in_the_order_they_were_sent(
    mock: MockCluster, produce: ModuleType, cap: int, loop_kind: str
) -> None:
    topic = f"t-{cap}-{loop_kind}"
    leader = await asyncio.to_thread(mock.leader, topic)
    async with client({"max_in_flight": cap}) as c:
        c.try_connect(leader)
        await until(lambda: c.network.is_ready(leader))
        connection, calls = c.network.connection(leader), Calls()
        assert connection is not None
        payload = produce.records(3)
        for n in range(200):
            await connection.produce_async(
                produce.Produce(topic.encode(), payload, 3, -1, -1), calls.of(n)
            )
        await calls.wait(200)
        assert calls.names == list(range(200))
        assert [(answer.error_code, answer.base_offset) for _, answer, _ in calls.seen] == [
            (0, 3 * n) for n in range(200)
        ]
        assert connection.in_flight.peak == cap


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaBroker]:
    with running_kafka() as broker:
        yield broker


def node_of(broker: KafkaBroker) -> Node:
    return Node(1, broker.host, broker.port)


async def made(c: Any, node: Node, request: Any, topic: bytes) -> None:
    """The topic is there and has a leader, and the leader knows it."""
    while not (await c.send(node, request)).response:
        await asyncio.sleep(0.05)
    asked = ListOffsetsRequest(
        -1, 0, [ListOffsetsTopic(topic.decode(), [ListOffsetsPartition(0, -1, -1)])], api_version=5
    )
    while (await c.send(node, asked)).response.topics[0].partitions[0].error_code:
        await asyncio.sleep(0.05)


@pytest.mark.jvm
async def test_kafka_keeps_the_order_of_pipelined_idempotent_batches(
    kafka: KafkaBroker, produce: ModuleType, loop_kind: str
) -> None:
    """The broker itself refuses a batch that overtakes another."""
    node, topic = node_of(kafka), f"order-{loop_kind}".encode()
    async with client(network_api_versions=FromTheFuture()) as c:
        await made(c, node, produce.Metadata(topic), topic)
        payload = produce.records(10)
        futures = [
            c.send(node, produce.Produce(topic, payload, 10, 4711, 10 * n)) for n in range(300)
        ]
        answers = [(await future).response for future in futures]
        assert [(one.error_code, one.base_offset) for one in answers] == [
            (0, 10 * n) for n in range(300)
        ]
        connection = c.network.connection(node)
        assert connection is not None
        assert connection.in_flight.peak == 5
        assert (
            await c.send(node, produce.Produce(topic, payload, 10, 4711, 10 * 301))
        ).response.error_code == 45
        assert c.network.state(node).api_versions[0][1] >= 12
        with pytest.raises(UnsupportedVersionError):
            await c.send(node, produce.Produce(topic, payload, 10, 4711, 3_000, api_version=99))


@pytest.mark.jvm
async def test_kafka_killed_with_requests_in_flight(
    kafka: KafkaBroker, produce: ModuleType, loop_kind: str
) -> None:
    """All that was outstanding fails, once; an idempotent producer that sends it again ends with
    each batch once.
    """
    node, topic = node_of(kafka), f"killed-{loop_kind}".encode()
    async with client(network_api_versions=FromTheFuture()) as c:
        await made(c, node, produce.Metadata(topic), topic)
        payload = produce.records(10)

        def batch(n: int) -> Any:
            return produce.Produce(topic, payload, 10, 815, 10 * n)

        await c.send(node, batch(0))
        kafka.pause()
        futures = [c.send(node, batch(n)) for n in range(1, 13)]
        await until(lambda: c.network.in_flight_count(node) == 5)
        kafka.kill()
        ends: list[type] = []
        for future in futures:
            try:
                ends.append(type(await future))
            except DisconnectError as error:
                ends.append(type(error))
        lost = ends.count(DisconnectError)
        assert ends[12 - lost :] == [DisconnectError] * lost
        assert lost >= 5  # a signal takes its time: the first may have been answered
        await asyncio.to_thread(kafka.start)
        for n in range(1, 13):
            while True:
                try:
                    answer = (await c.send(node, batch(n))).response
                except NetworkError:
                    await asyncio.sleep(0.1)
                    continue
                if answer.error_code in (0, 46):  # 46: it had been written before the kill
                    break
                await asyncio.sleep(0.1)
        last = (await c.send(node, batch(13))).response
        assert (last.error_code, last.base_offset) == (0, 130)
