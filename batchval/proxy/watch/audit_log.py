"""Lines of the gate on stderr: one line for each partition that it refused, and its own state.
``connection_log`` has the lines about connections.

    text   2026-01-31T12:00:00.123Z WARNING refused listener=edge client=10.0.0.7:51324 topic=orders partition=3 rule=…
    json   {"time": "…", "level": "WARNING", "event": "refused", "listener": "edge", …}

Who, where, which rule and why; never a byte of a record, of a password, or of what SASL carried.
What a client chose (its id, its principal, a topic's name) is short and escaped: it cannot
begin a line of its own.

``LineWriter`` writes the log in its own thread: its reader may hang, and clients must not wait.

    any thread ── queue of at most MAX_WAITING_BYTES ──▶ thread ── one write(2) a line ──▶ stderr

Lines for which the queue has no place are counted. None is taken from then on until half of the
queue is free; then one line says how many were left out, where they would stand. A line that
cannot be written (the reader is gone, the disk is full) is counted, too.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final

from batchval.protocol.apis import APIS
from batchval.proxy.settings.config import Log
from batchval.proxy.settings.options import Denied, Refusal
from batchval.proxy.watch.senders import LineShares, SenderTable

__all__ = [
    "MAX_LINES_AT_ONCE",
    "MAX_LINE_BYTES",
    "LineFormatter",
    "LineWriter",
    "RefusalLog",
    "ThreadHandler",
    "change",
    "encoded",
    "event_of",
    "facts_of",
    "install",
    "json_line",
    "lines_left_out",
    "short",
    "text_line",
    "write_in_thread",
]

log = logging.getLogger("batchval.proxy")

_MAX_TOPIC_LENGTH = 249  # Kafka's longest topic name

_MAX_REASON_LENGTH = 500

#: Bytes of a line with its end: a pipe takes so many as one piece (PIPE_BUF of Linux), so that
#: the lines of several workers do not mix.
MAX_LINE_BYTES: Final = 4_096

#: Lines that may come without a pause: one takes the event loop 30 microseconds.
MAX_LINES_AT_ONCE = 20

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/+,[]=*")


class RefusalLog:
    """A logger of refusals: at most ``per_second`` lines a second, MAX_LINES_AT_ONCE at once, and
    as many again for senders that have had no line lately.

    The others are counted. ``what`` names them in the line that has their number.
    """

    def __init__(
        self,
        per_second: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        what: str = "refusals",
        senders: SenderTable | None = None,
    ) -> None:
        self.suppressed_total = 0
        self._what = what
        self._senders = SenderTable(clock=clock) if senders is None else senders
        self.bound(per_second)
        self._left_out = 0

    def bound(self, per_second: int) -> None:
        """Write so many lines a second from now on."""
        self._lines = LineShares(
            self._what, per_second, min(per_second, MAX_LINES_AT_ONCE), self._senders
        )

    def __call__(self, refusal: Refusal) -> None:
        """Write the line of a refused partition."""
        if not self._may_write(refusal, refusal.batches):
            return
        log.warning(event_of(refusal), extra={"facts": facts_of(refusal)})

    def denied(self, request: Denied) -> None:
        """Write the line of a request whose API the settings deny."""
        if not self._may_write(request, 1):
            return
        facts: dict[str, object] = {"api": APIS[request.key].name, "version": request.version}
        if request.inter_broker:
            facts["preset"] = "inter-broker"
        log.warning("denied", extra={"facts": _sender(request) | facts})

    def _may_write(self, one: Refusal | Denied, batches: int) -> bool:
        """Return whether a line may be written now; else count what it stands for."""
        if not self._lines.take(one.principal, one.client):
            self._left_out += batches
            self.suppressed_total += batches
            return False
        self.flush()
        return log.isEnabledFor(logging.WARNING)

    def flush(self) -> None:
        """Log how many lines were left out, if any were. Call it now and then, and at the end."""
        if self._left_out:
            facts = {"count": self._left_out}
            log.warning(f"{self._what} left out of the log", extra={"facts": facts})
            self._left_out = 0


def event_of(refusal: Refusal) -> str:
    """Return what became of a partition: reported, refused or observed."""
    return "reported" if not refusal.rule else "refused" if refusal.enforced else "observed"


def facts_of(refusal: Refusal) -> dict[str, object]:
    """Return the facts of a refused partition, as far as they are known, in their order."""
    facts: dict[str, object] = {
        "topic": None if refusal.topic is None else short(refusal.topic),
        "partition": refusal.partition,
        "rule": refusal.rule or None,
        "error": refusal.error or None,
        "reason": short(refusal.reason, _MAX_REASON_LENGTH) or None,
        "reported": ",".join(refusal.reported) or None,
        "batches": refusal.batches if refusal.batches > 1 else None,
    }
    return _sender(refusal) | _known(facts)


def _sender(one: Refusal | Denied) -> dict[str, object]:
    facts: dict[str, object] = {
        "listener": one.listener,
        "client": one.client,
        "client_id": None if one.client_id is None else short(one.client_id),
        "principal": short(one.principal) or None,
    }
    return _known(facts)


def _known(facts: Mapping[str, object]) -> dict[str, object]:
    return {key: fact for key, fact in facts.items() if fact is not None}


def short(text: str, longest: int = _MAX_TOPIC_LENGTH) -> str:
    """Return a text, cut to ``longest`` characters where it has more."""
    return text if len(text) <= longest else f"{text[:longest]}…"


# ---- formats -------------------------------------------------------------------------------------


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = dict(getattr(record, "facts", {}))
    if record.exc_info and record.exc_info[0] is not None:
        # the kind alone: a message may quote what was being read
        facts["exception"] = record.exc_info[0].__name__
    return facts


class LineFormatter(logging.Formatter):
    """One line of at most MAX_LINE_BYTES. The longest facts are shortened where it has more.

    ``line``  makes it of a record and its facts; the record's message is the fact ``event``
    """

    def __init__(self, line: Callable[[logging.LogRecord, dict[str, Any]], str]) -> None:
        super().__init__()
        self._line = line

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        facts = {"event": record.getMessage()} | _facts(record)
        line = self._line(record, facts)
        while len(encoded(line)) > MAX_LINE_BYTES and (name := _longest(facts)):
            facts[name] = short(facts[name], len(facts[name]) // 2)
            line = self._line(record, facts)
        return line


def text_line(record: logging.LogRecord, facts: dict[str, Any]) -> str:
    """Return one line for people: words, then key=value."""
    parts = [_time(record), record.levelname, _line(str(facts["event"]))]
    parts += [f"{key}={_value(value)}" for key, value in facts.items() if key != "event"]
    return " ".join(parts)


def json_line(record: logging.LogRecord, facts: dict[str, Any]) -> str:
    """Return one object in ASCII, so that nothing in it can be taken for the end of the line."""
    row = {"time": _time(record), "level": record.levelname}
    return json.dumps(row | facts, default=str)


def encoded(line: str) -> bytes:
    """Return a line as it is written, with its end."""
    return f"{line}\n".encode(errors="backslashreplace")


def _longest(facts: Mapping[str, object]) -> str | None:
    """Return the name of the longest text; None where none has more than 8 characters."""
    texts = {
        name: len(json.dumps(fact))
        for name, fact in facts.items()
        if isinstance(fact, str) and len(fact) > 8
    }
    return max(texts, key=texts.__getitem__, default=None)


def _line(text: str) -> str:
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _value(value: object) -> str:
    text = str(value)
    return text if text and set(text) <= _BARE else json.dumps(text)


def install(settings: Log, handler: logging.Handler) -> None:
    """Send what batchval logs to this handler alone, as the settings ask."""
    handler.setFormatter(_formatter(settings))
    root = logging.getLogger("batchval")
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    root.propagate = False


def change(settings: Log) -> None:
    """Write as these settings ask from now on, where ``install`` was called."""
    root = logging.getLogger("batchval")
    for handler in root.handlers:
        if isinstance(handler.formatter, LineFormatter):
            handler.setFormatter(_formatter(settings))
            root.setLevel(settings.level.upper())


def _formatter(settings: Log) -> logging.Formatter:
    return LineFormatter(json_line if settings.format == "json" else text_line)


#: Bytes of lines that wait for the thread: some 4,000 lines.
MAX_WAITING_BYTES: Final = 1 << 20

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
            if self.left_out != self._reported or self._waiting + len(line) > MAX_WAITING_BYTES:
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
        if self._waiting <= MAX_WAITING_BYTES // 2:
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
