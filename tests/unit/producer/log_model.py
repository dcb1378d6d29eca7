"""A partition as its leaders have it: Kafka's ProducerStateManager, and elections that lose things.

Written apart from the producer, by what Kafka's broker does: a leader that was killed knows of each
producer the last batch alone; one that knows nothing of a producer takes any sequence.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from batchval.core.batches.batch import RecordBatch
from batchval.errors import ErrorCode

REMEMBERED = 5  # batches of a producer


@dataclass(slots=True, eq=False)
class Entry:
    """A batch in the log. ``serial``: when it was appended, among the partition's events."""

    ids: list[int]
    producer_id: int
    epoch: int
    first: int
    last: int
    offset: int
    serial: int


@dataclass(slots=True)
class Known:
    """What a leader knows of a producer."""

    epoch: int
    batches: deque[Entry] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


@dataclass(slots=True)
class Found:
    """What was wrong with a run, and what was not but is counted."""

    lost: int = 0  # reported as delivered, and not in the log when that was acknowledged
    reordered: int = 0
    wrong_offsets: int = 0
    duplicates: int = 0  # without a reason
    duplicates_state_lost: int = 0  # the leader had lost the producer's state since the first copy
    acknowledged_then_truncated: int = 0  # records, by unclean elections


class PartitionLog:
    """The log of the present leader. Batches up to ``durable`` are acknowledged or could be."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.known: dict[int, Known] = {}
        self.leader = 1
        self.epoch = 0
        self.durable = 0  # entries, not offsets
        self.durable_ids: dict[int, set[int]] = {}  # id: the offsets that it was acknowledged with
        self.truncated_ids: set[int] = set()  # of acknowledged records, by unclean elections
        self.state_lost_at = -1
        self.serial = 0
        self.highest = -1  # id in the log
        self.copies: Counter[int] = Counter()  # id: how many are in the log
        self.found = Found()

    # --- a leader at work

    def append(self, raw: bytes) -> tuple[ErrorCode, Entry | None]:
        """Append a batch; return its entry, that of the first copy for a duplicate."""
        batch = RecordBatch(raw)
        ids = [int.from_bytes(one.value or b"") for one in batch.records()]
        if len(ids) > 1 and any(one % 53 == 7 for one in ids):
            return ErrorCode.MESSAGE_TOO_LARGE, None
        if any(one % 331 == 5 for one in ids):
            return ErrorCode.INVALID_RECORD, None
        first, epoch = batch.base_sequence, batch.producer_epoch
        last = (first + len(ids) - 1) & 0x7FFFFFFF
        known = self.known.get(batch.producer_id)
        if known is not None:
            if epoch < known.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, None
            if epoch == known.epoch:
                for one in known.batches:
                    if (one.first, one.last) == (first, last):
                        return ErrorCode.NONE, one
                if first != (known.batches[-1].last + 1) & 0x7FFFFFFF:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None
            elif first != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None
        offset = self.entries[-1].offset + len(self.entries[-1].ids) if self.entries else 0
        self.serial += 1
        entry = Entry(ids, batch.producer_id, epoch, first, last, offset, self.serial)
        self._check_copies(entry)
        self.entries.append(entry)
        self._learn(entry)
        return ErrorCode.NONE, entry

    def _check_copies(self, entry: Entry) -> None:
        again = [one for one in entry.ids if self.copies[one]]
        if again:
            earlier = next(one for one in self.entries if again[0] in one.ids)
            if self.state_lost_at > earlier.serial:
                self.found.duplicates_state_lost += len(again)
            else:
                self.found.duplicates += len(again)
        elif entry.ids[0] < self.highest:
            self.found.reordered += 1
        self.highest = max(self.highest, entry.ids[-1])
        self.copies.update(entry.ids)

    def _learn(self, entry: Entry) -> None:
        known = self.known.get(entry.producer_id)
        if known is None or known.epoch != entry.epoch:
            known = self.known[entry.producer_id] = Known(entry.epoch)
        known.batches.append(entry)

    def acknowledge(self, entry: Entry) -> None:
        """All up to the entry is replicated, and an answer that says so goes out."""
        for n in range(self.durable, len(self.entries)):
            one = self.entries[n]
            if one.serial > entry.serial:
                return
            self.durable = n + 1
            for at, number in enumerate(one.ids):
                self.durable_ids.setdefault(number, set()).add(one.offset + at)

    # --- other leaders

    def elect(self, node: int) -> None:
        """Begin another leader epoch."""
        self.leader, self.epoch = node, self.epoch + 1

    def truncate(self, keep: int) -> None:
        """Keep so many batches. What is known of producers is what those say."""
        for n, one in enumerate(self.entries[keep:], keep):
            self.copies.subtract(one.ids)
            if n < self.durable:
                self.truncated_ids.update(one.ids)
                self.found.acknowledged_then_truncated += len(one.ids)
        del self.entries[keep:]
        self.durable = min(self.durable, keep)
        self.highest = max((one.ids[-1] for one in self.entries), default=-1)
        self.known.clear()
        for one in self.entries[-500:]:
            self._learn(one)

    def remember_the_last_alone(self) -> None:
        """As after a kill."""
        for known in self.known.values():
            while len(known.batches) > 1:
                known.batches.popleft()

    def lose_state(self) -> None:
        """Forget all producers."""
        self.known.clear()
        self.serial += 1
        self.state_lost_at = self.serial

    # --- what was reported

    def reported(self, ids: list[int], base_offset: int) -> None:
        """Check what the producer reported as delivered."""
        for n, number in enumerate(ids):
            offsets = self.durable_ids.get(number)
            if offsets is None:
                self.found.lost += 1
            elif base_offset >= 0 and base_offset + n not in offsets:
                self.found.wrong_offsets += 1

    def finish(self, delivered: list[int]) -> Found:
        """Check the log at the end against what was reported as delivered."""
        there = set(self.copies) - {number for number, copies in self.copies.items() if not copies}
        for number in delivered:
            if number not in there and number not in self.truncated_ids:
                self.found.lost += 1
        return self.found
