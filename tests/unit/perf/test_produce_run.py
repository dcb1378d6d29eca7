"""A run of producers over a client that answers on demand: what is counted, when, and from
which instant.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from batchval.perf.clients.own_producer import Pause
from batchval.perf.histogram import Histogram, now_ns
from batchval.perf.payloads import FilePayloads, Letters, Monotonic, PayloadError, parts_of
from batchval.perf.produce import OnBatch, OnWire, ProduceError, ProduceRun, ProduceSettings
from batchval.perf.producer_lines import Window
from batchval.perf.schedules import SendTimes
from batchval.perf.tally import ClientRoundTrips
from tests.support.proxy import eventually


class Client:
    """Takes up to ``capacity`` records at once, answers ``delay`` seconds later; stalls in its
    thread once.
    """

    def __init__(
        self,
        *,
        capacity: int = 10_000,
        delay: float = 0.0,
        fail: int = 0,
        stall: tuple[int, float] = (-1, 0),
    ) -> None:
        self.most, self.delay, self.fail, self.stall = capacity, delay, fail, stall
        self.waiting_batches: list[tuple[float, array[int], int]] = []
        self.values: list[bytes] = []
        self.events: list[str] = []
        self.closed = False

    partitions = 1

    async def open(self, on_batch: OnBatch, on_wire: OnWire) -> None:
        self.on_batch, self.on_wire = on_batch, on_wire

    def send(self, values: Any, stamps: Any) -> int:
        free = self.most - sum(len(stamps) for _, stamps, _ in self.waiting_batches)
        taken = min(free, len(stamps))
        if taken:
            accepted = [values] * taken if isinstance(values, bytes) else list(values[:taken])
            before = len(self.values)
            self.values += accepted
            if before <= self.stall[0] < len(self.values):
                time.sleep(self.stall[1])
            self.waiting_batches.append(
                (time.monotonic() + self.delay, array("q", stamps[:taken]), sum(map(len, accepted)))
            )
            self.events.append("send")
        return taken

    def answer(self) -> None:
        while self.waiting_batches and self.waiting_batches[0][0] <= time.monotonic():
            _, stamps, size = self.waiting_batches.pop(0)
            bad = stamps[: min(self.fail, len(stamps))]
            self.fail -= len(bad)
            if bad:
                self.on_batch(bad, "NOT_LEADER", 0, None)
            if len(stamps) > len(bad):
                self.on_batch(
                    stamps[len(bad) :],
                    None,
                    size * (len(stamps) - len(bad)) // len(stamps),
                    size + 61,
                )

    async def wait_for_space(self) -> None:
        await self.pause(0.001)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.answer()

    async def flush(self) -> None:
        while self.waiting_batches:
            await self.pause(0.001)
        self.events.append("drained")

    async def begin(self) -> None:
        self.events.append("begin")

    async def commit(self) -> None:
        await self.flush()
        self.events.append("commit")

    async def close(self) -> None:
        self.closed = True

    def in_flight(self) -> tuple[Mapping[int, int], int, bool]:
        return {1: 3, 2: 5}, 7, False

    def waiting(self) -> int:
        return len(self.waiting_batches)

    def round_trips(self) -> ClientRoundTrips | None:
        return None

    def metrics(self) -> Mapping[str, float | str]:
        return {}


def go(client: Client | list[Client], size: int = 100, **settings: Any) -> ProduceRun:
    clients = client if isinstance(client, list) else [client]
    settings = {"num_records": 1000, "threads": len(clients)} | settings
    run = ProduceRun(
        ProduceSettings(**settings),
        lambda n: clients[n],
        lambda n: Letters(size, many=False, seed=n),
    )
    run.run()
    assert all(client.closed for client in clients)
    return run


def test_every_record_is_counted_once() -> None:
    client = Client(capacity=300, delay=0.002)
    run = go(client)
    total = run.total()
    assert (total.acked, total.failed, total.latencies.count, run.unanswered) == (1000, 0, 1000, 0)
    assert total.value_bytes == 100_000
    assert total.wire_bytes is not None
    assert total.wire_bytes > total.value_bytes
    assert len(client.values) == 1000
    assert total.latencies.min >= 2000
    assert total.latencies.max <= total.elapsed_ns // 1000 + 1
    assert run.steady() is None
    assert run.in_flight() == ({1: 3, 2: 5}, 7, False)


class Full(Client):
    """Takes no more records and answers none, as with a broker that is gone."""

    async def wait_for_space(self) -> None:
        self.events.append("waits")
        await asyncio.sleep(600)

    async def flush(self) -> None:
        await asyncio.sleep(600)


def test_an_interruption_ends_the_wait_for_the_buffer_and_a_second_one_that_for_answers() -> None:
    client = Full(capacity=10)
    run = ProduceRun(
        ProduceSettings(num_records=1000, threads=1, transaction_duration_ms=60_000),
        lambda _: client,
        lambda n: Letters(100, many=False, seed=n),
    )

    def interrupt() -> None:
        eventually(lambda: "waits" in client.events)
        run.interrupt()
        run.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    run.run()
    thread.join()
    assert client.closed
    assert client.events == ["begin", "send", "waits"]
    assert run.total().acked == 0


def test_failed_sends_are_counted_without_a_latency() -> None:
    total = go(Client(fail=17)).total()
    assert (total.acked, total.failed, total.latencies.count) == (983, 17, 983)
    assert dict(total.errors) == {"NOT_LEADER": 17}


def test_a_records_wait_for_the_buffer_is_in_its_latency() -> None:
    """One record fits, each answer takes 20 ms: the next waits with its stamp, those after it have
    none yet.
    """
    total = go(Client(capacity=1, delay=0.02), num_records=6).total()
    assert total.latencies.max >= 40_000 - 1000
    # two are under way at a time; stamped at the beginning, all six would sum up to 3.5 runs
    assert total.latencies.sum <= 2 * total.elapsed_ns / 1000 + 6


def test_the_steady_state_begins_when_the_warm_up_is_answered() -> None:
    client = Client(delay=0.2)
    run = go(client, num_records=300, warmup_records=100)
    steady, total = run.steady(), run.total()
    assert steady is not None
    assert (steady.acked, total.acked) == (200, 300)
    assert client.events.index("drained") == client.events[
        : client.events.index("drained") + 1
    ].count("send")
    assert steady.begin_ns >= total.begin_ns + 200_000_000
    assert steady.elapsed_ns < total.elapsed_ns - 190_000_000
    assert total.latencies.count == 300


def test_the_headline_is_the_latency_from_the_intended_time_where_there_is_a_schedule() -> None:
    scheduled = go(Client(stall=(20, 0.1)), num_records=60, throughput=400).total()
    assert scheduled.headline is scheduled.intended
    found = scheduled.as_json()
    assert (found["latency_from"], found["avg_us"]) == ("intended", scheduled.intended.mean)
    assert found["from_send"]["avg_us"] == scheduled.latencies.mean < found["avg_us"]
    at_will = go(Client()).total()
    assert at_will.headline is at_will.latencies
    assert at_will.as_json()["latency_from"] == "send"
    assert "from_send" not in at_will.as_json()


def test_times_on_the_wire_are_counted_by_part() -> None:
    class Wired(Client):
        def send(self, values: Any, stamps: Any) -> int:
            self.on_wire(1_000_999, 1_151_000)
            return super().send(values, stamps)

    run = go(Wired(), num_records=40, warmup_records=10)
    steady = run.steady()
    assert steady is not None
    assert (steady.wire.min, steady.wire.max) == (151, 151)
    assert 0 < steady.wire.count < run.total().wire.count
    assert run.total().as_json()["on_the_wire"]["requests"] == run.total().wire.count
    assert "on_the_wire" not in go(Client()).total().as_json()


def test_the_rate_from_the_first_send_to_the_last_leaves_out_the_wait_for_answers() -> None:
    total = go(Client(delay=0.3), num_records=101, throughput=1000).total()
    assert total.sent_per_second is not None
    assert total.sent_per_second == 100 * 1e9 / total.sending_ns
    # the first one may be late, the last one not early
    assert total.last_sent_ns - total.begin_ns >= 99_000_000
    assert 0 < total.sending_ns <= total.elapsed_ns - 290_000_000
    assert go(Client(), num_records=1).total().sent_per_second is None


@pytest.mark.alone
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_pause_ends_at_its_instant(is_alone: bool) -> None:
    """A timer of a loop, which counts whole milliseconds, would be late by 700 µs each time."""
    waits = (0, 30_000, 300_000, 1_300_000, 5_300_000)

    async def late() -> list[list[int]]:
        pause = Pause(is_alone=is_alone)
        found: list[list[int]] = [[] for _ in waits]
        try:
            for _ in range(20):
                for wait, times in zip(waits, found, strict=True):
                    instant = now_ns() + wait
                    await pause.until(instant)
                    times.append(now_ns() - instant)
        finally:
            pause.close()
        return found

    for times in asyncio.run(late()):
        assert min(times) >= 0
        assert min(times) < 300_000


def test_latency_from_the_intended_time_shows_what_a_late_sender_hides() -> None:
    """The client stalls 300 ms in its thread: those sent late have a short latency, from their
    stamp alone.
    """
    run = go(Client(stall=(20, 0.3)), num_records=200, throughput=400)
    total = run.total()
    assert (total.latencies.count, total.intended.count) == (200, 200)
    assert total.intended.max >= 280_000
    # about 120 records were late by 150 ms in the mean, of which their own stamps know nothing but
    # for one chunk's
    assert total.intended.sum - total.latencies.sum >= 60 * 100_000
    assert total.latencies.percentile(50) < total.intended.percentile(50) + 1


@pytest.mark.alone
def test_a_schedule_is_kept() -> None:
    begin = time.monotonic()
    run = go([Client(), Client()], num_records=400, throughput=800)
    assert time.monotonic() - begin >= 0.45
    assert run.total().acked == 400
    assert sum(worker.sent for worker in run.workers) == 400


def test_threads_share_the_records_and_their_histograms_are_added() -> None:
    clients = [Client() for _ in range(3)]
    run = go(clients, num_records=1000, warmup_records=2)
    assert [len(client.values) for client in clients] == [334, 333, 333]
    assert run.total().latencies.count == 1000
    merged = Histogram()
    for worker in run.workers:
        for part in worker.parts:
            merged.merge(part.latencies)
    assert merged == run.total().latencies


@pytest.mark.alone
def test_a_duration_ends_a_run() -> None:
    begin = time.monotonic()
    run = go(Client(), num_records=None, duration_s=0.3, throughput=1000)
    assert 0.3 <= time.monotonic() - begin < 10
    assert run.total().acked == len(run.workers[0].client.values) > 0  # type: ignore[attr-defined]


@pytest.mark.alone
def test_transactions_are_committed_each_duration_and_at_the_end() -> None:
    client = Client()
    go(client, num_records=200, throughput=400, transaction_duration_ms=100)
    marks = [event for event in client.events if event in {"begin", "commit"}]
    assert marks == ["begin", "commit"] * (len(marks) // 2)
    assert 3 <= len(marks) // 2 <= 7
    assert client.events[-1] == "commit"


@pytest.mark.parametrize("step_us", [900, 1000, 1100, 1200])
def test_a_transaction_begins_only_after_the_last_one_is_committed(
    step_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that moves with each look at it: a duration's end falls between any two looks."""
    ticks = itertools.count(0, step_us * 1000)
    monkeypatch.setattr("batchval.perf.produce.now_ns", lambda: next(ticks))
    client = Client(capacity=100_000)
    go(client, 1, num_records=50_000, transaction_duration_ms=10, measure=False)
    marks = [event for event in client.events if event in {"begin", "commit"}]
    looks = -(-10_000 // (2 * step_us))  # that a transaction takes: two each time records were sent
    assert marks == ["begin", "commit"] * (client.events.count("send") // looks + 1)
    assert client.events[-1] == "commit"


@pytest.mark.alone
def test_intervals_add_up_to_the_total() -> None:
    class Watched(Client):
        highest = 0

        def waiting(self) -> int:
            self.highest = max(self.highest, super().waiting())
            return super().waiting()

    windows: list[Window] = []
    rows: list[Mapping[str, Any]] = []

    def interval(window: Window, row: Mapping[str, Any]) -> None:
        windows.append(window)
        rows.append(row)

    client = Watched()
    run = ProduceRun(
        ProduceSettings(num_records=600, throughput=1000, reporting_interval_ms=50),
        lambda n: client,
        lambda n: Letters(10, many=False),
        interval,
    )
    run.run()
    assert len(windows) >= 3
    assert sum(row["records"] for row in run.intervals) == 600
    assert sum(row["bytes"] for row in run.intervals) == 6000
    assert sum(row["sum_us"] for row in run.intervals) == run.total().headline.sum
    assert max(row["max_us"] for row in run.intervals) == run.total().headline.max
    assert rows == run.intervals[: len(rows)]
    for row in rows:
        latencies = row["latency_us"]
        assert list(latencies) == ["stddev", "50", "75", "95", "99", "99.9"]
        assert 0 <= latencies["50"] <= latencies["99"] <= latencies["99.9"] <= row["max_us"]
    assert max(row["in_flight"] for row in run.intervals) == client.highest >= 1


class Held(Client):
    """Answers once it is released, or after a minute, which fails a test."""

    is_released = False
    end = math.inf

    async def open(self, on_batch: OnBatch, on_wire: OnWire) -> None:
        await super().open(on_batch, on_wire)
        self.end = time.monotonic() + 60

    def answer(self) -> None:
        if self.is_released or time.monotonic() > self.end:
            super().answer()


def test_an_interval_without_a_send_counts_what_waits() -> None:
    # an interval that ends before the batch is sent, or before the worker counts, has none: the
    # answer comes once three intervals had one, however slow the machine is
    client = Held()
    waiting = []

    def count(window: Window, row: Mapping[str, Any]) -> None:
        if not window.records and row["in_flight"]:
            waiting.append(row["in_flight"])
        client.is_released = len(waiting) >= 3

    run = ProduceRun(
        ProduceSettings(num_records=1, reporting_interval_ms=50),
        lambda n: client,
        lambda n: Letters(10, many=False),
        on_interval=count,
    )
    run.run()
    assert client.is_released
    assert set(waiting) == {1}
    assert max(row["in_flight"] for row in run.intervals) == 1


def test_what_a_client_cannot_open_ends_all_threads() -> None:
    class Closed(Client):
        async def open(self, on_batch: OnBatch, on_wire: OnWire) -> None:
            raise ProduceError("no broker answers")

    with pytest.raises(ProduceError, match="no broker"):
        go([Client(), Closed(), Client()])


def test_without_measuring_nothing_is_measured_and_all_is_counted() -> None:
    total = go(Client(), measure=False).total()
    assert (total.acked, total.latencies.count) == (1000, 0)


def test_instants_of_sending_are_kept_until_they_are_asked_for() -> None:
    times = SendTimes()
    times.put(0, 10_000, 5)
    times.put(4090, 10, 6)  # before they were sent they were stamped anew
    import numpy as np

    assert times.take(np.arange(4085, 4105)).tolist() == [5] * 5 + [6] * 10 + [5] * 5
    assert set(times.take(np.concatenate([np.arange(4085), np.arange(4105, 10_000)])).tolist()) == {
        5
    }
    assert list(times._blocks) == [2]  # the last one is not full yet


def test_payloads(tmp_path: Path) -> None:
    one = Letters(50, many=False).values(0, 7)
    assert isinstance(one, bytes)
    assert len(one) == 50
    assert one.isalpha()
    assert one.isupper()
    many = Letters(50, many=True, seed=1)
    assert many.values(1020, 10) == [*many.values(1020, 4), *many.values(0, 6)]
    assert len(set(many.values(0, 1024))) == 1024
    assert (
        Letters(50, many=True, seed=1).values(3, 2)
        == many.values(3, 2)
        != Letters(50, many=True).values(3, 2)
    )
    assert [Monotonic(thread, 3).values(1, 2) for thread in range(3)] == [
        [b"3", b"6"],
        [b"4", b"7"],
        [b"5", b"8"],
    ]
    file = tmp_path / "payloads"
    file.write_bytes(b"a\nbb\n\nccc\n\n")
    assert parts_of(file, "\\n") == [b"a", b"bb", b"", b"ccc"]
    payloads = FilePayloads(parts_of(file, "\\n"))
    assert set(payloads.values(0, 1000)) == {b"a", b"bb", b"", b"ccc"}
    assert payloads.largest == 3
    for bad, text in ((b"", "\\n"), (b"\n\n", "\\n"), (b"a", "(")):
        file.write_bytes(bad)
        with pytest.raises(PayloadError):
            parts_of(file, text)


def test_the_clock_of_a_run_is_the_histograms() -> None:
    before = now_ns()
    run = go(Client(), num_records=1)
    assert before <= run.begin_ns <= run.total().end_ns <= now_ns()
