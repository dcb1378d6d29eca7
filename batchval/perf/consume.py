"""A measured run of consumers, one a thread: its clock, its counts and its end.

The run's clock starts before the consumers are made, as in KIP-628. Threads join one group with
their partitions paused. When every partition is assigned the clock of fetching starts, and all
threads fetch: else the member that comes first would read all before the others have a partition.
What lies between the two clocks is rebalance time. The count is one for all threads, and exact: of
a poll that brings more than is wanted, what is wanted counts, with its share of the bytes. A thread
ends too when its last record is longer ago than the timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from batchval.errors import BatchvalError
from batchval.perf.consumer_lines import Interval, Summary

__all__ = [
    "MAX_RECORDS",
    "Clock",
    "ConsumeError",
    "ConsumeRun",
    "Outcome",
    "PerfConsumer",
    "Polled",
    "RunOptions",
    "Sample",
    "Shared",
    "TopicPartition",
    "Worker",
]

TopicPartition = tuple[str, int]

#: A group that has not settled by then will not: it is longer than the default session of a member
#: that died.
JOIN_TIMEOUT_MS = 60_000
#: Partitions may be with members elsewhere: then the clock starts when nothing has moved for so
#: long.
SETTLED_MS = 3_000


class Polled(NamedTuple):
    """The result of one poll: records, and their key and value bytes (wire bytes, where only
    headers are decoded).
    """

    records: int
    bytes: int
    #: when the last of them came (time.monotonic_ns), where the client knows
    at_ns: int | None = None


class Clock:
    """The two clocks; tests bring their own."""

    def monotonic_ns(self) -> int:
        """Return monotonic nanoseconds."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return time.time_ns() // _NS


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run: amount, threads, waits. Times are milliseconds."""

    num_records: int
    threads: int
    timeout_ms: int = 10_000
    reporting_interval_ms: int = 5_000
    join_timeout_ms: int = JOIN_TIMEOUT_MS


def _no_more(polled: Polled, wanted: int) -> Polled:
    """Return as many of the records as are wanted, with their share of the bytes."""
    if polled.records <= wanted:
        return polled
    records = max(wanted, 0)
    return polled._replace(records=records, bytes=polled.bytes * records // polled.records)


class Shared:
    """The shared state of a run's threads. Each method is one step under one lock."""

    def __init__(
        self, options: RunOptions, partitions: Collection[TopicPartition], clock: Clock
    ) -> None:
        self.options = options
        self.clock = clock
        self.stop = threading.Event()
        self.records = self.bytes = 0
        self.start_ns = clock.monotonic_ns()
        self.start_wall_ms = clock.wall_ms()
        self.assigned_ns: int | None = None
        self.last_records_ns = 0
        self._partitions = frozenset(partitions)
        self._assigned: list[frozenset[TopicPartition] | None] = [None] * options.threads
        self._moved_ns = clock.monotonic_ns()
        self._idle: set[int] = set()
        self._lock = threading.Lock()

    def remaining(self) -> int:
        return self.options.num_records - self.records

    def begin(self) -> None:
        """Start the run's clock."""
        self.start_wall_ms = self.clock.wall_ms()
        self.start_ns = self.clock.monotonic_ns()

    def ms(self, at_ns: int) -> int:
        """Return whole milliseconds since the run began."""
        return (at_ns - self.start_ns) // _NS

    def add(self, polled: Polled, now_ns: int) -> Polled:
        """Count what a poll brought, and return what counts of it: no more than is still wanted."""
        with self._lock:
            counted = _no_more(polled, self.remaining())
            if counted.records:
                self.records += counted.records
                self.bytes += counted.bytes
                self.last_records_ns = max(now_ns, self.last_records_ns)
            return counted

    def assigned(
        self, thread: int, partitions: Collection[TopicPartition] | None, now_ns: int
    ) -> bool:
        """Note what a thread has; True once all have theirs. The last one starts fetching."""
        now_has = None if partitions is None else frozenset(partitions)
        with self._lock:
            if self.assigned_ns is not None:
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
            self.assigned_ns = self.last_records_ns = self.clock.monotonic_ns()
            return True

    def idle(self, thread: int, *, is_idle: bool) -> bool:
        """Note whether a thread's last record is too long ago; True once that holds for all.

        A thread that left earlier would make the others read its partitions and, as nothing is
        committed, their own again from the start.
        """
        with self._lock:
            if len(self._idle) < self.options.threads:
                (self._idle.add if is_idle else self._idle.discard)(thread)
            return len(self._idle) == self.options.threads

    def totals(self) -> tuple[int, int]:
        with self._lock:
            return self.records, self.bytes


#: As in Kafka's tool.
POLL_MS = 100
MAX_RECORDS = 500  # of a poll that a client bounds: Kafka's max.poll.records
#: While joining: short, so that all threads begin together.
JOIN_POLL_MS = 10
_NS = 1_000_000


class ConsumeError(BatchvalError):
    """The cluster does not give what was asked for: unknown topic, no broker, no permission, a
    group without end.
    """


class PerfConsumer(Protocol):
    """A consumer of one thread. It begins paused: ``poll`` joins the group and brings nothing
    before ``go``.
    """

    def subscribe(self) -> None:
        """Start to join the group. Called in the thread, before anything else."""

    def poll(self, timeout_ms: int, most: int) -> Polled:
        """Wait for records, at most this long. Raises ConsumeError for errors that are not
        retriable.

        ``most``: records that are still wanted; a client that can should not bring more.
        """

    def assignment(self) -> Collection[TopicPartition] | None:
        """Return the assigned partitions; None before the first assignment and during a
        rebalance.
        """

    def go(self) -> None:
        """Start fetching."""

    def rebalance_ms(self) -> float:
        """Return the duration of all joins until now, each from the request to the assignment."""

    def metrics(self) -> Mapping[str, float | str]:
        """Return what the client counted, for --print-metrics."""

    def close(self) -> None:
        """Leave the group."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Totals of all threads at a moment of the run."""

    t_ms: float
    records: int
    bytes: int


@dataclass(slots=True)
class Outcome:
    """The outcome of a run. ``summary`` is None where fetching never started."""

    summary: Summary | None
    num_records: int
    timed_out: bool = False
    interrupted: bool = False
    error: ConsumeError | None = None
    elapsed_ns: int = 0
    #: by the wall clock: when every partition was assigned. Samples count from here.
    assigned_ms: int = 0
    samples: list[Sample] = field(default_factory=list)
    metrics: list[Mapping[str, float | str]] = field(default_factory=list)

    @property
    def short(self) -> bool:
        """Return whether fewer records came than were requested."""
        return self.summary is None or self.summary.records < self.num_records


class Worker:
    """One thread's part. ``step`` polls once and returns whether there is more to do."""

    def __init__(
        self,
        thread: int,
        consumer: PerfConsumer,
        shared: Shared,
        on_interval: Callable[[Interval], None] | None = None,
    ) -> None:
        self.thread = thread
        self.consumer = consumer
        self.records = self.bytes = 0
        self.timed_out = False
        self.rebalanced_ms = 0.0  # rebalances since fetching began
        self._shared = shared
        self._on_interval = on_interval
        self._began_ns = shared.clock.monotonic_ns()
        self._fetching = False
        self._last_ns = 0
        self._before_ms = 0.0
        #: from the run's start to fetching: the first row has it as its rebalance, as Kafka's
        self._joining_ms = 0
        self._rows = 0
        self._at_row = (0, 0, 0, 0.0)  # records, bytes, ms since the run began, rebalances in ms

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
            assert shared.assigned_ns is not None
            self._before_ms = self.consumer.rebalance_ms()
            self._last_ns = shared.assigned_ns
            self._joining_ms = shared.ms(shared.assigned_ns)
            self._at_row = (0, 0, 0, self._before_ms)
            self._fetching = True
            self.consumer.go()
        elif now - self._began_ns > shared.options.join_timeout_ms * _NS:
            raise ConsumeError(
                f"the group did not assign all partitions within {shared.options.join_timeout_ms} ms"
            )
        return True

    def _fetch(self) -> bool:
        shared = self._shared
        remaining = shared.remaining()
        if remaining <= 0:
            return False
        is_idle = shared.clock.monotonic_ns() - self._last_ns > shared.options.timeout_ms * _NS
        if shared.idle(self.thread, is_idle=is_idle):
            self.timed_out = True
            return False
        polled = self.consumer.poll(POLL_MS, remaining)
        now = shared.clock.monotonic_ns()
        if polled.records:
            self._last_ns = now
        self._count(polled)
        if shared.ms(now) - self._at_row[2] >= shared.options.reporting_interval_ms:
            self._row(now)
        return True

    def _count(self, polled: Polled) -> None:
        if polled.records:
            counted = self._shared.add(polled, polled.at_ns or self._shared.clock.monotonic_ns())
            self.records += counted.records
            self.bytes += counted.bytes

    def _row(self, now_ns: int) -> None:
        if self._on_interval is None:
            return
        records, nbytes, since_ms, rebalanced = self._at_row
        shared, joined = self._shared, self.consumer.rebalance_ms()
        now_ms = shared.ms(now_ns)
        self._on_interval(
            Interval(
                at_ms=shared.start_wall_ms + now_ms,
                thread=self.thread,
                bytes=self.bytes,
                records=self.records,
                new_bytes=self.bytes - nbytes,
                new_records=self.records - records,
                elapsed_ms=now_ms - since_ms,
                rebalance_ms=self._joining_ms + int(joined - rebalanced),
            )
        )
        self._joining_ms = 0
        self._rows += 1
        self._at_row = (self.records, self.bytes, now_ms, joined)

    def finish(self) -> None:
        """Take the final figures. Records since the last row get a row of their own."""
        if self._fetching:
            if not self._rows or self.records != self._at_row[0]:
                self._row(self._shared.clock.monotonic_ns())
            self.rebalanced_ms = self.consumer.rebalance_ms() - self._before_ms


class ConsumeRun:
    """A whole run. ``make(i)`` makes the consumer of thread i; it is used in that thread alone.

    ``partitions``: what the group will have to share out. ``on_interval`` gets each thread's rows,
    one after the other.
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
        self._shared = Shared(options, partitions, self._clock)
        self._on_interval = on_interval
        self._rows = threading.Lock()
        self._errors: list[BaseException] = []
        self._metrics: list[Mapping[str, float | str]] = [{} for _ in range(options.threads)]
        self._workers: list[Worker | None] = [None] * options.threads
        # not Thread.join: on Python 3.11 one that is interrupted takes a thread that lives for dead
        self._ended = [threading.Event() for _ in range(options.threads)]

    def run(
        self, on_sample: Callable[[Sample], None] | None = None, sample_ms: int = 1_000
    ) -> Outcome:
        """Run to the end in this many threads. ``on_sample`` is called in this thread, about once
        in ``sample_ms``.

        An interrupt (KeyboardInterrupt) ends the run: the outcome says so, and its totals are
        right.
        """
        threads = [
            threading.Thread(target=self._run_thread, args=(i,), name=f"consume-{i}", daemon=True)
            for i in range(self._options.threads)
        ]
        samples: list[Sample] = []
        interrupted = False
        self._shared.begin()
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

    def _watch(
        self, samples: list[Sample], on_sample: Callable[[Sample], None] | None, sample_ms: int
    ) -> None:
        last = 0.0
        for ended in self._ended:
            while not ended.wait(min(sample_ms / 1000, 0.05)):
                if (sample := self._sample()) and sample.t_ms - last >= sample_ms:
                    samples.append(sample)
                    last = sample.t_ms
                    if on_sample is not None:
                        on_sample(sample)

    def _sample(self) -> Sample | None:
        start = self._shared.assigned_ns
        if start is None:
            return None
        return Sample((self._clock.monotonic_ns() - start) / _NS, *self._shared.totals())

    def _run_thread(self, thread: int) -> None:
        consumer: PerfConsumer | None = None
        try:
            consumer = self._make(thread)
            worker = Worker(
                thread, consumer, self._shared, self._emit if self._on_interval else None
            )
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
        if shared.assigned_ns is not None:
            end_ns = (
                shared.last_records_ns if shared.remaining() <= 0 else self._clock.monotonic_ns()
            )
            outcome.elapsed_ns = end_ns - shared.start_ns
            outcome.assigned_ms = shared.start_wall_ms + shared.ms(shared.assigned_ns)
            outcome.summary = self._summary(end_ns, shared.assigned_ns)
            samples.append(Sample((end_ns - shared.assigned_ns) / _NS, *shared.totals()))
        return outcome

    def _summary(self, end_ns: int, assigned_ns: int) -> Summary:
        """Return the row. Its times are whole ms, and rebalance and fetch time add up to it."""
        shared = self._shared
        rebalanced = sum(worker.rebalanced_ms for worker in self._workers if worker is not None)
        elapsed = shared.ms(end_ns)
        fetch = elapsed - shared.ms(assigned_ns) - int(rebalanced / self._options.threads)
        return Summary(
            start_ms=shared.start_wall_ms,
            end_ms=shared.start_wall_ms + elapsed,
            elapsed_ms=elapsed,
            bytes=shared.bytes,
            records=shared.records,
            rebalance_ms=elapsed - fetch,
            fetch_ms=fetch,
        )
