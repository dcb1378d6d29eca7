"""What one batch of a segment says about the next: offsets, leader epochs, producers' sequences (L2 to L5).

A Continuity is fed the columns of successive stretches of one partition, in order, and remembers where it is: the same
object serves a buffer, a file read in blocks, and ranges that were read by different workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from batchval.core.columns import BatchColumns
from batchval.core.reasons import REASONS
from batchval.rules import Rule

__all__ = ["Continuity", "Finding"]

_SEQUENCES = 2**31
#: Kafka forgets a producer after producer.id.expiration.ms (a day by default); then any sequence may follow.
PRODUCER_ID_EXPIRATION_MS = 86_400_000


class Finding(NamedTuple):
    """One rule that one batch of a log breaks."""

    position: int
    offset: int
    rule: Rule
    reason: str


class _Producer(NamedTuple):
    epoch: int
    next_sequence: int
    max_timestamp: int


def _reason(name: str, a: int, b: int) -> str:
    return REASONS[name].format(i=-1, a=a, b=b)


class Continuity:
    """Follows one partition. ``compacted``: the cleaner may have taken records, so gaps are legal."""

    def __init__(self, *, compacted: bool = False) -> None:
        self.compacted = compacted
        self.last_offset: int | None = None
        self.leader_epoch = -1
        self._producers: dict[int, _Producer] = {}
        self._after_damage = False

    def damaged(self) -> None:
        """Batches may be missing here, as somebody else reports: what is gone is not reported again as a gap."""
        self._after_damage = True

    def feed(self, columns: BatchColumns) -> Iterator[Finding]:
        """Findings of the next stretch, in order of their positions.

        Rows with a wrong CRC are not believed, and what is missing in their place is not reported a second time.
        """
        if not len(columns):
            return
        believed = np.flatnonzero(columns["is_valid"])
        if not len(believed):
            self._after_damage = True
            return
        gap_is_known = np.empty(len(believed), bool)
        gap_is_known[0] = self._after_damage or believed[0] > 0
        gap_is_known[1:] = np.diff(believed) > 1
        self._after_damage = bool(believed[-1] < len(columns) - 1)
        found = [*self._offsets(columns, believed, gap_is_known), *self._epochs(columns, believed)]
        if not self.compacted:
            found += self._sequences(columns, believed, gap_is_known)
        yield from sorted(found, key=lambda finding: (finding.position, finding.rule.number))

    def _finding(self, columns: BatchColumns, row: int, rule: Rule, reason: str, a: int, b: int) -> Finding:
        return Finding(
            int(columns["position"][row]), int(columns["base_offset"][row]), rule, _reason(reason, int(a), int(b))
        )

    def _offsets(self, columns: BatchColumns, rows: np.ndarray, gap_is_known: np.ndarray) -> Iterator[Finding]:
        base, last = columns["base_offset"][rows], columns["last_offset"][rows]
        before = np.empty_like(last)
        before[1:] = last[:-1]
        before[0] = max(int(base[0]) - 1, -(2**63)) if self.last_offset is None else self.last_offset
        for i in np.flatnonzero(base <= before):
            yield self._finding(columns, rows[i], Rule.L2, "OFFSETS_BACK", base[i], before[i])
        if not self.compacted:
            # of a compressed set of magic 0 or 1 only the last offset is known here
            apart = (base > before) & (base - before != 1)  # a difference that wraps is not 1 either
            for i in np.flatnonzero(apart & (columns["magic"][rows] >= 2) & ~gap_is_known):
                yield self._finding(columns, rows[i], Rule.L3, "OFFSETS_MISSING", base[i], before[i])
        self.last_offset = int(last[-1])

    def _epochs(self, columns: BatchColumns, rows: np.ndarray) -> Iterator[Finding]:
        epochs = columns["partition_leader_epoch"][rows]
        known = epochs >= 0
        rows, epochs = rows[known], epochs[known]
        if not len(rows):
            return
        before = np.empty_like(epochs)
        before[1:] = epochs[:-1]
        before[0] = self.leader_epoch
        for i in np.flatnonzero(epochs < before):
            yield self._finding(columns, rows[i], Rule.L4, "EPOCH_BACK", epochs[i], before[i])
        self.leader_epoch = int(epochs[-1])

    def _sequences(self, columns: BatchColumns, rows: np.ndarray, gap_is_known: np.ndarray) -> Iterator[Finding]:
        # transaction markers carry no sequence, and raise the epoch
        idempotent = (columns["producer_id"][rows] >= 0) & (columns["base_sequence"][rows] >= 0)
        asked = idempotent & ~columns["is_control_batch"][rows]
        for i in np.flatnonzero(asked | gap_is_known):
            row = rows[i]
            if gap_is_known[i]:
                self._producers.clear()  # anybody's batches may have been there
            if not asked[i]:
                continue
            producer_id = int(columns["producer_id"][row])
            epoch = int(columns["producer_epoch"][row])
            sequence = int(columns["base_sequence"][row])
            timestamp = int(columns["max_timestamp"][row])
            known = self._producers.get(producer_id)
            if (
                known is not None
                and known.epoch == epoch
                and sequence != known.next_sequence
                and timestamp - known.max_timestamp <= PRODUCER_ID_EXPIRATION_MS
            ):
                yield self._finding(columns, row, Rule.L5, "SEQUENCE_MISSING", sequence, known.next_sequence)
            self._producers[producer_id] = _Producer(
                epoch, (sequence + int(columns["last_offset_delta"][row]) + 1) % _SEQUENCES, timestamp
            )
