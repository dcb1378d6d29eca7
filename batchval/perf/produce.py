"""A run of producers: records sent at will or by a schedule, from threads with an event loop each, latencies counted.

A record's latency goes from its stamp, taken just before it is given to the client, to the moment its answer is told.
With --throughput there is a second one, from the instant at which the schedule *intended* it: what a late sender would
hide is in it. Whoever waits for room in the client's buffer waits with a stamp: the wait is part of the latency.

The warm-up ends when all its answers have come; only then does the steady state begin, with a new schedule.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from batchval.errors import BatchvalError
from batchval.perf.histogram import Histogram, now_ns, stamp_many
from batchval.perf.lines import Window
from batchval.perf.payloads import Payloads

__all__ = ["PerfProducer", "ProduceError", "ProduceRun", "ProduceSettings", "Tally"]

_BLOCK = 4096  # records whose instants of sending are kept together
_CHUNK_BYTES = 128 << 10  # what is stamped and given to the client at once
_CHUNK = 256
_PROGRESS_S = 0.2
_DRAIN_S = 10.0  # how long an interrupted run waits for answers
_SHORT_NS = 1_500_000  # a sleep of an event loop is at least this: below, the thread sleeps by itself in turns
_TURN_S = 0.00005


class ProduceError(BatchvalError):
    """Nothing can be sent: no broker, no topic, no permission. One line."""


#: what a client tells of each batch: stamps, error or None, bytes of the values, bytes on the wire (None: not counted)
OnBatch = Callable[[Any, str | None, int, int | None], None]


class PerfProducer(Protocol):
    """A client, used by one thread. Whatever is refused for good comes as a batch with an error, too."""

    async def open(self, on_batch: OnBatch) -> None:
        """Connects and looks for the topic. ProduceError."""

    def send(self, values: Any, stamps: Any) -> int:
        """How many it took: fewer than there are stamps while its buffer is full."""

    async def room(self) -> None:
        """Returns when a refused record may be tried again."""

    async def pause(self, seconds: float) -> None:
        """Waits, and goes on telling of answers meanwhile."""

    async def flush(self) -> None:
        """Returns when every record has its answer."""

    async def begin(self) -> None:
        """A transaction begins."""

    async def commit(self) -> None:
        """The transaction is committed. ProduceError."""

    async def close(self) -> None:
        """Ends, without waiting for answers."""

    def in_flight(self) -> tuple[Mapping[int, int], int, bool]:
        """The highest number of requests in flight for each broker and over all; whether that is a sample only."""

    def metrics(self) -> Mapping[str, float | str]:
        """For --print-metrics."""


@dataclass(slots=True, kw_only=True)
class ProduceSettings:
    """What a run does, of all threads together. Times in the units of their names."""

    num_records: int | None
    duration_s: float | None = None
    throughput: float = -1  # records a second; not above 0: as fast as can be
    warmup_records: int = 0
    threads: int = 1
    reporting_interval_ms: int = 5000
    transaction_duration_ms: int | None = None
    measure: bool = True  # False: no latencies, to know what they cost


class _SendTimes:
    """The instant at which each record was sent, until it is answered."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[Any]] = {}  # [instants, how many are not answered]

    def put(self, first: int, count: int, now: int) -> None:
        while count:
            block, at = divmod(first, _BLOCK)
            part = min(count, _BLOCK - at)
            kept = self._blocks.setdefault(block, [np.zeros(_BLOCK, np.int64), _BLOCK])
            kept[0][at : at + part] = now
            first, count = first + part, count - part

    def take(self, numbers: Any) -> Any:
        blocks, at = np.divmod(numbers, _BLOCK)
        found = np.empty(len(numbers), np.int64)
        for block in np.unique(blocks).tolist():
            chosen = blocks == block
            kept = self._blocks[block]
            found[chosen] = kept[0][at[chosen]]
            kept[1] -= int(chosen.sum())
            if kept[1] == 0:
                del self._blocks[block]
        return found


class _Schedule:
    """Record n, counted from ``first``, is intended at ``start_ns`` + (n - first) / rate."""

    def __init__(self, rate: float, start_ns: int, first: int) -> None:
        self.step_ns, self.start_ns, self.first = 1e9 / rate, start_ns, first

    def instants(self, numbers: Any) -> Any:
        return self.start_ns + ((numbers - self.first) * self.step_ns).astype(np.int64)

    def due(self, now: int) -> int:
        """The number before which every record should have been sent by now."""
        return self.first + int((now - self.start_ns) / self.step_ns) + 1

    def wait_ns(self, number: int, now: int) -> int:
        return self.start_ns + int((number - self.first) * self.step_ns) - now


@dataclass(slots=True)
class Tally:
    """What a part of a thread's run has come to: the warm-up, or the steady state."""

    measure: bool = True
    latencies: Histogram = field(default_factory=Histogram)
    intended: Histogram = field(default_factory=Histogram)
    acked: int = 0
    value_bytes: int = 0
    wire_bytes: int | None = 0
    errors: Counter[str] = field(default_factory=Counter)
    begin_ns: int = 0
    end_ns: int = 0

    def add(self, other: Tally) -> None:
        """The sum, over the time from the first begin to the last end."""
        self.latencies.merge(other.latencies)
        self.intended.merge(other.intended)
        self.acked += other.acked
        self.value_bytes += other.value_bytes
        self.wire_bytes = None if None in (self.wire_bytes, other.wire_bytes) else self.wire_bytes + other.wire_bytes  # type: ignore[operator]
        self.errors.update(other.errors)
        if other.begin_ns:
            self.begin_ns = min(self.begin_ns or other.begin_ns, other.begin_ns)
            self.end_ns = max(self.end_ns, other.end_ns)

    @property
    def failed(self) -> int:
        return self.errors.total()

    @property
    def elapsed_ns(self) -> int:
        return max(self.end_ns - self.begin_ns, 0)


class _Worker:
    """A thread's part."""

    def __init__(self, run: ProduceRun, number: int) -> None:
        threads, settings = run.settings.threads, run.settings
        self.run, self.number, self.settings = run, number, settings
        self.client = run.make_client(number)
        self.payloads = run.make_payloads(number)
        self.quota = _share(settings.num_records, threads, number)
        self.warmup = _share(settings.warmup_records, threads, number) or 0
        self.rate = settings.throughput / threads if settings.throughput > 0 else None
        self.parts = [Tally(settings.measure)]
        self.times = _SendTimes()
        self.schedule: _Schedule | None = None
        self.sent = 0
        self.chunk = max(1, min(_CHUNK, _CHUNK_BYTES // max(self.payloads.largest, 1)))
        self.stamps = array("q", bytes(8 * self.chunk))
        self.transaction_end = math.inf  # without transactions
        self.opened = self.finished = False

    def on_batch(self, stamps: Any, error: str | None, value_bytes: int, wire_bytes: int | None) -> None:
        """The client's thread is the worker's: nothing here needs a lock."""
        now = now_ns()
        tally, count = self.parts[-1], len(stamps)
        tally.end_ns = now
        sent = None
        if self.rate is not None and (tally.measure or error is not None):
            stamps = np.asarray(stamps, np.int64)
            sent = self.times.take(stamps)
        if error is not None:
            tally.errors[error] += count
            return
        tally.acked += count
        tally.value_bytes += value_bytes
        tally.wire_bytes = None if wire_bytes is None or tally.wire_bytes is None else tally.wire_bytes + wire_bytes
        if not tally.measure:
            return
        tally.latencies.record_since(stamps if sent is None else sent, now)
        if self.schedule is not None and sent is not None:
            tally.intended.record_since(self.schedule.instants(stamps), now)

    async def main(self) -> None:
        try:
            await self.client.open(self.on_batch)
            self.opened = True
            await asyncio.to_thread(self.run.all_here, self.run.opened)
            if self.settings.warmup_records:
                await self._phase(self.warmup)
                await asyncio.to_thread(self.run.all_here, self.run.warm)
                self.parts.append(Tally(self.settings.measure))
            await self._phase(self.quota)
        finally:
            await self.client.close()

    async def _phase(self, limit: int | None) -> None:
        """Sends up to record ``limit`` (None: until the time is over), and waits for the answers."""
        tally = self.parts[-1]
        tally.begin_ns = tally.end_ns = now_ns()
        if self.rate is not None:
            lag = int(self.number * 1e9 / self.settings.throughput)
            self.schedule = _Schedule(self.rate, tally.begin_ns + lag, self.sent)
        await self._begin()
        try:
            while not self.run.over() and (limit is None or self.sent < limit):
                count = self.chunk if limit is None else min(self.chunk, limit - self.sent)
                if self.schedule is not None:
                    count = await self._due(self.schedule, count)
                if count:
                    await self._send(count)
                if now_ns() >= self.transaction_end:  # one look at the clock for both
                    await self._commit()
                    await self._begin()
                await asyncio.sleep(0)
        finally:
            await self._drain()
        await self._commit()

    async def _due(self, schedule: _Schedule, count: int) -> int:
        """How many of them the schedule has now; after a wait none."""
        now = now_ns()
        wait = schedule.wait_ns(self.sent, now)
        if wait > _SHORT_NS:
            await self.client.pause(min((wait - _SHORT_NS // 2) / 1e9, 0.05))
            return 0
        if wait > 0:
            time.sleep(min(wait / 1e9, _TURN_S))  # an event loop counts in ms
            await self.client.pause(0)
            return 0
        return min(count, schedule.due(now) - self.sent)

    async def _send(self, count: int) -> None:
        values = self.payloads.values(self.sent, count)
        one = isinstance(values, bytes)
        stamps = memoryview(self.stamps)[:count]
        if self.rate is None:
            if self.settings.measure:
                stamp_many(stamps)
        else:
            stamps[:] = array("q", range(self.sent, self.sent + count))
            self.times.put(self.sent, count, now_ns())
        done = 0
        while True:
            taken = self.client.send(values if one else values[done:], stamps[done:])
            done += taken
            self.sent += taken
            if done == count:
                return
            await self.client.room()
            if self.run.abandoned:
                return
            # the record that waited keeps its stamp; those behind it have not been tried yet
            if done + 1 < count:
                if self.rate is None:
                    stamp_many(stamps[done + 1 :])
                else:
                    self.times.put(self.sent + 1, count - done - 1, now_ns())

    async def _begin(self) -> None:
        duration = self.settings.transaction_duration_ms
        if duration is not None:
            await self.client.begin()
            self.transaction_end = now_ns() + duration * 1_000_000

    async def _commit(self) -> None:
        if self.settings.transaction_duration_ms is not None:
            await self.client.commit()
            self.parts[-1].end_ns = now_ns()

    async def _drain(self) -> None:
        flushing = asyncio.ensure_future(self.client.flush())
        deadline = None
        while not flushing.done():
            await asyncio.wait([flushing], timeout=0.1)
            if self.run.interrupted and deadline is None:
                deadline = time.monotonic() + _DRAIN_S
            if self.run.abandoned or (deadline is not None and time.monotonic() > deadline):
                flushing.cancel()
                return
        flushing.result()


def _share(total: int | None, threads: int, number: int) -> int | None:
    return None if total is None else total // threads + (number < total % threads)


class ProduceRun:
    """All threads of a run. ``run()`` is called once; interval lines are told to ``on_interval``."""

    def __init__(
        self,
        settings: ProduceSettings,
        make_client: Callable[[int], PerfProducer],
        make_payloads: Callable[[int], Payloads],
        on_interval: Callable[[Window], None] | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self.settings, self.make_client, self.make_payloads = settings, make_client, make_payloads
        self.on_interval, self.new_loop = on_interval, new_loop
        self.on_progress: Callable[[int, float], None] | None = None  # records acknowledged, seconds; now and then
        self.intervals: list[dict[str, Any]] = []
        self.stopping = self.interrupted = self.abandoned = False
        self._deadline: int | None = None
        self.opened = threading.Barrier(settings.threads, action=self._begin)
        self.warm = threading.Barrier(settings.threads)
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._told = (0, 0, 0)  # when it was, records, bytes
        self.begin_ns = 0
        self.workers = [_Worker(self, number) for number in range(settings.threads)]

    def _begin(self) -> None:
        now = now_ns()
        self._told = (now, 0, 0)
        self.begin_ns = now
        if self.settings.duration_s is not None:
            self._deadline = now + int(self.settings.duration_s * 1e9)

    def all_here(self, barrier: threading.Barrier) -> None:
        """Returns when every thread has come as far: its client is ready, or its warm-up answered."""
        try:
            barrier.wait()
        except threading.BrokenBarrierError:
            self.stopping = True

    def _stop(self) -> None:
        self.stopping = True
        self.opened.abort()
        self.warm.abort()

    def over(self) -> bool:
        """Nothing more is to be sent."""
        return self.stopping or (self._deadline is not None and now_ns() >= self._deadline)

    def run(self) -> None:
        """To the end, or an interruption. Raises what a thread raised: ProduceError, or a defect."""
        threads = [
            threading.Thread(target=self._thread, args=(worker,), name=f"perf-{worker.number}", daemon=True)
            for worker in self.workers
        ]
        for thread in threads:
            thread.start()
        interval = self.settings.reporting_interval_ms / 1000
        due: float | None = None
        told = 0.0
        while not all(worker.finished for worker in self.workers):
            try:
                # not Thread.join: on Python 3.11 one that is interrupted takes a thread that lives for dead
                time.sleep(0.005 if due is None else max(min(due - time.monotonic(), 0.02), 0.001))
                if due is None and self.begin_ns:
                    due = time.monotonic() + interval
                if self.on_progress is not None and self.begin_ns and time.monotonic() >= told + _PROGRESS_S:
                    told = time.monotonic()
                    self.on_progress(self.total_acked(), (now_ns() - self.begin_ns) / 1e9)
                if due is not None and time.monotonic() >= due:
                    due += interval
                    self._interval()
            except KeyboardInterrupt:
                self.abandoned, self.interrupted = self.interrupted, True
                self._stop()
        if self.intervals:
            self._interval(last=True)
        if self._error is not None:
            raise self._error

    def _thread(self, worker: _Worker) -> None:
        loop = self.new_loop()
        try:
            loop.run_until_complete(worker.main())
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
            self._stop()
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
            worker.finished = True

    def _interval(self, *, last: bool = False) -> None:
        now = now_ns()
        parts = [part for worker in self.workers for part in worker.parts]
        acked, size = self.total_acked(), sum(part.value_bytes for part in parts)
        windows = [part.latencies.window() for part in parts]
        before_ns, before, before_bytes = self._told
        window = Window(
            acked - before,
            size - before_bytes,
            now - before_ns,
            sum(found[1] for found in windows),
            max(found[2] for found in windows),
        )
        self._told = (now, acked, size)
        row = {
            "t_ms": (now - self.begin_ns) // 1_000_000,
            "records": window.records,
            "bytes": window.value_bytes,
            "elapsed_ns": window.elapsed_ns,
            "sum_us": window.sum_us,
            "max_us": window.max_us,
            "failed": sum(part.failed for part in parts),
        }
        if last and window.records == 0:
            return
        self.intervals.append(row)
        if self.on_interval is not None and not last:
            self.on_interval(window)

    def total_acked(self) -> int:
        """Until now."""
        return sum(part.acked for worker in self.workers for part in worker.parts)

    def total(self) -> Tally:
        """All of it."""
        return self._sum([part for worker in self.workers for part in worker.parts])

    def steady(self) -> Tally | None:
        """What came after the warm-up; None without one."""
        if not self.settings.warmup_records:
            return None
        return self._sum([part for worker in self.workers for part in worker.parts[1:]])

    def _sum(self, parts: list[Tally]) -> Tally:
        total = Tally(self.settings.measure)
        for part in parts:
            total.add(part)
        return total

    @property
    def unanswered(self) -> int:
        """Records of an interrupted run whose answer was not waited for."""
        failed = sum(part.failed for worker in self.workers for part in worker.parts)
        return sum(worker.sent for worker in self.workers) - self.total_acked() - failed

    def in_flight(self) -> tuple[dict[int, int], int, bool]:
        """The highest in flight on a connection to each broker; the sum over brokers and threads; if sampled."""
        each: dict[int, int] = {}
        over_all, sampled = 0, False
        for worker in self.workers:
            if worker.opened:
                found, total, sample = worker.client.in_flight()
                for node, highest in found.items():
                    each[node] = max(each.get(node, 0), highest)
                over_all, sampled = over_all + total, sampled or sample
        return each, over_all, sampled
