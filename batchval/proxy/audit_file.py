"""The audit log of refused batches: one JSON object a line, appended to ``log.audit_file``.

    {"time_ms": 1769850000123, "event": "refused", "listener": "edge", "client": "10.0.0.7:51324",
     "client_id": "shop", "principal": "User:shop", "topic": "orders", "partition": 3,
     "rule": "crc-mismatch", "error": "CORRUPT_MESSAGE", "reason": "…", "batches": 1, "version": 9}

    data path ── queue of at most MOST_ROWS rows ──▶ thread ── encodes and writes ──▶ file

It has every batch that broke a rule and for which the queue has a place, whatever the log leaves
out; never a byte of a record. A disk that hangs holds up the thread alone. What could not be
written is written later; a row for which the queue has no place is counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from batchval.proxy.audit_log import event_of, facts_of
from batchval.proxy.metrics import Family, single
from batchval.proxy.options import Refusal

__all__ = ["AuditFile", "open_appending"]

#: Rows that wait for the thread: 2 kB each at most.
MOST_ROWS: Final = 10_000
#: Rows that are encoded at a time: the encoder keeps the interpreter's lock for 0.3 ms.
_ROWS_A_PIECE: Final = 50
#: Seconds between looks at whether the file was moved, and before a failed write is tried again.
LOOK_S: Final = 1.0
#: Seconds at the end for the rows that still wait.
STOP_S: Final = 5.0

log = logging.getLogger("batchval.proxy")


def open_appending(path: Path) -> int:
    """Open a file for appending and return its descriptor. A new file has mode 0600.

    A pipe that nobody reads is an error, and not waited for. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    os.set_blocking(descriptor, True)
    return descriptor


class AuditFile:
    """A writer of refusals: takes them on the event loop, and writes them in its own thread.

    ``rows``      that were written
    ``dropped``   rows that found no place in the queue, and those left at the end
    ``failures``  attempts to open or write the file that failed
    """

    def __init__(
        self, path: Path, clock_ns: Callable[[], int] = time.time_ns, *, look_s: float = LOOK_S
    ) -> None:
        self.path = path
        self.rows = self.dropped = self.failures = 0
        self._clock_ns = clock_ns
        self._look_s = look_s
        self._queue: deque[dict[str, Any]] = deque()
        self._wake = threading.Event()
        self._ending = self._reopening = self._failing = False
        self._piece = b""  # of rows that are being written, or whose write has failed
        self._piece_rows = self._piece_at = 0  # how many they are; how many bytes were written
        self._descriptor = -1
        self._looked = 0.0
        self._thread: threading.Thread | None = None

    def __call__(self, refusal: Refusal) -> None:
        """Put a refusal into the queue; on the event loop. Extras alone refuse nothing."""
        if not refusal.rule:
            return
        if len(self._queue) >= MOST_ROWS:
            self.dropped += 1
            return
        row = {"time_ms": self._clock_ns() // 1_000_000, "event": event_of(refusal)} | facts_of(
            refusal
        )
        self._queue.append(row | {"batches": refusal.batches, "version": refusal.version})
        if not self._wake.is_set():
            self._wake.set()

    # ---- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the file and begin to write. Raises OSError."""
        self._descriptor = open_appending(self.path)
        # a daemon: a disk that hangs must not keep the process from its end
        self._thread = threading.Thread(target=self._run, name="batchval-audit", daemon=True)
        self._thread.start()

    def reopen(self) -> None:
        """Open the file anew before the next row: it was rotated."""
        self._reopening = True
        self._wake.set()

    def stop(self) -> None:
        """Write what waits, for STOP_S at most, and close the file. It may take this long."""
        if self._thread is None:
            return
        self._ending = True
        self._wake.set()
        self._thread.join(STOP_S)
        left = len(self._queue) + self._piece_rows
        if left:
            self.dropped += left
            log.warning(
                "refusals left out of %s: the gate ends",
                self.path,
                extra={"facts": {"count": left}},
            )

    def families(self) -> Iterator[Family]:
        """Yield its metrics."""
        for name, text, value in (
            ("rows", "Refusals written to log.audit_file.", self.rows),
            (
                "dropped",
                "Refusals missing in log.audit_file: the queue was full, or the gate ended before "
                "they were written.",
                self.dropped,
            ),
            ("failures", "Attempts to open or write log.audit_file that failed.", self.failures),
        ):
            yield single("counter", f"audit_file_{name}", text, value)

    # ---- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending or (self._queue and not self._failing):
            self._wake.wait()
            self._wake.clear()
            self._write_all()
            if self._failing and not self._ending:
                time.sleep(self._look_s)
                self._wake.set()
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _write_all(self) -> None:
        """Write what waits, until that fails."""
        try:
            self._follow()
            while self._piece or self._queue:
                self._write_piece()
        except OSError as error:
            self.failures += 1
            if not self._failing:
                log.warning("log.audit_file %s cannot be written: %s", self.path, error.strerror)
            self._failing = True
        else:
            if self._failing:
                log.info("log.audit_file %s is written again", self.path)
            self._failing = False

    def _follow(self) -> None:
        """Open the file where it is not open, was moved or is to be opened anew. Raises OSError."""
        if self._descriptor >= 0 and not self._reopening:
            now = time.monotonic()
            if now - self._looked < self._look_s:
                return
            self._looked = now
            if self._is_in_place():
                return
        self._reopening = False
        descriptor = open_appending(self.path)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._piece_at = self._row_begins()

    def _is_in_place(self) -> bool:
        """Return whether the path still leads to the open file."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        return False

    def _write_piece(self) -> None:
        """Write some rows. Those that a write leaves stay for the next one. Raises OSError."""
        if not self._piece:
            count = min(_ROWS_A_PIECE, len(self._queue))
            rows = [self._queue.popleft() for _ in range(count)]
            self._piece_rows = count
            self._piece = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        with _locked(self._descriptor):
            try:
                while self._piece_at < len(self._piece):
                    self._piece_at += os.write(self._descriptor, self._piece[self._piece_at :])
            except OSError:
                self._cut()
                raise
        self.rows += self._piece_rows
        self._piece, self._piece_rows, self._piece_at = b"", 0, 0
        time.sleep(0)  # the event loop goes first

    def _row_begins(self) -> int:
        """Return where the row begins of which a part was written."""
        return self._piece.rfind(b"\n", 0, self._piece_at) + 1

    def _cut(self) -> None:
        """Cut half a row off the file, where another process may append. A pipe gets the rest."""
        begins = self._row_begins()
        with contextlib.suppress(OSError):
            end = os.lseek(self._descriptor, 0, os.SEEK_CUR)  # where this process has written last
            if begins < self._piece_at and end == os.fstat(self._descriptor).st_size:
                os.ftruncate(self._descriptor, end - (self._piece_at - begins))
                self._piece_at = begins


@contextlib.contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    """Keep other gates and workers from writing to the file meanwhile, where it can be locked."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
