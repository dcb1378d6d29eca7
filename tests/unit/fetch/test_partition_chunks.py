"""An answer cut up while it comes says what the same answer says when it is read whole, however its
bytes come.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from batchval.fetch.partition_chunks import FetchPieces, FetchSplitter
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import MAX_FRAME_BYTES, FrameError
from batchval.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchLeaderIdAndEpoch,
    FetchResponse,
    PartitionData,
)
from batchval.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker

ROOT = Path(__file__).parents[3]
VERSIONS = range(4, 13)
Seen = list[tuple[str, PartitionData]]


def some_data(r: random.Random, version: int, size: int) -> PartitionData:
    data = PartitionData(
        r.randrange(1 << 31), r.choice([0, 0, 0, 6]), r.randrange(1 << 60), r.randrange(-1, 1 << 60)
    )
    data.records = r.choice([None, b"", r.randbytes(r.randrange(size)), r.randbytes(size)])
    data.aborted_transactions = r.choice(
        [
            None,
            [],
            [
                AbortedTransaction(r.randrange(1 << 60), r.randrange(1 << 60))
                for _ in range(r.randrange(9))
            ],
        ]
    )
    if version >= 5:
        data.log_start_offset = r.randrange(1 << 60)
    if version >= 11:
        data.preferred_read_replica = r.randrange(-1, 9)
    if version >= 12 and r.random() < 0.3:
        data.current_leader = FetchLeaderIdAndEpoch(r.randrange(9), r.randrange(9))
        data.diverging_epoch = EpochEndOffset(r.randrange(9), r.randrange(1 << 60))
        data.unknown_tagged_fields = ((77, r.randbytes(40)),)
    return data


def some_answer(r: random.Random, version: int, size: int) -> FetchResponse:
    topics = [
        FetchableTopicResponse(
            r.choice(["t", "größer", "x" * 249]),
            partitions=[some_data(r, version, size) for _ in range(r.randrange(5))],
        )
        for _ in range(r.randrange(4))
    ]
    answer = FetchResponse(r.randrange(1 << 20), responses=topics)
    if version >= 7:
        answer.error_code, answer.session_id = r.choice([0, 70]), r.randrange(1 << 30)
    if version >= 12 and r.random() < 0.3:
        answer.unknown_tagged_fields = ((9, r.randbytes(300)),)
        for topic in topics:
            topic.unknown_tagged_fields = ((5, b"tag"),)
    return answer


def reported(answer: FetchResponse) -> Seen:
    return [(topic.topic, data) for topic in answer.responses for data in topic.partitions]


def reads(r: random.Random, most: int) -> Iterator[int]:
    while True:
        yield r.randrange(1, r.choice([8, 600, most]))


def feed(
    splitter: FetchSplitter, stream: bytes, sizes: Iterator[int]
) -> Iterator[list[memoryview]]:
    """What each read gives; no more is read than the splitter has space for."""
    at = 0
    while at < len(stream):
        space = splitter.get_buffer()
        assert len(space) > 0
        size = min(len(space), next(sizes), len(stream) - at)
        space[:size] = stream[at : at + size]
        del space
        at += size
        yield splitter.buffer_updated(size)


def pieces(version: int) -> tuple[FetchPieces, Seen]:
    seen: Seen = []
    return FetchPieces(version, lambda topic, data, _: seen.append((topic, data))), seen


def plain(seen: Sequence[tuple[str, PartitionData]]) -> Seen:
    """With records that can be compared when the memory is gone."""
    for _, data in seen:
        data.records = None if data.records is None else bytes(data.records)
    return list(seen)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [50, 20_000, 400_000])
def test_as_the_general_way(version: int, size: int) -> None:
    r = random.Random(version * size)
    for _ in range(25):
        splitter = FetchSplitter(MAX_FRAME_BYTES)
        stream, expected = b"", []
        for correlation_id in range(r.randrange(1, 5)):
            if r.random() < 0.3:
                other = MetadataResponse(
                    brokers=[MetadataResponseBroker(1, "h" * r.randrange(1000))] * r.randrange(300)
                )
                frame = b"".join(other.encode(correlation_id, 9))
                expected.append((None, None, [], frame))
            else:
                answer = some_answer(r, version, size)
                frame = b"".join(answer.encode(correlation_id, version))
                cut, seen = pieces(version)
                splitter.expect(correlation_id, cut)
                expected.append((cut, answer, seen, frame))
            stream += frame
        frames = [frame for some in feed(splitter, stream, reads(r, size * 2)) for frame in some]
        assert len(frames) == len(expected)
        for got, (cut, answer, seen, frame) in zip(frames, expected, strict=True):
            if cut is None:
                assert bytes(got) == frame[4:]
                continue
            assert bytes(got[:4]) == frame[4:8]
            assert cut.read(got) is cut
            general = FetchResponse.decode(frame[4:], version)
            assert answer == general
            assert plain(seen) == plain(reported(general))
            assert (cut.throttle_time_ms, cut.error_code) == (
                general.throttle_time_ms,
                general.error_code,
            )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [50, 90_000])
@pytest.mark.parametrize("after", [1, 200_000])
def test_bytes_after_an_answer_are_ignored(version: int, size: int, after: int) -> None:
    r = random.Random(version)
    answer = FetchResponse(
        responses=[FetchableTopicResponse("t", partitions=[some_data(r, version, size)])]
    )
    answer.responses[0].partitions[0].records = r.randbytes(size)
    body = b"".join(answer.encode(1, version))[4:] + bytes(after)
    splitter = FetchSplitter(MAX_FRAME_BYTES)
    cut, seen = pieces(version)
    splitter.expect(1, cut)
    stream = struct.pack(">i", len(body)) + body + struct.pack(">i4s", 4, b"next")
    frames = [bytes(frame) for some in feed(splitter, stream, reads(r, 5_000)) for frame in some]
    assert [len(frames), frames[-1]] == [2, b"next"]
    cut.read(frames[0])
    assert plain(seen) == plain(reported(answer))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_general_way_refuses_is_refused_and_nothing_else(version: int) -> None:
    r = random.Random(version)
    refused = accepted = 0
    for _ in range(400):
        answer = FetchResponse(
            responses=[
                FetchableTopicResponse(
                    "t", partitions=[some_data(r, version, 90_000) for _ in range(2)]
                )
            ]
        )
        frame = bytearray(b"".join(answer.encode(7, version)))
        if len(frame) < 70_000:
            continue
        places = [*range(8, 100), *range(len(frame) - 100, len(frame))]
        for _ in range(r.randrange(1, 4)):
            frame[r.choice(places)] = r.choice([0, 1, 0x7F, 0x80, 0xFF, r.randrange(256)])
        if r.random() < 0.2:
            frame = frame[: r.randrange(70_000, len(frame) + 1)] if len(frame) > 70_000 else frame
            struct.pack_into(">i", frame, 0, len(frame) - 4)
        try:
            general: FetchResponse | None = FetchResponse.decode(bytes(frame[4:]), version)
        except ProtocolError:
            general = None
        splitter = FetchSplitter(MAX_FRAME_BYTES)
        cut, seen = pieces(version)
        splitter.expect(7, cut)
        try:
            (got,) = (
                one for some in feed(splitter, bytes(frame), reads(r, 60_000)) for one in some
            )
            cut.read(got)
        except ProtocolError:
            assert general is None
            refused += 1
            continue
        assert general is not None
        assert plain(seen) == plain(reported(general))
        accepted += 1
    assert refused > 10
    assert accepted > 10


def test_after_an_answer_that_cannot_be_read_nothing_is() -> None:
    splitter = FetchSplitter(MAX_FRAME_BYTES)
    splitter.expect(1, pieces(4)[0])
    stream = struct.pack(">iiii", 100_000, 1, 0, -2)
    splitter.get_buffer()[: len(stream)] = stream
    with pytest.raises(ProtocolError, match="a length below -1"):
        splitter.buffer_updated(len(stream))
    assert len(splitter.get_buffer()) > 0
    with pytest.raises(ProtocolError, match="before this"):
        splitter.buffer_updated(1)


def a_length_buys_little_before_its_bytes_come() -> None:
    cut, seen = pieces(4)
    splitter = FetchSplitter(1 << 30)
    splitter.expect(1, cut)
    head = struct.pack(">iiii", (1 << 30) - 4, 1, 0, 1) + struct.pack(">h1si", 1, b"t", 1)
    head += struct.pack(">ihqqii", 0, 0, 9, 9, 0, 1 << 29)
    for _ in feed(splitter, head, iter([len(head)])):
        pass
    held = 0
    for _ in range(7):
        space = splitter.get_buffer()
        assert len(space) <= max(held, 1 << 20) + (128 << 10)
        held += len(space)
        splitter.buffer_updated(len(space))
    assert held > 16 << 20
    assert seen == []


def test_a_length_buys_little_before_its_bytes_come() -> None:
    """In a process of its own: where others have left large blocks, those are taken, and cost
    nothing.
    """
    name = a_length_buys_little_before_its_bytes_come.__name__
    script = f"from tests.unit.fetch.test_partition_chunks import {name}; {name}()"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_each_partition_has_memory_of_its_own() -> None:
    """Who keeps a slice keeps its partition, and what comes later never shows in it."""
    r = random.Random(5)
    kept: list[tuple[memoryview, bytes]] = []
    splitter = FetchSplitter(MAX_FRAME_BYTES)
    for correlation_id in range(6):
        answer = FetchResponse(
            responses=[
                FetchableTopicResponse(
                    "t",
                    partitions=[PartitionData(n, records=r.randbytes(300_000)) for n in range(4)],
                )
            ]
        )
        cut, seen = pieces(12)
        splitter.expect(correlation_id, cut)
        for _ in feed(splitter, b"".join(answer.encode(correlation_id, 12)), reads(r, 1 << 20)):
            pass
        for (_, data), sent in zip(seen, answer.responses[0].partitions, strict=True):
            assert isinstance(data.records, memoryview)
            assert isinstance(sent.records, bytes)
            kept.append((data.records, sent.records))
        del kept[: r.randrange(len(kept))]
    for got, sent_records in kept:
        assert got == sent_records


def test_frames_that_come_before_a_broken_one_are_not_lost() -> None:
    good = b"".join(MetadataResponse().encode(1, 9))
    splitter = FetchSplitter(1000)
    splitter.expect(9, pieces(12)[0])
    stream = good * 2 + struct.pack(">i", 2000)
    splitter.get_buffer()[: len(stream)] = stream
    with pytest.raises(FrameError) as raised:
        splitter.buffer_updated(len(stream))
    assert [bytes(frame) for frame in raised.value.frames] == [good[4:]] * 2


@pytest.mark.parametrize("version", [3, 13])
def test_versions_that_are_not_cut_up(version: int) -> None:
    with pytest.raises(ProtocolError, match=f"version is {version}: expected 4 to 12"):
        FetchPieces(version, print)
