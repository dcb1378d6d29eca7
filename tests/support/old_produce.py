"""Produce requests of versions 0 to 2, and their answers, made by hand.

length, 0, version, correlation_id, client_id, acks, timeout_ms,
    topics: (name, partitions: (index, message set))
answer: topics: (name, partitions: (index, error_code, base_offset, log_append_time (2)))
    throttle_time_ms (1 and 2)
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.support import batches
from tests.support.batches import GZIP, LZ4, SNAPPY, message, wrapper

CLIENT = b"old"


class Answered(NamedTuple):
    """What one partition of an answer says; -2: the version does not have the field."""

    error_code: int
    base_offset: int
    log_append_time_ms: int


class OldAnswer(NamedTuple):
    """An answer of version 0 to 2."""

    correlation_id: int
    partitions: dict[tuple[str, int], Answered]
    throttle_time_ms: int


def old_produce(
    version: int, correlation_id: int, *partitions: tuple[str, int, bytes | None], acks: int = 1
) -> bytes:
    """Return a request's frame, length and all, with the partitions of a topic together."""
    topics: dict[str, list[tuple[int, bytes | None]]] = {}
    for topic, index, records in partitions:
        topics.setdefault(topic, []).append((index, records))
    body = struct.pack(">hhih", 0, version, correlation_id, len(CLIENT)) + CLIENT
    body += struct.pack(">hii", acks, 3000, len(topics))
    for topic, parts in topics.items():
        body += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", len(parts))
        for index, records in parts:
            body += struct.pack(">ii", index, -1 if records is None else len(records)) + (
                records or b""
            )
    return struct.pack(">i", len(body)) + body


def old_answer(frame: bytes, version: int) -> OldAnswer:
    """Read an answer without its length; every byte must be used."""
    correlation_id, count = struct.unpack_from(">ii", frame)
    at = 8
    found = {}
    for _ in range(count):
        (size,) = struct.unpack_from(">h", frame, at)
        topic = frame[at + 2 : at + 2 + size].decode(errors="replace")
        (parts,) = struct.unpack_from(">i", frame, at + 2 + size)
        at += 6 + size
        for _ in range(parts):
            index, error_code, base_offset = struct.unpack_from(">ihq", frame, at)
            at += 14
            append_time = -2
            if version >= 2:
                (append_time,) = struct.unpack_from(">q", frame, at)
                at += 8
            found[topic, index] = Answered(error_code, base_offset, append_time)
    throttle = -2
    if version >= 1:
        (throttle,) = struct.unpack_from(">i", frame, at)
        at += 4
    assert at == len(frame), f"{len(frame) - at} bytes follow an answer of version {version}"
    return OldAnswer(correlation_id, found, throttle)


def raw_snappy(inner: bytes, magic: int) -> bytes:
    """Return a wrapper of three messages whose snappy has no framing, as librdkafka writes it."""
    import snappy

    return message(magic, offset=2, value=bytes(snappy.compress(inner)), attributes=SNAPPY)


def _xxh32(data: bytes) -> int:
    """Return the xxHash of fewer than 16 bytes, with seed 0."""
    first, second, third, fourth, fifth = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    value = fifth + len(data)
    at = 0
    while at + 4 <= len(data):
        value = (value + int.from_bytes(data[at : at + 4], "little") * third) & 0xFFFFFFFF
        value = ((value << 17 | value >> 15) & 0xFFFFFFFF) * fourth & 0xFFFFFFFF
        at += 4
    for byte in data[at:]:
        value = (value + byte * fifth) & 0xFFFFFFFF
        value = ((value << 11 | value >> 21) & 0xFFFFFFFF) * first & 0xFFFFFFFF
    value = (value ^ value >> 15) * second & 0xFFFFFFFF
    value = (value ^ value >> 13) * third & 0xFFFFFFFF
    return value ^ value >> 16


def old_lz4(inner: bytes) -> bytes:
    """Return a wrapper of magic 0 with the header checksum that clients before 0.10 computed: over
    the frame's magic, too.
    """
    framed = bytearray(batches.compress(LZ4, inner))
    size = 6 + (8 if framed[4] & 8 else 0)  # magic, flags, block size, perhaps the content's size
    framed[size] = _xxh32(bytes(framed[:size])) >> 8 & 0xFF
    return message(0, offset=2, value=bytes(framed), attributes=LZ4)


def message_sets(now_ms: int | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield message sets that Kafka 3.9 accepts, with their names."""
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    for magic in (0, 1):
        several = [
            message(magic, offset=i, value=b"value %d" % i * 20, key=b"k", timestamp=now_ms + i)
            for i in range(3)
        ]
        yield f"one of magic {magic}", several[0]
        yield f"three of magic {magic}", b"".join(several)
        yield f"no key, no value, magic {magic}", message(magic, value=None, timestamp=now_ms)
        for name, codec in (("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4)):
            yield f"{name} of magic {magic}", wrapper(several, codec, magic, timestamp=now_ms + 2)
        yield f"raw snappy of magic {magic}", raw_snappy(b"".join(several), magic)
    yield "lz4 of magic 0 with the old checksum", old_lz4(b"".join(several0(now_ms)))


def several0(now_ms: int) -> list[bytes]:
    """Return three messages of magic 0."""
    return [message(0, offset=i, value=b"value %d" % i * 20, timestamp=now_ms) for i in range(3)]
