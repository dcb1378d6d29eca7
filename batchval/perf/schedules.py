"""Schedules: when each record is intended, and when it was sent.

Of runs with a rate: others need no numpy, which takes as long to import as all the rest.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

__all__ = ["Schedule", "SendTimes"]

_BLOCK: Final = 4096  # records whose instants of sending are kept together


class SendTimes:
    """The instant at which each record was sent, until it is answered."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[Any]] = {}  # [instants, how many are not answered]

    def put(self, first: int, count: int, now: int) -> None:
        """Note that records from number ``first`` on were sent now."""
        while count:
            block, at = divmod(first, _BLOCK)
            part = min(count, _BLOCK - at)
            kept = self._blocks.get(block)
            if kept is None:
                kept = self._blocks[block] = [np.zeros(_BLOCK, np.int64), _BLOCK]
            kept[0][at : at + part] = now
            first, count = first + part, count - part

    def take(self, numbers: Any) -> Any:
        """Return the instants of these records, each of which is asked for once."""
        numbers = np.asarray(numbers, np.int64)
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
        """Return the intended instants of these records, ns."""
        numbers = np.asarray(numbers, np.int64)
        return self.start_ns + ((numbers - self.first) * self.step_ns).astype(np.int64)

    def due(self, now: int) -> int:
        """Return the number before which every record should have been sent by now."""
        return self.first + int((now - self.start_ns) / self.step_ns) + 1

    def wait_ns(self, number: int, now: int) -> int:
        """Return how long until this record is due; below 0: it is late."""
        return self.start_ns + int((number - self.first) * self.step_ns) - now
