"""Work in a thread of its own, which neither the event loop nor the end of the process waits
for.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["YIELD_S", "in_background"]

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


class _Switching:
    """Lets threads switch often while work is under way. For the event loop's thread alone."""

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
