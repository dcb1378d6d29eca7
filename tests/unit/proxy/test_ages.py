"""The age of the oldest request, which is found out in several turns of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque

from batchval.proxy.life.gate import LOOKED_A_TURN, Ages
from tests.support.clock import run_at_once


class Waiting:
    """A connection with requests that await their answers."""

    def __init__(self, *requests: object) -> None:
        self.answers = deque(requests)
        self.requests = self


async def turns_of(ages: Ages, connections: list[Waiting]) -> int:
    """Return how many turns of the event loop a look takes."""
    look, turns = asyncio.ensure_future(ages.look(connections)), 0
    while not look.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def test_the_oldest_of_all_is_known() -> None:
    async def look_often() -> None:
        ages, one, two, none = Ages(), Waiting("a", "b"), Waiting(), Waiting()
        for expected in (0, 1, 2):
            await ages.look([one, two, none])
            assert ages.oldest_s == expected
            await asyncio.sleep(1)
            two.answers.append("c")
        one.answers.popleft()  # b has been first since now, c for two seconds
        await ages.look([one, two, none])
        assert ages.oldest_s == 2
        await ages.look([one])  # the other one has ended
        assert ages.oldest_s == 0
        one.answers.clear()
        await asyncio.sleep(1)
        await ages.look([one])
        assert (ages.oldest_s, ages._first) == (0, {})

    run_at_once(look_often())


def test_a_turn_of_the_loop_looks_at_some() -> None:
    async def look() -> None:
        connections = [Waiting(number) for number in range(3 * LOOKED_A_TURN)]
        assert await turns_of(Ages(), connections) >= 3
        assert await turns_of(Ages(), connections[:1]) <= 3

    run_at_once(look())
