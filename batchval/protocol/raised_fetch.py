"""Fetch answers of version 10, to which requests of removed versions are raised.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from batchval.protocol.primitives import Reader

__all__ = ["read_partitions"]

T = TypeVar("T")


def read_partitions(
    r: Reader,
    make: Callable[[str, int, int, int, list[tuple[int, int]], memoryview | None], T],
) -> tuple[int, int, list[tuple[str, int]], list[T]]:
    """Return throttle_time_ms, error_code, (topic, number of its partitions), and what is made
    of each partition, in order.
    """
    throttle_time_ms = r.int32()
    error_code = r.int16()
    r.int32()  # session_id
    answer_error = error_code
    topics = []
    partitions = []
    for _ in range(r.count()):
        topic = r.string()
        count = r.count()
        topics.append((topic, count))
        for _ in range(count):
            partition_index = r.int32()
            error_code = r.int16()
            high_watermark = r.int64()
            r.int64()  # last_stable_offset
            r.int64()  # log_start_offset
            aborted_transactions = [
                (r.int64(), r.int64()) for _ in range(max(r.nullable_count(), 0))
            ]
            records = r.nullable_records()
            partitions.append(
                make(
                    topic,
                    partition_index,
                    error_code,
                    high_watermark,
                    aborted_transactions,
                    records,
                )
            )
    return throttle_time_ms, answer_error, topics, partitions
