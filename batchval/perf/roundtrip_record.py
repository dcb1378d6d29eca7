"""The first bytes of a record's value in ``batchval perf roundtrip``, little-endian.

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

from batchval.perf.payloads import Letters

__all__ = ["HEADER", "HEADER_BYTES", "SizedLetters", "heads_of", "with_headers"]

HEADER: Final = np.dtype(
    [("run", "S8"), ("producer", "<u4"), ("number", "<i8"), ("intended", "<i8")]
)
HEADER_BYTES: Final = HEADER.itemsize


class SizedLetters:
    """Values of several sizes by turns; see ``Letters``."""

    def __init__(self, sizes: Sequence[int], *, many: bool, seed: int = 0) -> None:
        self.largest = max(sizes)
        self._by_size = {size: Letters(size, many=many, seed=seed) for size in sizes}
        self._sizes = list(sizes)

    def values(self, first: int, count: int) -> bytes | Sequence[bytes]:
        """Return one value for all where they are the same, else one for each."""
        if len(self._sizes) == 1:
            return self._by_size[self._sizes[0]].values(first, count)
        found = (
            self._by_size[self._sizes[n % len(self._sizes)]].values(n, 1)
            for n in range(first, first + count)
        )
        return [value if isinstance(value, bytes) else value[0] for value in found]


def with_headers(
    run: bytes, producer: int, numbers: Any, intended: Any, bodies: bytes | Sequence[bytes]
) -> list[bytes]:
    """Return a value for each number: a header, then the rest of its body (one for all, or one for
    each).
    """
    heads = np.empty(len(numbers), HEADER)
    heads["run"], heads["producer"], heads["number"], heads["intended"] = (
        run,
        producer,
        numbers,
        intended,
    )
    raw, size = heads.tobytes(), HEADER_BYTES
    starts = range(0, len(raw), size)
    if isinstance(bodies, bytes):
        rest = bodies[size:]
        return [raw[at : at + size] + rest for at in starts]
    return [raw[at : at + size] + body[size:] for at, body in zip(starts, bodies, strict=True)]


def heads_of(run: bytes, values: Sequence[bytes | None]) -> tuple[bytes, list[int]]:
    """Return the headers of this run's values as bytes, and the sizes of these values; values of
    others are left out.
    """
    size = HEADER_BYTES
    ours = [
        value
        for value in values
        if value is not None and len(value) >= size and value.startswith(run)
    ]
    return b"".join([value[:size] for value in ours]), [*map(len, ours)]
