"""Build one real batch, and ten broken forms of it that a faulty client might send."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from batchval import RecordBatch, TopicPolicy
from batchval.core.format.crc32c import crc32c
from demo.damage import CRC_AT, LOG, RECORDS_FROM, bomb

HOUR_MS = 3_600_000
KEYLESS = TopicPolicy(cleanup_policy="compact")
SMALL = TopicPolicy(max_message_bytes=200)
BROKERS_TIME = TopicPolicy(message_timestamp_type="LogAppendTime")
PUNCTUAL = TopicPolicy(message_timestamp_before_max_ms=HOUR_MS)


class Attempt(NamedTuple):
    """Bytes that a client sends, the topic's policy, and the id of the rule that must answer (None:
    let in).
    """

    what: str
    records: bytes
    policy: TopicPolicy
    rule: str | None


def _signed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def _with(batch: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(form, changed, at, value)
    return _signed(changed)


def client_batch(segments: Path) -> tuple[bytes, int]:
    """Return a batch as its producer sent it (base offset 0, no epoch), and its max timestamp."""
    data = (segments / "codec-none-0" / LOG).read_bytes()
    position = 0
    while True:
        batch = RecordBatch(data, position)
        if batch.timestamp_type == 0 and any(record.key is None for record in batch.records()):
            break
        position += batch.size_in_bytes
    whole = bytearray(data[position : position + batch.size_in_bytes])
    struct.pack_into(">q", whole, 0, 0)
    struct.pack_into(">i", whole, 12, -1)
    return _signed(whole), batch.max_timestamp


def attempts(segments: Path) -> tuple[list[Attempt], int]:
    """Return all attempts, and the time at which they arrive."""
    good, now_ms = client_batch(segments)
    plain = TopicPolicy()
    ways: list[tuple[str, Callable[[bytes], bytes], TopicPolicy, str | None]] = [
        ("as the producer sent it", lambda b: b, plain, None),
        ("for a compacted topic", lambda b: b, KEYLESS, "35"),
        ("where max.message.bytes is 200", lambda b: b, SMALL, "13"),
        ("sent twice in one request", lambda b: b + b, plain, "8"),
        ("with nine bytes after it", lambda b: b + b"leftovers", plain, "S2"),
        ("one bit of a record turned", lambda b: b[:-1] + bytes([b[-1] ^ 1]), plain, "14"),
        ("with base_offset 1000", lambda b: struct.pack(">q", 1000) + b[8:], plain, "10"),
        ("with the control bit", lambda b: _with(b, 21, ">h", 0x20), plain, "25"),
        ("with the broker's time bit", lambda b: _with(b, 21, ">h", 0x08), BROKERS_TIME, "37"),
        ("with attribute bit 9", lambda b: _with(b, 21, ">h", 0x200), plain, "S1"),
        ("with the codec zstd stated, but not used", lambda b: _with(b, 21, ">h", 4), plain, "S7"),
        (
            "a day late, an hour is allowed",
            lambda b: _with(b, 27, ">q", now_ms - 24 * HOUR_MS),
            PUNCTUAL,
            "36",
        ),
        ("cut off in the middle", lambda b: b[: RECORDS_FROM + 3], plain, "5"),
        ("80 MiB of zeros in a few kB", lambda b: bomb(0, -1), plain, "S8"),
    ]
    return [Attempt(what, way(good), policy, rule) for what, way, policy, rule in ways], now_ms
