"""What a session remembers of its old consumer's Fetch requests.

An old consumer reads nothing of control batches, of batches that compaction has emptied, and of
aborted transactions that are left out: it would ask for the same offset for ever. So the session
remembers where the log goes on, and asks the broker for that offset.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from batchval.protocol.old_fetch import WantedPartition

__all__ = ["MOST_FAULTS", "MOST_REMEMBERED", "OldFetches"]

#: Partitions of one session whose place in the log is remembered.
MOST_REMEMBERED: Final = 1_000
#: Batches of one session whose fault is logged. A consumer asks for the same ones again at once.
MOST_FAULTS: Final = 100


class OldFetches:
    """Where the log goes on for one session's old consumer, and which faults were logged.

    ``continues``  {(topic, partition): (offset that the consumer asks for, offset where records
                   may follow)}
    """

    __slots__ = ("_continues", "_faults")

    def __init__(self) -> None:
        self._continues: OrderedDict[tuple[str, int], tuple[int, int]] = OrderedDict()
        self._faults: set[tuple[str, int, int]] = set()

    def offset_for(self, wanted: WantedPartition) -> int:
        """Return the offset to ask the broker for."""
        asked, goes_on = self._continues.get((wanted.topic, wanted.partition), (-1, -1))
        return goes_on if asked == wanted.offset else wanted.offset

    def note(self, wanted: WantedPartition, goes_on: int) -> None:
        """Remember that nothing can be expressed from the wanted offset to ``goes_on``."""
        key = wanted.topic, wanted.partition
        self._continues[key] = wanted.offset, goes_on
        self._continues.move_to_end(key)
        if len(self._continues) > MOST_REMEMBERED:
            self._continues.popitem(last=False)

    def forget(self, wanted: WantedPartition) -> None:
        """Forget where a partition goes on: its log has changed."""
        self._continues.pop((wanted.topic, wanted.partition), None)

    def is_new_fault(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether this batch's fault is to be logged: once, and MOST_FAULTS in a session."""
        fault = topic, partition, offset
        if fault in self._faults or len(self._faults) >= MOST_FAULTS:
            return False
        self._faults.add(fault)
        return True
