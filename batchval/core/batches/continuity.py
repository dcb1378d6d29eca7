"""Continuity from one batch of a segment to the next: offsets, leader epochs, producers' sequences
(L2 to L5).

A Continuity is fed the columns of successive stretches of one partition, in order, and keeps the
state at their end. It also keeps the state at their start, so that two can be joined: pieces that
different workers read give the findings and the state of one reader. Feeding is itself a join with
what was just read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from batchval.core.batches.columns import BatchColumns
from batchval.core.format.reasons import REASONS
from batchval.rules import Rule

__all__ = ["PRODUCERS", "Continuity", "Finding"]

_SEQUENCES = 2**31
#: Default of producer.id.expiration.ms: Kafka then forgets a producer, and any sequence may follow.
PRODUCER_ID_EXPIRATION_MS = 86_400_000

#: The last state of each producer, one row each, by ascending ids: ``sequence`` is the next that it
#: may send.
PRODUCERS = np.dtype(
    [
        ("producer_id", "<i8"),
        ("max_timestamp", "<i8"),
        ("sequence", "<i4"),
        ("producer_epoch", "<i2"),
    ],
    align=True,
)
#: A producer's first batch of a stretch; ``sequence`` is its own.
_OPENERS = np.dtype(
    [
        *((name, PRODUCERS[name]) for name in PRODUCERS.names or ()),
        ("position", "<i8"),
        ("offset", "<i8"),
    ]
)
_PRODUCER_FIELDS = list(PRODUCERS.names or ())


class Finding(NamedTuple):
    """One rule that one batch of a log breaks."""

    position: int
    offset: int
    rule: Rule
    reason: str
    max_timestamp: int = -1  # the batch's, milliseconds
    previous: int = -1  # position of the batch before; -1: not known
    before: int = -1  # L2 and L3: last offset of the batch before


class _First(NamedTuple):
    """The first batch that is believed, and the first with a leader epoch."""

    position: int
    offset: int
    max_timestamp: int
    previous: int  # position of the batch before; -1: none was read before
    value: int  # the leader epoch; or 1 where the base offset is the first record's (magic 2), 0 where it is the last's
    gap_is_known: bool = False


def _reason(name: str, a: int, b: int) -> str:
    return REASONS[name].format(i=-1, a=a, b=b)


class Continuity:
    """Follow one partition.

    compacted: the cleaner may have taken records, so gaps are legal.
    producer_id_expiration_ms: the broker's producer.id.expiration.ms.
    """

    def __init__(
        self,
        *,
        compacted: bool = False,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        self.compacted = compacted
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.last_offset: int | None = None
        self.leader_epoch = -1
        self.after_damage = False
        #: As PRODUCERS describes; a copy of it, passed to another Continuity, goes on from here.
        self.producers = np.empty(0, PRODUCERS)
        self._first: _First | None = None
        self._first_epoch: _First | None = None
        # until the first place where producers were forgotten
        self._openers = np.empty(0, _OPENERS)
        self._forgot = False
        self._base = 0  # what positions of columns count from
        self._last_position = -1  # of the last batch, believed or not

    def damaged(self) -> None:
        """Note that batches may be missing here, which another check reports: they are not reported
        again as a gap.
        """
        self.after_damage = True

    def feed(
        self, columns: BatchColumns, base: int = 0, breaks: Sequence[int] = ()
    ) -> Iterator[Finding]:
        """Yield the findings of the next stretch, in order of their positions, which count from
        ``base``.

        Rows with a wrong CRC are not believed, and what is missing in their place is not reported a
        second time.
        ``breaks``: rows that damage precedes, ascending. Same as ``damaged`` between two stretches.
        """
        if not len(columns):
            return
        read = Continuity(
            compacted=self.compacted, producer_id_expiration_ms=self.producer_id_expiration_ms
        )
        read._base = base
        found = [*read._read(columns, breaks), *self.join(read)]
        yield from sorted(found, key=lambda finding: (finding.position, finding.rule.number))

    def join(self, later: Continuity) -> Iterator[Finding]:
        """Yield the findings between what this was fed and what ``later`` was: afterwards this was
        fed both, in this order.
        """
        found = list(self._joint(later))
        yield from sorted(found, key=lambda finding: (finding.position, finding.rule.number))

    # ---- two that meet ---------------------------------------------------------------------------

    def _joint(self, later: Continuity) -> Iterator[Finding]:
        first = later._first
        before = self._last_position
        if later._last_position >= 0:
            self._last_position = later._last_position
        if first is None:
            self.after_damage |= later.after_damage
            return
        if first.previous < 0:
            first = first._replace(previous=before)
        gap_is_known = self.after_damage or first.gap_is_known
        forgets = gap_is_known
        if self.last_offset is not None:
            if first.offset <= self.last_offset:
                yield self._at(first, Rule.L2, "OFFSETS_BACK", first.offset, self.last_offset)
            elif (
                first.offset != self.last_offset + 1
                and first.value
                and not gap_is_known
                and not self.compacted
            ):
                forgets = True
                yield self._at(first, Rule.L3, "OFFSETS_MISSING", first.offset, self.last_offset)
        epoch = later._first_epoch
        if epoch is not None and epoch.previous < 0:
            epoch = epoch._replace(previous=before)
        if epoch is not None and epoch.value < self.leader_epoch:
            yield self._at(epoch, Rule.L4, "EPOCH_BACK", epoch.value, self.leader_epoch)
        if not forgets and len(self.producers) and len(later._openers):
            yield from self._sequences_meet(later._openers)
        self._take_over(later, first._replace(gap_is_known=gap_is_known), epoch, forgets)

    def _at(self, first: _First, rule: Rule, reason: str, a: int, b: int) -> Finding:
        place = first.position, first.offset
        before = b if rule in (Rule.L2, Rule.L3) else -1
        return Finding(
            *place, rule, _reason(reason, a, b), first.max_timestamp, first.previous, before
        )

    def _sequences_meet(self, openers: np.ndarray) -> Iterator[Finding]:
        at = np.searchsorted(self.producers["producer_id"], openers["producer_id"])
        at[at == len(self.producers)] = 0
        known = self.producers[at]
        bad = (known["producer_id"] == openers["producer_id"]) & self._breaks(known, openers)
        for row, before in zip(openers[bad].tolist(), known["sequence"][bad].tolist(), strict=True):
            opener = dict(zip(_OPENERS.names or (), row, strict=True))
            reason = _reason("SEQUENCE_MISSING", opener["sequence"], before)
            yield Finding(
                opener["position"], opener["offset"], Rule.L5, reason, opener["max_timestamp"]
            )

    def _take_over(
        self, later: Continuity, first: _First, epoch: _First | None, forgets: bool
    ) -> None:
        if self._first is None:
            self._first = first
        if self._first_epoch is None:
            self._first_epoch = epoch
        if not (self._forgot or forgets):
            self._openers = _merged(later._openers, self._openers)
        forgets |= later._forgot
        self.producers = later.producers if forgets else _merged(self.producers, later.producers)
        self._forgot |= forgets
        self.last_offset = later.last_offset
        if later._first_epoch is not None:
            self.leader_epoch = later.leader_epoch
        self.after_damage = later.after_damage

    # ---- one stretch for itself ------------------------------------------------------------------

    def _read(self, columns: BatchColumns, breaks: Sequence[int]) -> Iterator[Finding]:
        """Read a stretch into an empty state. Yield the findings within it."""
        rows = np.flatnonzero(columns["is_valid"])
        self.after_damage = not len(rows) or bool(rows[-1] < len(columns) - 1)
        self._last_position = self._position(columns, len(columns) - 1)
        if not len(rows):
            return
        base, last = columns["base_offset"][rows], columns["last_offset"][rows]
        # of a compressed set of magic 0 or 1 only the last offset is known here
        has_first = columns["magic"][rows] >= 2
        forgets = np.empty(len(rows), bool)
        forgets[0] = rows[0] > 0
        forgets[1:] = np.diff(rows) > 1
        if len(breaks):
            forgets[1:] |= np.diff(np.searchsorted(breaks, rows, "right")) > 0
        self._first = self._first_at(columns, rows[0], int(has_first[0]))._replace(
            gap_is_known=bool(forgets[0])
        )
        self.last_offset = int(last[-1])
        base, before = base[1:], last[:-1]
        for i in np.flatnonzero(base <= before):
            yield self._finding(columns, rows[i + 1], Rule.L2, "OFFSETS_BACK", base[i], before[i])
        if not self.compacted:
            # a difference that wraps is not 1 either
            missing = (base > before) & (base - before != 1) & has_first[1:] & ~forgets[1:]
            for i in np.flatnonzero(missing):
                yield self._finding(
                    columns, rows[i + 1], Rule.L3, "OFFSETS_MISSING", base[i], before[i]
                )
            forgets[1:] |= missing
        yield from self._epochs(columns, rows)
        if not self.compacted:
            yield from self._sequences(columns, rows, forgets)
        self._forgot = bool(forgets.any())

    def _position(self, columns: BatchColumns, row: int) -> int:
        """Return where a row is; -1 before the first."""
        return int(columns["position"][row]) + self._base if row >= 0 else -1

    def _first_at(self, columns: BatchColumns, row: int, value: int) -> _First:
        return _First(*self._place(columns, row), self._position(columns, row - 1), value)

    def _place(self, columns: BatchColumns, row: int) -> tuple[int, int, int]:
        return (
            int(columns["position"][row]) + self._base,
            int(columns["base_offset"][row]),
            int(columns["max_timestamp"][row]),
        )

    def _finding(
        self, columns: BatchColumns, row: int, rule: Rule, reason: str, a: int, b: int
    ) -> Finding:
        position, offset, timestamp = self._place(columns, row)
        previous = self._position(columns, row - 1) if rule is not Rule.L5 else -1
        before = int(b) if rule in (Rule.L2, Rule.L3) else -1
        return Finding(
            position, offset, rule, _reason(reason, int(a), int(b)), timestamp, previous, before
        )

    def _epochs(self, columns: BatchColumns, rows: np.ndarray) -> Iterator[Finding]:
        epochs = columns["partition_leader_epoch"][rows]
        known = epochs >= 0
        rows, epochs = rows[known], epochs[known]
        if not len(rows):
            return
        for i in np.flatnonzero(epochs[1:] < epochs[:-1]):
            yield self._finding(
                columns, rows[i + 1], Rule.L4, "EPOCH_BACK", epochs[i + 1], epochs[i]
            )
        self._first_epoch = self._first_at(columns, rows[0], int(epochs[0]))
        self.leader_epoch = int(epochs[-1])

    def _sequences(
        self, columns: BatchColumns, rows: np.ndarray, forgets: np.ndarray
    ) -> Iterator[Finding]:
        """Yield findings by producer. Where producers are forgotten (their batches may be missing
        there), a new group of batches begins.
        """
        # Transaction markers carry no sequence, and raise the epoch.
        asked = (columns["producer_id"][rows] >= 0) & (columns["base_sequence"][rows] >= 0)
        asked &= ~columns["is_control_batch"][rows]
        rows = rows[asked]
        if not len(rows):
            return
        groups = np.cumsum(forgets)
        last_group = groups[-1]
        groups = groups[asked]
        # stable: each producer's batches stay in order
        order = np.lexsort((columns["producer_id"][rows], groups))
        rows, groups = rows[order], groups[order]
        openers = np.empty(len(rows), _OPENERS)
        for name in ("producer_id", "max_timestamp", "producer_epoch"):
            openers[name] = columns[name][rows]
        openers["position"] = columns["position"][rows] + self._base
        openers["sequence"], openers["offset"] = (
            columns["base_sequence"][rows],
            columns["base_offset"][rows],
        )
        known = openers[_PRODUCER_FIELDS].astype(PRODUCERS)
        spent = columns["last_offset_delta"][rows].astype("<i8") + 1
        known["sequence"] = (openers["sequence"] + spent) % _SEQUENCES
        begins = np.ones(len(rows) + 1, bool)
        begins[1:-1] = (groups[1:] != groups[:-1]) | (
            openers["producer_id"][1:] != openers["producer_id"][:-1]
        )
        bad = ~begins[1:-1] & self._breaks(known[:-1], openers[1:])
        for i in np.flatnonzero(bad):
            sequence, before = openers["sequence"][i + 1], known["sequence"][i]
            yield self._finding(columns, rows[i + 1], Rule.L5, "SEQUENCE_MISSING", sequence, before)
        self._openers = openers[begins[:-1] & (groups == 0)]
        self.producers = known[begins[1:] & (groups == last_group)]

    def _breaks(self, known: np.ndarray, next_ones: np.ndarray) -> np.ndarray:
        """Return which sequences do not follow, of pairs of one producer's batches."""
        expiration = self.producer_id_expiration_ms
        until = np.minimum(known["max_timestamp"], np.iinfo("<i8").max - expiration) + expiration
        remembered = next_ones["max_timestamp"] <= until
        same_epoch = known["producer_epoch"] == next_ones["producer_epoch"]
        return np.asarray(same_epoch & remembered & (known["sequence"] != next_ones["sequence"]))


def _merged(producers: np.ndarray, stronger: np.ndarray) -> np.ndarray:
    """Return a row for each producer of either; where both have one, that of ``stronger``."""
    if not len(producers) or not len(stronger):
        return stronger if len(stronger) else producers
    kept = producers[~np.isin(producers["producer_id"], stronger["producer_id"])]
    both = np.concatenate([kept, stronger])
    return both[np.argsort(both["producer_id"], kind="stable")]
