"""A measured run of consumers, one a thread: when the clock starts, who counts what, and when each thread ends.

Threads join one group with their partitions paused. When every partition is assigned the clock starts, and all threads
fetch: else the member that comes first would read all before the others have a partition. The count is one for all
threads, asked before each poll, so a run reads at most one poll a thread too much. A thread ends too when its last
record is longer ago than the timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from batchval.errors import BatchvalError
from batchval.perf.rows import Interval, Summary

__all__ = ["Clock", "ConsumeError", "ConsumeRun", "Outcome", "PerfConsumer", "Polled", "RunOptions", "Sample", "Worker"]

TopicPartition = tuple[str, int]

#: As in Kafka's tool.
POLL_MS = 100
#: While joining: short, so that all threads begin together.
JOIN_POLL_MS = 10
#: A group that has not settled by then will not: it is longer than the default session of a member that died.
JOIN_TIMEOUT_MS = 60_000
#: Partitions may be with members elsewhere: then the clock starts when nothing has moved for so long.
SETTLED_MS = 3_000
_NS = 1_000_000


class ConsumeError(BatchvalError):
    """The cluster does not give what was asked for: unknown topic, no broker, no permission, a group without end."""


class Polled(NamedTuple):
    """What one poll brought: records, and their key and value bytes (wire bytes, where only headers are decoded)."""

    records: int
    bytes: int


class PerfConsumer(Protocol):
    """A consumer of one thread. It begins paused: ``poll`` joins the group and brings nothing before ``go``."""

    def subscribe(self) -> None:
        """Begins to join. Called in the thread, before anything else."""

    def poll(self, timeout_ms: int, most: int) -> Polled:
        """Waits for records no longer than this; raises ConsumeError for what will not pass by itself.

        ``most``: records that are still wanted; a client that can should not bring more.
        """

    def assignment(self) -> Collection[TopicPartition] | None:
        """What the group has given; None before it has given anything, or while it thinks again."""

    def go(self) -> None:
        """Fetches from now on."""

    def rebalance_ms(self) -> float:
        """The duration of all joins until now, from asking to being assigned. Not the time since the last."""

    def metrics(self) -> Mapping[str, float | str]:
        """What the client counted, for --print-metrics."""

    def close(self) -> None:
        """Leaves the group."""


class Clock:
    """The two clocks; tests bring their own."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that only grow."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // _NS


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How much, with how many, and how long to wait. Times are milliseconds."""

    num_records: int
    threads: int
    timeout_ms: int = 10_000
    reporting_interval_ms: int = 5_000
    join_timeout_ms: int = JOIN_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Sample:
    """Totals of all threads at a moment of the run."""

    t_ms: float
    records: int
    bytes: int


@dataclass(slots=True)
class Outcome:
    """What a run came to. ``summary`` is None where the clock never started."""

    summary: Summary | None
    num_records: int
    timed_out: bool = False
    interrupted: bool = False
    error: ConsumeError | None = None
    elapsed_ns: int = 0
    samples: list[Sample] = field(default_factory=list)
    metrics: list[Mapping[str, float | str]] = field(default_factory=list)

    @property
    def short(self) -> bool:
        """Fewer records came than were asked for."""
        return self.summary is None or self.summary.records < self.num_records


class _Shared:
    """What the threads of a run have in common. Each method is one step under one lock."""

    def __init__(self, options: RunOptions, partitions: Collection[TopicPartition], clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.stop = threading.Event()
        self.records = self.bytes = 0
        self.start_ns: int | None = None
        self.start_wall_ms = 0
        self.last_records_ns = 0
        self._partitions = frozenset(partitions)
        self._assigned: list[frozenset[TopicPartition] | None] = [None] * options.threads
        self._moved_ns = clock.monotonic_ns()
        self._lock = threading.Lock()

    def remaining(self) -> int:
        return self.options.num_records - self.records

    def add(self, polled: Polled, now_ns: int) -> None:
        with self._lock:
            self.records += polled.records
            self.bytes += polled.bytes
            self.last_records_ns = max(now_ns, self.last_records_ns)

    def assigned(self, thread: int, partitions: Collection[TopicPartition] | None, now_ns: int) -> bool:
        """Notes what a thread has; True once all have theirs. The last assignment starts the clock."""
        now_has = None if partitions is None else frozenset(partitions)
        with self._lock:
            if self.start_ns is not None:
                return True
            if now_has != self._assigned[thread]:
                self._assigned[thread] = now_has
                self._moved_ns = now_ns
            held: list[TopicPartition] = []
            for has in self._assigned:
                if has is None:
                    return False
                held += has
            twice = len(held) != len(set(held))  # somebody has not yet heard of the others
            whole = self._partitions.issubset(held)
            if twice or not (whole or now_ns - self._moved_ns >= SETTLED_MS * _NS):
                return False
            self.start_wall_ms = self.clock.wall_ms()
            self.start_ns = self.last_records_ns = self.clock.monotonic_ns()
            return True

    def totals(self) -> tuple[int, int]:
        with self._lock:
            return self.records, self.bytes


class Worker:
    """One thread's part. ``step`` polls once, and says whether there is more to do."""

    def __init__(
        self,
        thread: int,
        consumer: PerfConsumer,
        shared: _Shared,
        on_interval: Callable[[Interval], None] | None = None,
    ) -> None:
        self.thread = thread
        self.consumer = consumer
        self.records = self.bytes = 0
        self.timed_out = False
        self.joined_ms = 0.0  # all rebalances, at the end
        self.rebalanced_ms = 0.0  # those since the clock started
        self._shared = shared
        self._on_interval = on_interval
        self._began_ns = shared.clock.monotonic_ns()
        self._fetching = False
        self._last_ns = 0
        self._before_ms = 0.0
        self._rows = 0
        self._at_row = (0, 0, 0, 0.0)  # records, bytes, instant, rebalances

    def subscribe(self) -> None:
        self._began_ns = self._shared.clock.monotonic_ns()
        self.consumer.subscribe()

    def step(self) -> bool:
        if self._shared.stop.is_set():
            return False
        return self._fetch() if self._fetching else self._join()

    def _join(self) -> bool:
        shared = self._shared
        self._count(self.consumer.poll(JOIN_POLL_MS, shared.remaining()))
        now = shared.clock.monotonic_ns()
        if shared.assigned(self.thread, self.consumer.assignment(), now):
            assert shared.start_ns is not None
            self._before_ms = self.consumer.rebalance_ms()
            self._last_ns = shared.start_ns
            self._at_row = (0, 0, shared.start_ns, self._before_ms)
            self._fetching = True
            self.consumer.go()
        elif now - self._began_ns > shared.options.join_timeout_ms * _NS:
            raise ConsumeError(f"the group did not assign all partitions within {shared.options.join_timeout_ms} ms")
        return True

    def _fetch(self) -> bool:
        shared = self._shared
        remaining = shared.remaining()
        if remaining <= 0:
            return False
        if shared.clock.monotonic_ns() - self._last_ns > shared.options.timeout_ms * _NS:
            self.timed_out = True
            return False
        polled = self.consumer.poll(POLL_MS, remaining)
        now = shared.clock.monotonic_ns()
        if polled.records:
            self._last_ns = now
        self._count(polled)
        if now - self._at_row[2] >= shared.options.reporting_interval_ms * _NS:
            self._row(now)
        return True

    def _count(self, polled: Polled) -> None:
        if polled.records:
            self.records += polled.records
            self.bytes += polled.bytes
            self._shared.add(polled, self._shared.clock.monotonic_ns())

    def _row(self, now_ns: int) -> None:
        if self._on_interval is None:
            return
        records, nbytes, since_ns, rebalanced = self._at_row
        shared, joined = self._shared, self.consumer.rebalance_ms()
        assert shared.start_ns is not None
        self._on_interval(
            Interval(
                at_ms=shared.start_wall_ms + (now_ns - shared.start_ns) // _NS,
                thread=self.thread,
                bytes=self.bytes,
                records=self.records,
                new_bytes=self.bytes - nbytes,
                new_records=self.records - records,
                elapsed_ms=(now_ns - since_ns) // _NS,
                rebalance_ms=int(joined - rebalanced),
            )
        )
        self._rows += 1
        self._at_row = (self.records, self.bytes, now_ns, joined)

    def finish(self) -> None:
        """Takes the figures of the end. What came since the last row gets a row of its own: no record goes unseen."""
        if self._fetching:
            if not self._rows or self.records != self._at_row[0]:
                self._row(self._shared.clock.monotonic_ns())
            self.joined_ms = self.consumer.rebalance_ms()
            self.rebalanced_ms = self.joined_ms - self._before_ms


class ConsumeRun:
    """A whole run. ``make(i)`` makes the consumer of thread i; it is used in that thread alone.

    ``partitions``: what the group will have to share out. ``on_interval`` gets each thread's rows, one after the other.
    """

    def __init__(
        self,
        options: RunOptions,
        make: Callable[[int], PerfConsumer],
        partitions: Collection[TopicPartition],
        *,
        on_interval: Callable[[Interval], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options = options
        self._make = make
        self._clock = clock or Clock()
        self._shared = _Shared(options, partitions, self._clock)
        self._on_interval = on_interval
        self._rows = threading.Lock()
        self._errors: list[BaseException] = []
        self._metrics: list[Mapping[str, float | str]] = [{} for _ in range(options.threads)]
        self._workers: list[Worker | None] = [None] * options.threads
        # not Thread.join: on Python 3.11 one that is interrupted takes a thread that lives for dead
        self._ended = [threading.Event() for _ in range(options.threads)]

    def run(self, on_sample: Callable[[Sample], None] | None = None, sample_ms: int = 1_000) -> Outcome:
        """Runs to the end in this many threads. ``on_sample`` is called in this thread, about once in ``sample_ms``.

        An interrupt (KeyboardInterrupt) ends the run: the outcome says so, and its totals are right.
        """
        threads = [
            threading.Thread(target=self._run_thread, args=(i,), name=f"consume-{i}", daemon=True)
            for i in range(self._options.threads)
        ]
        samples: list[Sample] = []
        interrupted = False
        try:
            for thread in threads:
                thread.start()
            self._watch(samples, on_sample, sample_ms)
        except KeyboardInterrupt:
            interrupted = True
            self._shared.stop.set()
        for thread, ended in zip(threads, self._ended, strict=True):
            if thread.ident is not None:
                ended.wait()
        return self._outcome(samples, interrupted)

    def _watch(self, samples: list[Sample], on_sample: Callable[[Sample], None] | None, sample_ms: int) -> None:
        last = 0.0
        for ended in self._ended:
            while not ended.wait(min(sample_ms / 1000, 0.05)):
                if (sample := self._sample()) and sample.t_ms - last >= sample_ms:
                    samples.append(sample)
                    last = sample.t_ms
                    if on_sample is not None:
                        on_sample(sample)

    def _sample(self) -> Sample | None:
        start = self._shared.start_ns
        if start is None:
            return None
        return Sample((self._clock.monotonic_ns() - start) / _NS, *self._shared.totals())

    def _run_thread(self, thread: int) -> None:
        consumer: PerfConsumer | None = None
        try:
            consumer = self._make(thread)
            worker = Worker(thread, consumer, self._shared, self._emit if self._on_interval else None)
            self._workers[thread] = worker
            worker.subscribe()
            try:
                while worker.step():
                    pass
            finally:
                worker.finish()
            self._metrics[thread] = consumer.metrics()
        except BaseException as error:
            self._errors.append(error)
            self._shared.stop.set()
        finally:
            try:
                if consumer is not None:
                    consumer.close()
            except Exception as error:
                if not self._errors:
                    self._errors.append(ConsumeError(f"a consumer could not be closed: {error}"))
            finally:
                self._ended[thread].set()

    def _emit(self, part: Interval) -> None:
        with self._rows:
            assert self._on_interval is not None
            self._on_interval(part)

    def _outcome(self, samples: list[Sample], interrupted: bool) -> Outcome:
        error = next((error for error in self._errors if not isinstance(error, ConsumeError)), None)
        if error is not None:
            raise error
        shared, workers = self._shared, [worker for worker in self._workers if worker is not None]
        outcome = Outcome(
            None,
            self._options.num_records,
            timed_out=any(worker.timed_out for worker in workers),
            interrupted=interrupted,
            error=next((error for error in self._errors if isinstance(error, ConsumeError)), None),
            samples=samples,
            metrics=self._metrics,
        )
        if shared.start_ns is not None:
            end_ns = shared.last_records_ns if shared.remaining() <= 0 else self._clock.monotonic_ns()
            outcome.elapsed_ns = end_ns - shared.start_ns
            elapsed = outcome.elapsed_ns // _NS
            count = self._options.threads
            outcome.summary = Summary(
                start_ms=shared.start_wall_ms,
                end_ms=shared.start_wall_ms + elapsed,
                elapsed_ms=elapsed,
                bytes=shared.bytes,
                records=shared.records,
                rebalance_ms=int(sum(worker.joined_ms for worker in workers) / count),
                fetch_ms=elapsed - int(sum(worker.rebalanced_ms for worker in workers) / count),
            )
            samples.append(Sample(outcome.elapsed_ns / _NS, shared.records, shared.bytes))
        return outcome
