"""When a record is due, and waiting for it: schedules, the instants of sends, and a timer finer
than an event loop's.

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
from typing import Any, Final

import numpy as np

from batchval.perf.histogram import now_ns

__all__ = ["Pause", "Schedule", "SendTimes"]

_BLOCK: Final = 4096  # records whose instants of sending are kept together
_TURNS_NS: Final = 60_000  # the last part of a wait, in turns of the loop: as late a wake-up may be
_LOOP_NS: Final = 1_500_000  # a timer of a loop is late by this at most
_CLOCK_MONOTONIC: Final = 1  # Linux, time.h
_TFD_NONBLOCK, _TFD_CLOEXEC, _TFD_TIMER_ABSTIME = os.O_NONBLOCK, getattr(os, "O_CLOEXEC", 0), 1
_ITIMERSPEC: Final = struct.Struct("@llll")


class SendTimes:
    """The instant at which each record was sent, until it is answered."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[Any]] = {}  # [instants, how many are not answered]

    def put(self, first: int, count: int, now: int) -> None:
        """Records from number ``first`` on were sent now."""
        while count:
            block, at = divmod(first, _BLOCK)
            part = min(count, _BLOCK - at)
            kept = self._blocks.get(block)
            if kept is None:
                kept = self._blocks[block] = [np.zeros(_BLOCK, np.int64), _BLOCK]
            kept[0][at : at + part] = now
            first, count = first + part, count - part

    def take(self, numbers: Any) -> Any:
        """The instants of these records, each of which is asked for once."""
        if len(numbers) == 1:
            block, place = divmod(int(numbers[0]), _BLOCK)
            kept = self._blocks[block]
            self._answered(block, kept, 1)
            return kept[0][place : place + 1]
        blocks, at = np.divmod(numbers, _BLOCK)
        first = int(blocks[0])
        if (blocks == first).all():  # nearly always
            kept = self._blocks[first]
            self._answered(first, kept, len(numbers))
            return kept[0][at]
        found = np.empty(len(numbers), np.int64)
        for block in np.unique(blocks).tolist():
            chosen = blocks == block
            kept = self._blocks[block]
            found[chosen] = kept[0][at[chosen]]
            self._answered(block, kept, int(chosen.sum()))
        return found

    def _answered(self, block: int, kept: list[Any], count: int) -> None:
        kept[1] -= count
        if kept[1] == 0:
            del self._blocks[block]


class Schedule:
    """Record n, counted from ``first``, is intended at ``start_ns`` + (n - first) / rate."""

    def __init__(self, rate: float, start_ns: int, first: int) -> None:
        self.step_ns, self.start_ns, self.first = 1e9 / rate, start_ns, first

    def instants(self, numbers: Any) -> Any:
        """The intended instants of these records, ns."""
        return self.start_ns + ((numbers - self.first) * self.step_ns).astype(np.int64)

    def due(self, now: int) -> int:
        """The number before which every record should have been sent by now."""
        return self.first + int((now - self.start_ns) / self.step_ns) + 1

    def wait_ns(self, number: int, now: int) -> int:
        """How long until this record is due; below 0: it is late."""
        return self.start_ns + int((number - self.first) * self.step_ns) - now


class Pause:
    """Waits on the running loop, exact to the time of one turn of it. ``close`` it on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._timer = _timer()
        if self._timer is not None:
            self._loop.add_reader(self._timer, self._fired)

    async def until(self, instant: int) -> None:
        """Return at ``instant`` (ns of the monotonic clock), or soon after it."""
        early = _TURNS_NS if self._timer is not None else _LOOP_NS
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
    """A timerfd; None where there are none. (os.timerfd_create is Python 3.13's.)"""
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
