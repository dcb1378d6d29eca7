"""Topic ids and names, from Metadata responses and from Produce requests."""

from __future__ import annotations

import contextlib
import random

import pytest

from batchval.protocol import messages
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from batchval.protocol.messages.produce import PartitionProduceData, TopicProduceData
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.topic_ids import TopicsInMetadata, ids_in_produce, topics_in_metadata
from tests.unit.protocol.values import frame, invented

VERSIONS = range(14)


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_those_that_the_reader_sees(version: int) -> None:
    seen = 0
    for seed in range(60):
        answer = invented(messages.MetadataResponse, version, seed)
        for n, topic in enumerate(answer.topics):
            topic.error_code = 0 if n % 3 else 3
        expected = [
            (topic.topic_id if any(topic.topic_id) else b"", topic.name)
            for topic in answer.topics
            if not topic.error_code and topic.name
        ]
        seen += len(expected)
        assert topics_in_metadata(frame(answer, version)[4:], version) == expected
    assert seen


def answer_of(topics: int, partitions: int) -> messages.MetadataResponse:
    parts = [
        MetadataResponsePartition(0, n, 1, 1, [1, 2, 3], [1, 2, 3], []) for n in range(partitions)
    ]
    return messages.MetadataResponse(
        topics=[
            MetadataResponseTopic(0, f"topic-{n}", (n + 1).to_bytes(16, "big"), False, parts)
            for n in range(topics)
        ]
    )


def test_a_large_answer_is_read_in_pieces() -> None:
    data = frame(answer_of(3000, 10), 12)[4:]
    topics, found, pieces = TopicsInMetadata(data, 12), [], 0
    while not topics.done:
        piece = topics.next()
        assert piece
        found += piece
        pieces += 1
    assert found == [((n + 1).to_bytes(16, "big"), f"topic-{n}") for n in range(3000)]
    assert pieces == pytest.approx(len(data) / (64 << 10), abs=1.1)
    assert topics.next() == []


def test_bytes_that_are_cut_or_changed_raise() -> None:
    data = frame(answer_of(3, 2), 12)[4:]
    rng = random.Random(1)
    for size in range(len(data) - 5):
        with pytest.raises(ProtocolError):
            topics_in_metadata(data[:size], 12)
    for _ in range(2000):
        wrong = bytearray(data)
        wrong[rng.randrange(len(wrong))] = rng.randrange(256)
        with contextlib.suppress(ProtocolError):
            assert len(topics_in_metadata(wrong, 12)) <= len(data)
    with pytest.raises(ProtocolError, match="version that is not known"):
        topics_in_metadata(data, 14)


def test_ids_of_a_request_are_found_once_each() -> None:
    ids = [bytes([n]) * 16 for n in (5, 3, 5, 9)]
    request = messages.ProduceRequest(api_version=13, acks=1, timeout_ms=1)
    request.topic_data = [TopicProduceData("", one, [PartitionProduceData(0, b"x")]) for one in ids]
    assert ids_in_produce(ProduceRequestView(frame(request, 13)[4:])) == [ids[0], ids[1], ids[3]]
    request = messages.ProduceRequest(api_version=12, acks=1, timeout_ms=1)
    request.topic_data = [TopicProduceData("t", bytes(16), [PartitionProduceData(0, b"x")])]
    assert ids_in_produce(ProduceRequestView(frame(request, 12)[4:])) == []
