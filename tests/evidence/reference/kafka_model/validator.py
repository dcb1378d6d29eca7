"""Kafka's LogValidator: rules 18 to 39, offsets, timestamps, and the three ways a batch goes into
the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from batchval.rules import Rule
from batchval.types import AppendOrigin, CompressionType, TimestampType

from .batches import Batch, batches
from .builder import Builder, header_size, require_contents
from .java import RecordErrors, Refused, i32, i64
from .records import Record
from .settings import Settings
from .streams import Notes

__all__ = ["Validated", "Validator"]


@dataclass(slots=True)
class Validated:
    """An accepted batch."""

    path: str
    next_offset: int
    max_timestamp: int
    output: bytes | None
    in_place: bool
    converted: int
    temp_bytes: int
    records_count: int
    size_maybe_changed: bool


class Validator:
    """One call's state. ``data`` is changed in place where Kafka does so."""

    def __init__(
        self,
        data: bytearray,
        settings: Settings,
        notes: Notes | None = None,
        write_output: bool = True,
    ) -> None:
        self.data = data
        self.settings = settings
        self.notes = notes
        self.write_output = write_output
        self.meters: Counter[str] = Counter()
        self.offset = settings.first_offset
        self.path = ""

    def run(self) -> Validated:
        """Run ``validateMessagesAndAssignOffsets``."""
        settings = self.settings
        if (
            settings.source is not CompressionType.NONE
            or settings.target is not CompressionType.NONE
        ):
            return self._compressed()
        if all(batch.magic == settings.to_magic for batch in batches(self.data)):
            return self._assign()
        return self._convert()

    def _first_batch(self, source: CompressionType) -> Batch:
        found = batches(self.data)
        first = next(found, None)
        if first is None:
            raise Refused(Rule.VALIDATOR_WITHOUT_BATCH)
        if (first.magic >= 2 or source is not CompressionType.NONE) and next(
            found, None
        ) is not None:
            raise Refused(Rule.VALIDATOR_MORE_THAN_ONE_BATCH)
        return first

    # -- the three ways

    def _assign(self) -> Validated:
        """Set offsets and timestamps in place: uncompressed, and of the right magic."""
        settings = self.settings
        self.path = "full"
        first = self._first_batch(CompressionType.NONE)
        max_timestamp = -1
        count = 0
        for batch in batches(self.data):
            self._validate_batch(first, batch)
            batch_max = -1
            errors: list[tuple[int, Rule]] = []
            for index, record in enumerate(batch.iterate(self.notes)):
                self._note_delta(batch, index, record)
                self._collect(errors, index, self._validate_record(batch, record))
                count += 1
                if batch.magic > 0 and record.timestamp > batch_max:
                    batch_max = record.timestamp
            self._end_of_batch(errors)
            if batch.magic > 0:
                max_timestamp = max(max_timestamp, batch_max)
            self.offset = i64(settings.first_offset + count)
            batch.set_last_offset(i64(self.offset - 1))
            if batch.magic >= 2:
                batch.set_leader_epoch(settings.leader_epoch)
            if batch.magic > 0:
                by_append = settings.ts_type is TimestampType.LOG_APPEND_TIME
                batch.set_max_timestamp(settings.ts_type, settings.now if by_append else batch_max)
        if settings.ts_type is TimestampType.LOG_APPEND_TIME:
            max_timestamp = -1 if settings.to_magic == 0 else settings.now
        return self._in_place(max_timestamp, count, 0)

    def _convert(self) -> Validated:
        """Convert an uncompressed batch of another magic; everything is parsed before any rule."""
        self.path = "rebuilt"
        require_contents(record for batch in batches(self.data) for record in batch.iterate())
        first = self._first_batch(CompressionType.NONE)
        builder = self._builder(first, CompressionType.NONE)
        for batch in batches(self.data):
            self._validate_batch(first, batch)
            errors: list[tuple[int, Rule]] = []
            for index, record in enumerate(batch.iterate(self.notes)):
                self._note_delta(batch, index, record)
                self._collect(errors, index, self._validate_record(batch, record))
                if not errors:
                    builder.append(self.offset, record)
                    self.offset = i64(self.offset + 1)
            self._end_of_batch(errors)
        output = builder.build(self.write_output)
        return self._rebuilt(builder, output, builder.uncompressed_size)

    def _compressed(self) -> Validated:
        """Validate with a codec on either side, in place where nothing has to change."""
        settings = self.settings
        in_place = settings.source is settings.target
        first = self._first_batch(settings.source)
        if first.magic != settings.to_magic or settings.to_magic == 0:
            in_place = False
        if settings.source is CompressionType.NONE and first.is_control:
            in_place = True
        self.path = "rebuilt" if not in_place else "full" if self._is_full(first) else "shallow"
        max_timestamp = -1
        expected = 0
        size = 0
        validated: list[Record] = []
        for batch in batches(self.data):
            self._validate_batch(first, batch)
            size = i32(size + header_size(settings.to_magic, batch.codec))
            errors: list[tuple[int, Rule]] = []
            for index, record in enumerate(self._records(batch, in_place and first.magic >= 2)):
                self._note_delta(batch, index, record)
                error = self._validate_codec(record) or self._validate_record(batch, record)
                if error is None and batch.magic > 0 and settings.to_magic > 0:
                    max_timestamp = max(max_timestamp, record.timestamp)
                    if record.offset != expected:
                        in_place = False
                expected += 1
                if error is None:
                    size = i32(size + record.size)
                    validated.append(record)
                self._collect(errors, index, error)
            self._end_of_batch(errors)
        if not in_place:
            return self._rebuild(first, validated, size)
        self.offset = i64(self.offset + len(validated))
        first.set_last_offset(i64(self.offset - 1))
        if settings.ts_type is TimestampType.LOG_APPEND_TIME:
            max_timestamp = settings.now
        if settings.to_magic >= 1:
            first.set_max_timestamp(settings.ts_type, max_timestamp)
        if settings.to_magic >= 2:
            first.set_leader_epoch(settings.leader_epoch)
        return self._in_place(max_timestamp, len(validated), size)

    def _is_full(self, first: Batch) -> bool:
        return first.magic < 2 or self.settings.source is CompressionType.NONE

    def _records(self, batch: Batch, skip: bool) -> Iterator[Record]:
        limit = self.settings.max_record_body
        return batch.skipping(limit, self.notes) if skip else batch.streaming(limit, self.notes)

    def _rebuild(self, first: Batch, records: list[Record], size: int) -> Validated:
        self.path = "rebuilt"
        require_contents(records)
        builder = self._builder(first, self.settings.target)
        for record in records:
            builder.append(self.offset, record)
            self.offset = i64(self.offset + 1)
        output = builder.build(self.write_output)
        return self._rebuilt(builder, output, i32(size + builder.uncompressed_size))

    def _builder(self, first: Batch, codec: CompressionType) -> Builder:
        return Builder(self.settings, codec, self.offset, first)

    def _in_place(self, max_timestamp: int, count: int, temp_bytes: int) -> Validated:
        output = bytes(self.data)
        return Validated(
            self.path, self.offset, max_timestamp, output, True, 0, temp_bytes, count, False
        )

    def _rebuilt(self, builder: Builder, output: bytes | None, temp_bytes: int) -> Validated:
        count = builder.count
        return Validated(
            self.path,
            self.offset,
            builder.max_timestamp,
            output,
            False,
            count,
            temp_bytes,
            count,
            True,
        )

    # -- rules of a batch

    def _validate_batch(self, first: Batch, batch: Batch) -> None:
        settings = self.settings
        if first.magic != batch.magic:
            self._refuse(Rule.BATCH_MAGIC_DIFFERS, "magic")
        if settings.origin is AppendOrigin.CLIENT:
            if batch.magic >= 2:
                range_size = i64(batch.last_offset - batch.base_offset + 1)
                if range_size <= 0:
                    self._refuse(Rule.OFFSET_RANGE_EMPTY, "offset")
                if batch.count <= 0:
                    self._refuse(Rule.RECORDS_COUNT_NOT_POSITIVE, "offset")
                if range_size != batch.count:
                    self._refuse(Rule.RECORDS_COUNT_UNLIKE_OFFSETS, "offset")
            if batch.is_control:
                self._refuse(Rule.CONTROL_BATCH_BY_CLIENT, "offset")
            if batch.has_producer_id and batch.base_sequence < 0:
                self._refuse(Rule.BASE_SEQUENCE_NEGATIVE, "sequence")
        if batch.is_transactional and settings.to_magic < 2:
            raise Refused(Rule.TRANSACTION_BEFORE_MAGIC_2)
        if batch.has_producer_id and settings.to_magic < 2:
            raise Refused(Rule.PRODUCER_ID_BEFORE_MAGIC_2)

    def _refuse(self, rule: Rule, meter: str) -> None:
        self.meters[meter] += 1
        raise Refused(rule)

    # -- rules of a record

    def _validate_codec(self, record: Record) -> Rule | None:
        if self.settings.source is not CompressionType.NONE and record.is_compressed():
            return Rule.INNER_CODEC_SET
        return None

    def _validate_record(self, batch: Batch, record: Record) -> Rule | None:
        if not record.has_magic(batch.magic):
            self.meters["magic"] += 1
            record.describe()
            return Rule.RECORD_MAGIC_DIFFERS
        if batch.magic <= 1 and batch.is_compressed:
            try:
                record.ensure_valid()
            except Refused:
                self.meters["checksum"] += 1
                raise
        if self.settings.compact and not record.has_key():
            self.meters["nokey"] += 1
            return Rule.KEY_MISSING
        return self._validate_timestamp(batch, record)

    def _validate_timestamp(self, batch: Batch, record: Record) -> Rule | None:
        settings = self.settings
        if settings.ts_type is TimestampType.CREATE_TIME and record.timestamp != -1:
            age = i64(settings.now - record.timestamp)
            if age > settings.before_max_ms or i64(-age) > settings.after_max_ms:
                return Rule.TIMESTAMP_OUT_OF_RANGE
        elif batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
            record.describe()
            return Rule.TIMESTAMP_TYPE_BY_PRODUCER
        return None

    @staticmethod
    def _collect(errors: list[tuple[int, Rule]], index: int, error: Rule | None) -> None:
        if error is not None:
            errors.append((index, error))

    @staticmethod
    def _end_of_batch(errors: list[tuple[int, Rule]]) -> None:
        if errors:
            raise RecordErrors(errors)

    def _note_delta(self, batch: Batch, index: int, record: Record) -> None:
        if self.notes and batch.magic >= 2 and record.offset_delta != index:
            self.notes.found.add(Rule.S3)
