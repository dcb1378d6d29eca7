"""Magic 0 and 1: a message is a batch of its own, or wraps a compressed set of messages."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from batchval.rules import Rule
from batchval.types import CompressionType, TimestampType

from .batches import Batch, codec_of
from .java import ByteBuffer, Refused, i32, i64
from .records import Record
from .settings import MAX_BODY_SIZE
from .streams import ChunkedBytesStream, Notes, open_stream, read_fully

__all__ = ["LegacyBatch", "LegacyRecord"]

_OVERHEAD = 12
_MIN_SIZE = 14


class LegacyRecord(Record):
    """A message: checksum, magic, attributes, in magic 1 a timestamp, key, value.

    ``wrapper`` is the timestamp and its type of the message that this one lay in, for inner
    messages of magic 1.
    """

    __slots__ = ("_message", "_wrapper")

    def __init__(
        self,
        message: ByteBuffer,
        offset: int,
        wrapper: tuple[int, TimestampType] | None,
        notes: Notes | None,
    ) -> None:
        self._message = message
        self._wrapper = wrapper
        super().__init__(message.limit + _OVERHEAD, offset, self._read_timestamp())
        if notes:
            self._note(notes)

    def _read_timestamp(self) -> int:
        if self.magic == 0:
            return -1
        if self._wrapper and self._wrapper[1] is TimestampType.LOG_APPEND_TIME:
            return self._wrapper[0]
        return self._message.i64(6)

    @property
    def magic(self) -> int:
        return self._message.i8(4)

    @property
    def codec(self) -> CompressionType:
        return codec_of(self._message.i8(5))

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self._wrapper:
            return self._wrapper[1]
        return (
            TimestampType.LOG_APPEND_TIME
            if self._message.i8(5) & 0x08
            else TimestampType.CREATE_TIME
        )

    @property
    def _key_at(self) -> int:
        return 6 if self.magic == 0 else 14

    def has_key(self) -> bool:
        return self._message.i32(self._key_at) >= 0

    def key(self) -> bytes | None:
        return self._message.size_delimited(self._key_at)

    def value(self) -> bytes | None:
        return self._message.size_delimited(
            i32(self._key_at + 4 + max(0, self._message.i32(self._key_at)))
        )

    def headers(self) -> list[tuple[bytes, bytes | None]]:
        return []

    def has_magic(self, magic: int) -> bool:
        return magic == self.magic

    def is_compressed(self) -> bool:
        return self.codec is not CompressionType.NONE

    def is_valid(self) -> bool:
        return self._message.limit >= _MIN_SIZE and self._message.u32(0) == zlib.crc32(
            self._message.slice(4)
        )

    def ensure_valid(self) -> None:
        if not self.is_valid():
            raise Refused(Rule.INNER_CRC_MISMATCH)

    def describe(self) -> None:
        """Read codec, key and value as Kafka does for its message, and fail where that fails."""
        _ = self.codec
        self.key()
        self.value()

    def _note(self, notes: Notes) -> None:
        if self.timestamp < -1:
            notes.found.add(Rule.S10)
        message, key_at = self._message, self._key_at
        if key_at + 4 > message.limit:
            return
        key_size = message.i32(key_at)
        value_at = key_at + 4 + max(0, key_size)
        if key_size < -1 or (value_at + 4 <= message.limit and message.i32(value_at) < -1):
            notes.found.add(Rule.S5)


class LegacyBatch(Batch):
    """A message at the outermost level."""

    def __init__(self, buffer: ByteBuffer) -> None:
        super().__init__(buffer)
        self._message = ByteBuffer(buffer.data, buffer.start + _OVERHEAD, buffer.limit - _OVERHEAD)

    def _record(self, notes: Notes | None = None) -> LegacyRecord:
        return LegacyRecord(self._message, self.last_offset, None, notes)

    @property
    def last_offset(self) -> int:
        return self.buffer.i64(0)

    @property
    def base_offset(self) -> int:
        return next(self.iterate()).offset

    @property
    def max_timestamp(self) -> int:
        return self._record().timestamp

    @property
    def timestamp_type(self) -> TimestampType:
        return self._record().timestamp_type

    @property
    def codec(self) -> CompressionType:
        return self._record().codec

    def is_valid(self) -> bool:
        return self._record().is_valid()

    # -- records

    def iterate(self, notes: Notes | None = None) -> Iterator[Record]:
        return self.streaming(MAX_BODY_SIZE, notes)

    def skipping(self, max_body_size: int, notes: Notes | None) -> Iterator[Record]:
        return self.streaming(max_body_size, notes)

    def streaming(self, max_body_size: int, notes: Notes | None) -> Iterator[Record]:
        if not self.is_compressed:
            return iter((self._record(notes),))
        return self._deep(max_body_size, notes)

    def _deep(self, max_body_size: int, notes: Notes | None) -> Iterator[Record]:
        """Yield the wrapped messages; all are read before the first, and codecs are checked after
        that.
        """
        outer = self._record()
        if outer.codec is CompressionType.ZSTD:
            raise Refused(Rule.WRAPPER_MALFORMED)
        payload = outer.value()
        if payload is None:
            raise Refused(Rule.WRAPPER_MALFORMED)
        stream = open_stream(outer.codec, payload, self.magic, notes)
        messages: list[tuple[int, ByteBuffer]] = []
        while (message := _next_message(stream, max_body_size)) is not None:
            messages.append(message)
        if not messages:
            raise Refused(Rule.WRAPPER_MALFORMED)
        if notes and stream.source.unread():
            notes.found.add(Rule.S7)
        base = 0
        if self.magic == 1 and self.last_offset != 0:
            last_inner = messages[-1][0]
            if self.last_offset < last_inner:
                raise Refused(Rule.WRAPPER_MALFORMED)
            base = i64(self.last_offset - last_inner)
        wrapper = (outer.timestamp, outer.timestamp_type)
        for offset, buffer in messages:
            is_v1 = buffer.i8(4) == 1
            absolute = i64(base + offset) if self.magic == 1 else offset
            record = LegacyRecord(buffer, absolute, wrapper if is_v1 else None, notes)
            if record.is_compressed():
                raise Refused(Rule.WRAPPER_MALFORMED)
            yield record

    # -- changes in place

    def set_last_offset(self, offset: int) -> None:
        self.buffer.put(">q", 0, offset)

    def set_max_timestamp(self, kind: TimestampType, timestamp: int) -> None:
        if self.timestamp_type is kind and self.max_timestamp == timestamp:
            return
        self.buffer.put(
            ">B", 17, self.codec | (0x08 if kind is TimestampType.LOG_APPEND_TIME else 0)
        )
        self.buffer.put(">q", 18, timestamp)
        self.buffer.put(">I", 12, zlib.crc32(self._message.slice(4)))


def _next_message(stream: ChunkedBytesStream, max_body_size: int) -> tuple[int, ByteBuffer] | None:
    """Return offset and message; None at the end, and for a last entry that is cut off."""
    head = read_fully(stream, _OVERHEAD)
    if len(head) < _OVERHEAD:
        return None
    entry = ByteBuffer(head)
    size = entry.i32(8)
    if size < _MIN_SIZE:
        raise Refused(Rule.INNER_SIZE_TOO_SMALL)
    if size > max_body_size:
        raise Refused(Rule.WRAPPER_MALFORMED)
    body = read_fully(stream, size)
    return (entry.i64(0), ByteBuffer(body)) if len(body) == size else None
