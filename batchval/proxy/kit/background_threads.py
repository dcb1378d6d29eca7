"""Run jobs in threads of their own. The loop and the end of the process do not wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

__all__ = ["YIELD_S", "OneAtATime", "in_background", "spawned"]

#: Seconds after which the thread gives the interpreter to the event loop, which asks for it before
#: each callback: with Python's 5 ms, or the gate's 0.5 ms, a thousand clients would wait a second.
YIELD_S: Final = 0.00005

T = TypeVar("T")


async def in_background(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, and raise what it raises.

    The thread is a daemon: a file system that hangs, or a long file of settings, must not keep the
    process from its end, as a thread of the loop's executor would.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(result: Callable[[], None]) -> None:
        if not done.done():
            result()

    def run() -> None:
        try:
            found = work()
        except BaseException as error:
            failure = error
            result = lambda: done.set_exception(failure)  # noqa: E731
        else:
            result = lambda: done.set_result(found)  # noqa: E731
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(deliver, result)

    threading.Thread(target=run, name="batchval-background", daemon=True).start()
    with _SWITCHING:
        return await done


def spawned(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Begin a task that stays in ``tasks`` until it ends: the event loop alone would not keep it."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


class OneAtATime:
    """A runner of work in threads, one job at a time, each for at most ``limit_s``.

    A thread cannot be ended: while one hangs, no other one is started.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._works = False

    async def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns. Raises TimeoutError, at once while an earlier one hangs."""
        if self._works:
            raise TimeoutError

        def tracked() -> T:
            try:
                return work()
            finally:
                self._works = False

        self._works = True
        try:
            async with asyncio.timeout(self.limit_s):
                return await in_background(tracked)
        except RuntimeError:  # perhaps of a thread that cannot be started
            self._works = False
            raise


class _Switching:
    """A shorter switch interval of threads while jobs run. For the event loop's thread alone."""

    def __init__(self) -> None:
        self._works = 0
        self._interval_s = 0.0

    def __enter__(self) -> None:
        if not self._works:
            self._interval_s = sys.getswitchinterval()
            sys.setswitchinterval(min(YIELD_S, self._interval_s))
        self._works += 1

    def __exit__(self, *_: object) -> None:
        self._works -= 1
        if not self._works:
            sys.setswitchinterval(self._interval_s)


_SWITCHING: Final = _Switching()
