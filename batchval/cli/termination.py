"""SIGTERM ends a command as Ctrl-C does: temporary files and worker processes go first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Terminated", "ends_by_sigterm", "signals_wait"]


class Terminated(KeyboardInterrupt):
    """A SIGTERM."""


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    raise Terminated


@contextmanager
def ends_by_sigterm() -> Iterator[None]:
    """Raise Terminated in the main thread on SIGTERM, unless it has a handler or is ignored."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let SIGINT and SIGTERM take effect at the end of a block, not within it. Main thread only."""
    arrived: list[int] = []
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        for name, handler in before.items():
            if handler != signal.SIG_IGN:  # which a new process inherits
                signal.signal(name, lambda number, _: arrived.append(number))
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler or signal.SIG_DFL)
        for number in arrived:
            signal.raise_signal(number)
