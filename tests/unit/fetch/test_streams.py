"""Counting natively finds what reading does, whatever brokers do, and errors reach the caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from batchval.core.fetched import walk_fetched
from batchval.errors import NotABatch
from batchval.fetch import Consumer, OffsetOutOfRangeError
from batchval.fetch.receiver import Quota
from batchval.network.errors import AuthorizationError
from batchval.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tests.support.batches import batch, records
from tests.support.broker_node import BrokerNode, metadata
from tests.support.proxy import eventually
from tests.unit.fetch.test_scripted import TOPIC, asked, broker, log_of, options, partition, ten

Fetch = Callable[[Any], Any]


def natives() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "batchval-fetch"]


@asynccontextmanager
async def counting(
    fetch: Fetch, quota: Quota | None = None, decode: str = "records", **more: Any
) -> AsyncIterator[tuple[BrokerNode, Consumer]]:
    """A consumer whose partition is fetched natively as soon as it is paused no more."""
    async with (
        broker(fetch, lambda: metadata({1: one.port}, {TOPIC: [(1, 1)]})) as one,
        Consumer(options(one, **more)) as consumer,
    ):
        await started(consumer, decode, quota)
        yield one, consumer


async def started(consumer: Consumer, decode: str = "records", quota: Quota | None = None) -> None:
    eventually(lambda: not natives())  # those of consumers before
    consumer.count_only(decode, quota)
    consumer.assign([(TOPIC, 0)])
    await consumer.seek((TOPIC, 0), 0)
    consumer.pause((TOPIC, 0))
    async with asyncio.timeout(30):
        while not natives():
            await consumer.poll_counts(20)
    consumer.resume((TOPIC, 0))


def offset_1000_is_gone(request: Any) -> Any:
    """Answer with 30 records, or OFFSET_OUT_OF_RANGE."""
    if asked(request) == 1000:
        return partition(error=1)
    return log_of([ten(n) for n in range(3)])(request)


#: an aborted batch, one of another producer, the marker, and ten records
ABORTED = {"attributes": 16, "producer_id": 9, "producer_epoch": 0}
WITH_ABORTED = [
    ten(0, **ABORTED),
    ten(1),
    batch(records(1, key=b"\0\0\0\0"), base_offset=20, **{**ABORTED, "attributes": 48}),
    batch(records(10), base_offset=21),
]


async def with_aborted(request: Any) -> FetchResponse:
    """Answer from WITH_ABORTED as a broker does for read_committed."""
    at = asked(request)
    first = sum(at >= end for end in (10, 20, 21, 31))
    if not (data := b"".join(WITH_ABORTED[first:])):
        await asyncio.sleep(0.05)
    part = PartitionData(0, 0, 31, 31, records=data)
    part.aborted_transactions = [AbortedTransaction(9, 0)] if at < 21 else None
    return FetchResponse(responses=[FetchableTopicResponse(TOPIC, partitions=[part])])


class Total:
    """What was counted natively, and what came otherwise."""

    def __init__(self) -> None:
        self.native = self.other = 0

    @property
    def records(self) -> int:
        return self.native + self.other

    async def until(self, consumer: Consumer, position: int) -> None:
        async with asyncio.timeout(30):
            while consumer.position((TOPIC, 0)) != position:
                await self.poll(consumer)
        await self.poll(consumer, 0)

    async def poll(self, consumer: Consumer, timeout_ms: float = 20) -> None:
        counted, came = await consumer.poll_counts(timeout_ms)
        self.native += counted.records if counted is not None else 0
        self.other += sum(walk_fetched(one.records, one.fetch_offset).records for one in came)


async def test_records_are_counted_by_a_thread_that_ends_with_the_consumer() -> None:
    total = Total()
    async with counting(log_of([ten(n) for n in range(50)])) as (one, consumer):
        await total.until(consumer, 500)
        assert len(natives()) == 1
        assert [asked(request) for request in one.of(1)][:50] == list(range(0, 500, 10))
        assert consumer.metrics.requests >= 50
        assert consumer.metrics.bytes == 50 * len(ten(0))
    assert (total.native, total.other) == (500, 0)
    eventually(lambda: not natives())


class Ending:
    """Answers as ``fetch`` does; from offset 200 on it stops the thread of ``consumer``, once."""

    consumer: Consumer

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self.ended = False

    def __call__(self, request: Any) -> Any:
        if asked(request) >= 200 and not self.ended:
            self.ended = True
            streams = self.consumer._fetcher.streams
            assert streams is not None
            assert streams._thread is not None
            streams._thread.stop()
        return self.fetch(request)


async def test_a_thread_that_ends_is_replaced() -> None:
    """It ends by itself for lack of memory alone."""
    total, fetch = Total(), Ending(log_of([ten(n) for n in range(50)]))
    async with counting(fetch) as (_, consumer):
        fetch.consumer = consumer
        await total.until(consumer, 500)
        assert fetch.ended
        async with asyncio.timeout(30):
            while not natives():
                await total.poll(consumer)
    assert total.records == 500
    eventually(lambda: not natives())


async def test_a_close_that_is_cancelled_ends_the_thread_too() -> None:
    async with counting(log_of([ten(0)])) as (_, consumer):
        await Total().until(consumer, 10)
        leaving = asyncio.get_running_loop().create_future()

        async def leave() -> None:
            await leaving

        group = SimpleNamespace(leave=leave)
        consumer._group = group  # type: ignore[assignment]
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        eventually(lambda: not natives())


@asynccontextmanager
async def moving(batches: list[bytes], error: int) -> AsyncIterator[tuple[BrokerNode, BrokerNode]]:
    """A leader that answers with this error from offset 30 on, and the one that leads then."""
    ports, moved = dict[int, int](), False

    def leaders() -> Any:
        return metadata(ports, {TOPIC: [(2, 8) if moved else (1, 7)]})

    def first(request: Any) -> Any:
        nonlocal moved
        if asked(request) < 30:
            return log_of(batches)(request)
        moved = True
        return partition(error=error)

    async with broker(first, leaders) as one, broker(log_of(batches), leaders, 2) as two:
        ports |= {1: one.port, 2: two.port}
        yield one, two


@pytest.mark.parametrize("error", [6, 74])
async def test_a_leader_that_moves(error: int) -> None:
    batches, total = [ten(n) for n in range(6)], Total()
    async with moving(batches, error) as (one, two), Consumer(options(one)) as consumer:
        await started(consumer)
        await total.until(consumer, 60)
    assert total.records == 60
    assert total.native >= 30
    assert asked(two.of(1)[0]) == 30


async def test_a_broker_that_hangs_up() -> None:
    batches, left, total = [ten(n) for n in range(9)], [None, None, None], Total()

    def fetch(request: Any) -> Any:
        return left.pop() if left and asked(request) in (20, 50) else log_of(batches)(request)

    async with counting(fetch) as (_, consumer):
        await total.until(consumer, 90)
    assert left == []
    assert total.records == 90
    assert total.native > 0


async def test_the_thread_goes_on_where_a_partition_came_back() -> None:
    log, errors, total = [ten(n) for n in range(60)], [6], Total()

    def fetch(request: Any) -> Any:
        if errors and asked(request) == 200:
            return partition(error=errors.pop())
        return log_of(log)(request)

    async with counting(fetch) as (_, consumer):
        await total.until(consumer, 600)
    assert total.records == 600
    assert total.other == 10


async def test_an_offset_that_is_gone_is_reset_or_raised() -> None:
    total = Total()
    async with counting(offset_1000_is_gone) as (_, consumer):
        await consumer.seek((TOPIC, 0), 1000)
        await total.until(consumer, 30)
    assert total.records == 30
    async with counting(offset_1000_is_gone, auto_offset_reset="none") as (_, consumer):
        await consumer.seek((TOPIC, 0), 1000)
        with pytest.raises(OffsetOutOfRangeError, match="t-0 at offset 1000"):
            await total.until(consumer, 30)


async def test_what_is_refused_is_raised() -> None:
    async with counting(lambda _: partition(error=29)) as (_, consumer):
        with pytest.raises(AuthorizationError, match="TOPIC_AUTHORIZATION_FAILED"):
            await Total().until(consumer, 10)


async def test_damage_is_raised_with_its_place_and_what_came_before_it_is_counted() -> None:
    batches, total = [ten(0), ten(1, crc=1), ten(2)], Total()
    async with counting(log_of(batches, at_once=3), check_crcs=True) as (_, consumer):
        with pytest.raises(NotABatch, match=r"t-0 at offset 10: the batch at byte 0 .*crc"):
            await total.until(consumer, 30)
        await total.poll(consumer, 0)
        assert (total.native, consumer.position((TOPIC, 0))) == (10, 10)
        await consumer.seek((TOPIC, 0), 20)
        while consumer.position((TOPIC, 0)) != 30:
            try:
                await total.until(consumer, 30)
            except NotABatch:  # raised before the seek
                continue
    assert total.records == 20


async def test_batches_of_aborted_transactions_are_not_counted() -> None:
    total = Total()
    async with counting(with_aborted, isolation_level="read_committed") as (_, consumer):
        await total.until(consumer, 31)
    assert total.records == 20


@pytest.mark.parametrize("decode", ["headers", "records"])
async def test_the_quota_is_kept_to_the_record(decode: str) -> None:
    total, quota = Total(), Quota(123)
    async with counting(log_of([ten(n) for n in range(50)], at_once=3), quota, decode) as (
        one,
        consumer,
    ):
        async with asyncio.timeout(30):
            while quota.remaining:
                await total.poll(consumer, 10_000)  # a quota that is used up ends a poll
        await total.poll(consumer, 0)
        assert (total.native, consumer.position((TOPIC, 0))) == (123, 123)
        requests = len(one.of(1))
        await total.poll(consumer, 30)
        assert len(one.of(1)) == requests
    assert total.records == 123


async def test_seeks_and_pauses_are_followed() -> None:
    total = Total()
    async with counting(log_of([ten(n) for n in range(5)])) as (one, consumer):
        await total.until(consumer, 50)
        await consumer.seek((TOPIC, 0), 15)
        await total.until(consumer, 50)
        assert total.native == 85
        consumer.pause((TOPIC, 0))
        await total.poll(consumer, 100)
        requests = len(one.of(1))
        await total.poll(consumer, 100)
        assert len(one.of(1)) <= requests + 1
        consumer.resume((TOPIC, 0))
        await consumer.seek((TOPIC, 0), 40)
        await total.until(consumer, 50)
    assert total.records == 95


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_two_connections_share_a_leaders_partitions(hangs_up: bool) -> None:
    """And where one ends, the other has all of them until there are two again."""
    seen: list[frozenset[int]] = []
    log = [ten(n) for n in range(30)]

    async def fetch(request: Any) -> Any:
        nonlocal hangs_up
        parts = {one.partition: one.fetch_offset for one in request.topics[0].partitions}
        seen.append(frozenset(parts))
        if hangs_up and len(parts) == 2 and min(parts.values()) >= 50:
            hangs_up = False
            return None
        data = {number: b"".join(log[at // 10 : at // 10 + 1]) for number, at in parts.items()}
        if not any(data.values()):
            await asyncio.sleep(0.05)
        answers = [
            PartitionData(number, 0, 300, 300, records=some) for number, some in data.items()
        ]
        return FetchResponse(responses=[FetchableTopicResponse(TOPIC, partitions=answers)])

    places = [(TOPIC, number) for number in range(4)]
    total = Total()
    async with (
        broker(fetch, lambda: metadata({1: one.port}, {TOPIC: [(1, 1)] * 4})) as one,
        Consumer(options(one)) as consumer,
        asyncio.timeout(30),
    ):
        consumer.count_only("records")
        consumer.assign(places)
        for place in places:
            await consumer.seek(place, 0)
        while any(consumer.position(place) != 300 for place in places):
            await total.poll(consumer)
        while sorted(map(len, set(seen[-2:]))) != [2, 2]:
            await total.poll(consumer)
    assert total.records == 1200
    assert not hangs_up


async def test_partitions_that_are_lost_are_not_counted() -> None:
    total = Total()
    async with counting(log_of([ten(n) for n in range(5)])) as (_, consumer):
        await total.until(consumer, 50)
        consumer.assign([])
        await total.poll(consumer, 20)
        consumer.assign([(TOPIC, 0)])
        await consumer.seek((TOPIC, 0), 30)
        await total.until(consumer, 50)
    assert total.records == 70


async def test_a_broker_that_speaks_no_version_of_these_is_read_otherwise() -> None:
    total = Total()
    async with broker(
        log_of([ten(n) for n in range(5)]), lambda: metadata({1: one.port}, {TOPIC: [(1, 1)]})
    ) as one:
        one.ranges = {1: (13, 13)}
        async with Consumer(options(one)) as consumer:
            consumer.count_only("records")
            consumer.assign([(TOPIC, 0)])
            with pytest.raises(Exception, match="speaks API 1 13-13"):
                await total.until(consumer, 50)
            assert not natives()


async def test_counting_comes_before_partitions() -> None:
    async with counting(log_of([])) as (_, consumer):
        with pytest.raises(RuntimeError, match="count_only comes first"):
            consumer.count_only("headers")
