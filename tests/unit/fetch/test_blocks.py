"""A consumer whose batches a native thread receives gives what it gave without, whatever brokers
do.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from batchval.core.fetched import walk_fetched
from batchval.errors import BatchvalError, NotABatch
from batchval.fetch import Consumer, FetchedBatches, OffsetOutOfRangeError
from batchval.network.errors import AuthorizationError
from batchval.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tests.support.batches import batch, records
from tests.support.broker_node import BrokerNode, metadata
from tests.support.proxy import eventually
from tests.unit.fetch.test_scripted import (
    TOPIC,
    asked,
    broker,
    log_of,
    options,
    partition,
    read,
    ten,
    two_answers_wait,
)
from tests.unit.fetch.test_streams import (
    WITH_ABORTED,
    Ending,
    Fetch,
    moving,
    natives,
    offset_1000_is_gone,
    with_aborted,
)

PLACE = (TOPIC, 0)
ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def native(fetch: Fetch, **more: Any) -> AsyncIterator[tuple[BrokerNode, Consumer]]:
    """A consumer whose partition the thread has from offset 0 on."""
    async with (
        broker(fetch, lambda: metadata({1: one.port}, {TOPIC: [(1, 1)]})) as one,
        Consumer(options(one, **more)) as consumer,
    ):
        await started(consumer)
        yield one, consumer


async def started(consumer: Consumer) -> None:
    eventually(lambda: not natives())  # those of consumers before
    consumer.assign([PLACE])
    await consumer.seek(PLACE, 0)
    consumer.pause(PLACE)
    async with asyncio.timeout(30):
        while not natives():
            await consumer.poll_batches(20)
    consumer.resume(PLACE)


def joined(taken: list[FetchedBatches]) -> bytes:
    return b"".join(bytes(one.records) for one in taken)


async def test_batches_come_from_a_thread_that_ends_with_the_consumer() -> None:
    batches = [ten(n) for n in range(50)]
    async with native(log_of(batches)) as (one, consumer):
        taken = await read(consumer, 500)
        assert len(natives()) == 1
        assert [asked(request) for request in one.of(1)][:50] == list(range(0, 500, 10))
        metrics = consumer.metrics
        assert metrics.bytes == 50 * len(ten(0))
        assert metrics.answers >= 50
        assert 0 < metrics.fetch_latency_ms_max <= metrics.fetch_latency_ms
    assert joined(taken) == b"".join(batches)
    assert {one.high_watermark for one in taken} == {1000}
    assert [(one.fetch_offset, one.next_offset) for one in taken] == [
        (n, n + 10) for n in range(0, 500, 10)
    ]
    assert consumer.metrics.requests >= 50
    eventually(lambda: not natives())


async def test_records_one_by_one() -> None:
    async with native(log_of([ten(n) for n in range(20)], at_once=3)) as (_, consumer):
        offsets: list[int] = []
        async with asyncio.timeout(30):
            while len(offsets) < 100:
                offsets += [record.offset for record in await consumer.poll(100, 7)]
            async for record in consumer:
                assert consumer.position(PLACE) == record.offset + 1
                offsets.append(record.offset)
                if len(offsets) == 200:
                    break
    assert offsets == list(range(200))


async def test_two_blocks_wait_and_no_more() -> None:
    batches = [ten(n) for n in range(40)]
    async with native(log_of(batches)) as (one, consumer):
        taken = await two_answers_wait(one, consumer)
        taken += await read(consumer, 400)
    assert joined(taken) == b"".join(batches)


async def test_batches_outlive_the_consumer() -> None:
    batches = [batch(records(10, value=bytes(50_000)), base_offset=10 * n) for n in range(4)]
    async with native(log_of(batches)) as (_, consumer):
        taken = await read(consumer, 40)
    del consumer
    gc.collect()
    assert joined(taken) == b"".join(batches)


def test_the_thread_of_a_consumer_that_is_not_closed_ends_with_it() -> None:
    async def leave() -> None:
        async with broker(
            log_of([ten(0)]), lambda: metadata({1: one.port}, {TOPIC: [(1, 1)]})
        ) as one:
            consumer = Consumer(options(one))
            await consumer.__aenter__()
            await started(consumer)
            await read(consumer, 10)
            assert len(natives()) == 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(leave())
        gc.collect()
        eventually(lambda: not natives())


@pytest.mark.parametrize("error", [6, 74])
async def test_a_leader_that_moves(error: int) -> None:
    batches = [ten(n) for n in range(6)]
    async with moving(batches, error) as (one, two), Consumer(options(one)) as consumer:
        await started(consumer)
        taken = await read(consumer, 60)
    assert joined(taken) == b"".join(batches)
    assert asked(two.of(1)[0]) == 30


async def test_a_broker_that_hangs_up() -> None:
    batches, left = [ten(n) for n in range(9)], [None, None, None]

    def fetch(request: Any) -> Any:
        return left.pop() if left and asked(request) in (20, 50) else log_of(batches)(request)

    async with native(fetch) as (_, consumer):
        taken = await read(consumer, 90)
    assert left == []
    assert joined(taken) == b"".join(batches)


async def test_a_thread_that_ends_is_replaced() -> None:
    """It ends by itself for lack of memory alone."""
    batches = [ten(n) for n in range(50)]
    fetch = Ending(log_of(batches))
    async with native(fetch) as (_, consumer):
        fetch.consumer = consumer
        taken = await read(consumer, 500)
        assert fetch.ended
    assert joined(taken) == b"".join(batches)
    eventually(lambda: not natives())


async def test_an_offset_that_is_gone_is_reset_or_raised() -> None:
    async with native(offset_1000_is_gone) as (_, consumer):
        await consumer.seek(PLACE, 1000)
        assert len(joined(await read(consumer, 30))) == 3 * len(ten(0))
    async with native(offset_1000_is_gone, auto_offset_reset="none") as (_, consumer):
        await consumer.seek(PLACE, 1000)
        with pytest.raises(OffsetOutOfRangeError, match="t-0 at offset 1000"):
            await read(consumer, 30)


async def test_what_is_refused_is_raised() -> None:
    async with native(lambda _: partition(error=29)) as (_, consumer):
        with pytest.raises(AuthorizationError, match="TOPIC_AUTHORIZATION_FAILED"):
            await read(consumer, 10)


async def test_damage_is_raised_with_its_place_after_what_came_before_it() -> None:
    batches = [ten(0), ten(1, crc=1), ten(2)]
    async with native(log_of(batches, at_once=3), check_crcs=True) as (_, consumer):
        taken = await read(consumer, 10)
        with pytest.raises(NotABatch, match=r"t-0 at offset 10: the batch at byte 0 .*crc"):
            await read(consumer, 30)
        assert consumer.position(PLACE) == 10
        await consumer.seek(PLACE, 20)
        while consumer.position(PLACE) != 30:
            try:
                taken += await read(consumer, 30)
            except NotABatch:  # raised before the seek
                continue
    assert joined(taken) == ten(0) + ten(2)


async def test_what_came_before_damage_comes_first_for_a_caller_that_is_slow() -> None:
    batches = [ten(0), ten(1, crc=1)]
    async with native(log_of(batches, at_once=2), check_crcs=True) as (_, consumer):
        polled = [await consumer.poll_batches(0)]
        await asyncio.sleep(0.3)  # the damage is met again meanwhile
        while not polled[-1]:
            polled.append(await consumer.poll_batches(100))
        assert joined(polled[-1]) == ten(0)
        with pytest.raises(NotABatch, match="t-0 at offset 10"):
            await read(consumer, 20)


async def test_an_offset_that_cannot_be_asked_for_loses_nothing() -> None:
    async with native(log_of([ten(n) for n in range(9)])) as (_, consumer):
        for offset in (-1, 2**63):
            with pytest.raises(BatchvalError, match=f"invalid offset {offset}: expected 0 to"):
                await consumer.seek(PLACE, offset)
        assert joined(await read(consumer, 90)) == b"".join(ten(n) for n in range(9))


async def test_a_process_without_descriptors_goes_on_when_it_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = [OSError(24, "Too many open files")]
    dup = os.dup

    def failing(descriptor: int) -> int:
        if failures:
            raise failures.pop()
        return dup(descriptor)

    monkeypatch.setattr(os, "dup", failing)
    async with native(log_of([ten(n) for n in range(9)])) as (_, consumer):
        assert failures == []
        assert joined(await read(consumer, 90)) == b"".join(ten(n) for n in range(9))


async def test_counting_replaces_what_hands_over() -> None:
    async with native(log_of([ten(n) for n in range(9)])) as (_, consumer):
        consumer.assign([])
        consumer.count_only("headers")
        consumer.assign([PLACE])
        await consumer.seek(PLACE, 0)
        records = 0
        async with asyncio.timeout(30):
            while records < 90:
                counted, taken = await consumer.poll_counts(50)
                assert counted is not None
                records += counted.records + sum(
                    walk_fetched(one.records, one.fetch_offset).records for one in taken
                )
        assert records == 90
        assert len(natives()) <= 1
    eventually(lambda: not natives())


@pytest.mark.long
def test_a_child_of_a_fork_ends() -> None:
    """It has no such thread, whose turn it would wait for."""
    script = """
import asyncio, os, signal
from tests.unit.fetch.test_blocks import log_of, native, ten

async def main():
    async with native(log_of([ten(n) for n in range(9)])):
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(0) if not collected() else os._exit(1)
            assert os.waitpid(child, 0)[1] == 0

def collected():
    import weakref
    for one in list(weakref.finalize._registry):
        if one.peek()[1].__name__ == "abandon":
            one()
            return False
    return True

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)


async def test_batches_of_aborted_transactions_are_left_out() -> None:
    async with native(with_aborted, isolation_level="read_committed") as (_, consumer):
        taken = await read(consumer, 31)
    assert WITH_ABORTED[1] in joined(taken)
    assert WITH_ABORTED[0] not in joined(taken)


async def test_what_came_before_a_seek_is_dropped() -> None:
    async with native(log_of([ten(n) for n in range(50)])) as (_, consumer):
        taken = await consumer.poll_batches(10_000)
        await asyncio.sleep(0.1)  # two wait
        await consumer.seek(PLACE, 300)
        taken = await read(consumer, 500)
        assert [one.fetch_offset for one in taken] == list(range(300, 500, 10))


async def test_what_has_come_stays_while_a_partition_is_paused() -> None:
    async with native(log_of([ten(n) for n in range(50)])) as (one, consumer):
        taken = await consumer.poll_batches(10_000)
        await asyncio.sleep(0.1)
        consumer.pause(PLACE)
        assert await consumer.poll_batches(100) == []
        requests = len(one.of(1))
        assert await consumer.poll_batches(100) == []
        assert len(one.of(1)) == requests
        consumer.resume(PLACE)
        taken += await read(consumer, 500)
        assert [asked(request) for request in one.of(1)][:50] == list(range(0, 500, 10))
    assert [one.fetch_offset for one in taken] == list(range(0, 500, 10))


async def test_partitions_that_are_lost_give_nothing() -> None:
    async with native(log_of([ten(n) for n in range(5)])) as (_, consumer):
        await read(consumer, 50)
        consumer.assign([])
        assert await consumer.poll_batches(20) == []
        consumer.assign([PLACE])
        await consumer.seek(PLACE, 30)
        assert [one.fetch_offset for one in await read(consumer, 50)] == [30, 40]


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_several_partitions_and_a_broker_that_hangs_up(hangs_up: bool) -> None:
    log = [ten(n) for n in range(30)]

    async def fetch(request: Any) -> Any:
        nonlocal hangs_up
        parts = {one.partition: one.fetch_offset for one in request.topics[0].partitions}
        if hangs_up and len(parts) == 4 and min(parts.values()) >= 50:
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
    taken: list[FetchedBatches] = []
    async with (
        broker(fetch, lambda: metadata({1: one.port}, {TOPIC: [(1, 1)] * 4})) as one,
        Consumer(options(one)) as consumer,
        asyncio.timeout(30),
    ):
        consumer.assign(places)
        for place in places:
            await consumer.seek(place, 0)
        while any(consumer.position(place) != 300 for place in places):
            taken += await consumer.poll_batches(100)
    for number in range(4):
        mine = [one for one in taken if one.partition == number]
        assert joined(mine) == b"".join(log)
    assert not hangs_up
