"""Batches in a buffer: the iterator that finds them, and the magic-2 batch with its record
iterators.
"""

from __future__ import annotations

from collections.abc import Iterator

from batchval.rules import Rule
from batchval.types import CompressionType, TimestampType

from .java import (
    BufferUnderflow,
    ByteBuffer,
    IllegalArgument,
    IndexOutOfBounds,
    JavaError,
    Refused,
    crc32c,
    i32,
    i64,
    read_varint,
)
from .records import BatchFacts, Record, read_full, read_full_from_stream, read_partially
from .settings import MAX_BODY_SIZE
from .streams import ChunkedBytesStream, Notes, open_stream

__all__ = ["HEADER_SIZE", "Batch", "DefaultBatch", "batches", "codec_of"]

HEADER_SIZE = 61

#: of a JVM, whatever its heap
_MAX_ARRAY_LENGTH = 2**31 - 3
_LOG_OVERHEAD = 12
_MIN_SIZE = 14
_TO_MAGIC = 17
_MAGIC_AT = 16


def codec_of(attributes: int) -> CompressionType:
    """Return the codec as ``CompressionType.forId`` does."""
    if attributes & 7 > 4:
        raise IllegalArgument("codec id above 4", Rule.S6, Rule.CODEC_ID_UNKNOWN)
    return CompressionType(attributes & 7)


class Batch:
    """What the validator asks of a batch, whatever its magic. What magic 0 and 1 do not have, has
    Kafka's default.
    """

    def __init__(self, buffer: ByteBuffer) -> None:
        self.buffer = buffer
        self.size = buffer.limit
        self.magic = buffer.i8(_MAGIC_AT)

    @property
    def base_offset(self) -> int:
        raise NotImplementedError

    @property
    def last_offset(self) -> int:
        raise NotImplementedError

    @property
    def leader_epoch(self) -> int:
        return -1

    @property
    def max_timestamp(self) -> int:
        raise NotImplementedError

    @property
    def timestamp_type(self) -> TimestampType:
        raise NotImplementedError

    @property
    def codec(self) -> CompressionType:
        raise NotImplementedError

    @property
    def producer_id(self) -> int:
        return -1

    @property
    def producer_epoch(self) -> int:
        return -1

    @property
    def base_sequence(self) -> int:
        return -1

    @property
    def count(self) -> int:
        return -1

    @property
    def is_transactional(self) -> bool:
        return False

    @property
    def is_control(self) -> bool:
        return False

    @property
    def is_compressed(self) -> bool:
        return self.codec is not CompressionType.NONE

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > -1

    def is_valid(self) -> bool:
        """Return whether size and checksum are right (rule 14)."""
        raise NotImplementedError

    def iterate(self, notes: Notes | None = None) -> Iterator[Record]:
        """Iterate as Kafka does: parse a compressed batch to its end before the first record."""
        raise NotImplementedError

    def streaming(self, max_body_size: int, notes: Notes | None) -> Iterator[Record]:
        """Yield records with their contents, one at a time."""
        raise NotImplementedError

    def skipping(self, max_body_size: int, notes: Notes | None) -> Iterator[Record]:
        """Yield records, for a compressed batch of magic 2 without keys and values."""
        raise NotImplementedError

    def set_last_offset(self, offset: int) -> None:
        raise NotImplementedError

    def set_max_timestamp(self, kind: TimestampType, timestamp: int) -> None:
        """Set timestamp type, timestamp and checksum if they differ."""
        raise NotImplementedError

    def set_leader_epoch(self, epoch: int) -> None:
        raise NotImplementedError


def batches(data: bytes | bytearray) -> Iterator[Batch]:
    """Yield batches as Kafka's batch iterator does (rules 1 to 4)."""
    from .legacy import LegacyBatch

    pos = 0
    while True:
        rest = ByteBuffer(data, pos)
        if rest.limit < _LOG_OVERHEAD:
            return
        size = rest.i32(8)
        if size < _MIN_SIZE:
            raise Refused(Rule.BATCH_SIZE_TOO_SMALL)
        if rest.limit < _TO_MAGIC:
            return
        magic = rest.i8(_MAGIC_AT)
        if not 0 <= magic <= 2:
            raise Refused(Rule.MAGIC_UNKNOWN)
        total = i32(size + _LOG_OVERHEAD)
        if total < 0:
            raise IllegalArgument("size overflows", rule=Rule.BATCH_SIZE_OVERFLOW)
        if rest.limit < total:
            return
        window = ByteBuffer(data, pos, total)
        yield DefaultBatch(window) if magic == 2 else LegacyBatch(window)
        pos += total


class DefaultBatch(Batch):
    """A batch of magic 2. Fields are read when they are asked for: a batch may be too small to have
    them.
    """

    @property
    def base_offset(self) -> int:
        return self.buffer.i64(0)

    @property
    def leader_epoch(self) -> int:
        return self.buffer.i32(12)

    @property
    def attributes(self) -> int:
        return self.buffer.i16(21) & 0xFFFF

    @property
    def last_offset_delta(self) -> int:
        return self.buffer.i32(23)

    @property
    def last_offset(self) -> int:
        return i64(self.base_offset + self.last_offset_delta)

    @property
    def base_timestamp(self) -> int:
        return self.buffer.i64(27)

    @property
    def max_timestamp(self) -> int:
        return self.buffer.i64(35)

    @property
    def producer_id(self) -> int:
        return self.buffer.i64(43)

    @property
    def producer_epoch(self) -> int:
        return self.buffer.i16(51)

    @property
    def base_sequence(self) -> int:
        return self.buffer.i32(53)

    @property
    def count(self) -> int:
        return self.buffer.i32(57)

    @property
    def timestamp_type(self) -> TimestampType:
        return (
            TimestampType.LOG_APPEND_TIME if self.attributes & 0x08 else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def codec(self) -> CompressionType:
        return codec_of(self.attributes)

    def is_valid(self) -> bool:
        return self.size >= HEADER_SIZE and self.buffer.u32(17) == crc32c(self.buffer.slice(21))

    # -- records

    def _facts(self) -> BatchFacts:
        append_time = (
            self.max_timestamp if self.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        )
        return BatchFacts(self.base_offset, self.base_timestamp, append_time)

    def _payload(self) -> bytes:
        if self.size < HEADER_SIZE:
            raise IndexOutOfBounds("no room for a header")
        return self.buffer.slice(HEADER_SIZE)

    def _count_of_records(self) -> int:
        count = self.count
        if count < 0:
            raise Refused(Rule.RECORD_MALFORMED)
        return count

    def iterate(self, notes: Notes | None = None) -> Iterator[Record]:
        if self.count == 0:
            return iter(())
        if not self.is_compressed:
            return self._uncompressed(notes)
        if self.count > _MAX_ARRAY_LENGTH and self.codec:
            raise JavaError("no array is that long", rule=Rule.RECORD_MALFORMED)
        return iter(list(self._compressed(False, MAX_BODY_SIZE, notes)))

    def streaming(self, max_body_size: int, notes: Notes | None) -> Iterator[Record]:
        return (
            self._compressed(False, max_body_size, notes)
            if self.is_compressed
            else self._uncompressed(notes)
        )

    def skipping(self, max_body_size: int, notes: Notes | None) -> Iterator[Record]:
        if self.count == 0:
            return iter(())
        return (
            self._compressed(True, max_body_size, notes)
            if self.is_compressed
            else self._uncompressed(notes)
        )

    def _uncompressed(self, notes: Notes | None) -> Iterator[Record]:
        buffer = ByteBuffer(self._payload())
        facts = self._facts()
        count = self._count_of_records()
        for index in range(count):
            try:
                # a length of more than five bytes is not caught here, unlike everywhere else
                body_size = read_varint(buffer.get)
            except BufferUnderflow:
                raise Refused(Rule.RECORD_MALFORMED) from None
            record = read_full(buffer, body_size, facts, notes)
            if index == count - 1:
                if buffer.remaining:
                    raise Refused(Rule.RECORD_MALFORMED)
                self._note_count(notes)
            yield record

    def _compressed(self, skip: bool, max_body_size: int, notes: Notes | None) -> Iterator[Record]:
        stream: ChunkedBytesStream = open_stream(self.codec, self._payload(), self.magic, notes)
        facts = self._facts()
        count = self._count_of_records()
        read = read_partially if skip else read_full_from_stream
        for index in range(count):
            record = read(stream, facts, max_body_size, notes)
            if index == count - 1:
                if stream.read() != -1:
                    raise Refused(Rule.RECORD_MALFORMED)
                if notes and stream.source.unread():
                    notes.found.add(Rule.S7)
                self._note_count(notes)
            yield record

    def _note_count(self, notes: Notes | None) -> None:
        """Note more records than last_offset_delta allows: Kafka checks that for clients only (rule
        24).
        """
        if notes and self.count - 1 > self.last_offset_delta:
            notes.found.add(Rule.S3)

    # -- changes in place

    def set_last_offset(self, offset: int) -> None:
        self.buffer.put(">q", 0, i64(offset - self.last_offset_delta))

    def set_max_timestamp(self, kind: TimestampType, timestamp: int) -> None:
        if self.timestamp_type is kind and self.max_timestamp == timestamp:
            return
        _ = self.codec  # one that is unknown fails here
        kept = self.attributes & 0x77  # codec, transactional, control, delete horizon
        self.buffer.put(">h", 21, kept | (0x08 if kind is TimestampType.LOG_APPEND_TIME else 0))
        self.buffer.put(">q", 35, timestamp)
        self.buffer.put(">I", 17, crc32c(self.buffer.slice(21)))

    def set_leader_epoch(self, epoch: int) -> None:
        self.buffer.put(">i", 12, epoch)
