"""Work that takes too long for the event loop: threads, and who is next.

    Job     a Produce request whose batches are validated
    others  requests and answers of old versions that are translated (``bridges``, ``lowering``)

Jobs are served by virtual time (``fair_queue``): by sender, and by session of a sender, so that the
batches of one wait for each other and not the others for them. A job that decompresses to far more
than it came with, or calls custom rules, is heavy; heavy jobs leave one thread free for the others,
if there are two or more, unless their session is known for short ones. There such a job may take
only what a short one does; one that needs more waits with the heavy ones, and its session is known
for short ones no longer. A job that waits for a schema registry takes no thread. A job whose client
has left is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.proxy.kit.rule_budget import MAX_SENDER_LENGTH, STUCK_S
from batchval.proxy.produce.fair_queue import FairJob, FairQueue, QueuedClient, charge
from batchval.proxy.produce.produce_validator import RequestVerdict
from batchval.proxy.settings.options import Counters
from batchval.proxy.watch.senders import READ_BYTES, RULE_S, SenderTable, Share

__all__ = [
    "SLICE_S",
    "Job",
    "JobOwner",
    "OneSlice",
    "ValidationQueue",
    "Work",
]

#: Seconds of a thread's time that a job uses before others may go on.
SLICE_S: Final = 0.005
#: Jobs that wait for a thread in its own queue, so that it need not sleep until the event loop has
#: seen what came of the last one: that took a third more CPU for batches of 64 kB.
AHEAD: Final = 4
#: Seconds that sessions may take in one turn of the loop for what was validated.
COLLECT_S: Final = 0.001
#: Seconds between looks for work that may never return (STUCK_S). Another thread takes the place of
#: its own, for MAX_STUCK of them: Python can end none.
LOOK_S: Final = 1.0
MAX_STUCK: Final = 8
#: Seconds for which requests wait without a pause before a line says so, and between two lines.
SATURATED_S: Final = 5.0
REPEAT_LOG_S: Final = 60.0
#: Bytes of a request that may wait there.
MAX_AHEAD: Final = 128 << 10

log = logging.getLogger("batchval.proxy")


class JobOwner(Protocol):
    """A session, which is told what becomes of its jobs."""

    def job_paused(self) -> None: ...
    def job_done(self, job: Any, error: BaseException | None) -> None: ...


class Work(FairJob, Protocol):
    """One job for one session, done slice by slice.

    ``heavy``      whether it leaves one thread to the others, if its session is not known for
                   short ones
    ``is_costly``  whether it does: set when it begins to wait
    ``may_bound``  whether it can end a slice that takes more than a short one
    ``cancelled``  whether nobody waits for it any more
    """

    heavy: bool
    is_costly: bool

    @property
    def may_bound(self) -> bool: ...
    def work(self) -> tuple[str, float]:
        """Work for one slice, in a thread: "done", "more", "heavy" or (a Job alone) "waiting", and
        the CPU seconds that it took.
        """

    def paused(self) -> None:
        """Note, on the loop, that a slice has ended and more follow."""

    def done(self, error: BaseException | None) -> None:
        """Take what came of it, on the loop."""


class OneSlice:
    """The part of a job that makes something of one frame, in one slice."""

    heavy = False
    may_bound = False
    owner: JobOwner  # set before it is put into a queue

    def __init__(self, frame: memoryview, client: QueuedClient) -> None:
        self.client = client
        self.cancelled = False
        self.is_costly = False
        self.cost_s = 0.0
        self.shares: tuple[Share, Share] | None = None
        self._frame = frame

    @property
    def size(self) -> int:
        """Return the size of the frame."""
        return len(self._frame)

    def cancel(self) -> None:
        """Note, on the loop, that nobody waits for it any more."""
        self.cancelled = True

    def make(self) -> None:
        """Do the work, in a thread. Raises ProtocolError."""
        raise NotImplementedError

    def work(self) -> tuple[str, float]:
        """Do all of it."""
        began = time.thread_time()
        if not self.cancelled:
            self.make()
        return "done", time.thread_time() - began

    def paused(self) -> None:
        """Tell the session that a slice has ended."""
        self.owner.job_paused()

    def done(self, error: BaseException | None) -> None:
        """Tell the session that the job is done."""
        self.owner.job_done(self, error)


@dataclass(slots=True, eq=False)
class Job:
    """One request of one session that waits for its validation."""

    client: QueuedClient
    item: object
    request: ProduceRequestView
    verdict: RequestVerdict
    owner: JobOwner = field(init=False, repr=False)  # set before it is put into a queue
    heavy: bool = False
    may_bound: ClassVar[bool] = True
    is_costly: bool = False
    cost_s: float = 0.0
    shares: tuple[Share, Share] | None = None

    def work(self) -> tuple[str, float]:
        """Validate for one slice, in a thread; return the outcome and its CPU seconds."""
        began = time.thread_time()
        word = self.verdict.gate.work(
            self.request,
            self.verdict,
            heavy=self.heavy,
            budget_s=SLICE_S,
            is_bounded=not self.is_costly,
        )
        return word, time.thread_time() - began

    @property
    def size(self) -> int:
        """Return the size of the request."""
        return self.request.size

    @property
    def cancelled(self) -> bool:
        """Return whether the client has left."""
        return self.verdict.cancelled

    def paused(self) -> None:
        """Do nothing: a request takes no more memory while it is validated."""

    def done(self, error: BaseException | None) -> None:
        """Tell the session that the verdict is there."""
        self.owner.job_done(self, error)


class ValidationQueue:
    """The threads that work for all sessions of a gate. ``start`` it on the running loop."""

    def __init__(
        self, threads: int, counters: Counters, senders: SenderTable | None = None
    ) -> None:
        self._count_threads(threads)
        self.counters = counters
        self.senders = SenderTable() if senders is None else senders
        self._short: FairQueue[Work] = FairQueue(self.senders)
        self._costly: FairQueue[Work] = FairQueue(self.senders)
        self._running = self._running_costly = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: ThreadPoolExecutor | None = None
        # of slices that have ended, from threads: what came of them
        self._outcomes: deque[tuple[Work, str, float, BaseException | None]] = deque()
        self._is_woken = False
        # what is with the threads: since when it is worked on, and what has not begun
        self._begun: dict[Work, float] = {}
        self._ahead: dict[Work, Future[None]] = {}
        self._stuck: set[Work] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._full_since: float | None = None  # since when more wait than there are threads
        self._logged_s = -REPEAT_LOG_S

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind to the loop."""
        if self._pool is None:
            self._loop = loop
            self._pool = self._new_pool()

    def use(self, threads: int) -> None:
        """Work with so many threads from now on. Those of before end after what they have begun."""
        if threads == self.threads:
            return
        self._count_threads(threads)
        if self._pool is not None:
            self._renew_pool()
            self._start_some()

    def _renew_pool(self) -> None:
        """Let other threads do what has not begun."""
        assert self._pool is not None
        before, self._pool = self._pool, self._new_pool()
        for job, future in list(self._ahead.items()):
            if future.cancel():
                self._submit(job)
        before.shutdown(wait=False)

    def _submit(self, job: Work) -> None:
        assert self._pool is not None
        self._ahead[job] = self._pool.submit(self._work, job)

    def _count_threads(self, threads: int) -> None:
        self.threads = threads
        self.costly_threads = max(1, threads - 1)

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads, thread_name_prefix="batchval-validation")

    def stop(self) -> None:
        """End the threads; jobs that wait are dropped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def __len__(self) -> int:
        return self._short.count + self._costly.count

    def _count_waiting(self) -> None:
        self.counters.requests_queued = len(self)

    def put(self, job: Work) -> None:
        """Do a job; ``job.done(error)`` is called on the loop after that."""
        self.counters.judged_in_threads_total += job.may_bound  # a request's validation
        self._wait_for_thread(job)
        self._start_some()

    def _wait_for_thread(self, job: Work, *, first: bool = False) -> None:
        is_short = job.may_bound and job.client.share.is_short(self.senders.clock())
        job.is_costly = job.heavy and not is_short
        (self._costly if job.is_costly else self._short).put(job, first=first)

    def drop(self, client: QueuedClient) -> None:
        """Forget a session's cancelled jobs. One that runs ends at its next batch."""
        self._short.drop(client)
        self._costly.drop(client)
        self._count_waiting()

    def _start_some(self) -> None:
        self._start_as_many_as_can()
        self._count_waiting()

    def _start_as_many_as_can(self) -> None:
        if self._pool is None or self._loop is None:
            return
        while self._running < self.threads + AHEAD:
            job = self._next()
            if job is None:
                return
            self._running += 1
            self._running_costly += job.is_costly
            self._submit(job)
            if self._timer is None:
                self._timer = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Let another thread take the place of one whose work does not return."""
        assert self._loop is not None
        self._timer = None
        before = time.monotonic() - STUCK_S
        for job, since in list(self._begun.items()):
            if since < before and job not in self._stuck and len(self._stuck) < MAX_STUCK:
                self._stuck.add(job)
                self._leave(job)
                self._renew_pool()
        self._start_some()
        self._note_load(time.monotonic())
        if self._running and self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _note_load(self, now: float) -> None:
        """Log who has used the most where requests have waited for long."""
        if len(self) < self.threads:
            self._full_since = None
            return
        if self._full_since is None:
            self._full_since = now
        is_long = now - self._full_since >= SATURATED_S
        if not is_long or now - self._logged_s < REPEAT_LOG_S:
            return
        self._logged_s = now
        at = self.senders.clock()
        sender, share = self.senders.heaviest(at)
        if sender is not None:
            log.warning(
                "validation has had no free thread for %.0f s, and %d requests wait: %.0f %% of its "
                "CPU went to %s (%.1f s, %.0f MiB of records, %.1f s of custom rules)",
                *(now - self._full_since, len(self), 100 * share, sender.key[:MAX_SENDER_LENGTH]),
                *(sender.share.used.of(at), sender.used(READ_BYTES, at) / (1 << 20)),
                sender.used(RULE_S, at),
            )

    def _leave(self, job: Work) -> None:
        """Count the place of a job as free."""
        self._running -= 1
        self._running_costly -= job.is_costly

    def _next(self) -> Work | None:
        """Return the job that is next; None where none may begin now.

        Where no thread is free, a small one that is not heavy waits with them.
        """
        short = self._short.peek()
        if self._running >= self.threads:
            may_wait = short is not None and not short.heavy and short.size <= MAX_AHEAD
            return self._short.take() if may_wait else None
        may_be_costly = self._running_costly < self.costly_threads
        if may_be_costly and self._costly.peek() is not None:
            is_first = self._costly.next_start_s < self._short.next_start_s
            if short is None or is_first:
                return self._costly.take()
        return self._short.take()

    def _work(self, job: Work) -> None:
        """Do one slice of a job, in a thread. The loop is woken once for all that have come."""
        word, used_s, error = "done", 0.0, None
        self._begun[job] = time.monotonic()
        self._ahead.pop(job, None)
        try:
            word, used_s = job.work()
        except BaseException as caught:
            error = caught
        self._begun.pop(job, None)
        self._outcomes.append((job, word, used_s, error))
        error = None  # its traceback knows this frame
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._collect)  # type: ignore[union-attr]

    def _collect(self) -> None:
        """Report outcomes of jobs to their sessions, for COLLECT_S in one turn of the loop."""
        assert self._loop is not None
        self._is_woken = False  # before the last look: what comes after that wakes the loop again
        end = time.perf_counter() + COLLECT_S
        try:
            while self._outcomes:
                self._worked(*self._outcomes.popleft())
                if time.perf_counter() > end:
                    break
        finally:
            if self._outcomes and not self._is_woken:
                self._is_woken = True
                self._loop.call_soon(self._collect)
            self._start_some()

    def _worked(self, job: Work, word: str, used_s: float, error: BaseException | None) -> None:
        self._ahead.pop(job, None)  # where it had begun before it was noted there
        if job in self._stuck:
            self._stuck.remove(job)
        else:
            self._leave(job)
        is_done = word == "done" or error is not None
        charge(job, used_s, self.senders, is_done=is_done)
        self.counters.judging_cpu_seconds_total += used_s
        if is_done:
            job.done(error)
        elif word == "waiting" and not job.cancelled:
            self._wait(job)
        elif not job.cancelled:
            job.paused()
            if word == "heavy" and job.heavy:
                job.client.share.note_long()
            job.heavy = word == "heavy" or job.heavy
            self._wait_for_thread(job, first=True)

    def _wait(self, job: Work) -> None:
        """Let a job wait until all its questions are answered, but no longer than it may."""
        assert isinstance(job, Job)
        stage, loop = job.verdict.stage, self._loop
        assert stage is not None
        assert loop is not None
        waiting = _Waiting(self, job, stage.questions)
        waiting.timer = loop.call_later(stage.wait_s, waiting.resume)
        waiting.watch(loop)

    def resume(self, job: Job) -> None:
        """Continue with a request that has waited for answers. On the loop."""
        if not job.cancelled:
            self._wait_for_thread(job, first=True)
            self._start_some()


class _Waiting:
    """A job and the answers that it needs."""

    def __init__(
        self, queue: ValidationQueue, job: Job, questions: list[Future[frozenset[str]]]
    ) -> None:
        self._queue = queue
        self._job: Job | None = job
        self._questions = questions
        self._left = len(questions)
        self.timer: asyncio.TimerHandle | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count the answers, which come in other threads."""

        def answered(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._count)

        for question in self._questions:
            question.add_done_callback(answered)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.resume()

    def resume(self) -> None:
        """Go on, once."""
        job, self._job = self._job, None
        self._questions = []  # whose callbacks hold this
        if self.timer is not None:
            self.timer.cancel()
        if job is not None:
            self._queue.resume(job)
