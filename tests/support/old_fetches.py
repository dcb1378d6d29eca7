"""An old consumer's Fetch requests in bytes, and its answers read by kafka-python."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from types import SimpleNamespace
from typing import NamedTuple

import kafka.codec
from kafka.record import MemoryRecords

from tests.evidence.reference.kafka_model.lz4_stream import xxh32
from tests.support.proxy import read_frame

FETCH = 1

Place = tuple[str, int]


class Fetched(NamedTuple):
    """A partition of an answer."""

    error_code: int
    high_watermark: int
    records: bytes


class Message(NamedTuple):
    """A message as an old consumer reads it."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None


def request(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a frame, length and all."""
    frame = struct.pack(">hhih3s", key, version, correlation_id, 3, b"old") + body
    return struct.pack(">i", len(frame)) + frame


def fetch_frame(
    version: int,
    correlation_id: int,
    wanted: Mapping[Place, tuple[int, int]],
    *,
    max_wait_ms: int = 100,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
) -> bytes:
    """Return a Fetch request; ``wanted`` has offset and maximum size of each partition."""
    body = struct.pack(">iii", -1, max_wait_ms, min_bytes)
    if version >= 3:
        body += struct.pack(">i", max_bytes)
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), (offset, most) in wanted.items():
        topics.setdefault(topic, []).append(struct.pack(">iqi", partition, offset, most))
    body += struct.pack(">i", len(topics))
    for topic, parts in topics.items():
        body += (
            struct.pack(">h", len(topic))
            + topic.encode()
            + struct.pack(">i", len(parts))
            + b"".join(parts)
        )
    return request(FETCH, version, correlation_id, body)


def answered(frame: bytes, version: int) -> dict[Place, Fetched]:
    """Read an answer, without its length; every byte of it."""
    at = 4 if version == 0 else 8
    found: dict[Place, Fetched] = {}

    def take(form: str) -> tuple[int, ...]:
        nonlocal at
        values = struct.unpack_from(form, frame, at)
        at += struct.calcsize(form)
        return values

    for _ in range(*take(">i")):
        (size,) = take(">h")
        topic, at = frame[at : at + size].decode(), at + size
        for _ in range(*take(">i")):
            partition, error_code, high_watermark, size = take(">ihqi")
            found[topic, partition] = Fetched(error_code, high_watermark, frame[at : at + size])
            at += size
    assert at == len(frame)
    return found


def messages_in(records: bytes) -> list[Message]:
    """Return the whole messages of a message set, those in wrappers too."""
    found = []
    sets = MemoryRecords(records)
    while sets.has_next():
        batch = sets.next_batch()
        assert batch.validate_crc()
        found += [Message(one.offset, one.timestamp, one.key, one.value) for one in batch]
    return found


class _Xxh32:
    """xxhash's function, which kafka-python needs for lz4 of magic 0."""

    def __init__(self, data: bytes) -> None:
        self._hash = xxh32(bytes(data))

    def digest(self) -> bytes:
        return self._hash.to_bytes(4, "big")


if kafka.codec.xxhash is None:
    kafka.codec.xxhash = SimpleNamespace(xxh32=_Xxh32)


class OldConsumer:
    """Reads one partition to its end, as a consumer of one version does."""

    def __init__(self, address: tuple[str, int], version: int, *, max_bytes: int = 1 << 20) -> None:
        self.version = version
        self.max_bytes = max_bytes
        self.requests = 0
        self.sock = socket.create_connection(address, 20)

    def close(self) -> None:
        self.sock.close()

    def fetch(self, topic: str, partition: int, offset: int, *, max_wait_ms: int = 100) -> Fetched:
        self.requests += 1
        wanted = {(topic, partition): (offset, self.max_bytes)}
        self.sock.sendall(fetch_frame(self.version, self.requests, wanted, max_wait_ms=max_wait_ms))
        frame = read_frame(self.sock)
        assert struct.unpack_from(">i", frame) == (self.requests,)
        return answered(frame, self.version)[topic, partition]

    def read(self, topic: str, partition: int, end: int) -> list[Message]:
        """Read from the start until answers are empty; ``end`` is the high watermark."""
        found: list[Message] = []
        offset, silent = 0, 0
        while silent < 8:
            fetched = self.fetch(topic, partition, offset)
            assert (fetched.error_code, fetched.high_watermark) == (0, end)
            new = [one for one in messages_in(fetched.records) if one.offset >= offset]
            silent = 0 if new else silent + 1
            if new:
                found += new
                offset = new[-1].offset + 1
        return found
