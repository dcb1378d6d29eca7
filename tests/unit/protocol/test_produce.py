"""Produce on its way through a gate: the walk compared with the plain reader, rewriting, refusing,
merging.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from batchval.protocol import messages
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from batchval.protocol.walkers.produce import CLAIMS_TAG, ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView, merge, refuse
from tests.unit.protocol.values import frame, invented, refusal

VERSIONS = range(3, 14)
REFUSED = (87, [(0, "no key"), (5, None)], "the reason")


def request_of(version: int, seed: int = 0, topics: int = 3) -> messages.ProduceRequest:
    rng = random.Random(seed)
    made = messages.ProduceRequest(
        api_version=version, acks=-1, timeout_ms=9, transactional_id=rng.choice([None, "tx"])
    )
    for n in range(topics):
        parts = [
            PartitionProduceData(i, rng.choice([None, b"", rng.randbytes(5000), b"abc"]))
            for i in range(rng.randint(1, 4))
        ]
        name, topic_id = (f"topic-{n}", bytes(16)) if version < 13 else ("", bytes([n]) * 16)
        made.topic_data.append(TopicProduceData(name, topic_id, parts))
    return made


def parts_of(request: Any) -> list[Any]:
    return [part for topic in request.topic_data for part in topic.partition_data]


def joined(chunks: list[bytes | memoryview]) -> bytes:
    data = b"".join(chunks)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_view_says_what_the_reader_says(version: int) -> None:
    for seed in range(30):
        request = invented(messages.ProduceRequest, version, seed)
        data = frame(request, version)[4:]
        view = ProduceRequestView(data)
        assert (view.api_version, view.correlation_id, view.client_id) == (version, 7, "a client")
        assert (view.acks, view.timeout_ms) == (request.acks, request.timeout_ms)
        assert view.transactional_id == request.transactional_id
        assert view.expects_response is (request.acks != 0)
        rows = [(topic, part) for topic in request.topic_data for part in topic.partition_data]
        assert len(view) == len(rows)
        for i, (topic, part) in enumerate(rows):
            assert view.topic(i) == (topic.name if version < 13 else None)
            assert view.topic_id(i) == (topic.topic_id if version >= 13 else None)
            assert view.partition(i) == part.index
            assert view.records(i) == part.records
            start, size = view.ranges()[i]
            assert data[start : start + size] == (part.records or b"")
            assert view.claims(i) == dict(part.unknown_tagged_fields).get(CLAIMS_TAG)
        claimed = [dict(part.unknown_tagged_fields).get(CLAIMS_TAG) for part in parts_of(request)]
        assert view.has_claims is any(one is not None for one in claimed)
        with pytest.raises(IndexError):
            view.partition(len(rows))


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_after_a_request_are_refused_and_after_an_answer_kept(version: int) -> None:
    request = request_of(version)
    data = frame(request, version)[4:]
    with pytest.raises(ProtocolError, match="bytes after the end"):
        ProduceRequestView(data + b"\0")
    answer = frame(answer_to(request, [True] * len(parts_of(request)), version), version)[4:]
    longer = ProduceResponseView(answer + b"\0\xff", version)
    merged = joined(merge(ProduceRequestView(data), [None] * len(longer), longer))
    assert merged == joined(
        merge(ProduceRequestView(data), [None] * len(longer), ProduceResponseView(answer, version))
    ) + (b"\0\xff")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_is_sent_on_untouched_but_for_its_correlation_id(version: int) -> None:
    data = frame(request_of(version, 3), version)[4:]
    assert joined(ProduceRequestView(data).rewritten()) == data
    again = joined(ProduceRequestView(data).rewritten(correlation_id=-5))
    assert again == data[:4] + (-5).to_bytes(4, "big", signed=True) + data[8:]


def test_large_slices_are_handed_on() -> None:
    request = request_of(9)
    parts_of(request)[0].records = b"r" * 50_000
    data = bytearray(frame(request, 9)[4:])
    chunks = ProduceRequestView(data).rewritten(
        keep=[True] * len(parts_of(request)), claims=[b"c"] * len(parts_of(request))
    )
    large = [chunk for chunk in chunks if isinstance(chunk, memoryview)]
    assert large
    at = data.index(b"rrrr")
    data[at] = 7
    assert any(b"\7" + b"r" * 100 in bytes(chunk) for chunk in large)


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_are_taken_out_and_claims_put_in(version: int) -> None:
    rng = random.Random(version)
    for seed in range(40):
        request = invented(messages.ProduceRequest, version, seed)
        count = len(parts_of(request))
        if not count:
            continue
        view = ProduceRequestView(frame(request, version)[4:])
        keep = [rng.random() < 0.6 for _ in range(count)]
        keep[rng.randrange(count)] = True
        claims = None
        if version >= 9 and rng.random() < 0.8:
            claims = [rng.choice([None, rng.randbytes(18)]) for _ in range(count)]
        out = messages.ProduceRequest.parse(
            joined(view.rewritten(keep=keep, claims=claims, correlation_id=1))
        )[1]
        for i, part in enumerate(parts_of(request)):
            if claims is not None:
                tags = dict(part.unknown_tagged_fields)
                tags.pop(CLAIMS_TAG, None)
                part.unknown_tagged_fields = tuple(
                    sorted((tags | ({} if claims[i] is None else {CLAIMS_TAG: claims[i]})).items())
                )
        answers = iter(keep)
        for topic in request.topic_data:
            topic.partition_data = [part for part in topic.partition_data if next(answers)]
        request.topic_data = [topic for topic in request.topic_data if topic.partition_data]
        assert out == request


def test_a_claim_that_comes_twice_is_removed() -> None:
    request = request_of(9, topics=1)
    del request.topic_data[0].partition_data[1:]
    data = frame(request, 9)[4:]
    tag = bytes([0xF6, 0xC4, 0x01])
    twice = data[:-3] + b"\x02" + tag + b"\x01a" + tag + b"\x01b" + b"\0\0"
    view = ProduceRequestView(twice)
    assert view.has_claims
    assert view.claims(0) is None
    assert joined(view.rewritten(claims=[None])) == data


def test_what_cannot_be_rewritten() -> None:
    view = ProduceRequestView(frame(request_of(8), 8)[4:])
    n = len(view)
    for wrong, says in (
        ({"keep": [False] * n}, "without partitions"),
        ({"keep": [True]}, "answers for"),
        ({"claims": [b""] * n}, "no tagged fields"),
    ):
        with pytest.raises(ProtocolError, match=says):
            view.rewritten(**wrong)  # type: ignore[arg-type]


def answer_to(request: Any, keep: list[bool], version: int) -> messages.ProduceResponse:
    """As a broker answers: its topics in another order."""
    answer = messages.ProduceResponse(throttle_time_ms=17)
    answers = iter(keep)
    for topic in request.topic_data:
        parts = [p for p in topic.partition_data if next(answers)]
        if parts:
            made = [PartitionProduceResponse(p.index, 0, 1000 + p.index) for p in parts]
            answer.responses.insert(0, TopicProduceResponse(topic.name, topic.topic_id, made))
    if version >= 9:
        answer.unknown_tagged_fields = ((99, b"x"),)
    return answer


def refused(index: int, version: int) -> PartitionProduceResponse:
    made = PartitionProduceResponse(index, 87, -1)
    if version >= 8:
        made.record_errors = [
            BatchIndexAndErrorMessage(0, "no key"),
            BatchIndexAndErrorMessage(5, None),
        ]
        made.error_message = "the reason"
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_refusals_without_a_broker(version: int) -> None:
    request = request_of(version, 5)
    view = ProduceRequestView(frame(request, version)[4:])
    data = joined(refuse(view, [REFUSED] * len(view), throttle_time_ms=3))
    answer = messages.ProduceResponse.decode(data, version)
    assert answer == messages.ProduceResponse(
        responses=[
            TopicProduceResponse(
                t.name, t.topic_id, [refused(p.index, version) for p in t.partition_data]
            )
            for t in request.topic_data
        ],
        throttle_time_ms=3,
    )
    assert data[:4] == (7).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="without a refusal"):
        refuse(view, [None] * len(view))  # type: ignore[list-item]
    with pytest.raises(ProtocolError, match="never invented"):
        refuse(view, [(0, [], None)] * len(view))
    with pytest.raises(ProtocolError, match="answers for"):
        refuse(view, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_merged_with_refusals(version: int) -> None:
    rng = random.Random(version)
    for seed in range(30):
        request = request_of(version, seed)
        view = ProduceRequestView(frame(request, version)[4:])
        keep = [rng.random() < 0.5 for _ in range(len(view))]
        broker = answer_to(request, keep, version)
        broker_answer = ProduceResponseView(frame(broker, version, 4711)[4:], version)
        data = joined(merge(view, [None if one else REFUSED for one in keep], broker_answer))
        merged = messages.ProduceResponse.decode(data, version)
        answers = iter(keep)
        expected = [
            TopicProduceResponse(
                t.name,
                t.topic_id,
                [
                    PartitionProduceResponse(p.index, 0, 1000 + p.index)
                    if next(answers)
                    else refused(p.index, version)
                    for p in t.partition_data
                ],
            )
            for t in request.topic_data
        ]
        assert merged.responses == expected
        assert (merged.throttle_time_ms, data[:4]) == (17, (7).to_bytes(4, "big"))
        assert merged.unknown_tagged_fields == broker.unknown_tagged_fields


def test_what_the_broker_left_out_is_not_invented_and_what_it_adds_is_kept() -> None:
    request = request_of(9, 1, topics=2)
    view = ProduceRequestView(frame(request, 9)[4:])
    broker = messages.ProduceResponse(
        [TopicProduceResponse("stranger", partition_responses=[PartitionProduceResponse(1, 3)])]
    )
    broker_answer = ProduceResponseView(frame(broker, 9)[4:], 9)
    merged = messages.ProduceResponse.decode(
        joined(merge(view, [None] * len(view), broker_answer)), 9
    )
    assert merged.responses == broker.responses
    with pytest.raises(ProtocolError, match="of version 8 to a request of 9"):
        merge(view, [None] * len(view), ProduceResponseView(frame(broker, 8)[4:], 8))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answers_view_says_what_the_reader_says(version: int) -> None:
    for seed in range(30):
        answer = invented(messages.ProduceResponse, version, seed)
        data = frame(answer, version)[4:]
        view = ProduceResponseView(data, version)
        rows = [(topic, part) for topic in answer.responses for part in topic.partition_responses]
        assert (len(view), view.throttle_time_ms) == (len(rows), answer.throttle_time_ms)
        for i, (topic, part) in enumerate(rows):
            assert view.topic(i) == (topic.name if version < 13 else None)
            assert (view.partition(i), view.error_code(i), view.base_offset(i)) == (
                part.index,
                part.error_code,
                part.base_offset,
            )


@pytest.mark.parametrize("version", VERSIONS)
def test_broken_frames_are_refused_or_read_as_the_reader_reads_them(version: int) -> None:
    """Cut anywhere, flipped anywhere: the view refuses what the reader refuses."""
    rng = random.Random(version)
    for kind, looked in (
        (messages.ProduceRequest, "request"),
        (messages.ProduceResponse, "response"),
    ):
        data = frame(invented(kind, version, 4), version)[4:]
        cases = [data[:n] for n in range(len(data))]
        for _ in range(600):
            broken = bytearray(data)
            for _ in range(rng.randint(1, 2)):
                broken[rng.randrange(4, len(data))] = rng.choice(
                    [0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)]
                )
            cases.append(bytes(broken))
        for case in cases:
            if looked == "request":
                plain = refusal(lambda c=case: messages.ProduceRequest.parse(c))  # type: ignore[misc]
                walked = refusal(lambda c=case: ProduceRequestView(c))  # type: ignore[misc]
                assert (walked is None) == (plain is None)
            else:
                plain = refusal(lambda c=case: messages.ProduceResponse.decode(c, version))  # type: ignore[misc]
                walked = refusal(lambda c=case: ProduceResponseView(c, version))  # type: ignore[misc]
                assert (
                    plain is not None or walked is None
                )  # CurrentLeader is passed over by its size alone


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [(1, 1, "has the key 0, not 1"), (3, 14, "version 14 is not known"), (3, 2, "version 2 ")],
)
def test_another_request_is_refused(at: int, value: int, says: str) -> None:
    data = bytearray(frame(request_of(9), 9)[4:])
    data[at] = value
    with pytest.raises(ProtocolError, match=says):
        ProduceRequestView(data)
