"""RecordBatchBuilder: a record batch of magic 2 from keys, values, timestamps and headers.

The bytes are made by ``batchval.core.convert.builder``, which the producer uses too. This class
refuses what Kafka's MemoryRecordsBuilder refuses, with Kafka's messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from batchval.core.convert.builder import MAX_RECORD_OVERHEAD, BatchBuilder
from batchval.core.stages.arguments import checked_number
from batchval.errors import ArgumentTypeError, ArgumentValueError, BatchvalError
from batchval.policy import DEFAULT_MAX_MESSAGE_BYTES, TopicPolicy
from batchval.types import CompressionName, CompressionType, TimestampType

__all__ = ["RecordBatchBuilder"]

#: bytes, bytearray, memoryview, numpy: a contiguous buffer of bytes.
_Buffer: TypeAlias = Any
_Headers: TypeAlias = Iterable[tuple[str, _Buffer | None]]

_INT16, _INT32, _INT64 = (2**bits - 1 for bits in (15, 31, 63))
_NONE = -1
#: Lengths of a header's key and value, as varints.
_HEADER_OVERHEAD = 10


class RecordBatchBuilder:
    """A builder of one record batch of magic 2.

    ``limit``        bytes that the batch may have before it is compressed, its header included. The
                     first record is accepted whatever its size, as in Kafka
    ``compression``  a codec or its name; ``level`` in the range that TopicPolicy takes for it
    ``base_offset``, ``partition_leader_epoch``  of the header; a broker assigns them anew
    ``producer_id``, ``producer_epoch``, ``base_sequence``  of an idempotent producer; -1: none
    ``is_transactional``, ``is_control_batch``  flags. The records of a control batch are the
                     caller's: Kafka reads a version and a type in their keys
    ``log_append_time``  milliseconds since the epoch; makes the timestamp type LogAppendTime

    Keys, values and headers are copied by ``append``. One thread may use a builder at a time.
    Raises BatchvalError (ArgumentTypeError, ArgumentValueError) for wrong arguments.
    """

    __slots__ = ("_batch", "_built", "_fields", "_level", "_log_append_time", "_place")

    def __init__(
        self,
        *,
        limit: int = DEFAULT_MAX_MESSAGE_BYTES,
        compression: CompressionType | CompressionName = "none",
        level: int | None = None,
        base_offset: int = 0,
        partition_leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        is_control_batch: bool = False,
        log_append_time: int | None = None,
    ) -> None:
        codec = _codec(compression)
        self._batch = BatchBuilder(
            checked_number("limit", limit, 0, _INT32), codec, _level(codec, level)
        )
        self._place = (
            checked_number("base_offset", base_offset, 0, _INT64),
            checked_number("partition_leader_epoch", partition_leader_epoch, _NONE, _INT32),
        )
        self._fields = (
            checked_number("producer_id", producer_id, _NONE, _INT64),
            checked_number("producer_epoch", producer_epoch, _NONE, _INT16),
            checked_number("base_sequence", base_sequence, _NONE, _INT32),
            bool(is_transactional),
            bool(is_control_batch),
        )
        self._log_append_time = log_append_time
        if log_append_time is not None:
            self._log_append_time = checked_number("log_append_time", log_append_time, 0, _INT64)
        self._check_producer()
        self._built: bytes | None = None

    def _check_producer(self) -> None:
        """Check the producer as MemoryRecordsBuilder.close does, and as its constructor does for
        control batches.
        """
        producer_id, producer_epoch, base_sequence, is_transactional, is_control_batch = (
            self._fields
        )
        if is_transactional and producer_id == _NONE:
            raise ArgumentValueError(
                "Cannot write transactional messages without a valid producer ID"
            )
        if producer_id == _NONE:
            return
        if producer_epoch == _NONE:
            raise ArgumentValueError("Invalid negative producer epoch: -1 with a producer_id")
        if base_sequence == _NONE and not is_control_batch:
            raise ArgumentValueError("Invalid negative sequence number used: -1 with a producer_id")

    def append(
        self, key: _Buffer | None, value: _Buffer | None, timestamp: int, headers: _Headers = ()
    ) -> bool:
        """Append a record. Return False, and change nothing, where it does not fit.

        ``key`` and ``value`` are buffers of bytes, or None for null. ``timestamp`` is milliseconds
        since the epoch, -1 for none. ``headers`` are pairs of a str and a buffer or None, in order.
        """
        if self._built is not None:
            raise BatchvalError(
                "the batch is built: create another RecordBatchBuilder for more records"
            )
        milliseconds = checked_number("timestamp", timestamp, _NONE, _INT64)
        try:
            return self._batch.append(key, value, tuple(headers), milliseconds)
        except BatchvalError:
            raise
        except OverflowError as error:
            raise ArgumentValueError(str(error)) from None
        except (TypeError, ValueError) as error:
            if self._batch.is_finished:
                raise BatchvalError("the batch was built while its record was appended") from None
            raise ArgumentTypeError(
                f"headers must be pairs of a str and bytes or None, not {headers!r:.80}: {error}"
            ) from None

    def build(self) -> bytes:
        """Return the batch, compressed and with its checksum; the same bytes at each call.

        Raises BatchvalError before the first record. No record can be appended afterwards.
        """
        if self._built is None:
            if not self._batch.count:
                raise BatchvalError("a batch must have a record: append one before build")
            producer_id, producer_epoch, base_sequence, is_transactional, is_control_batch = (
                self._fields
            )
            self._batch.seal(
                producer_id,
                producer_epoch,
                base_sequence,
                is_transactional,
                is_control_batch,
                self._log_append_time,
            )
            self._batch.place(*self._place)
            self._built = bytes(self._batch.view())
        return self._built

    @staticmethod
    def estimate_size(key: _Buffer | None, value: _Buffer | None, headers: _Headers = ()) -> int:
        """Return how many bytes a record may take at most, before compression."""
        size = MAX_RECORD_OVERHEAD + _size(key) + _size(value)
        for name, content in headers:
            size += _HEADER_OVERHEAD + len(name.encode()) + _size(content)
        return size

    @property
    def limit(self) -> int:
        """Return the bytes that the batch may have before it is compressed."""
        return self._batch.limit

    @property
    def size_in_bytes(self) -> int:
        """Return the bytes of header and records: before compression until ``build``, then of the
        batch.
        """
        return self._batch.size if self._built is None else len(self._built)

    @property
    def remaining_bytes(self) -> int:
        """Return the bytes that are left for records; 0 once the batch is built."""
        return max(0, self._batch.limit - self._batch.size) if self._built is None else 0

    @property
    def compression_type(self) -> CompressionType:
        """Return the codec."""
        return CompressionType(self._batch.codec)

    @property
    def timestamp_type(self) -> TimestampType:
        """Return CreateTime, or LogAppendTime with a ``log_append_time``."""
        return (
            TimestampType.CREATE_TIME
            if self._log_append_time is None
            else TimestampType.LOG_APPEND_TIME
        )

    def __len__(self) -> int:
        """Return the number of records."""
        return self._batch.count

    def __repr__(self) -> str:
        state = "built" if self._built is not None else f"limit={self.limit}"
        return (
            f"<RecordBatchBuilder records={len(self)} size={self.size_in_bytes} "
            f"compression={self.compression_type.kafka_name} {state}>"
        )


def _codec(compression: object) -> CompressionType:
    if isinstance(compression, CompressionType):
        return compression
    for codec in CompressionType:
        if codec.kafka_name == compression:
            return codec
    names = ", ".join(codec.kafka_name for codec in CompressionType)
    raise ArgumentValueError(f"compression must be one of {names}, not {compression!r:.80}")


def _level(codec: CompressionType, level: int | None) -> int | None:
    """Return a level that the codec has; None for its default."""
    if level is None:
        return None
    fields: dict[str, Any] = {
        "compression_type": codec.kafka_name,
        f"compression_{codec.kafka_name}_level": level,
    }
    if codec in (CompressionType.NONE, CompressionType.SNAPPY):
        raise ArgumentValueError(
            f"compression {codec.kafka_name} has no levels, so level must be None, not {level!r}"
        )
    return TopicPolicy(**fields).compression_level


def _size(content: _Buffer | None) -> int:
    if content is None:
        return 0
    try:
        return memoryview(content).nbytes
    except TypeError as error:
        raise ArgumentTypeError(f"expected a contiguous buffer of bytes: {error}") from None
