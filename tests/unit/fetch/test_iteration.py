"""``async for`` over a consumer, and polls that wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from batchval.fetch import ConsumerRecord
from batchval.fetch import consumer as consuming_module
from tests.unit.fetch.test_scripted import TOPIC, consuming, log_of, ten

HERE = (TOPIC, 0)


async def test_every_record_once_and_the_position_with_each() -> None:
    async with consuming(log_of([ten(n) for n in range(5)], at_once=2)) as (_, consumer):
        offsets: list[int] = []
        async with asyncio.timeout(30):
            async for record in consumer:
                offsets.append(record.offset)
                assert consumer.position(HERE) == record.offset + 1
                if len(offsets) == 50:
                    break
    assert offsets == list(range(50))


async def test_a_loop_that_was_left_is_begun_again_and_mixed_with_polls() -> None:
    async with consuming(log_of([ten(n) for n in range(4)])) as (_, consumer):
        offsets: list[int] = []
        async with asyncio.timeout(30):
            for end in (3, 14):
                async for record in consumer:
                    offsets.append(record.offset)
                    if len(offsets) == end:
                        break
            offsets += [record.offset for record in await consumer.poll(max_records=2)]
            await consumer.seek(HERE, 38)
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 39:
                    break
    assert offsets == [*range(16), 38, 39]


async def test_cancelled_while_it_waits_it_loses_nothing() -> None:
    batches = [ten(0)]
    async with consuming(log_of(batches)) as (_, consumer):
        offsets: list[int] = []

        async def follow() -> None:
            async for record in consumer:
                offsets.append(record.offset)

        for count in (10, 20):
            task = asyncio.create_task(follow())
            async with asyncio.timeout(30):
                while len(offsets) < count:
                    await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            batches.append(ten(1))
    assert offsets == list(range(20))


@pytest.mark.parametrize("inside", [True, False])
async def test_it_ends_when_the_consumer_is_closed(inside: bool) -> None:
    async with consuming(log_of([ten(0)])) as (_, consumer):
        offsets: list[int] = []

        async def follow() -> None:
            async for record in consumer:
                offsets.append(record.offset)
                if inside and record.offset == 4:
                    await consumer.close()

        async with asyncio.timeout(30):
            task = asyncio.create_task(follow())
            if not inside:
                while len(offsets) < 10:
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.02)  # it waits for the eleventh
                await consumer.close()
            await task
            assert [record async for record in consumer] == []
    assert offsets == list(range(5 if inside else 10))


async def test_a_poll_that_waits_says_that_it_was_closed() -> None:
    async with consuming(log_of([])) as (_, consumer):
        polling = asyncio.create_task(consumer.poll(None))
        await asyncio.sleep(0.05)
        assert not polling.done()
        await consumer.close()
        with pytest.raises(RuntimeError, match="closed during this poll"):
            await polling


async def test_others_have_their_turn_while_records_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consuming_module, "_SLICE_S", 0.0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with consuming(log_of([ten(n) for n in range(30)], at_once=30)) as (_, consumer):
        assert len(await consumer.poll(10_000, max_records=1)) == 1
        task = asyncio.create_task(other())
        before = turns
        async for record in consumer:
            if record.offset == 200:
                break
        task.cancel()
    assert turns - before >= 150


async def test_a_loop_of_polls_does_not_spin_on_an_empty_topic() -> None:
    async with consuming(log_of([])) as (_, consumer):
        polls: list[int] = []

        async def spin(method: Any) -> None:
            while True:
                polls.append(len(await method()))

        for method in (consumer.poll, consumer.poll_batches):
            polls.clear()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(spin(method), 0.3)
            assert polls == [], "a poll waits for 500 ms"
        assert await consumer.poll(0) == []


async def test_a_poll_that_waits_still_counts_as_polling() -> None:
    """Else the group would put a consumer out that waits for longer than max_poll_interval_ms."""
    async with consuming(log_of([]), group_id="g", max_poll_interval_ms=90) as (_, consumer):
        await consumer.seek(HERE, 0)
        polling = asyncio.create_task(consumer.poll(None))
        seen: set[float] = set()
        async with asyncio.timeout(30):
            while len(seen) < 4:
                await asyncio.sleep(0.01)
                assert consumer._group is not None
                seen.add(consumer._group.last_poll_s)
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling


async def test_a_poll_without_a_limit_waits_until_something_comes() -> None:
    batches: list[bytes] = []
    async with consuming(log_of(batches), max_poll_interval_ms=30) as (_, consumer):
        polling: asyncio.Task[list[ConsumerRecord]] = asyncio.create_task(
            consumer.poll(None, max_records=3)
        )
        await asyncio.sleep(0.1)
        assert not polling.done()
        batches.append(ten(0))
        async with asyncio.timeout(30):
            assert [record.offset for record in await polling] == [0, 1, 2]
