"""The queue of what is validated in threads: which goes first, and what is dropped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from batchval.proxy.produce.validation_queue import AHEAD, MAX_AHEAD, Job, ValidationQueue
from batchval.proxy.settings.options import Counters
from batchval.proxy.watch.senders import KNOWN_AFTER, READ_BYTES, SHORT_S, Sender, Share
from tests.support.network import until


class Verdict:
    cancelled = False
    gate: Gate


class Gate:
    """Validates by a script: ``words`` of each request, which wait for ``open``."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.open: dict[str, threading.Event] = {}
        self.open_heavy: dict[str, threading.Event] = {}  # for its heavy part alone
        self.words: dict[str, list[str]] = {}
        self.heavy: list[tuple[str, bool]] = []
        self.bounded: list[tuple[str, bool]] = []  # of heavy ones

    def work(
        self, request: str, verdict: Verdict, *, heavy: bool, budget_s: float, is_bounded: bool
    ) -> str:
        self.order.append(request)
        self.heavy.append((request, heavy))
        if heavy:
            self.bounded.append((request, is_bounded))
        if heavy and request in self.open_heavy:
            assert self.open_heavy[request].wait(30)
        if request in self.open:
            assert self.open[request].wait(30)
        left = self.words.get(request, [])
        return left.pop(0) if left else "done"


class Request(str):
    """A request, as the queue and the script know it. One that is large waits for a thread."""

    size = MAX_AHEAD + 1


class One:
    """A session of a sender of its own. Known: enough short jobs were done for it."""

    def __init__(self, gate: Gate, used_s: float = 0.0, *, is_known: bool = False) -> None:
        self.gate: Any = gate
        self.account = Sender(f"10.0.0.{id(self)}", Share())
        self.share = Share()
        self.account.is_known = True
        self.account.share.start_s = used_s
        if is_known:
            self.share.jobs = KNOWN_AFTER
        self.done: list[object] = []
        self.errors: list[BaseException] = []

    def job_paused(self) -> None: ...

    def job_done(self, job: Job, error: BaseException | None) -> None:
        self.done.append(job.item)
        if error is not None:
            self.errors.append(error)


def run(
    threads: int, test: Callable[[ValidationQueue, Gate], Coroutine[Any, Any, None]]
) -> Counters:
    counters = Counters()

    async def started() -> None:
        queue = ValidationQueue(threads, counters)
        queue.start(asyncio.get_running_loop())
        gate = Gate()
        try:
            await test(queue, gate)
        finally:
            for event in [*gate.open.values(), *gate.open_heavy.values()]:
                event.set()
            queue.stop()

    asyncio.run(started())
    return counters


def submit(queue: ValidationQueue, one: One, name: str, size: int = MAX_AHEAD + 1) -> Verdict:
    verdict = Verdict()
    verdict.gate = one.gate
    request = Request(name)
    request.size = size
    job = Job(one, name, request, verdict)  # type: ignore[arg-type]
    job.owner = one
    queue.put(job)
    return verdict


def test_who_has_used_least_goes_first() -> None:
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        gate.open["first"] = threading.Event()
        greedy, modest = One(gate, 5.0), One(gate)
        submit(queue, greedy, "first")
        for n in range(3):
            submit(queue, greedy, f"greedy {n}")
        submit(queue, modest, "modest")
        gate.open["first"].set()
        await until(lambda: len(greedy.done) == 4)
        assert gate.order == ["first", "modest", "greedy 0", "greedy 1", "greedy 2"]
        assert modest.done == ["modest"]

    counters = run(1, test)
    assert counters.judged_in_threads_total == 5
    assert counters.judging_cpu_seconds_total > 0


def test_jobs_of_one_session_keep_their_order() -> None:
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        gate.words["0"] = ["more", "more", "heavy", "more"]
        one = One(gate)
        for n in range(4):
            submit(queue, one, str(n))
        await until(lambda: len(one.done) == 4)
        assert gate.order[:3] == ["0", "0", "0"]

    run(1, test)


def test_heavy_jobs_leave_a_thread_free() -> None:
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        heavy = [One(gate) for _ in range(4)]
        for n, one in enumerate(heavy):
            gate.words[f"heavy {n}"] = ["heavy"]
            submit(queue, one, f"heavy {n}")
        await until(lambda: any(is_heavy for _, is_heavy in gate.heavy))
        for n in range(4):
            gate.open[f"heavy {n}"] = threading.Event()
        modest = One(gate)
        submit(queue, modest, "modest")
        await until(lambda: modest.done)
        for event in gate.open.values():
            event.set()
        await until(lambda: all(one.done for one in heavy))

    run(2, test)


def test_what_waits_for_a_client_that_has_left_is_dropped() -> None:
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        gate.open["first"] = threading.Event()
        gone, other = One(gate), One(gate)
        submit(queue, gone, "first").cancelled = True
        submit(queue, gone, "second").cancelled = True
        submit(queue, other, "third")
        submit(queue, gone, "kept")
        gate.words["first"] = ["more"]
        queue.drop(gone)
        assert len(queue) == 2
        gate.open["first"].set()
        await until(lambda: other.done and gone.done)
        assert gate.order[0] == "first"
        assert sorted(gate.order[1:]) == ["kept", "third"]
        assert gone.done == ["kept"]
        assert len(queue) == 0

    run(1, test)


def test_a_session_that_is_known_for_short_jobs_needs_not_wait_for_the_heavy() -> None:
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        heavy = [One(gate) for _ in range(4)]
        for n, one in enumerate(heavy):
            gate.open_heavy[f"heavy {n}"] = threading.Event()
            gate.words[f"heavy {n}"] = ["heavy"]
            submit(queue, one, f"heavy {n}")
        await until(lambda: any(is_heavy for _, is_heavy in gate.heavy))
        slow, known = One(gate, is_known=True), One(gate, is_known=True)
        slow.share.piece_s, slow.share.noted_s = 4 * SHORT_S, queue.senders.clock()
        gate.words["slow"] = ["heavy"]
        submit(queue, slow, "slow")
        gate.words["known"] = ["heavy"]
        submit(queue, known, "known")
        await until(lambda: known.done)
        assert ("known", True) in gate.heavy
        assert not slow.done  # its last pieces were long: it waits for the others
        for event in gate.open_heavy.values():
            event.set()
        await until(lambda: all(one.done for one in [*heavy, slow]))

    run(2, test)


def test_beginnings_of_heavy_jobs_make_no_session_known() -> None:
    # They are short, whatever comes after them: a request of many bombs would take all threads.
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        hostile, other = One(gate), One(gate)
        names = [f"bomb {n}" for n in range(2 * KNOWN_AFTER)]
        for name in names:
            gate.words[name] = ["heavy"]
            gate.open_heavy[name] = threading.Event()
            submit(queue, hostile, name, 1)
        await until(lambda: len(gate.order) > len(names))
        submit(queue, other, "other")
        await until(lambda: other.done)
        assert len(gate.bounded) == 1
        for event in gate.open_heavy.values():
            event.set()
        await until(lambda: len(hostile.done) == len(names))

    run(2, test)


def test_a_session_is_not_known_for_short_jobs_once_one_is_long() -> None:
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        known = One(gate, is_known=True)
        for name in ("short", "long", "next"):
            gate.words[name] = ["heavy"]
        gate.words["long"] = ["heavy", "heavy"]  # it is heavy, and more than a short one may take
        for n, name in enumerate(("short", "long", "next")):
            submit(queue, known, name)
            await until(lambda: len(known.done) > n)  # noqa: B023
        assert gate.bounded == [
            ("short", True),
            ("long", True),
            ("long", False),
            ("next", False),
        ]
        assert not known.share.is_short(queue.senders.clock())

    run(2, test)


def test_a_heavy_job_waits_for_a_free_thread() -> None:
    # A thread takes what waits with it one after the other: nobody could pass a heavy job there.
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        gate.open["first"] = threading.Event()
        gate.words["heavy"] = ["heavy"]
        one, other = One(gate), One(gate)
        submit(queue, one, "heavy", 1)
        await until(lambda: one.done)
        submit(queue, other, "first")
        await until(lambda: gate.order[-1] == "first")
        gate.words["heavy"] = ["heavy"]
        submit(queue, one, "heavy", 1)
        await asyncio.sleep(0.05)
        assert queue._running <= 2
        gate.open["first"].set()
        await until(lambda: len(one.done) == 2)

    run(1, test)


def test_an_error_is_the_session_s() -> None:
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        one = One(gate)
        gate.words["bad"] = [None]  # type: ignore[list-item]
        gate.work = lambda *args, **kwargs: 1 / 0  # type: ignore[method-assign,assignment]
        submit(queue, one, "bad")
        await until(lambda: one.done)
        assert isinstance(one.errors[0], ZeroDivisionError)

    run(1, test)


@pytest.mark.parametrize("threads", [1, 2])
def test_another_thread_takes_the_place_of_one_that_does_not_return(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchval.proxy.produce.validation_queue.STUCK_S", 0.05)
    monkeypatch.setattr("batchval.proxy.produce.validation_queue.LOOK_S", 0.02)

    async def test(queue: ValidationQueue, gate: Gate) -> None:
        stuck = [One(gate) for _ in range(threads)]
        for n, one in enumerate(stuck):
            gate.open[f"stuck {n}"] = threading.Event()
            submit(queue, one, f"stuck {n}")
        await until(lambda: len(gate.order) == threads)
        small, large = One(gate), One(gate)
        for n in range(3):
            submit(queue, small, f"small {n}", 1)  # with the threads already
        submit(queue, large, "large")
        await until(lambda: len(small.done) == 3 and large.done)
        assert not any(one.done for one in stuck)
        for event in gate.open.values():
            event.set()
        await until(lambda: all(one.done for one in stuck))
        await until(lambda: queue._running == 0)
        assert (len(queue), queue._begun, queue._ahead, queue._stuck) == (0, {}, {}, set())

    run(threads, test)


def test_no_more_threads_than_so_many_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchval.proxy.produce.validation_queue.STUCK_S", 0.02)
    monkeypatch.setattr("batchval.proxy.produce.validation_queue.LOOK_S", 0.01)
    monkeypatch.setattr("batchval.proxy.produce.validation_queue.MAX_STUCK", 2)

    async def test(queue: ValidationQueue, gate: Gate) -> None:
        stuck = [One(gate) for _ in range(5)]
        for n, one in enumerate(stuck):
            gate.open[f"stuck {n}"] = threading.Event()
            submit(queue, one, f"stuck {n}")
        await until(lambda: len(gate.order) == 3)
        await asyncio.sleep(0.1)
        assert (len(gate.order), len(queue._stuck)) == (3, 2)
        for event in gate.open.values():
            event.set()
        await until(lambda: all(one.done for one in stuck))
        await until(lambda: queue._running == 0)

    run(1, test)


def test_a_line_says_who_has_used_the_most_where_requests_wait_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        gate.open["first"] = threading.Event()
        one = One(gate)
        one.account = queue.senders.of_key("User:mallory")
        submit(queue, one, "first")
        await until(lambda: gate.order == ["first"])
        now = queue.senders.clock()
        one.account.share.note(9.0, now)
        one.account.use(READ_BYTES, 3 << 20, now)
        queue.senders.of_key("User:alice").share.note(1.0, now)
        queue._note_load(100.0)  # nobody waits
        submit(queue, one, "second")
        for seconds in (200.0, 204.0, 205.5, 206.0, 266.0):
            queue._note_load(seconds)
        assert [line.getMessage().split(": ")[0] for line in caplog.records] == [
            "validation has had no free thread for 6 s, and 1 requests wait",
            "validation has had no free thread for 66 s, and 1 requests wait",
        ]
        assert "90 % of its CPU went to User:mallory (9.0 s, 3 MiB of records, 0.0 s" in caplog.text
        gate.open["first"].set()
        await until(lambda: len(one.done) == 2)
        queue._note_load(300.0)
        queue._note_load(400.0)
        assert len(caplog.records) == 2

    run(1, test)


def test_a_few_small_jobs_are_with_the_threads_already() -> None:
    # A thread that has done one need not wait for the loop; the others go by what was used.
    async def test(queue: ValidationQueue, gate: Gate) -> None:
        gate.open["first"] = threading.Event()
        busy, idle = One(gate), One(gate)
        submit(queue, busy, "first")
        await until(lambda: gate.order == ["first"])
        for n in range(AHEAD + 2):
            submit(queue, busy, f"small {n}", MAX_AHEAD)
        assert len(queue) == 2
        submit(queue, idle, "large")
        gate.open["first"].set()
        await until(lambda: len(busy.done) == AHEAD + 3 and idle.done)
        ahead = [f"small {n}" for n in range(AHEAD)]
        assert gate.order[: AHEAD + 1] == ["first", *ahead]
        assert sorted(gate.order[AHEAD + 1 :]) == ["large", f"small {AHEAD}", f"small {AHEAD + 1}"]

    run(1, test)


def test_a_turn_takes_few_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    # One outcome that takes long ends the turn, and one that raises does not keep the others.
    monkeypatch.setattr("batchval.proxy.produce.validation_queue.COLLECT_S", 0.0)

    async def test(queue: ValidationQueue, gate: Gate) -> None:
        loop = asyncio.get_running_loop()
        raised: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: raised.append(context))
        queue._is_woken = True  # nobody collects while the jobs are done
        one = One(gate)
        for n in range(4):
            submit(queue, one, f"{n}", MAX_AHEAD)
        await until(lambda: len(queue._outcomes) == 4)
        kept: Any = one.job_done
        one.job_done = lambda job, error: kept(job, error) or 1 // int(str(job.item))  # type: ignore
        seen = []
        queue._is_woken = False
        loop.call_soon(queue._collect)
        while len(one.done) < 4:
            await asyncio.sleep(0)
            seen.append(len(one.done))
        assert sorted(set(seen) - {0}) == [1, 2, 3, 4]
        assert [type(context["exception"]) for context in raised] == [ZeroDivisionError]

    run(1, test)
