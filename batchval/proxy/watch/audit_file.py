"""The audit log of refused batches: one JSON object a line, appended to ``log.audit_file``.

    {"time_ms": 1769850000123, "event": "refused", "listener": "edge", "client": "10.0.0.7:51324",
     "client_id": "shop", "principal": "User:shop", "topic": "orders", "partition": 3,
     "rule": "crc-mismatch", "error": "CORRUPT_MESSAGE", "reason": "…", "batches": 1, "version": 9}

    data path ── queue of at most MAX_WAITING_ROWS ──▶ thread ── encodes and writes ──▶ file

It has every batch that broke a rule and for which the queue has a place, whatever the log leaves
out; never a byte of a record. A disk that hangs holds up the thread alone. What could not be
written is written later; a row for which the queue has no place is counted.

    refused.jsonl ──▶ refused.jsonl.1 ──▶ refused.jsonl.2 ──▶ … the oldest is overwritten

A row that would take the file over ``log.audit_max_bytes`` goes to a new one: the process that has
it renames the files while it holds the lock of the full one. A process that waits for that lock then
sees that the name stands for another file, and opens that. So no row is split, lost, or written to a
file that was renamed. A file that cannot be renamed stays as it is, and the rows wait.

``FalseClaims`` logs a line about a sender whose claims were found false:

    WARNING false claims sender="listener edge" checked_for_s=3600

Batches are validated by native code, which counts in the ledger. So the ledger is looked at now and
then, and its senders only where one of them has lost the gate's trust since the last look.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from batchval.ledger import ClaimsLedger
from batchval.proxy.kit.background_threads import in_background
from batchval.proxy.settings.config import Log
from batchval.proxy.settings.options import Refusal
from batchval.proxy.watch.audit_log import event_of, facts_of, short
from batchval.proxy.watch.metrics import Family, single

__all__ = ["MAX_LINES", "AuditFile", "FalseClaims", "numbered", "open_appending", "rotated_path"]

#: Rows that wait for the thread: 2 kB each at most.
MAX_WAITING_ROWS: Final = 10_000

#: Rows that are encoded at a time: the encoder keeps the interpreter's lock for 0.3 ms. They have
#: 16 kB each at most, so the least log.audit_max_bytes (1 MiB) takes them all.
_ROWS_A_PIECE: Final = 50

#: Times that the file is opened for one piece, where others rename it in between.
_MAX_OPENS: Final = 4

#: Symbolic links that are followed, as Linux does.
_MAX_LINKS: Final = 40

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


def rotated_path(path: Path) -> Path | None:
    """Return the path that a rotation renames: where a symbolic link leads.

    None for a descriptor of the process, such as /dev/stdout: its file is another's.
    """
    for _ in range(_MAX_LINKS):
        folder = os.path.realpath(path.parent)
        if folder == "/proc" or folder.startswith("/proc/"):
            return None
        path = Path(folder, path.name)
        if not path.is_symlink():
            return path
        path = Path(folder, os.readlink(path))
    return None


def numbered(path: Path, number: int) -> Path:
    """Return the path of a renamed file; 1 is the newest."""
    return path.with_name(f"{path.name}.{number}")


class AuditFile:
    """A writer of refusals: takes them on the event loop, and writes them in its own thread.

    ``rows``       that were written
    ``dropped``    rows that found no place in the queue, and those left at the end
    ``failures``   attempts to open, write or rename the file that failed
    ``rotations``  how often this process has renamed it
    ``deleted_bytes``  of the oldest files, which made place
    """

    def __init__(
        self,
        path: Path,
        clock_ns: Callable[[], int] = time.time_ns,
        *,
        max_bytes: int | None = None,
        max_files: int = 2,
        look_s: float = LOOK_S,
    ) -> None:
        self.path = path
        self.rows = self.dropped = self.failures = self.rotations = self.deleted_bytes = 0
        self._max_bytes, self._max_files = max_bytes, max_files
        self._most_files = max_files  # that this process has ever kept
        self._clock_ns = clock_ns
        self._look_s = look_s
        self._queue: deque[dict[str, Any]] = deque()
        self._wake = threading.Event()
        self._ending = self._reopening = self._failing = self._has_fewer = False
        self._piece = b""  # of rows that are being written, or whose write has failed
        self._piece_rows = self._piece_at = 0  # how many they are; how many bytes were written
        self._descriptor = -1
        self._target: Path | None = None  # that a rotation renames
        self._looked = 0.0
        self._thread: threading.Thread | None = None

    @classmethod
    def made(cls, settings: Log) -> AuditFile | None:
        """Return what the settings ask for."""
        if settings.audit_file is None:
            return None
        most, files = settings.audit_max_bytes, settings.audit_max_files
        return cls(settings.audit_file, max_bytes=most, max_files=files)

    def __call__(self, refusal: Refusal) -> None:
        """Put a refusal into the queue; on the event loop. Extras alone refuse nothing."""
        if not refusal.rule:
            return
        if len(self._queue) >= MAX_WAITING_ROWS:
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
        self._open()
        # a daemon: a disk that hangs must not keep the process from its end
        self._thread = threading.Thread(target=self._run, name="batchval-audit", daemon=True)
        self._thread.start()

    def reopen(self) -> None:
        """Open the file anew before the next row: it was rotated."""
        self._reopening = True
        self._wake.set()

    def follow(self, settings: Log) -> None:
        """Keep the bytes and the files of these settings from now on."""
        max_bytes, max_files = settings.audit_max_bytes, settings.audit_max_files
        self._has_fewer |= max_files < self._max_files
        self._max_bytes, self._max_files = max_bytes, max_files
        self._most_files = max(self._most_files, max_files)
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
            (
                "failures",
                "Attempts to open, write or rename log.audit_file that failed.",
                self.failures,
            ),
            ("rotations", "Full files of log.audit_file that were renamed.", self.rotations),
            (
                "deleted_bytes",
                "Bytes of the oldest files of log.audit_file, deleted for newer ones.",
                self.deleted_bytes,
            ),
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
            self._delete_surplus()
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
        self._open()

    def _open(self) -> None:
        """Open the file, and close the one before. Raises OSError."""
        self._target = rotated_path(self.path)
        descriptor = self._opened(self._target or self.path)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._piece_at = self._row_begins()

    def _opened(self, path: Path) -> int:
        """Open a file. A new one gets the owner, group and mode of the one before."""
        if self._descriptor < 0:
            return open_appending(path)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:  # it is there, or open_appending says what is wrong
            return open_appending(path)
        descriptor = open_appending(path)
        with contextlib.suppress(OSError):
            _share_as(os.fstat(self._descriptor), descriptor)
        return descriptor

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
        left = _MAX_OPENS
        while True:
            with _locked(self._descriptor):
                is_in_place = self._is_in_place()
                if is_in_place and self._is_full():
                    self._rotate()  # others may fill the new file first, as often as they like
                elif is_in_place or not left:
                    self._append()
                    break
                else:
                    left -= 1
            self._open()
        self.rows += self._piece_rows
        self._piece, self._piece_rows, self._piece_at = b"", 0, 0
        time.sleep(0)  # the event loop goes first

    def _append(self) -> None:
        """Append what is left of the rows. Raises OSError, and cuts half a row off the file."""
        try:
            while self._piece_at < len(self._piece):
                self._piece_at += os.write(self._descriptor, self._piece[self._piece_at :])
        except OSError:
            self._cut()
            raise

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

    # ---- rotation --------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        """Return whether the rows would take the file over its size, and it can be renamed."""
        if self._max_bytes is None or self._target is None:
            return False
        if self._piece_at != self._row_begins():
            return False  # the file has the first half of a row
        found = os.fstat(self._descriptor)
        size = found.st_size
        more = len(self._piece) - self._piece_at
        return stat.S_ISREG(found.st_mode) and size > 0 and size + more > self._max_bytes

    def _rotate(self) -> None:
        """Rename the full file, and the files before it. Raises OSError."""
        assert self._target is not None
        try:
            self._delete_from(self._max_files)
            oldest = self._max_files - 1
            deleted = _size_of(numbered(self._target, oldest))
            for number in range(oldest - 1, -1, -1):
                path = numbered(self._target, number) if number else self._target
                with contextlib.suppress(FileNotFoundError):
                    os.rename(path, numbered(self._target, number + 1))
                    if number + 1 == oldest:
                        self.deleted_bytes += deleted
        except OSError as error:
            text = f"it is full (log.audit_max_bytes) and cannot be renamed: {error.strerror}"
            raise OSError(error.errno, text) from None
        self.rotations += 1

    def _delete_surplus(self) -> None:
        """Delete files above the number of files, where that was lowered. Raises OSError."""
        if not self._has_fewer:
            return
        self._has_fewer = False
        with _locked(self._descriptor):
            self._delete_from(self._max_files)

    def _delete_from(self, first: int) -> None:
        """Delete the files from this number on that this process may have kept."""
        if self._target is None:
            return
        for number in range(first, self._most_files):
            path = numbered(self._target, number)
            size = _size_of(path)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                self.deleted_bytes += size


def _size_of(path: Path) -> int:
    """Return the bytes of a file; 0 where there is none."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _share_as(before: os.stat_result, descriptor: int) -> None:
    """Give a new file the owner, group and mode of another one, as far as this user may."""
    if not stat.S_ISREG(before.st_mode):
        return
    mode = stat.S_IMODE(before.st_mode) & 0o666
    with contextlib.suppress(OSError):
        os.fchown(descriptor, before.st_uid, -1)
    if os.fstat(descriptor).st_gid != before.st_gid:
        try:
            os.fchown(descriptor, -1, before.st_gid)
        except OSError:
            mode &= ~0o060  # they were another group's
    os.fchmod(descriptor, mode)


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


#: Lines of one look; one more counts the other senders.
MAX_LINES: Final = 20


class FalseClaims:
    """A logger that names each sender once for each time that it loses the gate's trust."""

    def __init__(self) -> None:
        self._ledger: ClaimsLedger | None = None
        self._total = 0
        self._known: dict[str, int] = {}

    async def look(self, ledger: ClaimsLedger | None) -> None:
        """Write a line for each sender that has lost the trust since the last look."""
        if ledger is not self._ledger:  # since a reload
            self._ledger, self._total, self._known = ledger, 0, {}
        if ledger is None or (total := ledger.counts().demotions) == self._total:
            return
        try:
            counts = await in_background(lambda: _demotions(ledger))
        except RuntimeError:  # no thread can be started: the next look tries again
            return
        found = [name for name, number in counts.items() if number > self._known.get(name, 0)]
        self._total, self._known = total, counts
        for name in found[:MAX_LINES]:
            _write(sender=short(name), checked_for_s=ledger.demotion_ms // 1000)
        if len(found) > MAX_LINES:
            _write(more_senders=len(found) - MAX_LINES)


def _demotions(ledger: ClaimsLedger) -> dict[str, int]:
    """Return how often each sender has lost the trust, of those that ever did."""
    return {name: number for name in ledger.senders() if (number := ledger.counts(name).demotions)}


def _write(**facts: object) -> None:
    log.warning("false claims", extra={"facts": facts})
