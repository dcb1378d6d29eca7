"""Waiting until a record is due: a timer finer than an event loop's.

A loop's timers count whole milliseconds. Linux's timerfd counts nanoseconds: the loop waits for one
that ends shortly before the instant, and takes turns through the rest, so answers are read
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import struct
import sys
from typing import Final

from batchval.perf.histogram import now_ns

__all__ = ["Pause"]

#: The last part of a wait, in turns of the loop: as late a wake-up may be.
_TURNS_NS: Final = 60_000
#: The same for a thread that shares its interpreter with none: a processor that has gone to sleep
#: takes 50 to 150 µs to wake, and has cold caches then.
_AWAKE_NS: Final = 2_000_000
_LOOP_NS: Final = 1_500_000  # a timer of a loop is late by this at most
_CLOCK_MONOTONIC: Final = 1  # Linux, time.h
_TFD_NONBLOCK, _TFD_CLOEXEC, _TFD_TIMER_ABSTIME = os.O_NONBLOCK, getattr(os, "O_CLOEXEC", 0), 1
_ITIMERSPEC: Final = struct.Struct("@llll")


class Pause:
    """A timer on the running loop, exact to one iteration of it. ``close`` it on that loop.

    ``is_alone``  no other thread of the process needs the interpreter: stay awake for longer
    """

    def __init__(self, *, is_alone: bool = False) -> None:
        self._awake_ns = _AWAKE_NS if is_alone else _TURNS_NS
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._timer = _timer()
        if self._timer is not None:
            self._loop.add_reader(self._timer, self._fired)

    async def until(self, instant: int) -> None:
        """Return at ``instant`` (ns of the monotonic clock), or soon after it."""
        early = self._awake_ns if self._timer is not None else max(self._awake_ns, _LOOP_NS)
        rest = instant - now_ns()
        if rest > early:
            await self._sleep(instant - early, (rest - early) / 1e9)
        while True:
            await asyncio.sleep(0)
            if now_ns() >= instant:
                return

    async def _sleep(self, instant: int, seconds: float) -> None:
        if self._timer is None:
            await asyncio.sleep(seconds)
            return
        self._waiting = self._loop.create_future()
        _set(self._timer, instant)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _fired(self) -> None:
        assert self._timer is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._timer, 8)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._loop.remove_reader(self._timer)
            os.close(self._timer)
            self._timer = None


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _timer() -> int | None:
    """Return a timerfd, None where the system has none. (Python 3.13 has os.timerfd_create.)"""
    if sys.platform != "linux":
        return None
    try:
        made: int = _libc().timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
    except AttributeError:
        return None
    return made if made >= 0 else None


def _set(timer: int, instant: int) -> None:
    """Have the timer fire once, at this instant."""
    wanted = _ITIMERSPEC.pack(0, 0, *divmod(max(instant, 1), 1_000_000_000))
    if _libc().timerfd_settime(timer, _TFD_TIMER_ABSTIME, wanted, None):
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))
