"""The consumer at brokers that answer by script: leaders that move, damage, refusals, and
what is prefetched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchval.errors import BatchvalError, NotABatch
from batchval.fetch import Consumer, ConsumerOptions, FetchedBatches
from batchval.fetch.fetcher import Fetcher
from batchval.network.errors import AuthorizationError
from batchval.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchLeaderIdAndEpoch,
    FetchResponse,
    PartitionData,
)
from batchval.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from batchval.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from batchval.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.support.batches import ZSTD, batch, records
from tests.support.broker_node import BrokerNode, Held, metadata

TOPIC = "t"


def partition(
    data: bytes = b"", error: int = 0, leader: FetchLeaderIdAndEpoch | None = None
) -> FetchResponse:
    partition = PartitionData(
        0, error, 1000, records=data, current_leader=leader or FetchLeaderIdAndEpoch()
    )
    return FetchResponse(responses=[FetchableTopicResponse(TOPIC, partitions=[partition])])


def asked(request: Any) -> int:
    return int(request.topics[0].partitions[0].fetch_offset)


def log_of(batches: list[bytes], at_once: int = 1) -> Callable[[Any], Any]:
    """Ten records a batch; nothing after the last, with a delay."""

    async def answer(request: Any) -> FetchResponse:
        first = asked(request) // 10
        if first >= len(batches):
            await asyncio.sleep(0.05)
        return partition(b"".join(batches[first : first + at_once]))

    return answer


def ten(n: int, **fields: Any) -> bytes:
    return batch(records(10), base_offset=10 * n, **fields)


def earliest(_: Any) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(TOPIC, [ListOffsetsPartitionResponse(0, offset=0)])]
    )


def broker(fetch: Callable[[Any], Any], leaders: Callable[[], Any], node_id: int = 1) -> BrokerNode:
    return BrokerNode({1: fetch, 2: earliest, 3: lambda _: leaders()}, node_id)


def options(at: BrokerNode, **more: Any) -> ConsumerOptions:
    options = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, **more}
    return ConsumerOptions(bootstrap_servers=[at.address], **options)


@asynccontextmanager
async def consuming(
    fetch: Callable[[Any], Any], **more: Any
) -> AsyncIterator[tuple[BrokerNode, Consumer]]:
    """A broker that leads the topic's partition, and a consumer that was assigned it."""
    async with (
        broker(fetch, lambda: metadata({1: one.port}, {TOPIC: [(1, 1)]})) as one,
        Consumer(options(one, **more)) as consumer,
    ):
        consumer.assign([(TOPIC, 0)])
        yield one, consumer


async def read(consumer: Consumer, offset: int) -> list[FetchedBatches]:
    """Until the position is there."""
    taken: list[FetchedBatches] = []
    async with asyncio.timeout(30):
        while consumer.position((TOPIC, 0)) != offset:
            taken += await consumer.poll_batches(100)
    return taken


@pytest.mark.parametrize("hint", [True, False])
@pytest.mark.parametrize("error", [6, 74, 75])
async def test_a_leader_that_moves(hint: bool, error: int) -> None:
    batches = [ten(n) for n in range(6)]
    moved = False
    ports: dict[int, int] = {}

    def leaders() -> Any:
        return metadata(ports, {TOPIC: [(2, 8) if moved else (1, 7)]})

    def first(request: Any) -> Any:
        nonlocal moved
        if asked(request) < 30:
            return log_of(batches)(request)
        moved = True
        return partition(error=error, leader=FetchLeaderIdAndEpoch(2, 8) if hint else None)

    async with broker(first, leaders) as one, broker(log_of(batches), leaders, 2) as two:
        ports |= {1: one.port, 2: two.port}
        async with Consumer(options(one)) as consumer:
            consumer.assign([(TOPIC, 0)])
            taken = await read(consumer, 60)
    assert b"".join(bytes(part.records) for part in taken) == b"".join(batches)
    assert asked(two.of(1)[0]) == 30
    assert {request.topics[0].partitions[0].current_leader_epoch for request in two.of(1)} == {8}


async def test_a_broker_that_hangs_up() -> None:
    batches = [ten(n) for n in range(4)]
    left = [None, None]

    def fetch(request: Any) -> Any:
        return left.pop() if left and asked(request) == 20 else log_of(batches)(request)

    async with consuming(fetch) as (_, consumer):
        taken = await read(consumer, 40)
    assert left == []
    assert [part.fetch_offset for part in taken] == [0, 10, 20, 30]


async def two_answers_wait(one: BrokerNode, consumer: Consumer) -> list[FetchedBatches]:
    """Poll once, of batches of ten; two more answers are asked for, and no third."""
    taken: list[FetchedBatches] = []
    while not taken:
        taken = await consumer.poll_batches(10_000)
    async with asyncio.timeout(30):
        while len(one.of(1)) < len(taken) + 2:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    assert len(one.of(1)) == len(taken) + 2  # two wait
    assert consumer.position((TOPIC, 0)) == 10 * len(taken)
    return taken


async def test_the_next_is_asked_for_before_the_last_was_looked_at_but_not_without_end() -> None:
    batches = [ten(n) for n in range(40)]
    async with consuming(log_of(batches)) as (one, consumer):
        await two_answers_wait(one, consumer)
        await read(consumer, 400)
        assert [asked(request) for request in one.of(1)][:40] == list(range(0, 400, 10))


async def test_polls_that_do_not_wait_bring_what_comes_all_the_same() -> None:
    batches = [ten(n) for n in range(4)]
    async with consuming(log_of(batches)) as (_, consumer):
        taken: list[FetchedBatches] = []
        end = time.monotonic() + 30
        while (
            consumer.position((TOPIC, 0)) != 40 and time.monotonic() < end
        ):  # no timeout: nothing else might run
            taken += await consumer.poll_batches(0)
    assert b"".join(bytes(part.records) for part in taken) == b"".join(batches)


async def test_the_group_is_seen_to_while_one_answer_is_read_bit_by_bit() -> None:
    commits: list[int] = []

    def commit(request: Any) -> OffsetCommitResponse:
        commits.append(request.topics[0].partitions[0].committed_offset)
        topic = OffsetCommitResponseTopic(TOPIC, partitions=[OffsetCommitResponsePartition(0)])
        return OffsetCommitResponse(topics=[topic])

    def coordinator(_: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(coordinators=[Coordinator("g", 1, "127.0.0.1", one.port)])

    more = {"group_id": "g", "enable_auto_commit": True, "auto_commit_interval_ms": 1}
    async with consuming(log_of([batch(records(60))]), **more) as (one, consumer):
        one.handlers |= {8: commit, 10: coordinator}
        await consumer.seek((TOPIC, 0), 0)
        read: list[int] = []
        async with asyncio.timeout(30):
            while len(read) < 50:
                read += [record.offset for record in await consumer.poll(100, max_records=5)]
                await asyncio.sleep(0.02)
        assert read == list(range(50))
        assert [asked(request) for request in one.of(1)].count(0) == 1  # one answer
        assert commits == sorted(commits)
        assert any(0 < offset < 50 for offset in commits)
        assert all(offset % 5 == 0 for offset in commits)


async def test_damage_is_reported_with_its_place_and_can_be_passed() -> None:
    batches = [ten(0), ten(1, crc=1), ten(2)]
    async with consuming(log_of(batches), check_crcs=True) as (_, consumer):
        with pytest.raises(NotABatch, match=r"t-0 at offset 10: the batch at byte 0 .*crc"):
            await read(consumer, 30)
        assert consumer.position((TOPIC, 0)) == 10
        await consumer.seek((TOPIC, 0), 20)
        while True:
            try:
                await read(consumer, 30)
                break
            except NotABatch:  # reported before the seek
                continue


async def test_unreadable_records_are_reported_with_their_place_and_nothing_is_passed() -> None:
    damaged = batch(
        codec=ZSTD, payload=b"no such thing", base_offset=10, last_offset_delta=9, records_count=10
    )
    batches = [ten(0), damaged, ten(2)]
    async with consuming(log_of(batches, at_once=3)) as (_, consumer):
        offsets: list[int] = []

        async def until(count: int) -> None:
            async with asyncio.timeout(30):
                while len(offsets) < count:
                    offsets.extend(record.offset for record in await consumer.poll(100))

        for _ in range(2):  # each time: only a seek goes past it
            with pytest.raises(NotABatch, match=r"t-0 at offset 10: zstd"):
                await until(11)
            assert offsets == list(range(10))
            assert consumer.position((TOPIC, 0)) == 10
        await consumer.seek((TOPIC, 0), 20)
        await until(20)
    assert offsets == [*range(10), *range(20, 30)]


async def test_a_refusal_is_raised() -> None:
    def refused(_: Any) -> FetchResponse:
        return partition(error=29)

    async with consuming(refused) as (_, consumer):
        with pytest.raises(AuthorizationError, match="t-0 at offset 0: TOPIC_AUTHORIZATION_FAILED"):
            await read(consumer, 10)


async def test_a_frame_cut_within_a_batch_loses_nothing() -> None:
    batches = [ten(n) for n in range(9)]

    async def fetch(request: Any) -> FetchResponse:
        first = asked(request) // 10
        if first >= 9:
            await asyncio.sleep(0.05)
        data = b"".join(batches[first:])
        return partition(data[: len(batches[0]) * 2 + 40])

    async with consuming(fetch) as (_, consumer):
        taken = await read(consumer, 90)
    assert b"".join(bytes(part.records) for part in taken) == b"".join(batches)


def two(batches: list[list[bytes]]) -> FetchResponse:
    partitions = [
        PartitionData(number, 0, 1000, records=b"".join(some))
        for number, some in enumerate(batches)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(TOPIC, partitions=partitions)])


def large(n: int) -> bytes:
    return batch(records(10, value=bytes(20_000)), base_offset=10 * n)


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_a_partition_is_returned_before_the_answer_is_whole(hangs_up: bool) -> None:
    """And not again where the rest never comes."""
    go = asyncio.Event()
    whole = [large(0)]

    async def fetch(request: Any) -> Any:
        offsets = {part.partition: part.fetch_offset for part in request.topics[0].partitions}
        if offsets == {0: 0, 1: 0}:
            return Held(two([whole, whole]), len(whole[0]) + 100_000, None if hangs_up else go)
        if min(offsets.values()) >= 10:
            await asyncio.sleep(0.05)
        return two([[] if offsets.get(number, 10) else whole for number in (0, 1)])

    async with broker(fetch, lambda: metadata({1: one.port}, {TOPIC: [(1, 1), (1, 1)]})) as one:
        one.handlers[2] = lambda _: ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    TOPIC, [ListOffsetsPartitionResponse(n, offset=0) for n in (0, 1)]
                )
            ]
        )
        async with Consumer(options(one)) as consumer, asyncio.timeout(30):
            consumer.assign([(TOPIC, 0), (TOPIC, 1)])
            taken: list[FetchedBatches] = []
            while not taken:
                taken += await consumer.poll_batches(1_000)
            assert [part.partition for part in taken] == [0]
            assert hangs_up or len(one.of(1)) == 1
            go.set()
            while len(taken) < 2:
                taken += await consumer.poll_batches(100)
            taken += await consumer.poll_batches(200)
    assert [(part.partition, bytes(part.records)) for part in taken] == [
        (0, whole[0]),
        (1, whole[0]),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"auto_offset_reset": "middle"},
        {"isolation_level": "committed"},
        {"partition_assignment_strategy": ["sticky"]},
        {"enable_auto_commit": True},
        {"group_id": ""},
        {"fetch_max_bytes": 0},
        {"fetch_max_wait_ms": 2**31},
        {"bootstrap_servers": ["nowhere"]},
        {"bootstrap_servers": []},
    ],
    ids=str,
)
def test_options_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises((BatchvalError, ValueError)) as raised:
        ConsumerOptions(**wrong)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("native", [True, False])
async def test_records_that_lead_no_further_are_not_asked_for_without_a_pause(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that repeats one batch: each request but the first waits for the backoff."""
    if not native:
        monkeypatch.setattr(Fetcher, "_open_streams", lambda *_: None)
    async with consuming(lambda _: partition(ten(0)), retry_backoff_ms=200) as (one, consumer):
        await read(consumer, 10)
        before = len(one.of(1))
        async with asyncio.timeout(30):
            for _ in range(10):
                await consumer.poll_batches(100)
        assert len(one.of(1)) - before <= 20
