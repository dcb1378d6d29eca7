"""A run of perf roundtrip over a log in memory that loses, doubles and reorders."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from batchval.perf.consume import ConsumeError
from batchval.perf.produce import OnBatch, OnWire, ProduceError
from batchval.perf.producer_lines import Window
from batchval.perf.roundtrip import Clients, RoundtripRun
from batchval.perf.workload import Topic, Workload, workload_of

Fault = Callable[[int, bytes], list[bytes]]


class Log:
    """One topic's partitions. ``fault`` makes of each value those that are stored."""

    def __init__(self, partitions: int = 1, fault: Fault | None = None) -> None:
        self.parts: list[list[bytes]] = [[b"before"] for _ in range(partitions)]
        self.fault = fault or (lambda number, value: [value])
        self.readers_open = 0
        self.wrote_without_readers = False
        self.lock = threading.Lock()


class Producer:
    """Writes at once, and answers ``fail`` of the first records with an error."""

    def __init__(
        self,
        log: Log,
        readers: int,
        fail: int = 0,
        store_failed: bool = False,
        broken: bool = False,
    ) -> None:
        self.log, self.readers, self.fail, self.store_failed, self.broken = (
            log,
            readers,
            fail,
            store_failed,
            broken,
        )
        self.partitions = len(log.parts)

    async def open(self, on_batch: OnBatch, on_wire: OnWire) -> None:
        if self.broken:
            raise ProduceError("no broker")
        self.on_batch = on_batch

    def send(self, values: Any, stamps: Any) -> int:
        log = self.log
        with log.lock:
            log.wrote_without_readers |= log.readers_open < self.readers
            for number, value in zip(stamps, values, strict=True):
                failed = number < self.fail
                if not failed or self.store_failed:
                    log.parts[number % len(log.parts)] += log.fault(number, value)
                self.on_batch(
                    np.array([number], np.int64), "OH_NO" if failed else None, len(value), None
                )
        return len(stamps)

    async def wait_for_space(self) -> None:
        raise AssertionError

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def flush(self) -> None:
        pass

    async def begin(self) -> None:
        raise AssertionError

    async def commit(self) -> None:
        raise AssertionError

    async def close(self) -> None:
        pass

    def in_flight(self) -> tuple[Mapping[int, int], int, bool]:
        return {}, 0, False

    def waiting(self) -> int:
        return 0

    def round_trips(self) -> None:
        return None

    def metrics(self) -> Mapping[str, float | str]:
        return {}


class Reader:
    """Reads from the ends on, as they were when it was opened."""

    def __init__(self, log: Log, partitions: list[int], error: ConsumeError | None = None) -> None:
        self.log, self.partitions, self.error = log, partitions, error
        self.closed = False

    def open(self) -> None:
        time.sleep(0.02)
        with self.log.lock:
            self.positions = {number: len(self.log.parts[number]) for number in self.partitions}
            self.log.readers_open += 1

    def poll(self, timeout_ms: int) -> list[tuple[int, list[bytes | None]]]:
        if self.error is not None:
            raise self.error
        came: list[tuple[int, list[bytes | None]]] = []
        with self.log.lock:
            for number in self.partitions:
                values = self.log.parts[number][self.positions[number] :]
                self.positions[number] += len(values)
                if values:
                    came.append((number, list(values)))
        if not came:
            time.sleep(0.001)
        return came

    def at_end(self) -> bool:
        with self.log.lock:
            return all(at == len(self.log.parts[number]) for number, at in self.positions.items())

    def last_error(self) -> str:
        return ""

    def close(self) -> None:
        self.closed = True


def workload(**topic: Any) -> Workload:
    values = {"name": "t", "rate": 2000, "record_size": [40, 50]} | topic
    return workload_of({"duration_s": 0.1, "topics": [values]}, {}, own_client=True)


def made(
    asked: Workload,
    log: Log,
    *,
    partitions: int = 1,
    error: ConsumeError | None = None,
    **producer: Any,
) -> RoundtripRun:
    (topic,) = asked.topics

    def make(_: Topic, number: int) -> Producer:
        return Producer(log, topic.groups * topic.consumers, **producer)

    def read(_: Topic, part: list[int]) -> Reader:
        return Reader(log, part, error)

    clients = Clients(make, read, asyncio.new_event_loop)
    return RoundtripRun(asked, {"t": partitions}, clients, timeout_ms=100)


def ran(run: RoundtripRun) -> dict[str, int]:
    run.run()
    (topic,) = run.topics
    return {name: count for name, count in topic.findings().items() if count}


def test_every_record_is_read_by_each_group() -> None:
    log = Log(4)
    run = made(workload(producers=3, groups=2, consumers=2), log, partitions=4)
    assert ran(run) == {}
    assert not log.wrote_without_readers
    assert (run.published().histogram.count, run.read().histogram.count) == (200, 400)
    assert run.published().value_bytes == sum(
        len(value) for part in log.parts for value in part[1:]
    )
    assert run.read().value_bytes == 2 * run.published().value_bytes
    assert run.read().histogram.min >= run.published().histogram.min >= 0
    assert 0 < run.published().elapsed_ns <= run.read().elapsed_ns
    readers: list[Any] = [reading.reader for topic in run.topics for reading in topic.readings]
    assert all(reader.closed for reader in readers)


def test_the_warm_up_is_sent_and_read_and_not_counted() -> None:
    asked = workload_of(
        {
            "duration_s": 0.05,
            "warmup_s": 0.05,
            "topics": [{"name": "t", "rate": 2000, "record_size": 28}],
        },
        {},
        own_client=True,
    )
    log = Log()
    run = made(asked, log)
    assert ran(run) == {}
    assert len(log.parts[0]) == 201
    assert (run.published().histogram.count, run.read().histogram.count) == (100, 100)
    assert run.topics[0].checks[0].read == 200


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (lambda number, value: [] if number in (7, 8, 199) else [value], {"lost": 3}),
        (lambda number, value: [value, value] if number % 50 == 0 else [value], {"doubled": 4}),
        (lambda number, value: [value, b"other"] if number == 3 else [value], {"foreign": 1}),
        # a number that no record of the run has
        (
            lambda number, value: [value, *[value[:12] + b"\xff" * 8 + value[20:]] * (number == 3)],
            {"foreign": 1},
        ),
    ],
)
def test_lost_doubled_and_foreign_records_are_counted(fault: Fault, found: dict[str, int]) -> None:
    run = made(workload(), Log(1, fault))
    assert ran(run) == found
    assert run.read().histogram.count == 200 - found.get("lost", 0)


def test_reordered_records_are_counted() -> None:
    late: list[bytes] = []

    def fault(number: int, value: bytes) -> list[bytes]:
        if number == 100:
            late.append(value)
            return []
        return [value, *late] if number == 101 else [value]

    assert ran(made(workload(), Log(1, fault))) == {"reordered": 1}


@pytest.mark.parametrize("stored", [False, True])
def test_records_that_failed_are_not_lost_whether_stored_or_not(stored: bool) -> None:
    run = made(workload(producers=2), Log(), fail=5, store_failed=stored)
    assert ran(run) == {"failed": 10}
    assert run.published().histogram.count == 190
    assert run.read().histogram.count == (200 if stored else 190)


def test_a_producer_that_cannot_be_opened_ends_the_run_with_its_reason() -> None:
    log = Log()
    run = made(workload(), log, broken=True)
    with pytest.raises(ProduceError, match="no broker"):
        run.run()
    assert run.begin_ns == 0


def test_a_consumer_that_fails_ends_the_run_with_its_reason() -> None:
    asked = workload_of(
        {"duration_s": 1000, "topics": [{"name": "t", "rate": 100, "record_size": 28}]},
        {},
        own_client=True,
    )
    run = made(asked, Log(), error=ConsumeError("refused"))
    with pytest.raises(ConsumeError, match="refused"):
        run.run()
    assert run.topics[0].producing.interrupted


def test_an_interruption_ends_the_schedule_and_what_was_sent_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = workload_of(
        {"duration_s": 1000, "topics": [{"name": "t", "rate": 1000, "record_size": 28}]},
        {},
        own_client=True,
    )
    log = Log()
    run = made(asked, log)
    sleep, main = time.sleep, threading.current_thread()

    def interrupted(seconds: float) -> None:
        if threading.current_thread() is main and len(log.parts[0]) > 10 and not run.interrupted:
            raise KeyboardInterrupt
        sleep(seconds)

    monkeypatch.setattr("batchval.perf.roundtrip.time.sleep", interrupted)
    assert ran(run) == {}
    assert run.interrupted
    assert run.read().histogram.count == len(log.parts[0]) - 1 > 9


def test_intervals_add_up_to_the_records_read() -> None:
    seen: list[Window] = []
    asked = workload()
    log = Log()
    clients = Clients(
        lambda topic, n: Producer(log, 1),
        lambda topic, part: Reader(log, part),
        asyncio.new_event_loop,
    )
    run = RoundtripRun(
        asked, {"t": 1}, clients, timeout_ms=100, reporting_interval_ms=30, on_interval=seen.append
    )
    assert ran(run) == {}
    assert sum(row["records"] for row in run.intervals) == 200
    assert sum(row["bytes"] for row in run.intervals) == run.read().value_bytes
    assert 0 < len(seen) <= len(run.intervals)
