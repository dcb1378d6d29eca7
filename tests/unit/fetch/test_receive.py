"""A receiver counts what a plain reader finds, however the bytes come, and asks for what
follows.
"""

from __future__ import annotations

import functools
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchval.core.fetched import walk_fetched
from batchval.errors import BatchvalError
from batchval.fetch.receiver import Quota, Receiver
from batchval.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchLeaderIdAndEpoch,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tests.support.batches import GZIP, batch, message, record, records
from tests.support.seeds import seeds

ROOT = Path(__file__).parents[3]
VERSIONS = range(4, 13)
DAMAGED, ABORTED, REFUSED = -100, -101, -102
Answers = dict[tuple[str, int], PartitionData]


@functools.cache
def data_of(size: int, first: int = 0, count: int = 3, each: int = 4) -> bytes:
    """So many batches of so many records."""
    made = (
        batch(records(each, value=bytes(size)), base_offset=first + each * n) for n in range(count)
    )
    return b"".join(made)


def answer(parts: Answers, version: int, correlation_id: int = 1, **fields: Any) -> bytes:
    topics: dict[str, FetchableTopicResponse] = {}
    for (name, _), data in parts.items():
        topics.setdefault(name, FetchableTopicResponse(name)).partitions.append(data)
    whole = FetchResponse(responses=list(topics.values()), **fields)
    return b"".join(whole.encode(correlation_id, version))


def fed(receiver: Receiver, frame: bytes, sizes: Iterator[int] | None = None) -> bool:
    """Whether the answer is whole with its last byte, and not before."""
    at, whole = 0, False
    while at < len(frame):
        assert not whole
        size = len(frame) if sizes is None else next(sizes)
        whole = receiver.feed(frame[at : at + size])
        at += size
    return whole


def asked(receiver: Receiver, version: int) -> dict[tuple[str, int], int]:
    """The offsets of the next request."""
    frame = receiver.request()
    if frame is None:
        return {}
    _, request = FetchRequest.parse(frame[4:])
    assert request.api_version == version
    return {
        (topic.topic, one.partition): one.fetch_offset
        for topic in request.topics
        for one in topic.partitions
    }


def asking(version: int = 12, offset: int = 0, **settings: Any) -> Receiver:
    """Of t-0, its first request sent."""
    receiver = Receiver(version, **settings)
    receiver.add("t", 0, offset)
    assert asked(receiver, version) == {("t", 0): offset}
    return receiver


def blocks(receiver: Receiver) -> list[tuple[int, bytes, int, int, int]]:
    return [(slot, bytes(records), *rest) for slot, records, *rest in receiver.blocks()]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", [None, "", "me"])
def test_the_request_is_that_of_the_general_writer(version: int, client_id: str | None) -> None:
    receiver = Receiver(
        version,
        client_id=client_id,
        max_wait_ms=7,
        min_bytes=3,
        max_bytes=1 << 20,
        partition_max_bytes=9,
        isolation=1,
    )
    places = [("größer", 3, 5, 1), ("t", 0, 1 << 40, -1), ("größer", 0, 0, 7)]
    for topic, index, offset, epoch in places:
        receiver.add(topic, index, offset, epoch)
    request = FetchRequest(
        max_wait_ms=7,
        min_bytes=3,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[
            FetchTopic(
                topic,
                partitions=[
                    FetchPartition(
                        index, epoch if version >= 9 else -1, offset, partition_max_bytes=9
                    )
                    for name, index, offset, epoch in places
                    if name == topic
                ],
            )
            for topic in ("größer", "t")
        ],
        api_version=version,
    )
    assert receiver.request() == b"".join(request.encode(1, client_id))
    assert receiver.request() is None  # one at a time


@pytest.mark.parametrize("decode", ["headers", "records"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut(version: int, decode: str) -> None:
    data = data_of(5)
    parts = {
        ("t", 0): PartitionData(0, 0, 99, 99, records=data[:-3]),
        ("t", 7): PartitionData(7, 0, 99, 99, records=data),  # not asked for
        ("s", 1): PartitionData(1, 0, 77, 77, records=None),
    }
    if version >= 12:
        parts["t", 0].current_leader = FetchLeaderIdAndEpoch(2, 3)
        parts["t", 0].unknown_tagged_fields = ((77, b"tag"),)
    frame = answer(parts, version)
    for cut in range(1, len(frame)):
        receiver = Receiver(version, decode=decode)
        slots = [receiver.add("t", 0, 1), receiver.add("s", 1, 5)]
        assert asked(receiver, version) == {("t", 0): 1, ("s", 1): 5}
        assert fed(receiver, frame, iter([cut, len(frame)]))
        found = walk_fetched(data[:-3], 1, decode)
        assert receiver.counted()[:4] == (
            found.records,
            found.key_value_bytes,
            found.batches,
            found.wire_bytes,
        )
        assert receiver.positions() == [(slots[0], 8, 99), (slots[1], 5, 77)]
        assert receiver.returned() == []


@pytest.mark.parametrize("decode", ["headers", "records", "blocks"])
@pytest.mark.parametrize("check_crcs", [False, True])
@pytest.mark.parametrize("size", [1, 3000, 70_000, pytest.param(700_000, marks=pytest.mark.long)])
def test_random_pieces(size: int, check_crcs: bool, decode: str) -> None:
    r = random.Random(size)
    logs = {
        index: b"".join([data_of(size), message(offset=12), data_of(size, 13)])
        for index in range(3)
    }
    parts: Answers = {
        ("t", index): PartitionData(index, 0, 25, 25, records=data) for index, data in logs.items()
    }
    frame = answer(parts, 11)
    for most in (20, 700, 5 * size + 100, 1 << 20) if size < 700_000 else (100_000, 1 << 20):
        receiver = Receiver(11, decode=decode, check_crcs=check_crcs)
        for index in logs:
            receiver.add("t", index, index)
        receiver.request()
        assert fed(receiver, frame, iter(lambda most=most: r.randrange(1, most), None))
        if decode == "blocks":
            assert blocks(receiver) == [
                (index, data, index, 25, 25) for index, data in logs.items()
            ]
            continue
        found = [walk_fetched(data, index, decode) for index, data in logs.items()]
        counted = receiver.counted()
        assert counted.records == sum(one.records for one in found)
        assert counted.bytes == sum(one.key_value_bytes for one in found)
        assert [position for _, position, _ in receiver.positions()] == [25] * 3


def test_who_was_served_comes_last_next_time() -> None:
    receiver = Receiver(12)
    for index in range(3):
        receiver.add("t", index, 0)
    assert list(asked(receiver, 12)) == [("t", 0), ("t", 1), ("t", 2)]
    parts: Answers = {
        ("t", 0): PartitionData(0, 0, 9, records=data_of(1)),
        ("t", 2): PartitionData(2, 0, 0),
    }
    fed(receiver, answer(parts, 12))
    assert list(asked(receiver, 12).items()) == [(("t", 1), 0), (("t", 2), 0), (("t", 0), 12)]


def test_what_is_unusual_is_returned_with_its_position() -> None:
    receiver = Receiver(12, isolation=1)
    slots = [receiver.add("t", index, 0) for index in range(5)]
    receiver.request()
    damaged = data_of(1) + batch(records(1), base_offset=12, magic=7) + data_of(1, 13)
    parts: Answers = {
        ("t", 0): PartitionData(0, 6),
        ("t", 1): PartitionData(1, 0, 9, records=damaged),
        ("t", 2): PartitionData(
            2, 0, 9, aborted_transactions=[AbortedTransaction(1, 0)], records=data_of(1)
        ),
        ("t", 3): PartitionData(3, 0, 9, aborted_transactions=[], records=data_of(1)),
    }
    assert fed(receiver, answer(parts, 12))
    assert receiver.returned() == [
        (slots[0], 6, 0),
        (slots[1], DAMAGED, 12),
        (slots[2], ABORTED, 0),
    ]
    assert receiver.returned() == []
    assert receiver.counted().records == 24
    assert asked(receiver, 12) == {("t", 4): 0, ("t", 3): 12}
    assert fed(receiver, answer({}, 12, 2, error_code=-1))
    assert receiver.returned() == [(slots[3], REFUSED, 12), (slots[4], REFUSED, 0)]
    assert receiver.request() is None


@pytest.mark.parametrize("decode", ["headers", "records"])
@pytest.mark.parametrize(
    "wrong", [{"crc": 1}, {"records_count": -1}, {"last_offset_delta": -5}], ids=str
)
def test_damage_that_only_counting_finds(wrong: dict[str, int], decode: str) -> None:
    receiver = asking(decode=decode, check_crcs=True)
    data = data_of(1) + batch(records(1), base_offset=12, **wrong)  # type: ignore[arg-type]
    fed(receiver, answer({("t", 0): PartitionData(0, records=data)}, 12))
    assert receiver.returned() == [(0, DAMAGED, 12)]
    assert receiver.counted().records == 12


def outcome(receiver: Receiver) -> list[Any]:
    """What a receiver has counted, where its partitions are, and what came back."""
    return [receiver.counted()[:4], receiver.positions(), receiver.returned(), receiver.failure]


@pytest.mark.parametrize("seed", seeds(8))
def test_damaged_records_are_the_same_in_pieces_and_at_once(seed: int) -> None:
    """Nothing of a damaged batch is counted, however much of it was read before."""
    r = random.Random(seed)
    for _ in range(150):
        data = bytearray(data_of(r.choice([1, 40]), each=r.choice([1, 9, 200]), first=5))
        for _ in range(r.randrange(3)):
            data[r.randrange(61, len(data))] = r.choice([0, 1, 127, 128, 255, r.randrange(256)])
        offset = r.choice([0, 5, 6, 20])
        frame = answer(
            {("t", 0): PartitionData(0, records=bytes(data[: len(data) - r.randrange(40)]))}, 12
        )
        once, pieces = (asking(decode="records", offset=offset) for _ in range(2))
        assert fed(once, frame)
        most = r.choice([2, 30, 400])
        assert fed(pieces, frame, iter(lambda most=most: r.randrange(1, most), None))
        assert outcome(pieces) == outcome(once)


def test_compressed_records_are_walked() -> None:
    receiver = asking(decode="records")
    data = batch(records(9, value=bytes(50)), codec=GZIP)
    fed(receiver, answer({("t", 0): PartitionData(0, records=data)}, 12))
    counted = receiver.counted()
    assert (counted.records, counted.bytes, counted.wire_bytes) == (9, 450, len(data))


@pytest.mark.parametrize("decode", ["headers", "records"])
def test_records_are_counted_up_to_the_quota_and_none_is_lost(decode: str) -> None:
    quota = Quota(10)
    first, second = (asking(decode=decode, quota=quota) for _ in range(2))
    frame = answer({("t", 0): PartitionData(0, records=data_of(20))}, 12)
    fed(first, frame[: len(frame) // 2])  # 4 or 8 of 12 records
    before = 10 - quota.remaining
    fed(second, frame)
    counted = second.counted()
    assert counted.records == 10 - before
    assert quota.remaining == 0
    if decode == "records":
        assert counted.bytes == 20 * counted.records
    assert second.positions() == [(0, 10 - before, 0)]
    assert second.request() is None
    fed(first, frame[len(frame) // 2 :])
    assert first.counted().records == before
    assert first.request() is None


@pytest.mark.parametrize("decode", ["headers", "records"])
def test_a_quota_ends_in_a_batch_whose_offsets_have_gaps(decode: str) -> None:
    quota = Quota(5)
    receiver = asking(decode=decode, quota=quota)
    data = batch([record(111 * n, value=bytes(20)) for n in range(10)], last_offset_delta=999)
    fed(receiver, answer({("t", 0): PartitionData(0, records=data)}, 12))
    counted = receiver.counted()
    assert (counted.records, counted.batches, quota.remaining) == (5, 1, 0)
    assert counted.bytes == (len(data) // 2 if decode == "headers" else 100)
    if decode == "records":
        assert receiver.positions() == [(0, 555, 0)]
    assert receiver.request() is None


@pytest.mark.parametrize("base", [0, 2**63 - 10])
def test_a_header_with_more_records_than_offsets_moves_no_position_past_its_batch(
    base: int,
) -> None:
    receiver = asking(decode="headers", quota=Quota(500), offset=base)
    data = bytearray(batch(records(1), base_offset=base))
    data[57:61] = (1_000).to_bytes(4, "big")
    fed(receiver, answer({("t", 0): PartitionData(0, records=bytes(data))}, 12))
    assert receiver.counted().records == 500
    assert receiver.positions() == [(0, base, 0)]


@pytest.mark.parametrize(
    ("decode", "size", "cut"),
    [
        ("headers", 9, 90),
        ("records", 9, 90),
        *(("blocks", 100_000, cut) for cut in (10, 90, 300_000)),
    ],
)
@pytest.mark.parametrize("change", ["seek", "pause", "drop"])
def test_what_is_under_way_for_another_position_is_dropped(
    change: str, decode: str, size: int, cut: int
) -> None:
    receiver = asking(decode=decode)
    data = data_of(size)
    frame = answer({("t", 0): PartitionData(0, 0, 99, records=data)}, 12)
    receiver.feed(frame[:-cut])
    counted = receiver.counted().records
    assert (0 < counted < 12) == (decode != "blocks")
    if change == "seek":
        receiver.seek(0, 100, 4)
    elif change == "pause":
        receiver.pause(0, True)
    else:
        assert receiver.drop(0) == counted
        assert receiver.add("t", 0, 50) == 1  # not the slot that the answer belongs to
    assert receiver.feed(frame[-cut:])
    if decode == "blocks":
        assert blocks(receiver) == ([(0, data, 0, 12, 99)] if change == "pause" else [])
    else:
        assert receiver.counted().records == 0
    if change == "pause":
        assert receiver.request() is None
        receiver.pause(0, False)
    paused = 12 if decode == "blocks" else counted
    assert asked(receiver, 12) == {("t", 0): {"seek": 100, "pause": paused, "drop": 50}[change]}


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_after_the_message_are_ignored(version: int) -> None:
    receiver = asking(version)
    frame = answer({("t", 0): PartitionData(0, records=data_of(9))}, version) + b"and more"
    assert fed(receiver, struct.pack(">i", len(frame) - 4) + frame[4:])
    assert receiver.counted().records == 12
    assert receiver.failure is None


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (struct.pack(">ii", 3, 1), "a length that no answer has"),
        (struct.pack(">ii", -1, 1), "a length that no answer has"),
        (struct.pack(">ii", 1 << 30, 1), "a length that no answer has"),
        (struct.pack(">ii", 100, 2), "an answer to another request"),
        (struct.pack(">iiii", 12, 1, 0, 1), "an answer that ends too early"),
        (struct.pack(">iiii", 12, 1, 0, -2), "an answer that cannot be read"),
        (struct.pack(">iiii", 12, 1, 0, 0) + b"x", "bytes came after the answer"),
        (struct.pack(">iii", 8, 1, 0), "an answer that ends too early"),
        (struct.pack(">iiiih", 500, 1, 0, 1, -1), "an answer that cannot be read"),
        (struct.pack(">iiiih", 60, 1, 0, 1, 50) + bytes(50), "an answer that ends too early"),
    ],
)
def test_what_no_answer_is_ends_it(frame: bytes, why: str) -> None:
    receiver = asking(4)
    fed(receiver, frame)
    assert receiver.failure == why
    assert receiver.request() is None
    assert not receiver.feed(b"more")


def test_a_field_that_is_too_large_ends_it() -> None:
    receiver = asking(12)
    tagged_field = b"\x05\xff\xff\x10" + bytes(80_000)
    frame = struct.pack(">iib", 1 << 20, 1, 1) + tagged_field
    fed(receiver, frame)
    assert receiver.failure == "a field that is too large"
    assert receiver.held_bytes < 300_000


def a_length_buys_little_before_its_bytes_come(decode: str) -> None:
    receiver = asking(4, decode=decode)
    head = struct.pack(">iiii", 90 << 20, 1, 0, 1) + struct.pack(">h1si", 1, b"t", 1)
    head += struct.pack(">ihqqii", 0, 0, 9, 9, 0, 80 << 20)
    head += batch(records(1), batch_length=70 << 20)[:61]
    receiver.feed(head)
    assert receiver.held_bytes < 2 << 20
    for came in range(1, 9):
        receiver.feed(bytes(1 << 20))
        assert receiver.held_bytes <= max(2 << 20, 2 * came + 1 << 20)


@pytest.mark.parametrize("decode", ["records", "blocks"])
def test_a_length_buys_little_before_its_bytes_come(decode: str) -> None:
    name = a_length_buys_little_before_its_bytes_come.__name__
    script = f"from tests.unit.fetch.test_receive import {name}; {name}({decode!r})"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"version": 3}, "is 3"),
        ({"version": 13}, "is 13"),
        ({"version": 12, "decode": "all"}, "'all'"),
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(BatchvalError, match=why):
        Receiver(**wrong)


def test_places_that_cannot_be() -> None:
    receiver = Receiver(12)
    for topic in ("", "x" * 250):
        with pytest.raises(BatchvalError, match="1 to 249"):
            receiver.add(topic, 0, 0)
    for slot in (-1, 0, 7):
        with pytest.raises(BatchvalError, match="has no partition"):
            receiver.seek(slot, 0)
