"""The rules of a run, each with a scripted clock and clients."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection, Mapping

import pytest

from batchval.perf.consume import (
    ConsumeError,
    ConsumeRun,
    Outcome,
    Polled,
    RunOptions,
    Shared,
    Worker,
)
from batchval.perf.consumer_lines import Interval

MS = 1_000_000
WALL = 1_795_177_423_430
BOTH = [("t", 0), ("t", 1)]


class FakeClock:
    """Stands still but for ``pass_ms``."""

    def __init__(self) -> None:
        self.now_ns = 5_000 * MS

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return WALL

    def pass_ms(self, ms: float) -> None:
        self.now_ns += int(ms * MS)


class FakeConsumer:
    """Each poll takes the next of ``plan``: (how long it takes, records, bytes); then empty ones of
    the whole wait.
    """

    def __init__(self, clock: FakeClock, plan: Collection[tuple[float, int, int]] = ()) -> None:
        self.clock = clock
        self.plan = list(plan)
        self.has: list[tuple[str, int]] | None = None
        self.going = False
        self.joined_ms = 0.0
        self.asked: list[int] = []
        self.closed = False

    def subscribe(self) -> None:
        pass

    def poll(self, timeout_ms: int, most: int) -> Polled:
        if not self.going:
            self.clock.pass_ms(timeout_ms)
            return Polled(0, 0)
        self.asked.append(most)
        ms, records, nbytes = self.plan.pop(0) if self.plan else (timeout_ms, 0, 0)
        self.clock.pass_ms(ms)
        return Polled(records, nbytes)

    def assignment(self) -> list[tuple[str, int]] | None:
        return self.has

    def go(self) -> None:
        self.going = True

    def rebalance_ms(self) -> float:
        return self.joined_ms

    def metrics(self) -> Mapping[str, float | str]:
        return {"polls": len(self.asked)}

    def close(self) -> None:
        self.closed = True


class Bench:
    """Workers without threads: who steps next is for the test to say."""

    def __init__(
        self,
        threads: int,
        plans: list[list[tuple[float, int, int]]],
        num_records: int,
        **options: int,
    ) -> None:
        self.clock = FakeClock()
        self.parts: list[Interval] = []
        partitions = [("t", i) for i in range(threads)]
        run = RunOptions(num_records, threads, **options)
        self.shared = Shared(run, partitions, self.clock)  # type: ignore[arg-type]
        self.consumers = [FakeConsumer(self.clock, plan) for plan in plans]
        self.workers = [
            Worker(i, c, self.shared, self.parts.append) for i, c in enumerate(self.consumers)
        ]

    def start(self) -> None:
        for i, consumer in enumerate(self.consumers):
            consumer.has = [("t", i)]
            assert self.workers[i].step()
        for worker, consumer in zip(self.workers, self.consumers, strict=True):
            if not consumer.going:
                assert worker.step()

    def to_the_end(self, i: int = 0) -> None:
        for _ in range(100_000):
            if not self.workers[i].step():
                self.workers[i].finish()
                return
        raise AssertionError("a thread without end")


def test_fetching_starts_at_the_last_assignment() -> None:
    bench = Bench(2, [[], []], 10)
    first, second = bench.consumers
    first.has = [("t", 0), ("t", 1)]  # alone in the group, it gets all
    bench.workers[0].step()
    assert bench.shared.assigned_ns is None
    assert not first.going
    second.has = [
        ("t", 1)
    ]  # the second has come, the first does not know yet: partition 1 is assigned twice
    bench.workers[1].step()
    assert bench.shared.assigned_ns is None
    first.has = [("t", 0)]
    bench.workers[0].step()
    assert bench.shared.assigned_ns == bench.clock.now_ns
    assert first.going
    assert not second.going
    bench.workers[1].step()
    assert second.going


def test_a_thread_that_thinks_again_holds_the_start() -> None:
    bench = Bench(2, [[], []], 10)
    bench.consumers[0].has = [("t", 0)]
    bench.workers[0].step()
    bench.consumers[0].has = None
    bench.workers[0].step()
    bench.consumers[1].has = [("t", 1)]
    bench.workers[1].step()
    assert bench.shared.assigned_ns is None


def test_partitions_with_members_elsewhere_are_not_waited_for_without_end() -> None:
    bench = Bench(2, [[], []], 10)
    bench.consumers[0].has, bench.consumers[1].has = [("t", 0)], []
    began = bench.clock.now_ns
    while bench.shared.assigned_ns is None:
        for worker in bench.workers:
            worker.step()
    assert 3_000 * MS <= bench.shared.assigned_ns - began < 3_100 * MS


def test_a_group_without_end_is_an_error() -> None:
    bench = Bench(1, [[]], 10, join_timeout_ms=60_000)
    with pytest.raises(ConsumeError, match="did not assign all partitions within 60000 ms"):
        bench.to_the_end()
    assert bench.clock.now_ns - 5_000 * MS <= 60_100 * MS


def test_the_number_is_the_total_over_all_threads_and_is_exact() -> None:
    """Both polls of the end were asked for more than is wanted when they come back."""
    bench = Bench(2, [[(10, 40, 400)] * 9, [(10, 40, 400)] * 9], 100)
    bench.start()
    running = [0, 1]
    while running:
        for i in list(running):
            if not bench.workers[i].step():
                running.remove(i)
    assert bench.shared.totals() == (100, 1000)
    assert [(w.records, w.bytes) for w in bench.workers] == [(60, 600), (40, 400)]
    assert [c.asked for c in bench.consumers] == [[100, 20], [60]]  # what is still wanted


def test_of_a_poll_that_brings_too_much_what_is_wanted_counts() -> None:
    bench = Bench(2, [[(10, 7_000, 70_001)], [(20, 9_000, 18_000)]], 10_000)
    bench.start()
    for worker in bench.workers:
        worker._fetch()
    assert [(w.records, w.bytes) for w in bench.workers] == [(7_000, 70_001), (3_000, 6_000)]
    assert bench.shared.add(Polled(5, 50), 0) == Polled(0, 0)  # it was under way
    assert bench.shared.totals() == (10_000, 76_001)
    assert not any(worker.step() for worker in bench.workers)


def test_a_thread_without_records_stays_until_all_have_none() -> None:
    """Nothing is committed: all partitions would be read again from the start."""
    bench = Bench(2, [[(10, 1, 1)], [(10, 1, 1)] * 200], 10_000, timeout_ms=1_000)
    bench.start()
    for _ in range(200):
        assert all(worker.step() for worker in bench.workers)
    assert not any(worker.timed_out for worker in bench.workers)
    last = bench.clock.now_ns
    going = list(bench.workers)
    while going:
        going = [worker for worker in going if worker.step()]
    assert all(worker.timed_out for worker in bench.workers)
    assert 1_000 * MS < bench.clock.now_ns - last <= 1_300 * MS  # 100 ms a poll, by turns
    assert bench.shared.totals()[0] == 201


def test_records_put_the_timeout_off() -> None:
    bench = Bench(
        1, [[(900, 1, 1), (900, 0, 0), (90, 1, 1), (900, 0, 0), (90, 1, 1)]], 3, timeout_ms=1_000
    )
    bench.start()
    bench.to_the_end()
    assert bench.shared.records == 3
    assert not bench.workers[0].timed_out


def test_rows_are_cumulative_and_their_rates_are_of_the_interval() -> None:
    bench = Bench(1, [[(400, 100, 1000)] * 6], 600, reporting_interval_ms=1_000)
    bench.start()
    bench.to_the_end()
    assert [
        (p.records, p.new_records, p.bytes, p.new_bytes, p.elapsed_ms) for p in bench.parts
    ] == [
        (300, 300, 3000, 3000, 1210),
        (600, 300, 6000, 3000, 1200),
    ]
    assert [p.at_ms - WALL for p in bench.parts] == [1210, 2410]  # 10 ms of joining
    assert [p.rebalance_ms for p in bench.parts] == [10, 0]


def test_what_came_since_the_last_row_is_not_lost() -> None:
    bench = Bench(1, [[(400, 100, 1000)] * 4], 400, reporting_interval_ms=1_000)
    bench.start()
    bench.to_the_end()
    assert [(p.records, p.new_records, p.elapsed_ms) for p in bench.parts] == [
        (300, 300, 1210),
        (400, 100, 400),
    ]


def test_a_rebalance_in_an_interval_is_a_duration() -> None:
    bench = Bench(
        1, [[(500, 1, 1), (500, 1, 1), (500, 1, 1), (500, 1, 1)]], 4, reporting_interval_ms=1_000
    )
    bench.consumers[0].joined_ms = 700.0  # before the clock
    bench.start()
    bench.workers[0].step()
    bench.consumers[0].joined_ms = 950.0
    bench.to_the_end()
    assert [p.rebalance_ms for p in bench.parts] == [10 + 250, 0]  # joining, and the later one
    assert bench.workers[0].rebalanced_ms == 250.0
    elapsed = bench.clock.now_ns // MS - bench.shared.start_ns // MS
    assert sum(part.elapsed_ms for part in bench.parts) == elapsed == 2010


class Threaded(FakeConsumer):
    """For real threads: has its partition at once, and takes a moment for each poll."""

    def __init__(
        self, clock: FakeClock, i: int, plan: Collection[tuple[float, int, int]], joined_ms: float
    ) -> None:
        super().__init__(clock, plan)
        self.has = [("t", i)]
        self.joined_ms = joined_ms
        self.rebalances_in_fetch_ms = 0.0

    def rebalance_ms(self) -> float:
        return self.joined_ms + (self.rebalances_in_fetch_ms if self.asked else 0.0)

    def poll(self, timeout_ms: int, most: int) -> Polled:
        time.sleep(0.001)
        return super().poll(timeout_ms, most)


def outcome_of(
    consumers: list[Threaded], clock: FakeClock, num_records: int, **options: int
) -> Outcome:
    run = ConsumeRun(
        RunOptions(num_records, len(consumers), **options),
        consumers.__getitem__,
        [("t", i) for i in range(len(consumers))],
        clock=clock,
    )
    return run.run()


def test_rebalance_and_fetch_time_are_the_run() -> None:
    """KIP-628: the clock starts before the consumers are made. Exact, in whole milliseconds."""
    clock = FakeClock()
    consumers = [Threaded(clock, i, [(100.7, 50, 500)], 300.0) for i in range(2)]
    consumers[1].rebalances_in_fetch_ms = 33.9
    made: list[int] = []

    def make(i: int) -> Threaded:
        clock.pass_ms(400.9)  # what it takes to make one is part of the run
        made.append(i)
        return consumers[i]

    outcome = ConsumeRun(RunOptions(100, 2), make, [("t", 0), ("t", 1)], clock=clock).run()
    summary = outcome.summary
    assert summary is not None
    assert sorted(made) == [0, 1]
    assert summary.rebalance_ms >= 400 + 16  # making them; 33.9 ms, averaged over the threads
    assert summary.start_ms == WALL
    assert (
        summary.rebalance_ms + summary.fetch_ms
        == summary.end_ms - summary.start_ms
        == summary.elapsed_ms
    )
    assert all(
        isinstance(ms, int) for ms in (summary.rebalance_ms, summary.fetch_ms, summary.elapsed_ms)
    )
    assert outcome.assigned_ms - summary.start_ms == summary.rebalance_ms - 16
    assert outcome.elapsed_ns // MS == summary.elapsed_ms
    assert (summary.records, summary.bytes) == (100, 1000)
    assert not outcome.short
    assert outcome.metrics == [{"polls": len(c.asked)} for c in consumers]
    assert all(c.closed for c in consumers)


def test_the_end_is_the_last_record_not_the_last_thread() -> None:
    clock = FakeClock()
    outcome = outcome_of([Threaded(clock, 0, [(70, 10, 10)], 0.0)], clock, 10)
    assert outcome.summary is not None
    assert outcome.summary.fetch_ms == 70


def test_a_short_run_says_so_and_counts_right() -> None:
    clock = FakeClock()
    outcome = outcome_of([Threaded(clock, 0, [(70, 10, 99)], 0.0)], clock, 11, timeout_ms=500)
    assert outcome.short
    assert outcome.timed_out
    assert outcome.summary is not None
    assert (outcome.summary.records, outcome.summary.bytes) == (10, 99)
    assert outcome.summary.elapsed_ms >= 500  # the wait is in it, as in Kafka's


class Failing(Threaded):
    def poll(self, timeout_ms: int, most: int) -> Polled:
        if self.going and not self.plan:
            raise ConsumeError("the broker is gone")
        return super().poll(timeout_ms, most)


def test_an_error_of_one_thread_ends_all_with_right_totals() -> None:
    clock = FakeClock()
    consumers = [Failing(clock, 0, [(10, 7, 70)], 0.0), Threaded(clock, 1, [], 0.0)]
    outcome = outcome_of(consumers, clock, 100, timeout_ms=10**9)
    assert str(outcome.error) == "the broker is gone"
    assert outcome.summary is not None
    assert outcome.summary.records == 7
    assert all(c.closed for c in consumers)


def test_a_mistake_in_a_client_is_not_hidden() -> None:
    class Broken(Threaded):
        def go(self) -> None:
            raise RuntimeError("a mistake")

    clock = FakeClock()
    with pytest.raises(RuntimeError, match="a mistake"):
        outcome_of([Broken(clock, 0, [], 0.0)], clock, 1)


def test_an_interrupt_ends_the_run_and_the_totals_are_right() -> None:
    clock = FakeClock()
    consumers = [Threaded(clock, 0, [(1, 5, 50)] * 3, 0.0)]
    run = ConsumeRun(RunOptions(10**9, 1, 10**9), consumers.__getitem__, [("t", 0)], clock=clock)

    def interrupt(_: object) -> None:
        if not consumers[0].plan:
            raise KeyboardInterrupt

    outcome = run.run(interrupt, sample_ms=1)
    assert outcome.interrupted
    assert outcome.summary is not None
    assert outcome.summary.records == 15
    assert consumers[0].closed


@pytest.mark.alone
def test_an_interrupt_waits_for_every_thread() -> None:
    """Python 3.11 takes a thread for dead whose ``join`` was interrupted."""

    class Slow(Threaded):
        def close(self) -> None:
            time.sleep(0.3)
            super().close()

    clock = FakeClock()
    consumers = [Slow(clock, 0, [], 0.0)]
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        outcome = outcome_of(consumers, clock, 1, timeout_ms=10**9)
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.interrupted
    assert consumers[0].closed


def test_no_record_is_counted_twice_by_threads_that_count_together() -> None:
    clock = FakeClock()
    shared = Shared(RunOptions(10**9, 8), BOTH, clock)  # type: ignore[arg-type]
    threads = [
        threading.Thread(target=lambda: [shared.add(Polled(1, 3), 0) for _ in range(2000)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.totals() == (16_000, 48_000)
