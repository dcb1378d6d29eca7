"""Work in a thread of its own, which neither the event loop nor the end of the process waits
for.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_background"]

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
    return await done
