"""A run of producers: records sent at will or by a schedule, from threads with an event loop each,
latencies counted.

A record's latency goes from its stamp, taken just before the client gets it, to the report of its
answer. With --throughput the latency that counts goes from the instant at which the schedule
*intended* the record: what a late sender would hide is in it. A record that waits for the client's
buffer waits with a stamp.

The warm-up ends when all its answers have come; only then does the steady state begin, with a new
schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from array import array
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from batchval.errors import BatchvalError
from batchval.perf.histogram import Histogram, now_ns, stamp_many
from batchval.perf.payloads import Payloads
from batchval.perf.producer_lines import Window
from batchval.perf.tally import ClientRoundTrips, Tally

if TYPE_CHECKING:
    from batchval.perf.schedules import Schedule, SendTimes

__all__ = ["OnBatch", "OnWire", "PerfProducer", "ProduceError", "ProduceRun", "ProduceSettings"]

_CHUNK_BYTES = 128 << 10  # bytes that are stamped and passed to the client at once
_CHUNK = 256
_PROGRESS_S = 0.2
_DRAIN_S = 10.0  # how long an interrupted run waits for answers
_MAX_WAIT_S = 0.05  # of a pause: the end of the run is looked for after each
INTERVAL_PERCENTILES = (50, 75, 95, 99, 99.9)


class ProduceError(BatchvalError):
    """The run cannot send: no broker, no topic, no permission. One line."""


#: what a client tells of each batch: stamps, error or None, bytes of the values, bytes on the wire
#: (None: not counted)
OnBatch = Callable[[Any, str | None, int, int | None], None]
#: what it tells of each answer to Produce: last byte written, first byte read (ns of the monotonic
#: clock)
OnWire = Callable[[int, int], None]


class PerfProducer(Protocol):
    """A client, used by one thread. It reports refused records as a batch with an error, too."""

    @property
    def partitions(self) -> int:
        """Return how many partitions the topic has, once the client is open."""

    async def open(self, on_batch: OnBatch, on_wire: OnWire) -> None:
        """Connect and look up the topic. Raises ProduceError."""

    def send(self, values: Any, stamps: Any) -> int:
        """Send values; return how many it took: fewer than the stamps while its buffer is full."""

    async def wait_for_space(self) -> None:
        """Wait until a refused record may be tried again."""

    async def pause(self, seconds: float) -> None:
        """Wait at most this long, and report answers meanwhile."""

    async def flush(self) -> None:
        """Wait until every record has its answer."""

    async def begin(self) -> None:
        """Begin a transaction."""

    async def commit(self) -> None:
        """Commit the transaction. Raises ProduceError."""

    async def close(self) -> None:
        """Close the client without waiting for answers."""

    def in_flight(self) -> tuple[Mapping[int, int], int, bool]:
        """Return the highest number of requests in flight for each broker and over all brokers, and
        whether that is only a sample.
        """

    def waiting(self) -> int:
        """Return how many requests are in flight now, or were at the last sample."""

    def round_trips(self) -> ClientRoundTrips | None:
        """Return the client's own counts, None where it reports to ``on_wire``."""

    def metrics(self) -> Mapping[str, float | str]:
        """Return the client's metrics for --print-metrics."""


@dataclass(slots=True, kw_only=True)
class ProduceSettings:
    """The settings of a run, for all threads together. Times in the units of their names."""

    num_records: int | None
    duration_s: float | None = None
    throughput: float = -1  # records a second; not above 0: as fast as can be
    warmup_records: int = 0
    threads: int = 1
    reporting_interval_ms: int = 5000
    transaction_duration_ms: int | None = None
    measure: bool = True  # False: no latencies, to know what they cost


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
        self.parts = [self._tally()]
        self.times = _send_times() if self.rate is not None else None
        self.schedule: Schedule | None = None
        self.sent = 0
        self.chunk = max(1, min(_CHUNK, _CHUNK_BYTES // max(self.payloads.largest, 1)))
        self.stamps = array("q", bytes(8 * self.chunk))
        self.transaction_end = math.inf  # without transactions
        self.opened = self.finished = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting_task: asyncio.Task[Any] | None = None  # while the buffer is full

    def _tally(self) -> Tally:
        return Tally(self.settings.measure, self.rate is not None)

    def on_wire(self, written_ns: int, first_byte_ns: int) -> None:
        """Count a request's time on the wire."""
        if self.settings.measure:
            self.parts[-1].wire.record(first_byte_ns // 1000 - written_ns // 1000)

    def on_batch(
        self, stamps: Any, error: str | None, value_bytes: int, wire_bytes: int | None
    ) -> None:
        """Count a batch. Needs no lock: the client's thread is the worker's."""
        now = now_ns()
        tally, count = self.parts[-1], len(stamps)
        tally.end_ns = now
        sent = None
        if self.times is not None and (tally.measure or error is not None):
            sent = self.times.take(stamps)
        if error is not None:
            tally.errors[error] += count
            return
        tally.acked += count
        tally.value_bytes += value_bytes
        tally.wire_bytes = (
            None
            if wire_bytes is None or tally.wire_bytes is None
            else tally.wire_bytes + wire_bytes
        )
        if not tally.measure:
            return
        tally.latencies.record_since(stamps if sent is None else sent, now)
        if self.schedule is not None and sent is not None:
            tally.intended.record_since(self.schedule.instants(stamps), now)

    async def main(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self.client.open(self.on_batch, self.on_wire)
            self.opened = True
            await asyncio.to_thread(self.run.all_here, self.run.opened)
            if self.settings.warmup_records:
                await self._phase(self.warmup)
                await asyncio.to_thread(self.run.all_here, self.run.warm)
                self.parts.append(self._tally())
            await self._phase(self.quota)
        finally:
            await self.client.close()

    async def _phase(self, limit: int | None) -> None:
        """Send up to record ``limit`` (None: until the time is over), and wait for the answers."""
        tally = self.parts[-1]
        tally.begin_ns = tally.end_ns = now_ns()
        if self.rate is not None:
            lag = int(self.number * 1e9 / self.settings.throughput)
            self.schedule = _schedule(self.rate, tally.begin_ns + lag, self.sent)
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
            drained = await self._drain()
        if drained:
            await self._commit()

    async def _due(self, schedule: Schedule, count: int) -> int:
        """Return how many records are due now; 0 after a wait."""
        now = now_ns()
        wait = schedule.wait_ns(self.sent, now)
        if wait > 0:
            await self.client.pause(min(wait / 1e9, _MAX_WAIT_S))
            return 0
        return min(count, schedule.due(now) - self.sent)

    async def _send(self, count: int) -> None:
        values = self.payloads.values(self.sent, count)
        one = isinstance(values, bytes)
        stamps = memoryview(self.stamps)[:count]
        if self.rate is not None:
            stamps[:] = array("q", range(self.sent, self.sent + count))
        now, done, tally = self._stamp(stamps, self.sent), 0, self.parts[-1]
        while True:
            taken = self.client.send(values if one else values[done:], stamps[done:])
            done += taken
            self.sent += taken
            if taken:
                tally.note_sent(taken, now)
                tally.in_flight = max(tally.in_flight, self.client.waiting())
            if done == count:
                return
            if not await self._may_go_on():
                return
            # the record that waited keeps its stamp; those after it have not been tried yet
            now = self._stamp(stamps[done + 1 :], self.sent + 1)

    def _stamp(self, stamps: memoryview, first: int) -> int:
        """Note that records from number ``first`` on are sent now; return the instant."""
        if self.times is None and self.settings.measure:
            return stamp_many(stamps)
        now = now_ns()
        if self.times is not None:
            self.times.put(first, len(stamps), now)
        return now

    async def _begin(self) -> None:
        duration = self.settings.transaction_duration_ms
        if duration is not None:
            await self.client.begin()
            self.transaction_end = now_ns() + duration * 1_000_000

    async def _commit(self) -> None:
        if self.settings.transaction_duration_ms is not None:
            await self._until(self.client.commit())
            self.parts[-1].end_ns = now_ns()

    async def _may_go_on(self) -> bool:
        """Wait until the client takes records again. False: nothing more is to be sent."""
        self._waiting_task = asyncio.current_task()
        try:
            await self.client.wait_for_space()
        except asyncio.CancelledError:
            if not self.run.stopping:
                raise
        finally:
            self._waiting_task = None
        return not self.run.stopping

    def note_waiting(self) -> None:
        """Count the requests that wait as an interval begins: it may send none itself. For other
        threads.
        """
        if self.opened and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: the worker has ended
                self._loop.call_soon_threadsafe(self._count_waiting)

    def _count_waiting(self) -> None:
        tally = self.parts[-1]
        tally.in_flight = max(tally.in_flight, self.client.waiting())

    def stop(self) -> None:
        """Wait for the buffer no longer, because the run stops. For other threads."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: the worker has ended
                self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        if self._waiting_task is not None:
            self._waiting_task.cancel()

    async def _drain(self) -> bool:
        """Wait for all answers. False: not all came, and nobody wants to wait longer."""
        return await self._until(self.client.flush())

    async def _until(self, waiting: Coroutine[Any, Any, None]) -> bool:
        """Wait, and give up 10 s after an interruption, at once after a second one."""
        task = asyncio.ensure_future(waiting)
        deadline = None
        while not task.done():
            await asyncio.wait([task], timeout=0.1)
            if self.run.interrupted and deadline is None:
                deadline = time.monotonic() + _DRAIN_S
            if self.run.abandoned or (deadline is not None and time.monotonic() > deadline):
                task.cancel()
                return False
        task.result()
        return True


def _share(total: int | None, threads: int, number: int) -> int | None:
    return None if total is None else total // threads + (number < total % threads)


class ProduceRun:
    """All threads of a run. ``run()`` is called once, ``on_interval`` at each interval."""

    def __init__(
        self,
        settings: ProduceSettings,
        make_client: Callable[[int], PerfProducer],
        make_payloads: Callable[[int], Payloads],
        on_interval: Callable[[Window, Mapping[str, Any]], None] | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self.settings, self.make_client, self.make_payloads = settings, make_client, make_payloads
        self.on_interval, self.new_loop = on_interval, new_loop
        self.on_progress: Callable[[int, float], None] | None = (
            None  # records acknowledged, seconds; now and then
        )
        self.intervals: list[dict[str, Any]] = []
        self.stopping = self.interrupted = self.abandoned = False
        self._deadline: int | None = None
        self.opened = threading.Barrier(settings.threads, action=self._begin)
        self.warm = threading.Barrier(settings.threads)
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._last_line = (0, 0, 0)  # time, records and bytes of the last line
        self.begin_ns = 0
        self.workers = [_Worker(self, number) for number in range(settings.threads)]

    def _begin(self) -> None:
        now = now_ns()
        self._last_line = (now, 0, 0)
        self.begin_ns = now
        if self.settings.duration_s is not None:
            self._deadline = now + int(self.settings.duration_s * 1e9)

    def all_here(self, barrier: threading.Barrier) -> None:
        """Wait until all threads are here: client ready, or warm-up answered."""
        try:
            barrier.wait()
        except threading.BrokenBarrierError:
            self.stopping = True

    def _stop(self) -> None:
        self.stopping = True
        for worker in self.workers:
            worker.stop()
        self.opened.abort()
        self.warm.abort()

    def interrupt(self) -> None:
        """Send nothing more, and wait up to 10 s for answers. Called again: wait for none."""
        self.abandoned, self.interrupted = self.interrupted, True
        self._stop()

    def over(self) -> bool:
        """Return whether nothing more is to be sent."""
        return self.stopping or (self._deadline is not None and now_ns() >= self._deadline)

    def run(self) -> None:
        """Run to the end or an interruption. Raises what a thread raised: ProduceError, or a
        defect.
        """
        threads = [
            threading.Thread(
                target=self._thread, args=(worker,), name=f"perf-{worker.number}", daemon=True
            )
            for worker in self.workers
        ]
        for thread in threads:
            thread.start()
        interval = self.settings.reporting_interval_ms / 1000
        due: float | None = None
        last_progress = 0.0
        while not all(worker.finished for worker in self.workers):
            try:
                # not Thread.join: on Python 3.11 one that is interrupted takes a thread that lives
                # for dead
                time.sleep(0.005 if due is None else max(min(due - time.monotonic(), 0.02), 0.001))
                if due is None and self.begin_ns:
                    due = time.monotonic() + interval
                if (
                    self.on_progress is not None
                    and self.begin_ns
                    and time.monotonic() >= last_progress + _PROGRESS_S
                ):
                    last_progress = time.monotonic()
                    self.on_progress(self.total_acked(), (now_ns() - self.begin_ns) / 1e9)
                if due is not None and time.monotonic() >= due:
                    due += interval
                    self._interval()
            except KeyboardInterrupt:
                self.interrupt()
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
        latencies, in_flight = Histogram(), 0
        for part in parts:
            latencies.merge(part.headline.window())
            in_flight, part.in_flight = in_flight + part.in_flight, 0
        for worker in self.workers:
            worker.note_waiting()
        before_ns, before, before_bytes = self._last_line
        window = Window(
            acked - before, size - before_bytes, now - before_ns, latencies.sum, latencies.max
        )
        self._last_line = (now, acked, size)
        row = {
            "t_ms": (now - self.begin_ns) // 1_000_000,
            "records": window.records,
            "bytes": window.value_bytes,
            "elapsed_ns": window.elapsed_ns,
            "sum_us": window.sum_us,
            "max_us": window.max_us,
            "failed": sum(part.failed for part in parts),
            "in_flight": in_flight,
            "latency_us": {"stddev": latencies.stddev}
            | {f"{percent:g}": latencies.percentile(percent) for percent in INTERVAL_PERCENTILES},
        }
        if last and window.records == 0:
            return
        self.intervals.append(row)
        if self.on_interval is not None and not last:
            self.on_interval(window, row)

    def total_acked(self) -> int:
        """Return the records acknowledged until now."""
        return sum(part.acked for worker in self.workers for part in worker.parts)

    def total(self) -> Tally:
        """Return the figures of the whole run."""
        return self._sum([part for worker in self.workers for part in worker.parts])

    def steady(self) -> Tally | None:
        """Return the figures after the warm-up; None without one."""
        if not self.settings.warmup_records:
            return None
        return self._sum([part for worker in self.workers for part in worker.parts[1:]])

    def _sum(self, parts: list[Tally]) -> Tally:
        total = Tally(self.settings.measure, self.settings.throughput > 0)
        for part in parts:
            total.add(part)
        return total

    @property
    def unanswered(self) -> int:
        """Return the number of records of an interrupted run whose answer did not come."""
        failed = sum(part.failed for worker in self.workers for part in worker.parts)
        return sum(worker.sent for worker in self.workers) - self.total_acked() - failed

    def round_trips(self) -> ClientRoundTrips | None:
        """Return the clients' own counts of the whole run, None where they have none."""
        total = ClientRoundTrips()
        for worker in self.workers:
            if worker.opened and (found := worker.client.round_trips()) is not None:
                total.add(found.count, found.sum_us, found.min_us, found.max_us)
        return total if total.count else None

    def in_flight(self) -> tuple[dict[int, int], int, bool]:
        """Return the highest in flight on a connection to each broker, the sum over brokers and
        threads, and whether these are samples.
        """
        each: dict[int, int] = {}
        over_all, sampled = 0, False
        for worker in self.workers:
            if worker.opened:
                found, total, sample = worker.client.in_flight()
                for node, highest in found.items():
                    each[node] = max(each.get(node, 0), highest)
                over_all, sampled = over_all + total, sampled or sample
        return each, over_all, sampled


def _send_times() -> SendTimes:
    from batchval.perf.schedules import SendTimes

    return SendTimes()


def _schedule(rate: float, start_ns: int, first: int) -> Schedule:
    from batchval.perf.schedules import Schedule

    return Schedule(rate, start_ns, first)
