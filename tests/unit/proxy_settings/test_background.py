"""Work in a thread of its own: what it returns, what it raises, and how often threads switch."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from batchval.proxy.kit.background_threads import YIELD_S, OneAtATime, in_background
from tests.support.network import until


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


def works() -> int:
    return sum(thread.name == "batchval-background" for thread in threading.enumerate())


async def test_one_that_hangs_keeps_others_from_starting_a_thread() -> None:
    go_on, one = threading.Event(), OneAtATime(0.02)
    before = sys.getswitchinterval()
    with pytest.raises(TimeoutError):
        await one.run(go_on.wait)
    assert sys.getswitchinterval() == pytest.approx(before)
    assert works() == 1
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await one.run(lambda: 7)
    assert works() == 1
    go_on.set()
    await until(lambda: works() == 0)
    one.limit_s = 60.0
    assert await one.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await one.run(lambda: 1 // 0)
    assert await one.run(lambda: 8) == 8


async def test_a_thread_that_cannot_start_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    one = OneAtATime(60.0)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            await one.run(lambda: 7)
    assert await one.run(lambda: 7) == 7
