"""The values of records: letters of a fixed size, the payloads of a file, or numbers that go up.

--record-size N      N letters from A to Z, by chance (but the same for the same --seed)
--payload-file F     parts of F between --payload-delimiter, one by chance for each record
--payload-monotonic  0, 1, 2, … in decimal digits
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from batchval.errors import BatchvalError
from batchval.named_files import read_whole

__all__ = ["FilePayloads", "Letters", "Monotonic", "PayloadError", "Payloads", "parts_of"]

_POOL_BYTES = 16 << 20
_MAX_FILE_BYTES: Final = 1 << 30  # bytes, which stay in memory


class PayloadError(BatchvalError):
    """There is nothing to send. One line."""


class Payloads(Protocol):
    """The source of a thread's values."""

    @property
    def largest(self) -> int:
        """Return the size of the largest value in bytes."""

    def values(self, first: int, count: int) -> bytes | Sequence[bytes]:
        """Return values for the thread's records first to first + count - 1: one for all, or one
        for each.
        """


class Letters:
    """One payload for all where nothing is compressed (no broker looks into it), else many, as
    Kafka's tool has.
    """

    def __init__(self, size: int, *, many: bool, seed: int = 0) -> None:
        chance = random.Random(seed)
        self.largest = size
        count = max(1, min(1024, _POOL_BYTES // max(size, 1))) if many else 1
        table = bytes(65 + n * 26 // 256 for n in range(256))
        self._pool = [chance.randbytes(size).translate(table) for _ in range(count)]

    def values(self, first: int, count: int) -> bytes | Sequence[bytes]:
        pool = self._pool
        if len(pool) == 1:
            return pool[0]
        at = first % len(pool)
        found = pool[at : at + count]
        while len(found) < count:
            found += pool[: count - len(found)]
        return found


def parts_of(path: Path, delimiter: str) -> list[bytes]:
    """Return the payloads of a file.

    The delimiter is a regular expression; empty payloads at the end are left out, as in Java.
    Raises PayloadError, OSError.

    """
    data = read_whole(path, _MAX_FILE_BYTES)
    try:
        parts = [part or b"" for part in re.split(delimiter.encode(), data)]
    except re.error as error:
        raise PayloadError(f"--payload-delimiter {delimiter!r}: {error}") from None
    while parts and not parts[-1]:
        parts.pop()
    if not parts:
        raise PayloadError(f"--payload-file {path}: no payload in it")
    return parts


class FilePayloads:
    """One of the parts of a file for each record, by chance; all threads share the parts."""

    def __init__(self, parts: Sequence[bytes], *, seed: int = 0) -> None:
        self._parts = parts
        self.largest = max(map(len, parts))
        self._chance = random.Random(seed)

    def values(self, first: int, count: int) -> Sequence[bytes]:
        return self._chance.choices(self._parts, k=count)


class Monotonic:
    """Numbers that go up over all threads: this thread's are those with its remainder."""

    def __init__(self, thread: int = 0, threads: int = 1) -> None:
        self.largest = 20
        self._thread, self._threads = thread, threads

    def values(self, first: int, count: int) -> Sequence[bytes]:
        step = self._threads
        return [
            b"%d" % n
            for n in range(first * step + self._thread, (first + count) * step + self._thread, step)
        ]
