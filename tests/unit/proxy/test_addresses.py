"""No client ever learns a broker's own address: a gate in front of librdkafka's mock cluster, three
brokers of it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.messages import produce as p
from batchval.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from batchval.protocol.messages.fetch import FetchResponse
from batchval.protocol.messages.find_coordinator import FindCoordinatorResponse
from batchval.protocol.messages.metadata import MetadataRequest, MetadataResponse
from batchval.protocol.messages.produce import ProduceResponse
from batchval.protocol.walkers.addresses import addresses
from batchval.proxy.settings.config import Limits
from tests.support.ports import free_port, free_ports
from tests.support.proxy import (
    RunningProxy,
    ScriptedBroker,
    batch,
    codes,
    connected,
    connected_gate,
    damaged,
    eventually,
    other_frame,
    produce_frame,
    read_frame,
)
from tests.unit.protocol.address_messages import describe_cluster

SECRET = ("broker.internal", 19092)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Return the mock cluster's bootstrap address, which is its first broker."""
    keeper = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "unused", "log_level": 0})
    brokers = keeper.list_topics(timeout=10).brokers
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())
    keeper.flush(1)


@pytest.fixture
def proxy(cluster: str) -> Iterator[RunningProxy]:
    with RunningProxy(*cluster.split(",")) as running:
        yield running


def test_clients_see_the_gate_alone(cluster, proxy):
    own = {int(address.rpartition(":")[2]) for address in cluster.split(",")}
    client = AdminClient({"bootstrap.servers": proxy.bootstrap})
    metadata = client.list_topics(timeout=10)
    ports = {broker.port for broker in metadata.brokers.values()}
    assert len(ports) == 3
    assert ports <= proxy.own_ports()
    assert not ports & own
    assert set(proxy.proxy.listening) == set(metadata.brokers)


def test_a_thousand_records_through_three_brokers_and_back(proxy):
    producer = Producer(
        {"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True, "linger.ms": 2}
    )
    failed: list[object] = []
    for i in range(1000):
        producer.produce(
            "through",
            b"value %d" % i,
            key=b"%d" % (i % 17),
            on_delivery=lambda error, _: error and failed.append(error),
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failed == []
    consumer = Consumer(
        {
            "bootstrap.servers": proxy.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["through"])
    values = set()

    def all_read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            values.add(message.value())
        return len(values) == 1000

    eventually(all_read, 60)
    consumer.close()
    assert values == {b"value %d" % i for i in range(1000)}


def test_a_broker_keeps_its_port_when_the_gate_starts_anew(cluster):
    port = free_ports(5)
    seen = []
    for _ in range(2):
        with RunningProxy(
            *cluster.split(","), listen=("127.0.0.1", port), first_broker_port=port + 1
        ) as proxy:
            eventually(lambda proxy=proxy: len(proxy.proxy.listening) == 3)
            seen.append(dict(proxy.proxy.listening))
    assert seen[0] == seen[1] == {n: ("127.0.0.1", port + 1 + n) for n in (1, 2, 3)}


def test_the_gate_may_be_there_before_the_cluster():
    port = free_port()
    with RunningProxy(f"127.0.0.1:{port}") as proxy:
        assert not proxy.proxy.discovery.ready
        broker = ScriptedBroker()
        broker.listener.close()
        broker.listener = socket.create_server(("127.0.0.1", port))
        broker.address = f"127.0.0.1:{port}"
        with broker:
            eventually(lambda: proxy.proxy.discovery.ready)
            eventually(lambda: list(proxy.proxy.listening) == [0])


# ---- every answer that can hold an address -------------------------------------------------------

ENDPOINT = p.ProduceNodeEndpoint(node_id=4, host=SECRET[0], port=SECRET[1])


def answer_of(frame: bytes) -> bytes:
    """Return the answer of a broker that has its address wherever the API allows it."""
    from batchval.protocol.messages import fetch as f
    from batchval.protocol.messages import find_coordinator as c
    from batchval.protocol.messages import metadata as m
    from tests.unit.protocol.address_messages import describe_cluster as d

    key, version, correlation_id = struct.unpack(">hhi", frame[:8])
    response = {
        0: ProduceResponse(
            responses=[
                p.TopicProduceResponse(
                    name="t",
                    partition_responses=[p.PartitionProduceResponse(index=0, error_code=6)],
                )
            ],
            node_endpoints=[ENDPOINT] if version >= 10 else [],
        ),
        1: FetchResponse(
            node_endpoints=[f.FetchNodeEndpoint(node_id=4, host=SECRET[0], port=SECRET[1])]
            if version >= 16
            else []
        ),
        3: MetadataResponse(
            brokers=[m.MetadataResponseBroker(node_id=4, host=SECRET[0], port=SECRET[1])]
        ),
        10: FindCoordinatorResponse(
            coordinators=[c.Coordinator(key="g", node_id=4, host=SECRET[0], port=SECRET[1])]
        )
        if version >= 4
        else FindCoordinatorResponse(node_id=4, host=SECRET[0], port=SECRET[1]),
        60: describe_cluster.DescribeClusterResponse(
            cluster_id="c",
            brokers=[d.DescribeClusterBroker(broker_id=4, host=SECRET[0], port=SECRET[1])],
        ),
    }[key]
    return b"".join(response.encode(correlation_id, version))


ALL = [
    (key, version)
    for key, first in ((0, 10), (1, 16), (3, 0), (10, 0), (60, 0))
    for version in range(first, min(carried_versions()[key][1], 12 if key == 0 else 99) + 1)
]


@pytest.mark.parametrize(("key", "version"), ALL)
def test_an_address_is_replaced_wherever_it_stands(key, version):
    if key == 0:
        request = produce_frame(8, ("t", 0, batch()), version=version)
    else:
        request = other_frame(8, key=key, version=version, body=b"\0" * 12)
    with connected_gate(answer_of) as (_, proxy, sock):
        sock.sendall(request)
        answer = read_frame(sock)
        assert struct.unpack(">i", answer[:4]) == (8,)
        assert b"internal" not in answer
        assert addresses(answer, key, version) == [(4, "127.0.0.1", proxy.proxy.listening[4][1])]


def test_an_address_is_replaced_in_a_merged_answer_too():
    request = produce_frame(8, ("t", 0, batch()), ("t", 1, damaged(batch())), version=12)
    with connected_gate(answer_of) as (_, proxy, sock):
        sock.sendall(request)
        answer = read_frame(sock)
        assert codes(answer, 12) == {("t", 0): 6, ("t", 1): 2}
        assert addresses(answer, 0, 12) == [(4, "127.0.0.1", proxy.proxy.listening[4][1])]


def test_clients_get_the_configured_addresses():
    with connected_gate(answer_of, advertised_host="gate.example") as (_, proxy, sock):
        sock.sendall(b"".join(MetadataRequest(api_version=12, topics=[]).encode(1, "c")))
        assert addresses(read_frame(sock), 3, 12) == [
            (4, "gate.example", proxy.proxy.listening[4][1])
        ]


def test_a_broker_that_moves_is_followed():
    with ScriptedBroker() as new, ScriptedBroker() as old:
        where = [old.address]

        def answer(frame: bytes) -> bytes:
            host, _, port = where[0].rpartition(":")
            from batchval.protocol.messages import metadata as m

            brokers = [m.MetadataResponseBroker(node_id=4, host=host, port=int(port))]
            return b"".join(
                MetadataResponse(brokers=brokers).encode(struct.unpack(">i", frame[4:8])[0], 1)
            )

        with (
            ScriptedBroker(answer) as seed,
            RunningProxy(seed.address, limits=Limits()) as proxy,
        ):
            for number, broker in enumerate((old, new, old)):
                where[0] = broker.address
                with connected(proxy) as sock:
                    for _ in range(2):  # the second answer is a known one
                        sock.sendall(
                            b"".join(MetadataRequest(api_version=1, topics=[]).encode(1, "c"))
                        )
                        named = addresses(read_frame(sock), 3, 1)
                        assert named == [(4, "127.0.0.1", proxy.proxy.listening[4][1])]
                with socket.create_connection(proxy.proxy.listening[4], 10) as sock:
                    sock.sendall(other_frame(1))
                    read_frame(sock)
                assert len(broker.frames) == (1, 1, 2)[number]


# ---- versions ------------------------------------------------------------------------------------


def test_a_version_of_api_versions_that_is_not_known_yet_is_answered_in_version_0():
    with connected_gate() as (broker, _, sock):
        sock.sendall(other_frame(6, key=18, version=99, body=b"\0" * 9))
        response = ApiVersionsRequest(api_version=0).decode(memoryview(read_frame(sock)))
        assert response.error_code == 35
        assert [(api.api_key, api.min_version) for api in response.api_keys] == [(18, 0)]
        assert response.api_keys[0].max_version == carried_versions()[18][1]
        assert broker.frames == []


@pytest.mark.parametrize("version", range(5))
def test_versions_are_those_that_both_know(version):
    # A broker of tomorrow: one version more of everything, and an API that nobody has heard of.
    theirs = {key: (0, last + 1) for key, (_, last) in carried_versions().items()} | {999: (0, 0)}

    def answer(frame: bytes) -> bytes:
        keys = [
            ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in theirs.items()
        ]
        return b"".join(
            ApiVersionsResponse(api_keys=keys).encode(struct.unpack(">i", frame[4:8])[0], version)
        )

    request = ApiVersionsRequest(api_version=version)
    if version >= 3:
        request = ApiVersionsRequest(
            api_version=version, client_software_name="test", client_software_version="1"
        )
    with connected_gate(answer) as (_, _, sock):
        sock.sendall(b"".join(request.encode(5, "test")))
        response = request.decode(memoryview(read_frame(sock)))
        offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert 999 not in offered
        assert offered[0][1] == 13
        assert offered[17] == (0, 1)
        assert all(last <= theirs[key][1] - 1 for key, (_, last) in offered.items())


def test_an_error_of_api_versions_in_a_form_of_its_own_is_passed_on_by_its_code():
    def answer(frame: bytes) -> bytes:
        return struct.pack(">i", 10) + frame[4:8] + struct.pack(">h", 35) + b"\x01\0\x12\0"

    with connected_gate(answer) as (_, _, sock):
        sock.sendall(b"".join(ApiVersionsRequest(api_version=3).encode(5, "test")))
        response = ApiVersionsRequest(api_version=0).decode(memoryview(read_frame(sock)))
        assert response.error_code == 35
