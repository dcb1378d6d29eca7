"""The two parsers of magic-2 records, which do not agree.

``read_full`` sees a record of known length in a buffer: uncompressed batches, and compressed ones
that are rebuilt.
``read_partially`` walks a stream and skips keys and values: compressed batches that stay in place.
It reads the record's length and never uses it.
"""

from __future__ import annotations

from batchval.rules import Rule

from .java import (
    BufferUnderflow,
    ByteBuffer,
    IllegalArgument,
    JavaIOError,
    Refused,
    UnsupportedOperation,
    i64,
    read_varint,
    read_varlong,
    size_of_varint,
)
from .streams import ChunkedBytesStream, Notes, read_fully

__all__ = ["BatchFacts", "Record", "read_full", "read_full_from_stream", "read_partially"]

Header = tuple[bytes, bytes | None]


class BatchFacts:
    """What the batch's header says about its records."""

    __slots__ = ("append_time", "base_offset", "base_timestamp")

    def __init__(self, base_offset: int, base_timestamp: int, append_time: int | None) -> None:
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.append_time = append_time


class Record:
    """One record of any magic, as the validator sees it."""

    __slots__ = (
        "_has_key",
        "_headers",
        "_key",
        "_value",
        "is_skipped",
        "offset",
        "offset_delta",
        "size",
        "timestamp",
    )

    def __init__(
        self,
        size: int,
        offset: int,
        timestamp: int,
        *,
        has_key: bool = False,
        content: tuple[bytes | None, bytes | None, list[Header]] | None = None,
        offset_delta: int = 0,
    ) -> None:
        self.size = size
        self.offset = offset
        self.timestamp = timestamp
        self._has_key = has_key
        self.is_skipped = content is None
        self._key, self._value, self._headers = content or (None, None, [])
        self.offset_delta = offset_delta

    def _require(self) -> None:
        if self.is_skipped:
            raise UnsupportedOperation(
                "the record was skipped, and is wanted now", Rule.S3, Rule.REBUILD_IMPOSSIBLE
            )

    def has_key(self) -> bool:
        return self._has_key

    def key(self) -> bytes | None:
        self._require()
        return self._key

    def value(self) -> bytes | None:
        self._require()
        return self._value

    def headers(self) -> list[Header]:
        self._require()
        return self._headers

    # what legacy messages answer otherwise

    def has_magic(self, magic: int) -> bool:
        return magic >= 2

    def is_compressed(self) -> bool:
        return False

    def ensure_valid(self) -> None:
        """Do nothing: magic 2 has one checksum a batch, which is checked elsewhere."""

    def describe(self) -> None:
        """Read a refused record as Kafka does to print it; for legacy messages that may fail."""


def _malformed() -> Refused:
    return Refused(Rule.RECORD_MALFORMED)


def _note_record(
    notes: Notes, attributes: int, timestamp: int, key_size: int, value_size: int
) -> None:
    if attributes != 0 or key_size < -1 or value_size < -1:
        notes.found.add(Rule.S5)
    if timestamp < -1:
        notes.found.add(Rule.S10)


def _note_header(notes: Notes, key: bytes, value_size: int) -> None:
    if value_size < -1:
        notes.found.add(Rule.S5)
    try:
        key.decode("utf-8")
    except UnicodeDecodeError:
        notes.found.add(Rule.S5)


# -- the full parser -------------------------------------------------------------------------------


def read_full(buffer: ByteBuffer, body_size: int, facts: BatchFacts, notes: Notes | None) -> Record:
    """Read a record after its length field; it must take exactly ``body_size`` bytes."""
    if buffer.remaining < body_size:
        raise _malformed()
    try:
        start = buffer.pos
        attributes = buffer.get()
        timestamp = i64(facts.base_timestamp + read_varlong(buffer.get))
        if facts.append_time is not None:
            timestamp = facts.append_time
        offset_delta = read_varint(buffer.get)
        key_size = read_varint(buffer.get)
        key = buffer.read_bytes(key_size)
        value_size = read_varint(buffer.get)
        value = buffer.read_bytes(value_size)
        header_count = read_varint(buffer.get)
        if header_count < 0 or header_count > buffer.remaining:
            raise _malformed()
        if notes:
            _note_record(notes, attributes, timestamp, key_size, value_size)
        headers = [_read_header(buffer, notes) for _ in range(header_count)]
        if buffer.pos - start != body_size:
            raise _malformed()
    except (IllegalArgument, BufferUnderflow):
        raise _malformed() from None
    return Record(
        size_of_varint(body_size) + body_size,
        i64(facts.base_offset + offset_delta),
        timestamp,
        has_key=key is not None,
        content=(key, value, headers),
        offset_delta=offset_delta,
    )


def _read_header(buffer: ByteBuffer, notes: Notes | None) -> Header:
    key = buffer.read_bytes(read_varint(buffer.get))
    if key is None:
        raise _malformed()
    value_size = read_varint(buffer.get)
    value = buffer.read_bytes(value_size)
    if notes:
        _note_header(notes, key, value_size)
    return key, value


def read_full_from_stream(
    stream: ChunkedBytesStream, facts: BatchFacts, max_body_size: int, notes: Notes | None
) -> Record:
    """Read a record of a compressed batch, copied whole before it is parsed."""
    body_size = _body_size(stream, max_body_size)
    body = read_fully(stream, body_size)
    if len(body) != body_size:
        raise _malformed()
    return read_full(ByteBuffer(body), body_size, facts, notes)


def _body_size(stream: ChunkedBytesStream, max_body_size: int) -> int:
    try:
        size = read_varint(stream.read)
    except IllegalArgument:
        raise _malformed() from None
    if size < 0 or size > max_body_size:
        raise _malformed()
    return size


# -- the skip parser -------------------------------------------------------------------------------


def read_partially(
    stream: ChunkedBytesStream, facts: BatchFacts, max_body_size: int, notes: Notes | None
) -> Record:
    """Read a record, but keep only offset, timestamp and the presence of a key."""
    body_size = _body_size(stream, max_body_size)
    start = stream.consumed
    try:
        attributes = stream.read() & 0xFF
        timestamp = i64(facts.base_timestamp + read_varlong(stream.read))
        if facts.append_time is not None:
            timestamp = facts.append_time
        offset_delta = read_varint(stream.read)
        key_size = read_varint(stream.read)
        _skip(stream, key_size)
        value_size = read_varint(stream.read)
        _skip(stream, value_size)
        header_count = read_varint(stream.read)
        if header_count < 0:
            raise _malformed()
        if notes:
            _note_record(notes, attributes, timestamp, key_size, value_size)
        for _ in range(header_count):
            _skip_header(stream, notes)
    except (IllegalArgument, BufferUnderflow):
        # an LZ4 stream may underflow too; here, unlike elsewhere, that is caught
        raise _malformed() from None
    if notes and stream.consumed - start != body_size:
        notes.found.add(Rule.S4)
    return Record(
        size_of_varint(body_size) + body_size,
        i64(facts.base_offset + offset_delta),
        timestamp,
        has_key=key_size >= 0,
        offset_delta=offset_delta,
    )


def _skip_header(stream: ChunkedBytesStream, notes: Notes | None) -> None:
    key_size = read_varint(stream.read)
    if key_size < 0:
        raise _malformed()
    key = bytearray() if notes else None
    _skip(stream, key_size, key)
    value_size = read_varint(stream.read)
    _skip(stream, value_size)
    if notes and key is not None:
        _note_header(notes, bytes(key), value_size)


def _skip(stream: ChunkedBytesStream, size: int, seen: bytearray | None = None) -> None:
    left = size
    while left > 0:
        skipped = stream.skip(left, seen)
        if skipped < 0 or skipped > left:
            raise JavaIOError("unable to skip exactly")
        if skipped == 0:
            byte = stream.read()
            if byte == -1:
                raise _malformed()
            if seen is not None:
                seen.append(byte)
            skipped = 1
        left -= skipped
