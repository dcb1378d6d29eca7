"""One topic of ``batchval perf roundtrip``: its producers, its groups of consumers, and what came
of them.

The producers are those of ``perf produce``, whose records get a header just before they are sent.
Each consumer has a thread. It notes the instant once after each poll, which is when the records are
handed over.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from batchval.perf.histogram import Histogram, now_ns
from batchval.perf.produce import (
    OnBatch,
    OnWire,
    PerfProducer,
    ProduceError,
    ProduceRun,
    ProduceSettings,
)
from batchval.perf.roundtrip_check import GroupCheck
from batchval.perf.roundtrip_record import HEADER, SizedLetters, heads_of, with_headers

if TYPE_CHECKING:
    from batchval.perf.tally import ClientRoundTrips
    from batchval.perf.workload import Topic, Workload

__all__ = ["Figures", "NotBegunError", "Reader", "Start", "TopicRun"]

_POLL_MS: Final = 100
_NEVER_MS: Final = 2**31 - 1
_SETTLE_NS: Final = 50_000_000


class NotBegunError(ProduceError):
    """Another client of the run could not be opened, or the run was interrupted before it began."""


class Reader(Protocol):
    """A consumer of some partitions, used by one thread."""

    def open(self) -> None:
        """Take the partitions at their ends: what is written later is read. ConsumeError."""

    def poll(self, timeout_ms: int) -> list[tuple[int, list[bytes | None]]]:
        """Return values by partition, in order; wait for the first no longer than this.
        ConsumeError for what does not pass by itself.
        """

    def at_end(self) -> bool:
        """Return whether everything that the partitions hold now was read."""

    def last_error(self) -> str:
        """Return what did not work last, or nothing."""

    def close(self) -> None:
        """End all connections."""


class Start(threading.Barrier):
    """The barrier at which clients wait until all are connected and all consumers have
    partitions.
    """

    def meet(self) -> None:
        """Return when all are there. NotBegunError where that cannot be any more."""
        try:
            self.wait()
        except threading.BrokenBarrierError:
            raise NotBegunError("the run did not begin") from None


@dataclass(slots=True)
class Figures:
    """Latencies from the intended instants, and the records and time that they belong to."""

    histogram: Histogram = field(default_factory=Histogram)
    value_bytes: int = 0
    begin_ns: int = 0
    end_ns: int = 0

    def add(self, other: Figures) -> None:
        """Add what another has, over the time from the first begin to the last end."""
        self.histogram.merge(other.histogram)
        self.value_bytes += other.value_bytes
        if other.begin_ns:
            self.begin_ns = min(self.begin_ns or other.begin_ns, other.begin_ns)
            self.end_ns = max(self.end_ns, other.end_ns)

    @property
    def elapsed_ns(self) -> int:
        return max(self.end_ns - self.begin_ns, 0)


class _Sending:
    """A producer of ``perf produce`` whose values get headers."""

    def __init__(self, client: PerfProducer, topic: TopicRun, number: int) -> None:
        self._client, self._topic, self._number = client, topic, number
        self.failed: list[Any] = []  # arrays of numbers
        self._on_batch: OnBatch

    @property
    def partitions(self) -> int:
        return self._client.partitions

    async def open(self, on_batch: OnBatch, on_wire: OnWire) -> None:
        self._on_batch = on_batch
        await self._client.open(self._answered, on_wire)
        await asyncio.to_thread(self._topic.start.meet)

    def _answered(
        self, stamps: Any, error: str | None, value_bytes: int, wire_bytes: int | None
    ) -> None:
        if error is not None:
            self.failed.append(np.array(stamps, np.int64))
        self._on_batch(stamps, error, value_bytes, wire_bytes)

    def send(self, values: Any, stamps: Any) -> int:
        schedule = self._topic.producing.workers[self._number].schedule
        assert schedule is not None  # a workload has rates
        numbers = np.array(stamps, np.int64)
        headed = with_headers(
            self._topic.run_id, self._number, numbers, schedule.instants(numbers), values
        )
        return self._client.send(headed, stamps)

    async def wait_for_space(self) -> None:
        await self._client.wait_for_space()

    async def pause(self, seconds: float) -> None:
        await self._client.pause(seconds)

    async def flush(self) -> None:
        await self._client.flush()

    async def begin(self) -> None:
        await self._client.begin()

    async def commit(self) -> None:
        await self._client.commit()

    async def close(self) -> None:
        await self._client.close()

    def in_flight(self) -> tuple[Mapping[int, int], int, bool]:
        return self._client.in_flight()

    def waiting(self) -> int:
        return self._client.waiting()

    def round_trips(self) -> ClientRoundTrips | None:
        return self._client.round_trips()

    def metrics(self) -> Mapping[str, float | str]:
        return self._client.metrics()


class _Came(NamedTuple):
    """A poll's result for one partition: headers, sizes of their values, and when."""

    partition: int
    raw: bytes
    sizes: list[int]
    now_ns: int
    foreign: int


class _Reading:
    """A consumer's part, in a thread of its own."""

    def __init__(self, topic: TopicRun, check: GroupCheck, reader: Reader) -> None:
        self.topic, self.check, self.reader = topic, check, reader
        self.figures = Figures()
        self.last_ns = 0
        # what polls brought and was not looked at: that is done for many records at once
        self._waiting: list[_Came] = []
        self._waiting_ns = 0  # since when

    def run(self) -> None:
        """Read until everything that was acknowledged has come, or nothing comes any more."""
        try:
            self.reader.open()
            self.topic.start.meet()
            has_nothing = True
            while not self._is_over(has_nothing=has_nothing):
                came = self.reader.poll(_POLL_MS)
                now = now_ns()
                has_nothing = not came
                for partition, values in came:
                    raw, sizes = heads_of(self.topic.run_id, values)
                    self._waiting.append(
                        _Came(partition, raw, sizes, now, len(values) - len(sizes))
                    )
                if not self._waiting:
                    self._waiting_ns = now
                elif has_nothing or now - self._waiting_ns > _SETTLE_NS:
                    self._settle()
                    self._waiting_ns = now
            self._settle()
        finally:
            self.reader.close()

    def _settle(self) -> None:
        for partition in {one.partition for one in self._waiting}:
            self._count(partition, [one for one in self._waiting if one.partition == partition])
        self._waiting = []

    def _count(self, partition: int, parts: list[_Came]) -> None:
        topic = self.topic
        headers = np.frombuffer(b"".join([part.raw for part in parts]), HEADER)
        sizes = np.array([size for part in parts for size in part.sizes], np.int64)
        instants = np.repeat([part.now_ns for part in parts], [len(part.sizes) for part in parts])
        known = (headers["producer"] < topic.topic.producers) & (headers["number"] >= 0)
        known &= headers["number"] < topic.records
        headers, sizes, instants = headers[known], sizes[known], instants[known]
        foreign = sum(part.foreign for part in parts) + int((~known).sum())
        is_new = self.check.add(partition, headers, foreign)
        if is_new.any():
            self.last_ns = int(instants[is_new].max())
        counted = is_new & (headers["number"] >= topic.warmup[headers["producer"]])
        if counted.any():
            # both are truncated to µs first, as all instants here
            latencies = instants[counted] // 1000 - headers["intended"][counted] // 1000
            self.figures.histogram.record_many(np.maximum(latencies, 0))
            self.figures.value_bytes += int(sizes[counted].sum())
            self.figures.end_ns = int(instants[counted].max())

    def _is_over(self, *, has_nothing: bool) -> bool:
        """Return whether to end. ``has_nothing``: the last poll brought no records."""
        topic = self.topic
        if topic.abandoned:
            return True
        if not topic.produced_ns:
            return False
        if (
            has_nothing
            and now_ns() - max(topic.produced_ns, self.last_ns) > topic.timeout_ms * 1_000_000
        ):
            return True
        return topic.lost(self.check) == 0 and self.reader.at_end()


class TopicRun:
    """One topic's part of a run. ``make_producer(n)`` makes producer n, ``make_reader(partitions)``
    a consumer.
    """

    def __init__(
        self,
        topic: Topic,
        workload: Workload,
        partitions: int,
        start: Start,
        make_producer: Callable[[int], PerfProducer],
        make_reader: Callable[[list[int]], Reader],
        *,
        timeout_ms: int,
        many_values: bool,
        new_loop: Callable[[], asyncio.AbstractEventLoop],
    ) -> None:
        self.topic, self.start, self.timeout_ms = topic, start, timeout_ms
        self.run_id = os.urandom(8)
        self.produced_ns = 0  # when all records had been answered
        self.abandoned = False
        self.records = workload.records(topic)
        self._made: dict[int, _Sending] = {}
        settings = ProduceSettings(
            num_records=self.records,
            throughput=topic.rate,
            warmup_records=workload.warmup_records(topic),
            threads=topic.producers,
            reporting_interval_ms=_NEVER_MS,
        )

        def sending(number: int) -> PerfProducer:
            self._made[number] = made = _Sending(make_producer(number), self, number)
            return made

        self.producing = ProduceRun(
            settings,
            sending,
            lambda number: SizedLetters(topic.record_size, many=many_values, seed=number),
            new_loop=new_loop,
        )
        self.warmup = np.array([worker.warmup for worker in self.producing.workers], np.int64)
        self.checks = [GroupCheck(topic.producers) for _ in range(topic.groups)]
        self.readings = [
            _Reading(self, check, make_reader(list(range(number, partitions, topic.consumers))))
            for check in self.checks
            for number in range(topic.consumers)
        ]

    def produce(self) -> None:
        """Send everything and wait for the answers. Raises what ``ProduceRun.run`` raises."""
        try:
            self.producing.run()
        finally:
            self.produced_ns = now_ns()

    def interrupt(self) -> None:
        """Send nothing more. Called again: wait for nothing."""
        if self.producing.interrupted:
            self.abandoned = True
        self.producing.interrupt()

    def lost(self, check: GroupCheck) -> int:
        """Return how many acknowledged records this group has not read."""
        failed = [self._made[number].failed for number in range(self.topic.producers)]
        arrays = [np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in failed]
        return check.lost(self.producing.total_acked(), arrays)

    def published(self) -> Figures:
        """Return latencies from the intended instants to the answers, after the warm-up."""
        tally = self.producing.steady() or self.producing.total()
        return Figures(tally.intended, tally.value_bytes, tally.begin_ns, tally.end_ns)

    def read(self) -> Figures:
        """Return latencies from the intended instants to the consumers, after the warm-up."""
        total = Figures(begin_ns=self.published().begin_ns)
        for reading in self.readings:
            total.add(reading.figures)
        total.end_ns = max((reading.figures.end_ns for reading in self.readings), default=0)
        return total

    def findings(self) -> dict[str, int]:
        """Return what must not happen to a record, or not always, and to how many it did; of all
        groups.
        """
        return {
            "failed": self.producing.total().failed,
            "unanswered": self.producing.unanswered,
            "lost": sum(map(self.lost, self.checks)),
            "doubled": sum(check.doubled for check in self.checks),
            "reordered": sum(check.reordered for check in self.checks),
            "foreign": sum(check.foreign for check in self.checks),
        }

    def last_error(self) -> str:
        """Return what a consumer complained of last, or nothing."""
        return next(
            (text for reading in self.readings if (text := reading.reader.last_error())), ""
        )
