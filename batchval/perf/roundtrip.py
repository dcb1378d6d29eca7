"""A run of ``batchval perf roundtrip``: all topics of a workload at once, produced and consumed in
one process.

All clients are connected, and all consumers have their partitions, before the first schedule
begins. Producers end with their schedule and its answers; consumers end when they have read what
was acknowledged, or when nothing has come for the timeout.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from batchval.perf.histogram import Histogram, now_ns
from batchval.perf.produce import INTERVAL_PERCENTILES
from batchval.perf.producer_lines import Window
from batchval.perf.roundtrip_topic import Figures, NotBegunError, Reader, Start, TopicRun

if TYPE_CHECKING:
    from batchval.perf.produce import PerfProducer
    from batchval.perf.workload import Topic, Workload

__all__ = ["Clients", "RoundtripRun"]

_LOOK_S: Final = 0.02
#: How long a thread may keep the interpreter from another that wants to note an instant; Python's
#: is 5 ms.
_SWITCH_S: Final = 0.0005
_INTERRUPTED_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Clients:
    """The factories of a run's clients."""

    producer: Callable[[Topic, int], PerfProducer]
    reader: Callable[[Topic, list[int]], Reader]
    new_loop: Callable[[], asyncio.AbstractEventLoop]


class RoundtripRun:
    """All topics of a run. ``run()`` is called once, in the main thread.

    ``partitions``   how many each topic has
    ``many_values``  whether values differ, which matters where they are compressed
    """

    def __init__(
        self,
        workload: Workload,
        partitions: Mapping[str, int],
        clients: Clients,
        *,
        many_values: bool = False,
        timeout_ms: int = 10_000,
        reporting_interval_ms: int = 5_000,
        on_interval: Callable[[Window], None] | None = None,
    ) -> None:
        self._start = Start(workload.clients, action=self._begin)
        self.topics = [
            TopicRun(
                topic,
                workload,
                partitions[topic.name],
                self._start,
                lambda number, topic=topic: clients.producer(topic, number),  # type: ignore[misc]
                lambda part, topic=topic: clients.reader(topic, part),  # type: ignore[misc]
                timeout_ms=timeout_ms,
                many_values=many_values,
                new_loop=clients.new_loop,
            )
            for topic in workload.topics
        ]
        self.begin_ns = 0
        self.interrupted = False
        self.intervals: list[dict[str, Any]] = []
        self._on_interval, self._interval_ms = on_interval, reporting_interval_ms
        self._reported = (0, 0)  # the instant, bytes
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()

    def _begin(self) -> None:
        self.begin_ns = now_ns()
        self._reported = (self.begin_ns, 0)

    def run(self) -> None:
        """Run to the end, or to an interruption (KeyboardInterrupt). Raises what a client raised:
        ProduceError, ConsumeError, or a defect.
        """
        work: list[Callable[[], None]] = [topic.produce for topic in self.topics]
        work += [reading.run for topic in self.topics for reading in topic.readings]
        # not Thread.join: on Python 3.11 one that is interrupted takes a thread that lives for dead
        ended = [threading.Event() for _ in work]
        with _switching_soon():
            for one, end in zip(work, ended, strict=True):
                threading.Thread(
                    target=self._thread, args=(one, end), name="roundtrip", daemon=True
                ).start()
            self._watch(ended)
        self._interval()
        error = next(
            (error for error in self._errors if not isinstance(error, NotBegunError)), None
        )
        if error is not None:
            raise error

    def _watch(self, ended: list[threading.Event]) -> None:
        due: float | None = None
        while not all(end.is_set() for end in ended):
            try:
                time.sleep(_LOOK_S)
                if due is None and self.begin_ns:
                    due = time.monotonic() + self._interval_ms / 1000
                if due is not None and time.monotonic() >= due:
                    due += self._interval_ms / 1000
                    self._interval(self._on_interval)
            except KeyboardInterrupt:
                self.interrupted = True
                self._stop()

    def _thread(self, work: Callable[[], None], ended: threading.Event) -> None:
        try:
            work()
        except BaseException as error:
            with self._lock:
                self._errors.append(error)
            for _ in range(2):  # the second time no answer is waited for
                self._stop()
        finally:
            ended.set()

    def _stop(self) -> None:
        self._start.abort()
        for topic in self.topics:
            topic.timeout_ms = min(topic.timeout_ms, _INTERRUPTED_MS)
            topic.interrupt()

    def _interval(self, report: Callable[[Window], None] | None = None) -> None:
        readings = [reading for topic in self.topics for reading in topic.readings]
        latencies = Histogram()
        for reading in readings:
            latencies.merge(reading.figures.histogram.window())
        now, (since, before_bytes) = now_ns(), self._reported
        size = sum(reading.figures.value_bytes for reading in readings)
        window = Window(
            latencies.count, size - before_bytes, now - since, latencies.sum, latencies.max
        )
        self._reported = (now, size)
        if not window.records:
            return
        self.intervals.append(
            {
                "t_ms": (now - self.begin_ns) // 1_000_000,
                "records": window.records,
                "bytes": window.value_bytes,
                "elapsed_ns": window.elapsed_ns,
                "sum_us": window.sum_us,
                "max_us": window.max_us,
                "latency_us": {"stddev": latencies.stddev}
                | {
                    f"{percent:g}": latencies.percentile(percent)
                    for percent in INTERVAL_PERCENTILES
                },
            }
        )
        if report is not None:
            report(window)

    def published(self) -> Figures:
        """Return the sum of all topics."""
        return _sum(topic.published() for topic in self.topics)

    def read(self) -> Figures:
        """Return the sum of all topics."""
        return _sum(topic.read() for topic in self.topics)


def _sum(parts: Iterator[Figures]) -> Figures:
    total = Figures()
    for part in parts:
        total.add(part)
    return total


@contextmanager
def _switching_soon() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
