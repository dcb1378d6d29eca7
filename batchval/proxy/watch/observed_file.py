"""observed.json of the state directory: what the gate refused or would have refused, over restarts.

    {"version": 1, "mode": "observe", "since_ms": 1769850000000, "until_ms": 1769850600000,
     "judged": 1204330, "rows": [
    ["orders", "User:alice", "crc-mismatch", false, 3, 1769850000000, 1769850600000,
     "10.0.0.7:51324", "client-1", 3, "CORRUPT_MESSAGE",
     "Record is corrupt (stored crc = 1, computed crc = 2)"]
    ]}

One row a line: the fields of RowKey, then those of Row.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchval.errors import BatchvalError
from batchval.proxy.kit.state_files import replace_file, set_aside
from batchval.proxy.watch.observed import Observed, ObservedCounts, Row, RowKey

__all__ = ["NAME", "ObservedFile", "read_observed"]

NAME: Final = "observed.json"

_VERSION: Final = 1
#: Of a file that is read. The longest rows that ``ObservedCounts`` keeps make 100 MB.
_MOST_BYTES: Final = 128 << 20
_MOST_ROWS: Final = 20_000
_ROWS_A_PIECE: Final = 50
#: Seconds between two writes: after a refusal, and where only validated batches have risen.
_CHANGED_S: Final = 10.0
_UNCHANGED_S: Final = 60.0

#: Types of a row's fields, in the order of the file.
_TYPES: Final[tuple[type | tuple[type, ...], ...]] = (
    *(str, str, str, bool),
    *(int, int, int, str, (str, type(None)), int, str, str),
)

log = logging.getLogger("batchval.proxy")


def read_observed(path: Path) -> Observed:
    """Read a file. Raises OSError, and BatchvalError where the gate has not written it."""
    with open(path, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise BatchvalError(f"{path} is longer than {_MOST_BYTES} bytes")
    try:
        return _observed(json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise BatchvalError(
            f"{path} was not written by this version of batchval proxy: {why}"
        ) from None


def _read_by_rows(path: Path) -> Observed:
    """Read a file that a gate of this version has written: no row keeps the GIL for long."""
    with open(path, "rb") as file:
        head = json.loads(file.readline() + b"]}")
        rows: list[Any] = []
        for line in file:
            if len(rows) % _ROWS_A_PIECE == 0:
                time.sleep(0)  # the event loop goes first
            if (text := line.strip().rstrip(b",")) not in (b"", b"]}"):
                rows.append(json.loads(text))
    return _observed(head | {"rows": rows})


def _observed(values: Any) -> Observed:
    if not isinstance(values, dict) or values.get("version") != _VERSION:
        raise ValueError(f"expected an object with version {_VERSION}")
    mode, rows = values["mode"], values["rows"]
    since_ms, until_ms, judged = (values[name] for name in ("since_ms", "until_ms", "judged"))
    if not isinstance(rows, list) or len(rows) > _MOST_ROWS:
        raise ValueError(f"rows must be an array of at most {_MOST_ROWS}")
    if not isinstance(mode, str) or not all(map(_is_count, (since_ms, until_ms, judged))):
        raise ValueError("mode must be text, since_ms, until_ms and judged must be numbers")
    return Observed(mode, since_ms, until_ms, judged, [_row(row) for row in rows])


def _row(values: Any) -> tuple[RowKey, Row]:
    if not isinstance(values, list) or len(values) != len(_TYPES):
        raise ValueError(f"a row must have {len(_TYPES)} fields")
    for value, expected in zip(values, _TYPES, strict=True):
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise ValueError(f"a row has a {type(value).__name__} in the wrong place")
    key, row = RowKey(*values[:4]), Row(*values[4:])
    if not all(map(_is_count, (row.batches, row.first_ms, row.last_ms))):
        raise ValueError("a number of a row is out of range")
    return key, row


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _pieces(observed: Observed) -> Iterator[bytes]:
    """Yield the file in pieces. Each is encoded in well under 1 ms: the encoder keeps the GIL."""
    head = {"version": _VERSION, **observed._asdict()}
    del head["rows"]
    yield json.dumps(head)[:-1].encode() + b', "rows": ['
    for start in range(0, len(observed.rows), _ROWS_A_PIECE):
        rows = observed.rows[start : start + _ROWS_A_PIECE]
        lines = ",".join(f"\n{json.dumps([*key, *row])}" for key, row in rows)
        yield (("," if start else "") + lines).encode()
        time.sleep(0)  # the event loop goes first
    yield b"\n]}\n"


class ObservedFile:
    """The counts in the state directory: read at the start, written now and then and at the end.

    Files are written in a thread. A file that cannot be read is set aside, with one warning; one
    that cannot be written is tried again, with one warning until it could be written.
    """

    def __init__(
        self,
        folder: Path,
        counts: ObservedCounts,
        *,
        changed_s: float = _CHANGED_S,
        unchanged_s: float = _UNCHANGED_S,
    ) -> None:
        self.path = folder / NAME
        self.counts = counts
        self.failures_total = 0
        self._changed_s = changed_s
        self._unchanged_s = unchanged_s
        self._written = -1  # changes of the counts that the file has
        self._failing = False
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Go on from the file of an earlier process, if there is one. Call it before a refusal."""
        try:
            self.counts.restore(read_observed(self.path))
        except FileNotFoundError:
            return
        except (OSError, BatchvalError) as error:
            self._set_aside(error)

    async def follow(self) -> None:
        """Add the counts of the gate that this one has replaced, which has ended. Then write."""
        try:
            earlier = await asyncio.to_thread(_read_by_rows, self.path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            self._set_aside(error)
        else:
            self.counts.follow(earlier)
            for n, (key, row) in enumerate(earlier.rows):
                self.counts.merge(key, row)
                if n % _ROWS_A_PIECE == _ROWS_A_PIECE - 1:
                    await asyncio.sleep(0)
        self.start()

    def _set_aside(self, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) else error
        try:
            what = f"it is now {set_aside(self.path)}"
        except OSError as second:
            what = f"and it cannot be renamed: {second.strerror}"
        log.warning(
            "the counts of earlier refusals cannot be read: %s: %s; %s", self.path, why, what
        )

    def start(self) -> None:
        """Write from now on. Needs a running loop."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write the counts for the last time."""
        self._ending.set()
        if self._task is not None:
            # unlike await, this does not cancel the last write where the caller is cancelled
            await asyncio.wait((self._task,))
            self._task.result()

    async def _run(self) -> None:
        while not self._ending.is_set():
            await self._write()
            await self._until_due()
        await self._write()

    async def _until_due(self) -> None:
        left_s = self._unchanged_s
        while left_s > 0 and not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), min(self._changed_s, left_s))
            if self.counts.changes != self._written:
                return
            left_s -= self._changed_s

    async def _write(self) -> None:
        changes, observed = self.counts.changes, self.counts.snapshot()
        try:
            await asyncio.to_thread(replace_file, self.path, _pieces(observed))
        except (OSError, RuntimeError) as error:  # RuntimeError: no more threads
            self.failures_total += 1
            if not self._failing:
                why = (isinstance(error, OSError) and error.strerror) or error
                log.warning("the counts of refusals cannot be written to %s: %s", self.path, why)
            self._failing = True
        else:
            self._written, self._failing = changes, False
