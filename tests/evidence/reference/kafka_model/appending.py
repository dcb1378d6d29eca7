"""The second half of UnifiedLog.append (rules 41 to 47), for an empty log that starts at
``first_offset``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from batchval.errors import ErrorCode
from batchval.rules import Rule
from batchval.types import AppendOrigin

from .batches import Batch, batches
from .java import JavaError, Refused, i64
from .records import Record
from .streams import Notes

__all__ = ["Kept", "keep", "require_appendable"]

_MAX_OFFSET_ABOVE_BASE = 2**31 - 1
_NAMED_OFFSETS = 10


@dataclass(slots=True)
class _Producer:
    """ProducerStateEntry of a producer that the log has not seen."""

    epoch: int = -1
    coordinator_epoch: int = -1
    in_transaction: bool = False


@dataclass(slots=True)
class _Producers:
    """ProducerAppendInfo for every producer of one append."""

    origin: AppendOrigin
    limit: int | None  # of decompressed bytes a batch
    states: dict[int, _Producer] = field(default_factory=dict)

    def append(self, batch: Batch, is_control: bool) -> None:
        if not batch.has_producer_id:
            return
        if not is_control:
            self._append_data(batch)
            return
        for record in islice(batch.iterate(_notes(self.limit)), 1):
            self._append_marker(batch, _coordinator_epoch(record))

    def _state(self, batch: Batch) -> _Producer:
        state = self.states.setdefault(batch.producer_id, _Producer())
        if batch.producer_epoch < state.epoch and self.origin is not AppendOrigin.REPLICATION:
            raise Refused(Rule.PRODUCER_EPOCH_TOO_LOW)
        return state

    def _append_data(self, batch: Batch) -> None:
        state = self._state(batch)
        state.epoch = batch.producer_epoch
        if state.in_transaction and not batch.is_transactional:
            raise Refused(Rule.TRANSACTION_NOT_ENDED)
        state.in_transaction = batch.is_transactional

    def _append_marker(self, batch: Batch, coordinator_epoch: int) -> None:
        if self.origin is AppendOrigin.RAFT_LEADER:
            raise JavaError("no transaction version", rule=Rule.TRANSACTION_MARKER_MALFORMED)
        state = self._state(batch)
        if (
            coordinator_epoch < state.coordinator_epoch
            and self.origin is not AppendOrigin.REPLICATION
        ):
            raise Refused(Rule.COORDINATOR_EPOCH_TOO_LOW)
        self.states[batch.producer_id] = _Producer(batch.producer_epoch, coordinator_epoch)


def _notes(limit: int | None) -> Notes | None:
    """Return notes with a limit, but without extras, for reads that only the append makes."""
    return None if limit is None else Notes(limit)


def _coordinator_epoch(record: Record) -> int:
    """Return the epoch as EndTransactionMarker.deserialize does."""
    key, value = record.key(), record.value()
    if key is None:
        raise JavaError("no key", rule=Rule.TRANSACTION_MARKER_MALFORMED)
    if len(key) < 4 or key[0] & 0x80:
        raise Refused(Rule.TRANSACTION_MARKER_MALFORMED, ErrorCode.INVALID_RECORD)
    if key[2:4] not in (b"\0\0", b"\0\1"):
        raise JavaError("not a transaction's control type", rule=Rule.TRANSACTION_MARKER_MALFORMED)
    if value is None or len(value) < 2:
        raise JavaError("no version", rule=Rule.TRANSACTION_MARKER_MALFORMED)
    if value[0] & 0x80:
        raise Refused(Rule.TRANSACTION_MARKER_MALFORMED, ErrorCode.INVALID_RECORD)
    if len(value) < 6:
        raise JavaError("no coordinator epoch", rule=Rule.TRANSACTION_MARKER_MALFORMED)
    return int(struct.unpack(">i", value[2:6])[0])


def _note_epoch(epoch: int, base_offset: int) -> None:
    if epoch < 0 or base_offset < 0:
        raise JavaError("invalid epoch entry", rule=Rule.LEADER_EPOCH_INVALID)


def _require_segment(base: int, last_offset: int) -> None:
    if (
        not 0 <= i64(last_offset - base) <= _MAX_OFFSET_ABOVE_BASE
        or not base <= last_offset < 2**63 - 1
    ):
        raise JavaError("offset overflow", rule=Rule.OFFSETS_OUTSIDE_SEGMENT)


def require_appendable(
    first: Batch,
    *,
    origin: AppendOrigin,
    first_offset: int,
    leader_epoch: int,
    records_count: int,
    is_rebuilt: bool,
    limit: int | None,
) -> None:
    """Check the stored form of the batch that LogValidator accepted; raise what Kafka throws."""
    if is_rebuilt and records_count == 0:
        return
    base = (
        first_offset
        if is_rebuilt
        else i64(first_offset + records_count - 1 - (first.last_offset - first.base_offset))
    )
    _note_epoch(leader_epoch, base)
    _Producers(origin, limit).append(first, first.is_control and not is_rebuilt)
    _require_segment(first_offset, i64(first_offset + records_count - 1))


@dataclass(frozen=True, slots=True)
class Kept:
    """What the headers of batches say that are stored as they came."""

    next_offset: int
    max_timestamp: int
    records_count: int


def keep(
    buffer: bytes, valid_bytes: int, origin: AppendOrigin, log_end: int, limit: int | None
) -> Kept:
    """Append as a follower or Raft leader; raise what Kafka throws."""
    stored = list(batches(buffer[:valid_bytes]))
    first = stored[0]
    first_offset = (
        first.base_offset if first.magic == 2 and first.base_offset >= 0 else first.last_offset
    )
    if first_offset < log_end:
        for _ in islice(_records(buffer, limit), _NAMED_OFFSETS):
            pass
        raise JavaError("below the log's end", rule=Rule.OFFSET_BELOW_LOG_END)
    for batch in stored:
        if batch.magic == 2:
            _note_epoch(batch.leader_epoch, batch.base_offset)
    producers = _Producers(origin, limit)
    for batch in stored:
        producers.append(batch, batch.is_control)
    last_offset = stored[-1].last_offset
    base = log_end
    if (
        not 0 <= i64(last_offset - base) <= _MAX_OFFSET_ABOVE_BASE
        or not base <= last_offset < 2**63 - 1
    ):
        base = first_offset if first.magic == 2 else max(base, last_offset - _MAX_OFFSET_ABOVE_BASE)
    _require_segment(base, last_offset)
    return Kept(
        last_offset + 1,
        max(-1, *(batch.max_timestamp for batch in stored)),
        min(2**31 - 1, sum(max(0, batch.count) if batch.magic == 2 else 1 for batch in stored)),
    )


def _records(buffer: bytes, limit: int | None) -> Iterator[Record]:
    for batch in batches(buffer):
        yield from batch.iterate(_notes(limit))
