"""Checks that a group has read each record of a topic once, in the order of its partition.

A producer numbers its records over all partitions, so within a partition its numbers only grow.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np

__all__ = ["GroupCheck", "Numbers"]

_BLOCK: Final = 4096


class Numbers:
    """Numbers of one producer that have been seen.

    A block of 4,096 numbers takes as many bytes until all of them have been seen, then one entry of
    a set.
    """

    def __init__(self) -> None:
        self.count = 0
        self._open: dict[int, Any] = {}
        self._full: set[int] = set()

    def add(self, numbers: Any) -> Any:
        """Return for each number whether it is new; of one that stands twice, the first is."""
        _, first = np.unique(numbers, return_index=True)
        is_new = np.zeros(len(numbers), bool)
        is_new[first] = True
        blocks, places = np.divmod(numbers, _BLOCK)
        for block in np.unique(blocks).tolist():
            chosen = np.flatnonzero((blocks == block) & is_new)
            is_new[chosen] = self._add(block, places[chosen])
        self.count += int(is_new.sum())
        return is_new

    def _add(self, block: int, places: Any) -> Any:
        if block in self._full:
            return np.zeros(len(places), bool)
        seen = self._open.setdefault(block, np.zeros(_BLOCK, bool))
        is_new = ~seen[places]
        seen[places] = True
        if seen.all():
            self._full.add(block)
            del self._open[block]
        return is_new

    def having(self, numbers: Any) -> int:
        """Return how many of these, each of which stands once, have been seen."""
        blocks, places = np.divmod(numbers, _BLOCK)
        found = 0
        for block in np.unique(blocks).tolist():
            chosen = places[blocks == block]
            if block in self._full:
                found += len(chosen)
            elif block in self._open:
                found += int(self._open[block][chosen].sum())
        return found


class GroupCheck:
    """The records of one topic that the consumers of one group have read. Each method is one step
    under a lock.
    """

    def __init__(self, producers: int) -> None:
        self.doubled = self.reordered = 0
        self.foreign = 0  # records of others
        self._numbers = [Numbers() for _ in range(producers)]
        # (partition, producer): the highest number read
        self._highest: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    @property
    def read(self) -> int:
        """Return how many different records were read."""
        return sum(numbers.count for numbers in self._numbers)

    def add(self, partition: int, headers: Any, foreign: int = 0) -> Any:
        """Count what a poll has brought of a partition, and return for each header whether its
        record is new.

        ``foreign``: how many records of others came with them
        """
        is_new = np.zeros(len(headers), bool)
        with self._lock:
            self.foreign += foreign
            for producer in np.unique(headers["producer"]).tolist():
                chosen = np.flatnonzero(headers["producer"] == producer)
                is_new[chosen] = self._add(partition, producer, headers["number"][chosen])
        return is_new

    def _add(self, partition: int, producer: int, numbers: Any) -> Any:
        is_new = self._numbers[producer].add(numbers)
        before = np.maximum.accumulate(
            np.concatenate(([self._highest.get((partition, producer), -1)], numbers))
        )
        self._highest[partition, producer] = int(before[-1])
        self.doubled += int((~is_new).sum())
        self.reordered += int((is_new & (numbers < before[:-1])).sum())
        return is_new

    def lost(self, acked: int, failed: list[Any]) -> int:
        """Return how many acknowledged records were not read.

        ``failed``: for each producer the numbers of the records that were not acknowledged, which
        may have been stored all the same
        """
        with self._lock:
            unexpected = sum(
                mine.having(numbers) for mine, numbers in zip(self._numbers, failed, strict=True)
            )
            return max(0, acked - (self.read - unexpected))
