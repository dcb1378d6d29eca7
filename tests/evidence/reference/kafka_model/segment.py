"""A log segment at rest: its batches in order, judged by the rules of the ``log`` profile.

Kafka has no single piece of code for this. The numbered rules are the broker's own, asked as it
asks them of a batch that stays in place; the rules L1 to L5 look at one batch after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from batchval.errors import ErrorCode
from batchval.rules import Rule

from .batches import Batch, DefaultBatch, batches
from .java import JavaError, RecordErrors, Refused, TooMuchOutput
from .records import Record
from .settings import MAX_BODY_SIZE
from .streams import Notes

__all__ = ["Finding", "check_segment"]

_INT_MAX = 2**31 - 1


@dataclass(slots=True)
class Finding:
    """What was seen at one batch. ``extras`` were seen besides, and count where ``error`` is
    None.
    """

    error: Refused | JavaError | TooMuchOutput | None = None
    extras: set[Rule] = field(default_factory=set)
    records_count: int = 0
    max_timestamp: int = -1


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_sequence: int


def check_segment(
    buffer: bytes, expects_all_offsets: bool, max_decompressed: int | None
) -> Iterator[Finding]:
    """Yield one finding a batch, the last for bytes after whole batches. ``None``: no limit
    (Kafka).
    """
    judge = _Judge(expects_all_offsets)
    pos = 0
    while pos < len(buffer):
        try:
            batch = _next_batch(buffer, pos)
        except (Refused, JavaError) as error:
            yield Finding(error)
            return
        yield judge.batch(batch, None if max_decompressed is None else Notes(max_decompressed))
        pos += batch.size


def _next_batch(buffer: bytes, pos: int) -> Batch:
    if not any(buffer[pos:]):
        raise Refused(Rule.L1)
    try:
        batch = next(batches(buffer[pos:]), None)
    except JavaError:
        batch = None  # a size that overflows is larger than what is left
    if batch is None:
        raise Refused(Rule.L1)
    return batch


class _Judge:
    """The state that earlier batches leave for the next."""

    def __init__(self, expects_all_offsets: bool) -> None:
        self._expects_all_offsets = expects_all_offsets
        self._last_offset: int | None = None
        self._leader_epoch = -1
        self._producers: dict[int, _Producer] = {}

    def batch(self, batch: Batch, notes: Notes | None) -> Finding:
        finding = Finding()
        try:
            if not batch.is_valid():
                raise Refused(Rule.CRC_MISMATCH)
            _ = batch.codec
            base_offset = self._records(batch, notes, finding)
            self._offsets(batch, base_offset)
            self._epoch(batch)
            self._sequence(batch)
        except JavaError as error:
            finding.error = _as_malformed(error, batch)
        except (Refused, TooMuchOutput) as error:
            finding.error = error
        if notes:
            finding.extras = notes.found
        return finding

    def _records(self, batch: Batch, notes: Notes | None, finding: Finding) -> int:
        """Parse all records; the answer is the base offset, which legacy wrappers have inside."""
        first: int | None = None
        errors: list[tuple[int, Rule]] = []
        last_delta = -1
        for index, record in enumerate(batch.skipping(MAX_BODY_SIZE, notes)):
            if first is None:
                first = record.offset
            if notes and isinstance(batch, DefaultBatch):
                if not last_delta < record.offset_delta <= batch.last_offset_delta:
                    notes.found.add(Rule.S3)
                last_delta = max(last_delta, record.offset_delta)
            error = _legacy_error(batch, record)
            if error:
                errors.append((index, error))
            finding.records_count += 1
            finding.max_timestamp = max(finding.max_timestamp, record.timestamp)
        if errors:
            raise RecordErrors(errors)
        return batch.base_offset if isinstance(batch, DefaultBatch) or first is None else first

    def _offsets(self, batch: Batch, base_offset: int) -> None:
        before = self._last_offset
        if batch.last_offset < base_offset or (before is not None and base_offset <= before):
            raise Refused(Rule.L2)
        if self._expects_all_offsets and before is not None and base_offset != before + 1:
            raise Refused(Rule.L3)
        self._last_offset = batch.last_offset

    def _epoch(self, batch: Batch) -> None:
        if batch.leader_epoch == -1:
            return
        if batch.leader_epoch < self._leader_epoch:
            raise Refused(Rule.L4)
        self._leader_epoch = batch.leader_epoch

    def _sequence(self, batch: Batch) -> None:
        if not isinstance(batch, DefaultBatch) or not batch.has_producer_id:
            return
        known = self._producers.get(batch.producer_id)
        if batch.is_control:
            # a marker may raise the epoch, and the producer then starts anew
            if known and known.epoch != batch.producer_epoch:
                self._producers[batch.producer_id] = _Producer(batch.producer_epoch, -1)
            return
        if batch.base_sequence < 0:
            return
        if known and self._expects_all_offsets:
            expected = 0
            if known.epoch == batch.producer_epoch and known.last_sequence < _INT_MAX:
                expected = known.last_sequence + 1
            if batch.base_sequence != expected:
                raise Refused(Rule.L5)
        last = (batch.base_sequence + batch.last_offset_delta) % (_INT_MAX + 1)
        self._producers[batch.producer_id] = _Producer(batch.producer_epoch, last)


def _legacy_error(batch: Batch, record: Record) -> Rule | None:
    if not record.has_magic(batch.magic):
        return Rule.RECORD_MAGIC_DIFFERS
    if batch.magic <= 1 and batch.is_compressed:
        record.ensure_valid()
    return None


def _as_malformed(error: JavaError, batch: Batch) -> JavaError | Refused:
    """Convert a broker's -1 that no extra of this profile names: record or wrapper is malformed."""
    if error.extra is not Rule.S9:
        return error
    return Refused(
        Rule.RECORD_MALFORMED if batch.magic >= 2 else Rule.WRAPPER_MALFORMED,
        ErrorCode.INVALID_RECORD,
    )
