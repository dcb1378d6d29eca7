"""Copies of refused batches, so that the reason can be found later.

    Gate ── take, on the loop ──▶ queue, bounded in bytes ── a thread ──▶ QuarantineFolder

A refusal does not wait for its copy and does not depend on it: what the thread cannot keep up with,
or the disk does not take, is counted and left out. The files hold the records of clients.

``QuarantineFolder`` writes two files for each batch, within a number of bytes in all.

    20261126T081500.123Z-orders-3-4711-000017.log    the batch, as it came
    20261126T081500.123Z-orders-3-4711-000017.json   the verdict on it, written last

The name has the time (UTC), the topic, the partition, the process id and a number. A topic whose
name Kafka does not allow, or that is long, has a part of its SHA-256 instead. The oldest files go
first, those of earlier processes included; files with other names are left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from batchval.errors import ErrorCode
from batchval.proxy.kit.topics import is_topic_name
from batchval.proxy.settings.config import Quarantine as Settings
from batchval.proxy.settings.options import Refusal
from batchval.proxy.watch.audit_log import short
from batchval.proxy.watch.metrics import Family, single
from batchval.rules import Rule
from batchval.token_bucket import TokenBucket

__all__ = ["MAX_BATCHES", "QuarantineFolder", "QuarantineWriter"]

#: Batches that are kept, however small they are: a look at the folder takes 5 us for each file.
MAX_BATCHES: Final = 10_000

#: The folder is read again after 1/16 of its bytes or batches: other workers write, too.
_LOOKS: Final = 16

_MAX_TOPIC_LENGTH: Final = 100

_HASHED: Final = 16  # digits

_NAME: Final = re.compile(r"(\d{8}T\d{6}\.\d{3}Z-[A-Za-z0-9._-]{1,150}-\d+-\d{6,})\.(log|json)")

_TEMPORARY: Final = re.compile(rf"\.{_NAME.pattern}\.new")


class QuarantineFolder:
    """One folder, written by one thread; other processes may write to it, too. Raises OSError.

    ``bytes``  of its files, as far as known
    """

    def __init__(self, path: Path, max_bytes: int, most_batches: int = MAX_BATCHES) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.most_batches = most_batches
        self.bytes = 0
        self._sizes: dict[str, int] = {}  # of both files by their name, oldest first
        self._written = 0  # bytes and batches since the folder was read
        self._written_batches = 0
        self._number = 0

    def open(self) -> None:
        """Make the folder where it does not exist, and delete what is over its bounds."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        self._read()
        self._delete_down(self.max_bytes, self.most_batches)

    def name_for(self, when: float, topic: str | None, partition: int) -> str:
        """Return the name of a new batch, without its end."""
        self._number += 1
        stamp = (
            f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(when))}.{int(when * 1000) % 1000:03d}Z"
        )
        return f"{stamp}-{_safe(topic)}-{max(0, partition)}-{os.getpid()}-{self._number:06d}"

    def write(self, name: str, batch: memoryview | None, verdict: bytes) -> None:
        """Write the files of a batch; without one, the verdict alone. The oldest are deleted.

        A folder that somebody has removed is made again.
        """
        try:
            self._write_both(name, batch, verdict)
        except FileNotFoundError:
            self._sizes, self.bytes = {}, 0
            self.open()
            self._write_both(name, batch, verdict)

    def _write_both(self, name: str, batch: memoryview | None, verdict: bytes) -> None:
        size = (0 if batch is None else len(batch)) + len(verdict)
        if (
            self._written > self.max_bytes // _LOOKS
            or self._written_batches > self.most_batches // _LOOKS
        ):
            self._read()
        self._delete_down(self.max_bytes - size, self.most_batches - 1)
        try:
            if batch is not None:
                self._write(f"{name}.log", batch)
            self._write(f"{name}.json", verdict)
        except BaseException:
            self._remove(name)
            raise
        self._sizes[name] = size
        self.bytes += size
        self._written += size
        self._written_batches += 1

    def _write(self, name: str, data: memoryview | bytes) -> None:
        """Write one file under another name, which no reader takes, and rename it."""
        new = self.path / f".{name}.new"
        try:
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb"
            ) as file:
                file.write(data)
            os.rename(new, self.path / name)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def _read(self) -> None:
        """Note the files that are there, and delete parts of files that nobody finishes."""
        sizes: dict[str, int] = {}
        old = time.time() - 3600
        with os.scandir(self.path) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                with contextlib.suppress(OSError):  # another worker has deleted it
                    if match is not None and entry.is_file(follow_symlinks=False):
                        sizes[match[1]] = (
                            sizes.get(match[1], 0) + entry.stat(follow_symlinks=False).st_size
                        )
                    elif (
                        _TEMPORARY.fullmatch(entry.name)
                        and entry.stat(follow_symlinks=False).st_mtime < old
                    ):
                        os.unlink(entry.path)
        self._sizes = dict(sorted(sizes.items()))
        self.bytes = sum(sizes.values())
        self._written = self._written_batches = 0

    def _delete_down(self, most_bytes: int, most_batches: int) -> None:
        for name in self._oldest(most_bytes, most_batches):
            self._remove(name)
            self.bytes -= self._sizes.pop(name)

    def _oldest(self, most_bytes: int, most_batches: int) -> Iterable[str]:
        """Return the names that have to go."""
        found = []
        left, count = self.bytes, len(self._sizes)
        for name, size in self._sizes.items():
            if left <= most_bytes and count <= most_batches:
                break
            found.append(name)
            left -= size
            count -= 1
        return found

    def _remove(self, name: str) -> None:
        for end in ("json", "log"):
            with contextlib.suppress(FileNotFoundError):
                (self.path / f"{name}.{end}").unlink()


def _safe(topic: str | None) -> str:
    """Return what stands for a topic in a file's name: a client cannot choose it freely."""
    if topic is None:
        return "unknown"
    if is_topic_name(topic) and len(topic) <= _MAX_TOPIC_LENGTH:
        return topic
    return f"sha256-{hashlib.sha256(topic.encode(errors='surrogatepass')).hexdigest()[:_HASHED]}"


#: Bytes of batches that may wait for the thread.
MAX_WAITING_BYTES: Final = 32 << 20

#: A batch of at most so many bytes is copied at once; a larger one keeps the memory that its
#: request was read into, all of which counts as waiting.
COPIED: Final = 64 << 10

#: Batches that are written each second, and without a pause: one takes the thread 0.2 ms.
PER_SECOND: Final = 100

AT_ONCE: Final = 1_000

#: Seconds that the end waits for the thread.
STOP_S: Final = 5.0

_MAX_REASON_LENGTH: Final = 2_000

_VERSION: Final = 1

_IDS: Final = {rule.slug: rule.id for rule in Rule}

log = logging.getLogger("batchval.proxy")


class _Job(NamedTuple):
    """One batch. ``when`` is in seconds since 1970, ``size`` what counts as waiting."""

    refusal: Refusal
    batch: memoryview | None
    facts: dict[str, Any]
    when: float
    size: int


class QuarantineWriter:
    """The quarantine: takes refused batches and writes them in a thread. ``take`` and ``leave_out``
    are called on the loop.

    ``observed``  whether batches that go on although they break a rule are copied too
    """

    def __init__(
        self,
        folder: QuarantineFolder,
        *,
        observed: bool = False,
        version: str = "",
        most_waiting: int = MAX_WAITING_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.observed = observed
        self.version = version
        self.batches_total = 0
        self.dropped = dict.fromkeys(("queue", "rate", "request", "write"), 0)
        self._most_waiting = most_waiting
        self._tokens = TokenBucket(PER_SECOND, AT_ONCE, clock)
        self._waiting = 0
        self._lock = threading.Lock()  # of _waiting
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_failing = False

    @classmethod
    def made(cls, settings: Settings | None, version: str) -> QuarantineWriter | None:
        """Return the quarantine of these settings; None: there is none."""
        if settings is None:
            return None
        folder = QuarantineFolder(settings.directory, settings.max_bytes)
        return cls(folder, observed=settings.observed, version=version)

    def start(self) -> None:
        """Write from now on."""
        self._thread = threading.Thread(target=self._run, name="batchval-quarantine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, for a few seconds at most. It blocks: not for the loop."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(STOP_S)
            self._thread = None

    def take(self, refusal: Refusal, batch: memoryview | None, facts: Mapping[str, Any]) -> None:
        """Take one batch. ``facts`` are further keys of the verdict."""
        size = 0 if batch is None else len(batch)
        if not self._tokens.take():
            self.dropped["rate"] += 1
            return
        if batch is not None and size > COPIED:
            size = max(size, memoryview(batch.obj).nbytes)
        with self._lock:
            if self._waiting and self._waiting + size > self._most_waiting:
                self.dropped["queue"] += 1
                return
            self._waiting += size
        if batch is not None and size <= COPIED:
            batch = memoryview(bytes(batch))
        self._queue.put(_Job(refusal, batch, dict(facts), time.time(), size))

    def leave_out(self, batches: int) -> None:
        """Count batches of a request that has more of them than are copied."""
        self.dropped["request"] += batches

    def families(self) -> Iterable[Family]:
        """Return what /metrics shows. Called on the loop."""
        text = (
            "Refused batches that were copied to the quarantine, with observed also observed ones."
        )
        yield single("counter", "quarantine_batches", text, self.batches_total)
        text = "Refused batches without a copy, by reason."
        samples = [((reason,), number) for reason, number in self.dropped.items()]
        yield Family("counter", "quarantine_dropped", text, ("reason",), samples)
        text = "Bytes of the quarantine's files."
        yield single("gauge", "quarantine_bytes", text, self.folder.bytes, "max")

    # ---- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        self._try(self.folder.open)
        while self._write_next():
            pass

    def _write_next(self) -> bool:
        """Write the next batch; return False at the end."""
        job = self._queue.get()
        if job is None:
            return False
        if self._try(lambda: self._write(job)):
            self.batches_total += 1
        else:
            self.dropped["write"] += 1
        with self._lock:
            self._waiting -= job.size
        return True

    def _try(self, write: Callable[[], None]) -> bool:
        """Return whether a write succeeded; of several failures in a row the first is logged."""
        try:
            write()
        except Exception as error:  # one batch must not end the thread
            if not self._is_failing:
                why = (isinstance(error, OSError) and error.strerror) or type(error).__name__
                log.warning("refused batches cannot be copied to %s: %s", self.folder.path, why)
            self._is_failing = True
            return False
        self._is_failing = False
        return True

    def _write(self, job: _Job) -> None:
        batch = job.batch
        name = self.folder.name_for(job.when, job.refusal.topic, job.refusal.partition)
        verdict = self._verdict(job)
        kept = batch
        if batch is None:
            verdict["note"] = "the request had null in place of records"
        elif len(batch) + 2 * len(_text(verdict)) > self.folder.max_bytes:
            verdict["note"] = (
                f"the batch has more bytes than quarantine.max_bytes ({self.folder.max_bytes}) allows"
            )
            kept = None
        verdict["file"] = None if kept is None else f"{name}.log"
        self.folder.write(name, kept, _text(verdict))

    def _verdict(self, job: _Job) -> dict[str, Any]:
        refusal, batch = job.refusal, job.batch
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(job.when))}.{int(job.when * 1000) % 1000:03d}Z"
        return {
            "version": _VERSION,
            "time": stamp,
            "gate": self.version,
            "outcome": "refused" if refusal.enforced else "observed",
            "listener": refusal.listener,
            "client": refusal.client,
            "client_id": None if refusal.client_id is None else short(refusal.client_id),
            "principal": short(refusal.principal),
            "topic": None if refusal.topic is None else short(refusal.topic),
            "partition": refusal.partition,
            "rule": refusal.rule,
            "rule_id": _IDS.get(refusal.rule),
            "error": refusal.error or None,
            "error_code": int(ErrorCode[refusal.error]) if refusal.error else None,
            "reason": short(refusal.reason, _MAX_REASON_LENGTH),
            "extras": list(refusal.reported),
            **job.facts,
            "size": None if batch is None else len(batch),
            "sha256": None if batch is None else hashlib.sha256(batch).hexdigest(),
        }


def _text(verdict: Mapping[str, Any]) -> bytes:
    return json.dumps(verdict, indent=1).encode() + b"\n"
