"""What a record of ``batchval perf roundtrip`` carries at the start of its value, little-endian.

8 bytes   the run and topic, by chance: records of others are not counted
4 bytes   which of the topic's producers, from 0
8 bytes   the record's number, of that producer, from 0
8 bytes   the instant that the schedule intended, ns of CLOCK_MONOTONIC: of this machine alone
…         letters, up to the size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

__all__ = ["HEADER", "HEADER_BYTES", "headers_of", "with_headers"]

HEADER: Final = np.dtype([("run", "S8"), ("producer", "<u4"), ("number", "<i8"), ("intended", "<i8")])
HEADER_BYTES: Final = HEADER.itemsize


def with_headers(
    run: bytes, producer: int, numbers: Any, intended: Any, bodies: bytes | Sequence[bytes]
) -> list[bytes]:
    """Return values: for each number a header, and the rest of its body (one for all, or one for
    each).
    """
    heads = np.empty(len(numbers), HEADER)
    heads["run"], heads["producer"], heads["number"], heads["intended"] = run, producer, numbers, intended
    raw, size = heads.tobytes(), HEADER_BYTES
    starts = range(0, len(raw), size)
    if isinstance(bodies, bytes):
        rest = bodies[size:]
        return [raw[at : at + size] + rest for at in starts]
    return [raw[at : at + size] + body[size:] for at, body in zip(starts, bodies, strict=True)]


def headers_of(run: bytes, values: Sequence[bytes | None]) -> Any:
    """Return the headers of this run's values, in order; values of others are left out."""
    size = HEADER_BYTES
    ours = [value[:size] for value in values if value is not None and len(value) >= size and value.startswith(run)]
    return np.frombuffer(b"".join(ours), HEADER)
