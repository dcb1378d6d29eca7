"""The budget that sessions share: which are admitted, paused, resumed and closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from batchval.proxy.session import budget as module
from batchval.proxy.session.budget import (
    GRANT_S,
    GRANTS,
    LONG_TURN_S,
    LOOK_S,
    MIN_ADDRESS_CONNECTIONS,
    SMALL,
    STILL_S,
    UNTAKEN_S,
    Budget,
)
from batchval.proxy.settings.config import Limits
from batchval.proxy.settings.options import Counters
from tests.support.clock import run_at_once
from tests.support.proxy import limits_with

MB = 1 << 20
LIMIT = 64 * MB


class One:
    """A session, as far as the budget knows it."""

    def __init__(self, held: int = 0, partial: int = 0, size: int = 0) -> None:
        self.address, self.counted = "10.0.0.1", 0
        self.bytes_held, self.partial, self.size = held, partial, size
        self.answer = 0  # bytes of an answer in part
        self.left = 0  # bytes of answers that nobody has taken
        self.reading = self.spoke = True
        self.connections = self
        self.requests = SimpleNamespace(held=lambda: 0)
        self.waits = False  # for its turn, or for its broker
        self.ended = ""
        self.in_kernel = 1  # bytes that nobody has read

    def unread(self) -> int:
        return self.in_kernel

    def held(self) -> int:
        return self.bytes_held

    def partial_bytes(self) -> int:
        return self.partial

    def answer_bytes(self) -> int:
        return self.answer

    def unwritten(self) -> int:
        return self.left

    def partial_held(self) -> int:
        return self.partial + self.answer

    def partial_size(self) -> int:
        return self.size

    def is_read(self) -> bool:
        return not self.waits

    def pause(self) -> None:
        self.reading = False

    def go_on(self) -> None:
        self.reading = True

    def abort(self, why: str) -> None:
        self.ended = why


@pytest.fixture
def total(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the memory that frames take."""
    held = [0]
    monkeypatch.setattr(module, "allocated", lambda: held[0])
    monkeypatch.setattr(module, "limit_memory", lambda limit: None)
    monkeypatch.setattr(module, "LOOKED_S", 60.0)  # of the machine's own clock
    return lambda value: held.__setitem__(0, value)


def run(test: Callable[[Budget], Coroutine[Any, Any, None]], **limits: Any) -> None:
    async def started() -> None:
        budget = Budget(limits_with(max_bytes_held=LIMIT, **limits), Counters())
        budget.start(asyncio.get_running_loop())
        await test(budget)

    run_at_once(started())


def test_connections_are_bounded_in_all_and_by_address(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        assert [budget.admit("a", 0, 100) for _ in range(3)] == [
            None,
            None,
            "max_connections_per_address",
        ]
        assert budget.admit("b", 100, 100) == "max_listener_connections"
        assert [budget.admit("b", 0, 100) for _ in range(3)] == [None, None, "max_connections"]
        counters = budget.counters
        assert counters.connections_open == counters.connections_total == 4
        assert counters.connections_refused_total == 3
        assert counters.connections_refused_by == {
            "max_connections": 1,
            "max_connections_per_address": 1,
            "max_listener_connections": 1,
        }
        left = One()
        left.address = "a"
        budget.release(left, left.address)
        assert budget.admit("a", 0, 100) is None

    run(test, max_connections=4, max_connections_per_address=2)


def test_one_address_has_half_of_the_connections(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        assert budget.max_address_connections == 5000

    run(test, max_connections=10_000)

    async def few(budget: Budget) -> None:
        assert budget.max_address_connections == MIN_ADDRESS_CONNECTIONS

    run(few, max_connections=20)


def test_who_holds_much_stops_before_who_holds_little(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        much, little, nothing = One(SMALL + 1), One(SMALL), One(0)
        total(budget.threshold + 1)
        for one in (much, little, nothing):
            budget.look(one, spoke=one.spoke)
        assert [one.reading for one in (much, little, nothing)] == [False, True, True]
        stranger = One(1)
        stranger.spoke = False
        budget.look(stranger, spoke=stranger.spoke)
        assert not stranger.reading
        total(LIMIT + 1)
        for one in (much, little, nothing):
            budget.look(one, spoke=one.spoke)
        assert [one.reading for one in (much, little, nothing)] == [False, True, True]
        total(LIMIT + budget.beyond + 1)
        for one in (much, little, nothing):
            budget.look(one, spoke=one.spoke)
        assert [one.reading for one in (much, little, nothing)] == [False, False, True]
        total(0)
        budget.look(nothing, spoke=nothing.spoke)
        assert much.reading
        assert little.reading

    run(test)


def test_frames_in_part_do_not_wait_for_each_other(total: Callable[[int], None]) -> None:
    # All that is held are frames in part: a few at a time may be finished.
    async def test(budget: Budget) -> None:
        ones = [One(MB, MB, SMALL) for _ in range(80)]
        total(80 * MB)
        for one in ones:
            budget.look(one, spoke=one.spoke)
        assert not any(one.reading for one in ones)
        finished = 0
        for _ in range(200):
            await asyncio.sleep(LOOK_S / 2)
            going = [one for one in ones if one.reading and one.partial]
            if budget.held > budget.threshold:
                assert len(going) <= GRANTS
            for one in going:
                one.partial = one.bytes_held = 0
                finished += 1
                total((80 - finished) * MB)
                budget.look(one, spoke=one.spoke)
            if finished == 80:
                break
        assert finished == 80
        assert not any(one.ended for one in ones)

    run(test)


def test_one_large_frame_at_a_time(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        ones = [One(20 * MB, 20 * MB, 30 * MB) for _ in range(4)]
        total(80 * MB)
        for one in ones:
            budget.look(one, spoke=one.spoke)
        await asyncio.sleep(2 * LOOK_S)
        assert sum(one.reading for one in ones) == 1

    run(test)


def test_one_large_answer_goes_on_until_it_is_whole(total: Callable[[int], None]) -> None:
    # With a moment each, all of them would grow, and none would be whole.
    async def test(budget: Budget) -> None:
        ones = [One(3 * MB, 0, 4 * MB) for _ in range(30)]
        for one in ones:
            one.answer = 3 * MB
        total(90 * MB)
        for one in ones:
            budget.look(one, spoke=one.spoke)
        first = None
        for _ in range(50):
            await asyncio.sleep(LOOK_S / 2)
            going = [one for one in ones if one.reading]
            assert len(going) <= 1
            for one in going:
                first = first or one
                assert one is first
                one.answer += 1000
                budget.look(one, spoke=one.spoke)
                assert one.reading
        assert first is not None
        first.answer = 0
        budget.look(first, spoke=first.spoke)
        assert not first.reading
        await asyncio.sleep(2 * LOOK_S)
        (second,) = [one for one in ones if one.reading]
        assert second is not first
        await asyncio.sleep(GRANT_S + 3 * LOOK_S)  # it does not grow
        assert not second.reading
        assert sum(one.reading for one in ones) == 1
        assert not any(one.ended for one in ones)

    run(test)


def test_the_frame_that_does_not_grow_is_closed(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        silent, growing = One(40 * MB, 40 * MB, 50 * MB), One(30 * MB, 30 * MB, SMALL)
        total(70 * MB)
        for one in (silent, growing):
            budget.look(one, spoke=one.spoke)
        until = asyncio.get_running_loop().time() + 20 * GRANT_S
        while not silent.ended and asyncio.get_running_loop().time() < until:
            growing.partial += growing.reading
            await asyncio.sleep(LOOK_S / 5)
        assert silent.ended == "frame_slow"
        assert not growing.ended
        assert budget.counters.frames_evicted_total == 1

    run(test)


def test_paused_frames_that_do_not_grow_are_closed_together(total: Callable[[int], None]) -> None:
    # Nothing of theirs waits in the kernel: their clients do not send.
    async def test(budget: Budget) -> None:
        silent = [One(MB, MB, SMALL) for _ in range(50)]
        sending = [One(MB, MB, SMALL) for _ in range(50)]
        for one in (*silent, *sending):
            one.spoke = False
            one.in_kernel = 0 if one in silent else 1
        total(100 * MB)
        for one in (*silent, *sending):
            budget.look(one, spoke=one.spoke)
        await asyncio.sleep(GRANT_S + 8 * LOOK_S)
        ended = sum(one.ended == "frame_slow" for one in silent)
        assert ended >= (100 * MB - budget.threshold) // MB
        assert budget.counters.frames_evicted_total >= ended
        assert not any(one.ended for one in sending if not one.reading)

    run(test)


def test_reads_of_a_long_turn_bring_little() -> None:
    async def test(budget: Budget) -> None:
        assert not budget.is_turn_long()
        assert not budget.spare.is_short
        time.sleep(1.2 * LONG_TURN_S)
        assert budget.is_turn_long()
        assert budget.spare.is_short
        await asyncio.sleep(0)
        assert not budget.spare.is_short
        assert not budget.is_turn_long()

    run(test)


def test_a_frame_that_waits_for_the_gate_is_not_closed(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        waiting = One(40 * MB, 40 * MB, 50 * MB)
        waiting.waits, waiting.in_kernel = True, 0
        total(70 * MB)
        budget.look(waiting, spoke=waiting.spoke)
        await asyncio.sleep(3 * GRANT_S)
        assert not waiting.ended

    run(test)


def test_nobody_goes_on_while_whole_requests_are_above_the_limit(
    total: Callable[[int], None],
) -> None:
    async def test(budget: Budget) -> None:
        ones = [One(MB) for _ in range(80)]
        total(80 * MB)
        for one in ones:
            budget.look(one, spoke=one.spoke)
        await asyncio.sleep(3 * LOOK_S)
        assert not any(one.reading for one in ones)
        await asyncio.sleep(STILL_S + 3 * LOOK_S)
        assert not any(one.reading for one in ones)
        total(LIMIT + budget.beyond)  # a little above the limit, one goes on all the same
        await asyncio.sleep(STILL_S + 4 * LOOK_S)
        assert sum(one.reading for one in ones) == 1
        assert not any(one.ended for one in ones)

    run(test)


def test_clients_that_take_nothing_are_closed_above_the_limit(total: Callable[[int], None]) -> None:
    # The one that holds most first, and no more of them than it takes.
    async def test(budget: Budget) -> None:
        large, small, slow = One(3 * MB), One(2 * MB), One(4 * MB)
        paused = One(60 * MB)
        for one in (large, small, slow):
            one.left = one.bytes_held
            budget.note_full(one, True)
        drained = One(5 * MB)
        budget.note_full(drained, True)
        budget.note_full(drained, False)
        total(LIMIT + 1)
        budget.look(paused, spoke=paused.spoke)

        def abort(why: str) -> None:
            large.ended = why
            budget.release(large, large.address)
            total(LIMIT)

        large.abort = abort  # type: ignore[method-assign]
        for _ in range(int(1.5 * UNTAKEN_S)):
            slow.left -= 1  # it takes something
            await asyncio.sleep(1.0)
        assert large.ended == "answers_untaken"
        assert not any(one.ended for one in (small, slow, drained))
        assert budget.counters.answers_evicted_total == 1

    run(test)


def test_work_takes_turns(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        done: list[str] = []

        def work(name: str, seconds: float = 0.0) -> Callable[[], None]:
            def call() -> None:
                done.append(name)
                until = time.perf_counter() + seconds
                while time.perf_counter() < until:
                    pass

            return call

        for name in ("a1", "a2", "a3"):
            budget.take_turn(work(name), "a")
        budget.take_turn(work("b1"), "b")
        assert done == []
        await asyncio.sleep(0)
        assert done == ["a1", "b1", "a2", "a3"]  # senders in turn, all in one turn of the loop

        done.clear()
        for name in ("c", "d"):
            budget.take_turn(work(name, 0.003), name)  # more than a turn's time
        await asyncio.sleep(0)
        assert done == ["c"]
        await asyncio.sleep(0)
        assert done == ["c", "d"]

    run(test)


def test_work_that_asks_for_another_turn_gets_a_later_one(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        done: list[int] = []

        def again() -> None:
            done.append(len(done))
            if len(done) < 3:
                budget.take_turn(again)

        budget.take_turn(again)
        seen = []
        for _ in range(4):
            seen.append(len(done))
            await asyncio.sleep(0)
        assert seen == [0, 1, 2, 3]

    run(test)


def test_what_is_held_is_what_frames_take_and_what_is_made(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        total(5 * MB)
        one = One()
        budget.count(one, 100)
        budget.count(one, 70)
        assert budget.measure() == budget.counters.bytes_held == 5 * MB + 70
        budget.counters.connections_open = 1
        budget.release(one, one.address)
        assert budget.held == 5 * MB

    run(test)


def test_large_requests_come_one_after_the_other(total: Callable[[int], None]) -> None:
    async def test(budget: Budget) -> None:
        size = budget.threshold // 2 + 1
        ones = [One(MB, MB, size) for _ in range(3)]
        for one in ones:
            budget.begin_large(one, size)
        assert [one.reading for one in ones] == [True, False, False]
        for n in range(3):
            ones[n].partial = 0
            budget.end_large(ones[n])
            assert [one.reading for one in ones] == [True] * min(n + 2, 3) + [False] * (1 - n)
        small = [One(MB, MB, budget.large + 1) for _ in range(3)]
        for one in small:
            budget.begin_large(one, one.size)
        assert all(one.reading for one in small)

    run(test)


def test_a_large_request_that_stalls_gives_way(total: Callable[[int], None]) -> None:
    # Only where another waits, and only where nothing of it waits to be read.
    async def test(budget: Budget) -> None:
        size = budget.threshold
        stalled, next_one = One(MB, MB, size), One(MB, MB, size)
        stalled.in_kernel = 0
        budget.begin_large(stalled, size)
        await asyncio.sleep(GRANT_S + 3 * LOOK_S)
        assert not stalled.ended
        budget.begin_large(next_one, size)
        assert not next_one.reading
        until = asyncio.get_running_loop().time() + 20 * GRANT_S
        while not stalled.ended and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(LOOK_S)
        assert stalled.ended == "frame_slow"
        budget.counters.connections_open = 1
        budget.release(stalled, stalled.address)
        assert next_one.reading

    run(test)


def test_senders_follow_each_other_whatever_the_number_of_their_connections() -> None:
    async def run() -> list[str]:
        budget = Budget(Limits(), Counters())
        budget.start(asyncio.get_running_loop())
        order: list[str] = []
        for n in range(5):
            budget.take_turn(lambda n=n: order.append(f"many {n}"), "many")  # type: ignore[misc]
        budget.take_turn(lambda: order.append("one"), "one")
        while len(order) < 6:
            await asyncio.sleep(0)
        assert not budget._turns
        return order

    assert asyncio.run(run()) == ["many 0", "one", "many 1", "many 2", "many 3", "many 4"]
