"""SIGHUP from a gate's first instructions on: the signal would end the process until it is taken.

    noted     from before the settings are read until the event loop takes signals
    resumed   by the event loop, which reloads at once where a signal was noted

Settings and certificates that were replaced just before the signal may have been read before that.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

__all__ = ["EarlyReload"]


class EarlyReload:
    """Notes SIGHUP from now on. For the main thread."""

    def __init__(self) -> None:
        self._is_asked = False
        signal.signal(signal.SIGHUP, self._note)

    def _note(self, *_: object) -> None:
        self._is_asked = True

    def resume(self, reload: Callable[[], object]) -> None:
        """Ask for a reload where SIGHUP came. Another handler must have taken its place before."""
        if self._is_asked:
            self._is_asked = False
            reload()
