"""Batches that take long to judge: threads, and who is next.

Each session has its own queue. The session that has used the least CPU so far goes first, so that
one client's batches wait for each other and not the others for them. A job that decompresses to far
more than it came with is heavy; heavy jobs leave one thread free for the others. A job that waits
for a schema registry takes no thread. A job whose client has left is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

from batchval.protocol.produce import ProduceRequestView
from batchval.proxy.gate import Gate, Judgement
from batchval.proxy.options import Counters

__all__ = ["Job", "Judged", "JudgingQueue"]

#: Seconds of a thread's time that a job uses before others may go on.
SLICE_S: Final = 0.005
#: Jobs that wait for a thread in its own queue, so that it need not sleep until the event loop has
#: seen what came of the last one: that took a third more CPU for batches of 64 kB.
AHEAD: Final = 4
#: Seconds that sessions may take in one turn of the loop for what was judged.
COLLECT_S: Final = 0.001
#: Bytes of a request that may wait there.
MOST_AHEAD: Final = 128 << 10


class Judged(Protocol):
    """A session, as the queue knows it."""

    gate: Gate
    judging_s: float

    def judged(self, item: object, error: BaseException | None) -> None: ...


class Job:
    """One request to be judged, for one session."""

    __slots__ = ("gate", "heavy", "item", "judgement", "request", "session")

    def __init__(self, session: Judged, item: object, request: ProduceRequestView, judgement: Judgement) -> None:
        self.session = session
        self.item = item
        self.gate: Gate = session.gate
        self.request = request
        self.judgement = judgement
        self.heavy = False

    def work(self) -> tuple[str, float]:
        """Judge for one slice, in a thread: what came of it, and the CPU seconds that it took."""
        began = time.thread_time()
        word = self.gate.work(self.request, self.judgement, heavy=self.heavy, budget_s=SLICE_S)
        return word, time.thread_time() - began


class _Line:
    """Sessions with jobs, the one that has used the least CPU first."""

    def __init__(self) -> None:
        self.jobs: dict[Judged, deque[Job]] = {}
        self.count = 0
        self._order: list[tuple[float, int, Judged]] = []
        self._number = itertools.count()

    def put(self, job: Job, *, first: bool = False) -> None:
        self.count += 1
        queue = self.jobs.get(job.session)
        if queue is None:
            queue = self.jobs[job.session] = deque()
            heapq.heappush(self._order, (job.session.judging_s, next(self._number), job.session))
        if first:
            queue.appendleft(job)
        else:
            queue.append(job)

    def take(self) -> Job | None:
        while self._order:
            _, _, session = heapq.heappop(self._order)
            queue = self.jobs.pop(session, None)
            if not queue:
                continue
            job = queue.popleft()
            self.count -= 1
            if queue:
                self.jobs[session] = queue
                heapq.heappush(self._order, (session.judging_s, next(self._number), session))
            return job
        return None

    def drop(self, session: Judged) -> None:
        queue = self.jobs.pop(session, ())
        kept = deque(job for job in queue if not job.judgement.cancelled)
        self.count -= len(queue) - len(kept)
        if kept:
            self.jobs[session] = kept


class JudgingQueue:
    """The threads that judge for all sessions of a gate. ``start`` it on the running loop."""

    def __init__(self, threads: int, counters: Counters) -> None:
        self.threads = threads
        self.heavy_threads = max(1, threads - 1)
        self.counters = counters
        self._light, self._heavy = _Line(), _Line()
        self._running = self._running_heavy = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: ThreadPoolExecutor | None = None
        # of slices that have ended, from threads: what came of them
        self._outcomes: deque[tuple[Job, str, float, BaseException | None]] = deque()
        self._is_woken = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind to the loop."""
        if self._pool is None:
            self._loop = loop
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="batchval-judging")

    def stop(self) -> None:
        """End the threads; jobs that wait are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def __len__(self) -> int:
        return self._light.count + self._heavy.count

    def _count_waiting(self) -> None:
        self.counters.requests_queued = len(self)

    def submit(self, session: Judged, item: object, request: ProduceRequestView, judgement: Judgement) -> None:
        """Judge a request; ``session.judged(item, error)`` is called on the loop after that."""
        self.counters.judged_in_threads_total += 1
        self._light.put(Job(session, item, request, judgement))
        self._start_some()

    def drop(self, session: Judged) -> None:
        """Forget a session's cancelled jobs. One that runs ends at its next batch."""
        self._light.drop(session)
        self._heavy.drop(session)
        self._count_waiting()

    def _start_some(self) -> None:
        self._start_as_many_as_can()
        self._count_waiting()

    def _start_as_many_as_can(self) -> None:
        if self._pool is None or self._loop is None:
            return
        while self._running < self.threads + AHEAD:
            job = self._light.take()
            if job is not None and self._running >= self.threads and job.request.size > MOST_AHEAD:
                self._light.put(job, first=True)
                return
            if job is None and self._running_heavy < self.heavy_threads:
                job = self._heavy.take()
            if job is None:
                return
            self._running += 1
            self._running_heavy += job.heavy
            self._pool.submit(self._work, job)

    def _work(self, job: Job) -> None:
        """Do one slice of a job, in a thread. The loop is woken once for all that have come."""
        word, used_s, error = "done", 0.0, None
        try:
            word, used_s = job.work()
        except BaseException as caught:
            error = caught
        self._outcomes.append((job, word, used_s, error))
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._collect)  # type: ignore[union-attr]

    def _collect(self) -> None:
        """Tell the sessions what came of their jobs, for COLLECT_S in one turn of the loop."""
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

    def _worked(self, job: Job, word: str, used_s: float, error: BaseException | None) -> None:
        self._running -= 1
        self._running_heavy -= job.heavy
        job.session.judging_s += used_s
        self.counters.judging_cpu_seconds_total += used_s
        if word == "done" or error is not None:
            job.session.judged(job.item, error)
        elif word == "waiting" and not job.judgement.cancelled:
            self._wait(job)
        elif not job.judgement.cancelled:
            job.heavy = word == "heavy" or job.heavy
            (self._heavy if job.heavy else self._light).put(job, first=True)

    def _wait(self, job: Job) -> None:
        """Let a job wait until all its questions are answered, but no longer than it may."""
        stage, loop = job.judgement.stage, self._loop
        assert stage is not None
        assert loop is not None
        waiting = _Waiting(self, job, stage.questions)
        waiting.timer = loop.call_later(stage.wait_s, waiting.resume)
        waiting.watch(loop)

    def resume(self, job: Job) -> None:
        """Judge on what has waited for answers. On the loop."""
        if not job.judgement.cancelled:
            (self._heavy if job.heavy else self._light).put(job, first=True)
            self._start_some()


class _Waiting:
    """A job and the answers that it needs."""

    def __init__(self, queue: JudgingQueue, job: Job, questions: list[Future[frozenset[str]]]) -> None:
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
        if self.timer is not None:
            self.timer.cancel()
        if job is not None:
            self._queue.resume(job)
