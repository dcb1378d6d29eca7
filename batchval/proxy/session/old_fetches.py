"""The memory of a session about its old consumer's Fetch requests.

An old consumer reads nothing of control batches, of batches that compaction has emptied, and of
aborted transactions that are left out: it would ask for the same offset for ever. So the session
remembers where the log goes on, and asks the broker for that offset.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, TypeAlias

from batchval.protocol.old_fetch import WantedPartition

__all__ = ["MAX_FAULTS", "OldFetches", "Places"]

#: Batches of one session whose fault is logged. A consumer asks for the same ones again at once.
MAX_FAULTS: Final = 100

#: {(topic, partition): (offset that the consumer asks for, offset where records may follow)}
Places: TypeAlias = dict[tuple[str, int], tuple[int, int]]


class OldFetches:
    """The next offsets of one session's old consumer, and the faults that were logged.

    It changes on the loop only. Threads that raise requests read it (``offset_for``).

    It remembers as many partitions as one request may have: with fewer, a request of more of them
    would push its own out, and its consumer would not get on.

    ``continues``  of each partition from which nothing was expressed, the oldest first
    """

    __slots__ = ("_continues", "_faults", "_most", "_turn")

    def __init__(self, max_partitions: int) -> None:
        self._most = max_partitions
        self._turn = -1
        self._continues: Places = {}
        self._faults: set[tuple[str, int, int]] = set()

    def bound(self, max_partitions: int) -> None:
        """Remember so many partitions from the next answer on."""
        self._most = max_partitions

    def next_turn(self) -> int:
        """Return how far the next request's partitions are rotated."""
        self._turn += 1
        return self._turn

    def offset_for(self, wanted: WantedPartition) -> int:
        """Return the offset to ask the broker for."""
        asked, goes_on = self._continues.get((wanted.topic, wanted.partition), (-1, -1))
        return goes_on if asked == wanted.offset else wanted.offset

    def note(self, places: Places) -> None:
        """Remember where partitions go on. All of one answer in one call: the loop waits for it."""
        self._continues |= places
        if len(self._continues) > self._most:
            for key in list(islice(self._continues, len(self._continues) - self._most)):
                del self._continues[key]

    def forget(self, wanted: WantedPartition) -> None:
        """Forget where a partition goes on: its log has changed."""
        self._continues.pop((wanted.topic, wanted.partition), None)

    def is_new_fault(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether this batch's fault is to be logged: once, and MAX_FAULTS in a session."""
        fault = topic, partition, offset
        if fault in self._faults or len(self._faults) >= MAX_FAULTS:
            return False
        self._faults.add(fault)
        return True
