"""A clock that a test sets, and an event loop whose clock passes at once to its next timer.

What depends on seconds then depends on nothing else: neither on how busy the machine is, nor on
how long it takes.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

__all__ = ["Clock", "run_at_once"]


class Clock:
    """A clock that shows ``now``, which the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class _Clock(selectors.DefaultSelector):
    """Waits for no time: what it is asked to wait for is added to ``now``."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing is left to wait for: no timer is set"
            self.now += max(timeout, 0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_at_once(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine as ``asyncio.run`` does, on a loop whose clock passes at once.

    It must wait for timers alone: neither for sockets nor for threads.
    """
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(main)
