"""A bound on the rate of an event, by the clock."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["TokenBucket"]


class TokenBucket:
    """A bucket of ``most`` tokens at first, and ``per_second`` more each second, up to ``most``
    again.

    Not for several threads at once.
    """

    def __init__(self, per_second: float, most: float, clock: Callable[[], float]) -> None:
        self.per_second = per_second
        self.most = most
        self._clock = clock
        self._left = most
        self._since = clock()

    def take(self) -> bool:
        """Take one token. Return False where there is none."""
        now = self._clock()
        self._left = min(self.most, self._left + (now - self._since) * self.per_second)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
