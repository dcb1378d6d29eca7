"""Produce 13 and later, which names topics by their ids (KIP-516)."""

from __future__ import annotations

import struct

import pytest

from batchval.policy import TopicPolicy
from batchval.protocol.messages import metadata as m
from batchval.protocol.messages.metadata import MetadataRequest, MetadataResponse
from batchval.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from batchval.proxy.settings.options import TopicPolicies
from tests.support.proxy import (
    BAD,
    GOOD,
    RunningProxy,
    ScriptedBroker,
    connected,
    connected_gate,
    read_frame,
)

ORDERS, GONE = bytes(range(16)), bytes(range(100, 116))
UNKNOWN_TOPIC_ID, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE = 100, 2, 10
VERSION = 13


class Broker:
    """Knows one topic by its id; what it was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []
        self.produced: list[bytes] = []

    def __call__(self, frame: bytes) -> bytes | None:
        key = struct.unpack_from(">h", frame)[0]
        if key == 3:
            header, request = MetadataRequest.parse(frame)
            ids = [bytes(topic.topic_id) for topic in request.topics or []]
            self.asked.append(ids)
            topics = [
                m.MetadataResponseTopic(
                    error_code=0 if topic_id == ORDERS else UNKNOWN_TOPIC_ID,
                    name="orders" if topic_id == ORDERS else None,
                    topic_id=topic_id,
                )
                for topic_id in ids
            ]
            return b"".join(
                MetadataResponse(topics=topics).encode(header.correlation_id, header.api_version)
            )
        header, produce = ProduceRequest.parse(frame)
        self.produced.append(frame)
        if produce.acks == 0:
            return None
        from batchval.protocol.messages import produce as p

        responses = [
            p.TopicProduceResponse(
                topic_id=topic.topic_id,
                partition_responses=[
                    p.PartitionProduceResponse(index=part.index, base_offset=7)
                    for part in topic.partition_data
                ],
            )
            for topic in produce.topic_data
        ]
        return b"".join(ProduceResponse(responses=responses).encode(header.correlation_id, VERSION))


def request(correlation_id: int, *parts: tuple[bytes, int, bytes], acks: int = -1) -> bytes:
    topics = [
        TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index, records)])
        for topic_id, index, records in parts
    ]
    produce = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics, api_version=VERSION)
    return b"".join(bytes(piece) for piece in produce.encode(correlation_id, "test"))


def answer(frame: bytes) -> dict[tuple[bytes, int], int]:
    response = ProduceResponse.decode(memoryview(frame), VERSION)
    return {
        (bytes(topic.topic_id), part.index): part.error_code
        for topic in response.responses
        for part in topic.partition_responses
    }


def test_an_unknown_id_is_asked_for_once_and_remembered() -> None:
    script = Broker()
    with ScriptedBroker(script) as broker, RunningProxy(broker.address) as proxy:
        for n in range(3):
            with connected(proxy) as sock:
                sock.sendall(request(n, (ORDERS, 0, GOOD)))
                assert answer(read_frame(sock)) == {(ORDERS, 0): 0}
        assert script.asked == [[ORDERS]]
        assert len(script.produced) == 3
        assert proxy.proxy.topics.by_id.get(ORDERS) == "orders"


def test_an_id_that_the_broker_does_not_know_is_refused_and_nothing_forwarded() -> None:
    script = Broker()
    with connected_gate(script) as (_, _, sock):
        sock.sendall(request(1, (GONE, 0, GOOD)))
        frame = read_frame(sock)
        assert frame[:4] == struct.pack(">i", 1)
        assert answer(frame) == {(GONE, 0): UNKNOWN_TOPIC_ID}
        assert script.produced == []
        sock.sendall(request(2, (GONE, 0, GOOD), (ORDERS, 3, GOOD), (ORDERS, 4, BAD)))
        found = answer(read_frame(sock))
        assert found == {(GONE, 0): UNKNOWN_TOPIC_ID, (ORDERS, 3): 0, (ORDERS, 4): CORRUPT_MESSAGE}
        assert len(script.produced) == 1
        assert len(script.asked) == 2  # once for each request that has an unknown id


def test_requests_after_the_question_keep_their_order() -> None:
    script = Broker()
    with connected_gate(script) as (_, _, sock):
        frames = [request(n, (ORDERS, n, BAD if n % 3 == 2 else GOOD)) for n in range(12)]
        sock.sendall(b"".join(frames))
        for n in range(12):
            frame = read_frame(sock)
            assert frame[:4] == struct.pack(">i", n)
            assert answer(frame) == {(ORDERS, n): CORRUPT_MESSAGE if n % 3 == 2 else 0}
        indexes = [
            ProduceRequest.parse(frame)[1].topic_data[0].partition_data[0].index
            for frame in script.produced
        ]
        assert indexes == [n for n in range(12) if n % 3 != 2]


def test_a_topic_s_policy_holds_for_its_id() -> None:
    policies = TopicPolicies(TopicPolicy(), {"orders": TopicPolicy(max_message_bytes=60)})
    script = Broker()
    with ScriptedBroker(script) as broker, RunningProxy(broker.address, policies=policies) as proxy:
        with connected(proxy) as sock:
            for n in range(2):
                sock.sendall(request(n, (ORDERS, 0, GOOD)))
                assert answer(read_frame(sock)) == {(ORDERS, 0): MESSAGE_TOO_LARGE}
        assert [refusal.topic for refusal in proxy.refusals] == ["orders"] * 2


@pytest.mark.parametrize("records", [GOOD, BAD], ids=["good", "bad"])
def test_acks_0_with_an_unknown_id_ends_the_connection(records: bytes) -> None:
    script = Broker()
    with connected_gate(script) as (_, proxy, sock):
        sock.sendall(request(1, (GONE, 0, records), acks=0))
        with pytest.raises(EOFError):
            read_frame(sock)
        assert script.produced == []
        assert proxy.counters.connections_closed == {"acks_0_refused": 1}


def test_ids_are_learnt_from_clients_metadata() -> None:
    script = Broker()
    with connected_gate(script) as (_, _, sock):
        ask = MetadataRequest(
            topics=[m.MetadataRequestTopic(topic_id=ORDERS, name=None)], api_version=12
        )
        sock.sendall(b"".join(bytes(piece) for piece in ask.encode(9, "test")))
        read_frame(sock)
        sock.sendall(request(1, (ORDERS, 0, GOOD)))
        assert answer(read_frame(sock)) == {(ORDERS, 0): 0}
        assert len(script.asked) == 1
