"""Kafka's MemoryRecordsBuilder, as far as the validator drives it: one batch, offsets counting
up.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from batchval.rules import Rule
from batchval.types import CompressionType, TimestampType

from .batches import HEADER_SIZE, Batch
from .compress import compress
from .java import IllegalArgument, crc32c, i32, i64, java_utf8, write_varint, write_varlong
from .records import Record
from .settings import Settings

__all__ = ["Builder", "header_size", "require_contents"]

_LEGACY_OVERHEAD = (14, 22)


def header_size(magic: int, codec: CompressionType) -> int:
    """Return the size of a batch before its records."""
    if magic > 1:
        return HEADER_SIZE
    return 12 + _LEGACY_OVERHEAD[magic] if codec is not CompressionType.NONE else 0


def require_contents(records: Iterable[Record]) -> None:
    """Read key, value and headers of every record, as Kafka's size estimate does."""
    for record in records:
        record.key()
        record.value()
        record.headers()


def _impossible(what: str, extra: Rule = Rule.S9) -> IllegalArgument:
    return IllegalArgument(what, extra, Rule.REBUILD_IMPOSSIBLE)


def _check_timestamp(timestamp: int) -> None:
    if timestamp < -1:
        raise _impossible("timestamp below -1", Rule.S10)


class Builder:
    """Collects records for one batch; its producer fields are those of ``first``."""

    def __init__(
        self, settings: Settings, codec: CompressionType, base_offset: int, first: Batch
    ) -> None:
        magic = settings.to_magic
        if magic < 2:
            if first.is_transactional:
                raise _impossible("a transaction below magic 2")
            if codec is CompressionType.ZSTD:
                raise _impossible("zstd below magic 2")
        self.magic = magic
        self.codec = codec
        self.timestamp_type = settings.ts_type
        self.base_offset = base_offset
        self.append_time = settings.now
        self.leader_epoch = settings.leader_epoch
        self.first = first
        self.count = 0
        self.size_of_records = 0
        self._last_offset: int | None = None
        self._base_timestamp: int | None = None
        self._max_timestamp = -1
        self._body = bytearray()

    @property
    def uncompressed_size(self) -> int:
        return self.size_of_records + header_size(self.magic, self.codec)

    @property
    def max_timestamp(self) -> int:
        """Return the timestamp that the validator reports: the append time if the topic has that
        type.

        Kafka also asks for the last offset then, and fails if there is none; but not below magic 2
        without codec.
        """
        by_append = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        if (
            by_append
            and self.count == 0
            and (self.magic > 1 or self.codec is not CompressionType.NONE)
        ):
            raise _impossible("no last offset")
        return self.append_time if by_append else self._max_timestamp

    def append(self, offset: int, record: Record) -> None:
        """Append a record as ``appendWithOffset`` does."""
        timestamp, key, value, headers = (
            record.timestamp,
            record.key(),
            record.value(),
            record.headers(),
        )
        if self._last_offset is not None and offset <= self._last_offset:
            raise _impossible("offsets must increase")
        _check_timestamp(timestamp)
        if self.magic < 2 and headers:
            raise _impossible("headers below magic 2")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        if self.magic > 1:
            entry = self._default_record(offset, timestamp, key, value, headers)
        else:
            if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
                timestamp = self.append_time
            entry = self._legacy_record(offset, timestamp, key, value)
        if offset - self.base_offset > 0x7FFF_FFFF:
            raise _impossible("offset delta above 2^31 - 1")
        self._body += entry
        self.count += 1
        self.size_of_records += len(entry)
        self._last_offset = offset
        if self.magic > 0 and timestamp > self._max_timestamp:
            self._max_timestamp = timestamp

    def _default_record(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[bytes, bytes | None]],
    ) -> bytes:
        assert self._base_timestamp is not None
        body = bytearray(b"\0")
        body += write_varlong(i64(timestamp - self._base_timestamp))
        body += write_varint(i32(offset - self.base_offset))
        body += _sized(key) + _sized(value) + write_varint(len(headers))
        for name, content in headers:
            body += _sized(java_utf8(name)) + _sized(content)
        return write_varint(len(body)) + body

    def _legacy_record(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None
    ) -> bytes:
        _check_timestamp(timestamp)
        inner = self.magic > 0 and self.codec is not CompressionType.NONE
        attributes = (
            0x08 if self.magic > 0 and self.timestamp_type is TimestampType.LOG_APPEND_TIME else 0
        )
        message = _legacy_message(self.magic, attributes, timestamp, key, value)
        return (
            struct.pack(">qi", offset - self.base_offset if inner else offset, len(message))
            + message
        )

    def build(self, write: bool = True) -> bytes | None:
        """Build the batch; without ``write`` only check what Kafka refuses to build."""
        self._check_producer()
        if self.count == 0 or not write:
            return b"" if write else None
        body = compress(self.codec, bytes(self._body), self.magic)
        if self.magic > 1:
            return self._default_batch(body)
        if self.codec is CompressionType.NONE:
            return body
        timestamp = self.max_timestamp
        _check_timestamp(timestamp)
        attributes = self.codec | (
            0x08 if self.magic and self.timestamp_type is TimestampType.LOG_APPEND_TIME else 0
        )
        message = _legacy_message(self.magic, attributes, timestamp, None, body)
        assert self._last_offset is not None
        return struct.pack(">qi", self._last_offset, len(message)) + message

    def _check_producer(self) -> None:
        first = self.first
        if first.is_transactional and first.producer_id == -1:
            raise _impossible("a transaction without producer id")
        if first.producer_id != -1:
            if first.producer_epoch == -1:
                raise _impossible("a producer id without epoch")
            if first.base_sequence < 0:
                raise _impossible("a producer id without sequence")
            if self.magic < 2:
                raise _impossible("a producer id below magic 2")

    def _default_batch(self, body: bytes) -> bytes:
        first = self.first
        assert self._last_offset is not None
        assert self._base_timestamp is not None
        attributes = int(self.codec)
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            attributes |= 0x08
        if first.is_transactional:
            attributes |= 0x10
        summed = struct.pack(
            ">hiqqqhii",
            attributes,
            i32(self._last_offset - self.base_offset),
            self._base_timestamp,
            self.max_timestamp,
            first.producer_id,
            first.producer_epoch,
            first.base_sequence,
            self.count,
        )
        summed += body
        front = struct.pack(
            ">qiib", self.base_offset, len(summed) + 9, self.leader_epoch, self.magic
        )
        return front + struct.pack(">I", crc32c(summed)) + summed


def _sized(data: bytes | None) -> bytes:
    return write_varint(-1) if data is None else write_varint(len(data)) + data


def _sized_int(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _legacy_message(
    magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    summed = struct.pack(">bB", magic, attributes)
    if magic > 0:
        summed += struct.pack(">q", timestamp)
    summed += _sized_int(key) + _sized_int(value)
    return struct.pack(">I", zlib.crc32(summed)) + summed
