"""Work in a thread of its own: what it returns, what it raises, and how often threads switch."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from batchval.proxy.background import YIELD_S, in_background


async def test_it_returns_and_raises_what_the_work_does() -> None:
    assert await in_background(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await in_background(lambda: 1 // 0)


async def test_threads_switch_often_while_any_work_is_under_way() -> None:
    before = sys.getswitchinterval()
    go_on = [threading.Event(), threading.Event()]
    works = [asyncio.create_task(in_background(one.wait)) for one in go_on]
    await asyncio.sleep(0)
    for task, one in zip(works, go_on, strict=True):
        assert sys.getswitchinterval() == pytest.approx(YIELD_S)
        one.set()
        assert await task
    assert sys.getswitchinterval() == pytest.approx(before)


async def test_nobody_waits_for_work_that_is_not_wanted_any_more() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(10)
        ended.set()

    before = sys.getswitchinterval()
    task = asyncio.create_task(in_background(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sys.getswitchinterval() == pytest.approx(before)
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 10)
