"""Produce requests of one batch for one partition, version 7, whose order a broker itself checks.

The batches are an idempotent producer's: each has the base sequence that follows the one before it,
so a request that overtook another is refused with OUT_OF_ORDER_SEQUENCE_NUMBER.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from batchval.core.convert.builder import BATCH_OVERHEAD, MAX_RECORD_OVERHEAD, BatchBuilder
from batchval.core.format.crc32c import crc32c

CLIENT = b"bench"
RECORD_SIZE = 1000  # of the value
TIMESTAMP = 1_795_212_000_000


def records(count: int) -> bytes:
    """Return ``count`` records without keys, of RECORD_SIZE bytes each."""
    value = bytes(n * 7 % 251 for n in range(RECORD_SIZE))
    builder = BatchBuilder(count * (RECORD_SIZE + MAX_RECORD_OVERHEAD) + BATCH_OVERHEAD)
    for _ in range(count):
        builder.append(None, value, (), TIMESTAMP)
    builder.finish()
    return bytes(builder.view()[BATCH_OVERHEAD:])


class ProduceResponse(NamedTuple):
    """Of the one partition."""

    error_code: int
    base_offset: int
    throttle_time_ms: int


@dataclass(slots=True)
class Produce:
    """One batch for partition 0 of a topic, acks=all."""

    topic: bytes
    payload: bytes
    count: int
    producer_id: int
    base_sequence: int
    api_key: int = 0
    api_version: int = 7
    expects_response: bool = True

    def encode(self, correlation_id: int, client_id: str | None) -> list[bytes | memoryview]:
        epoch = min(self.producer_id, 0)  # -1 without a producer id
        producer = self.producer_id, epoch, self.base_sequence
        tail = struct.pack(
            ">hiqqqhii", 0, self.count - 1, TIMESTAMP, TIMESTAMP, *producer, self.count
        )
        checksum = crc32c(tail + self.payload)
        batch = struct.pack(">qiibI", 0, 9 + len(tail) + len(self.payload), 0, 2, checksum) + tail
        size = len(batch) + len(self.payload)
        body = (
            struct.pack(">hhiih", -1, -1, 30_000, 1, len(self.topic))
            + self.topic
            + struct.pack(">iii", 1, 0, size)
        )
        head = struct.pack(">hhih", 0, 7, correlation_id, len(CLIENT)) + CLIENT
        frame = head + body + batch
        return [struct.pack(">i", len(frame) + len(self.payload)) + frame, memoryview(self.payload)]

    def decode(self, frame: memoryview) -> ProduceResponse:
        (name,) = struct.unpack_from(">h", frame, 8)
        error, offset = struct.unpack_from(">hq", frame, 10 + name + 8)
        return ProduceResponse(error, offset, struct.unpack_from(">i", frame, len(frame) - 4)[0])


@dataclass(slots=True)
class Metadata:
    """Version 4, of one topic, which is made if it is not there."""

    topic: bytes
    api_key: int = 3
    api_version: int = 4
    expects_response: bool = True

    def encode(self, correlation_id: int, client_id: str | None) -> list[bytes | memoryview]:
        frame = struct.pack(">hhih", 3, 4, correlation_id, len(CLIENT)) + CLIENT
        frame += struct.pack(">ih", 1, len(self.topic)) + self.topic + b"\1"
        return [struct.pack(">i", len(frame)) + frame]

    def decode(self, frame: memoryview) -> bool:
        """Return whether the topic has a leader: partitions without an error follow its name."""
        data = bytes(frame)
        at = data.index(struct.pack(">h", len(self.topic)) + self.topic)
        (topic_error,) = struct.unpack_from(">h", data, at - 2)
        internal_and_count = struct.unpack_from(">bi", data, at + 2 + len(self.topic))
        if topic_error or not internal_and_count[1]:
            return False
        return bool(struct.unpack_from(">h", data, at + 2 + len(self.topic) + 5)[0] == 0)
