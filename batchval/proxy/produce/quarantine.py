"""Copies of refused batches, so that the reason can be found later.

    Gate ── take, on the loop ──▶ queue, bounded in bytes ── a thread ──▶ QuarantineFolder

A refusal does not wait for its copy and does not depend on it: what the thread cannot keep up with,
or the disk does not take, is counted and left out. The files hold the records of clients.
"""

from __future__ import annotations

import hashlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from batchval.errors import ErrorCode
from batchval.proxy.produce.quarantine_folder import QuarantineFolder
from batchval.proxy.settings.options import Refusal
from batchval.proxy.settings.refusal_settings import Quarantine as Settings
from batchval.proxy.watch.audit_log import short
from batchval.proxy.watch.metrics import Family, single
from batchval.rules import Rule
from batchval.token_bucket import TokenBucket

__all__ = ["Quarantine"]

#: Bytes of batches that may wait for the thread.
MOST_WAITING: Final = 32 << 20
#: A batch of at most so many bytes is copied at once; a larger one keeps the memory that its
#: request was read into, all of which counts as waiting.
COPIED: Final = 64 << 10
#: Batches that are written each second, and without a pause: one takes the thread 0.2 ms.
PER_SECOND: Final = 100
AT_ONCE: Final = 1_000
#: Seconds that the end waits for the thread.
STOP_S: Final = 5.0
_LONGEST_REASON: Final = 2_000
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


class Quarantine:
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
        most_waiting: int = MOST_WAITING,
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
    def made(cls, settings: Settings | None, version: str) -> Quarantine | None:
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
            "reason": short(refusal.reason, _LONGEST_REASON),
            "extras": list(refusal.reported),
            **job.facts,
            "size": None if batch is None else len(batch),
            "sha256": None if batch is None else hashlib.sha256(batch).hexdigest(),
        }


def _text(verdict: Mapping[str, Any]) -> bytes:
    return json.dumps(verdict, indent=1).encode() + b"\n"
