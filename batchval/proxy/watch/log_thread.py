"""Write the log to stderr in its own thread: its reader may hang, and clients must not wait.

    any thread ── queue of at most MOST_BYTES ──▶ thread ── one write(2) for each line ──▶ stderr

Lines for which the queue has no place are counted. None is taken from then on until half of the
queue is free; then one line says how many were left out, where they would stand. A line that
cannot be written (the reader is gone, the disk is full) is counted, too.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from batchval.proxy.settings.config import Log
from batchval.proxy.watch.audit_log import encoded, install

__all__ = ["LineWriter", "ThreadHandler", "lines_left_out", "write_in_thread"]

#: Bytes of lines that wait for the thread: some 4,000 lines.
MOST_BYTES: Final = 1 << 20
#: Seconds that the end of the process waits for lines that wait.
FLUSH_S: Final = 1.0
#: Seconds between two looks whether all lines are written.
LOOK_S: Final = 0.002
#: Seconds before a failed write, or one that would block, is tried again.
AGAIN_S: Final = 1.0


class LineWriter:
    """A writer of lines from any thread to a descriptor; -1 stands for a closed one.

    ``count_line``  returns the line that says how many were left out
    ``left_out``    lines that were not written
    """

    def __init__(self, descriptor: int, count_line: Callable[[int], bytes]) -> None:
        self.left_out = 0
        self._descriptor = descriptor
        self._count_line = count_line
        # (line, lines left out that it reports); queue and lock are reentrant: the cycle collector
        # runs anywhere, and what it frees may log
        self._queue: SimpleQueue[tuple[bytes, int]] = SimpleQueue()
        self._lock = threading.RLock()
        self._waiting = 0  # bytes in the queue and being written
        self._reported = 0  # of left_out
        self._rest = b""  # of a line that was written in part
        self._is_late = False
        # a daemon: a reader that hangs must not keep the process from its end
        threading.Thread(target=self._run, name="batchval-log", daemon=True).start()

    def put(self, line: bytes) -> None:
        """Let a line be written; count it where it finds no place. Never waits for the reader."""
        with self._lock:
            if self.left_out != self._reported or self._waiting + len(line) > MOST_BYTES:
                self.left_out += 1
                return
            self._waiting += len(line)
        self._queue.put((line, 0))

    def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Wait until all lines are written, for so long at most; not again after that failed."""
        until = time.monotonic() + timeout_s
        while self._waiting and not self._is_late:
            time.sleep(LOOK_S)
            self._is_late = time.monotonic() >= until

    # ---- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        is_written = True
        while True:
            if is_written:
                self._report()
            try:
                line, reported = self._queue.get(
                    timeout=AGAIN_S if self.left_out != self._reported else None
                )
            except Empty:
                is_written = True  # perhaps it can be by now
                continue
            is_written = self._write(line)
            self._note(line, reported, is_written)

    def _report(self) -> None:
        """Append how many lines were left out, where some were and half of the queue is free."""
        if self.left_out == self._reported:
            return
        if self._waiting <= MOST_BYTES // 2:
            count = self.left_out - self._reported
            line = self._count_line(count)
            with self._lock:
                self._waiting += len(line)
                self._reported += count
            self._queue.put((line, count))

    def _note(self, line: bytes, reported: int, is_written: bool) -> None:
        """Count a line that is out of the queue."""
        with self._lock:
            self._waiting -= len(line)
            if not is_written and reported:
                self._reported -= reported  # another line says so later
            elif not is_written:
                self.left_out += 1

    def _write(self, line: bytes) -> bool:
        """Write a line after what is left of the one before; return whether it has begun."""
        data = self._rest + line
        try:
            while data:
                data = data[self._written(data) :]
        except OSError:
            left = len(data) - len(line)
            self._rest = data if left < 0 else data[:left]
            return left < 0
        self._rest = b""
        return True

    def _written(self, data: bytes) -> int:
        """Return how many bytes were written. Raises OSError."""
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:  # another process that has the descriptor has set it so
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll(AGAIN_S * 1_000)


class ThreadHandler(logging.Handler):
    """A logging handler that passes lines to a LineWriter."""

    def __init__(self, writer: LineWriter, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Format a record here, since its arguments may change; the thread writes it."""
        try:
            self.writer.put(encoded(self.format(record)))
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all is written, for FLUSH_S at most; the interpreter does so at its end."""
        self.writer.flush()


def write_in_thread(settings: Log) -> ThreadHandler:
    """Send what this process logs to stderr; return the handler of batchval's own lines.

    Warnings of other libraries keep their form, and wait for no reader either.
    """

    def count_line(count: int) -> bytes:
        message = {"msg": "lines left out of the log", "facts": {"count": count}}
        record = logging.makeLogRecord(
            message | {"levelno": logging.WARNING, "levelname": "WARNING"}
        )
        is_shown = logging.getLogger("batchval").isEnabledFor(logging.WARNING) and handler.filter(
            record
        )
        return encoded(handler.format(record)) if is_shown else b""

    writer = LineWriter(-1 if sys.stderr is None else sys.stderr.fileno(), count_line)
    handler = ThreadHandler(writer)
    install(settings, handler)
    logging.getLogger().addHandler(ThreadHandler(writer, logging.WARNING))
    return handler


def lines_left_out() -> int:
    """Return how many lines of this process stderr did not take."""
    handlers = logging.getLogger("batchval").handlers
    return sum(one.writer.left_out for one in handlers if isinstance(one, ThreadHandler))
