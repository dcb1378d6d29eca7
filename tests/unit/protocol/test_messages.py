"""Every message at every version: round trips, and what broken bytes and wrong values are answered
with.
"""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from batchval import BatchvalError
from batchval.network.request import AnyRequest
from batchval.protocol import messages
from batchval.protocol.apis import APIS
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message import Message, Request
from batchval.protocol.messages.produce import PartitionProduceData, TopicProduceData
from batchval.protocol.primitives import Reader
from tests.unit.protocol.values import CLASSES, IDS, VERSIONS, frame, invented, read_frame, refusal

SEEDS = range(6)


@pytest.mark.parametrize(("kind", "version"), VERSIONS, ids=IDS)
def test_what_is_written_is_read(kind: type[Message], version: int) -> None:
    for seed in SEEDS:
        message = invented(kind, version, seed)
        data = frame(message, version)
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        again = read_frame(kind, version, memoryview(data)[4:])
        assert again == message
        assert frame(again, version) == data


@pytest.mark.parametrize(("kind", "version"), VERSIONS, ids=IDS)
def test_a_frame_cut_at_any_byte_is_refused(kind: type[Message], version: int) -> None:
    data = min(
        (frame(invented(kind, version, seed), version)[4:] for seed in range(1, 5)),
        key=lambda d: abs(len(d) - 300),
    )
    for size in range(len(data)):
        if kind is messages.ApiVersionsResponse and version > 0:
            continue
        with pytest.raises(ProtocolError) as refused:
            read_frame(kind, version, data[:size])
        assert 0 <= refused.value.position <= size


@pytest.mark.parametrize(("kind", "version"), VERSIONS, ids=IDS)
def test_bytes_after_a_request_are_refused_and_after_a_response_ignored(
    kind: type[Message], version: int
) -> None:
    message = invented(kind, version, 1)
    data = frame(message, version)[4:] + b"\0\xff"
    if issubclass(kind, Request):
        with pytest.raises(ProtocolError, match="bytes after the end"):
            read_frame(kind, version, data)
    else:
        assert read_frame(kind, version, data) == message


@pytest.mark.parametrize(("kind", "version"), VERSIONS, ids=IDS)
def test_a_flipped_byte_is_another_message_or_refused(kind: type[Message], version: int) -> None:
    """And it never costs more memory than a small multiple of the frame."""
    data = bytearray(frame(invented(kind, version, 2), version)[4:])
    before = 4 if issubclass(kind, Request) else 0  # key and version stay, or it is another message
    tracemalloc.start()
    try:
        places = random.Random(version).sample(
            range(before, len(data)), min(48, len(data) - before)
        )
        for at in places:
            for flip in (0xFF, 0x80, 0x01, 0x7F):
                data[at] ^= flip
                refused = refusal(lambda: read_frame(kind, version, data))
                assert refused is None or -1 <= refused.position <= len(data)
                data[at] ^= flip
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_random_bytes_are_refused_or_read(kind: type[Message]) -> None:
    rng = random.Random(3)
    for _ in range(300):
        version = rng.randint(kind.min_version, kind.max_version)
        data = bytes(
            rng.choices((0, 1, 2, 3, 0x7F, 0x80, 0xFF, rng.randrange(256)), k=rng.randrange(80))
        )
        reader = Reader(data, version >= kind.flexible_from)
        refused = refusal(lambda r=reader, v=version: kind.read(r, v))  # type: ignore[misc]
        assert refused is None or 0 <= refused.position <= len(data)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_versions_and_keys_are_those_of_the_table(kind: type[Message]) -> None:
    api = APIS[kind.api_key]
    assert kind.__name__.startswith(api.name)
    assert (kind.min_version, kind.max_version) == (api.min_version, api.max_version)
    assert kind.flexible_from == api.flexible_from
    for version in (kind.min_version - 1, kind.max_version + 1, -1, 1 << 20):
        with pytest.raises(ProtocolError, match=r"version .* is not known here"):
            kind.check_version(version)


def produce(records: Any, **more: Any) -> messages.ProduceRequest:
    topic = TopicProduceData("t", partition_data=[PartitionProduceData(3, records)])
    return messages.ProduceRequest(topic_data=[topic], **{"api_version": 9, "acks": -1} | more)


def test_records_are_never_copied() -> None:
    records = bytearray(b"x" * 5000)
    chunks = produce(memoryview(records)[10:4000]).encode(1, None)
    assert [len(chunk) for chunk in chunks][1:] == [3990, 3]
    records[10] = 7
    assert bytes(chunks[1])[0] == 7
    data = bytearray(b"".join(chunks))[4:]
    _, request = messages.ProduceRequest.parse(data)
    found = request.topic_data[0].partition_data[0].records
    assert isinstance(found, memoryview)
    data[data.index(b"x")] = 9
    assert 9 in bytes(found)


def test_a_request_is_what_a_client_expects() -> None:
    request: AnyRequest = produce(b"")
    assert (request.api_key, request.api_version, request.expects_response) == (0, 9, True)
    assert produce(b"", acks=0).expects_response is False
    metadata = messages.MetadataRequest(api_version=12)
    assert (metadata.api_key, metadata.expects_response) == (3, True)
    answer = messages.MetadataResponse(cluster_id="c")
    data = b"".join(answer.encode(5, 12))
    assert metadata.decode(memoryview(data)[4:]) == answer


def test_api_versions_is_answered_in_version_0_where_the_version_is_not_known() -> None:
    from batchval.protocol.messages.api_versions import ApiVersion

    answer = messages.ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 3)])
    data = b"".join(answer.encode(1, 0))[4:]
    for version in range(6):
        assert messages.ApiVersionsRequest(api_version=version).decode(memoryview(data)) == answer


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (lambda: messages.ProduceRequest(api_version=2), "version 2 is not known"),
        (lambda: messages.ProduceRequest(api_version=9, acks=1 << 20), "cannot be written"),
        (lambda: messages.ProduceRequest(api_version=9, acks="all"), "cannot be written"),
        (
            lambda: messages.ProduceRequest(api_version=9, transactional_id="x" * 40_000),
            "32767 is the most",
        ),
        (
            lambda: messages.ProduceRequest(api_version=9, transactional_id="\ud800"),
            "cannot be written",
        ),
        (lambda: messages.MetadataRequest(api_version=0, topics=None), "cannot carry Topics null"),
        (
            lambda: messages.MetadataRequest(
                api_version=9, include_cluster_authorized_operations=True
            ),
            None,
        ),
        (
            lambda: messages.MetadataRequest(api_version=3, allow_auto_topic_creation=False),
            "AllowAutoTopicCreation",
        ),
        (
            lambda: messages.MetadataRequest(api_version=8, unknown_tagged_fields=((1, b""),)),
            "a tagged field",
        ),
        (
            lambda: messages.MetadataRequest(
                api_version=9, unknown_tagged_fields=((1, b""), (1, b""))
            ),
            "tag 1 twice",
        ),
        (lambda: produce("text"), "contiguous buffer"),
        (lambda: produce(memoryview(b"abcd")[::2]), "contiguous buffer"),
    ],
)
def test_values_that_a_version_cannot_carry(made: Any, complaint: str | None) -> None:
    if complaint is None:
        made().encode(1, None)
        return
    with pytest.raises(BatchvalError, match=complaint):
        made().encode(1, None)


def test_another_apis_frame_is_refused() -> None:
    data = b"".join(messages.MetadataRequest(api_version=12).encode(1, None))[4:]
    with pytest.raises(ProtocolError, match="has the key 0, not 3"):
        messages.ProduceRequest.parse(data)
