"""The cap: slots by themselves, and a connection under faults seen from the broker's side, as a
state machine.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter, deque
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from batchval.network.connection import Connection
from batchval.network.errors import CorrelationIdMismatchError, DisconnectError
from batchval.network.in_flight import InFlightRequest, InFlightRequests
from tests.support.network import HEADER, Ask, answer, connection_options, reset_on_close

CAPS = list(range(1, 11))


def entry(number: int, expects_response: bool = True) -> InFlightRequest:
    request = Ask(expects_response=expects_response)
    return InFlightRequest(request, number, lambda response, error: None, 0.0, 1.0, 0.0)


@pytest.mark.parametrize("cap", CAPS)
def test_no_slot_beyond_the_cap(cap: int) -> None:
    slots = InFlightRequests(cap)
    for number in range(cap):
        assert slots.can_send_more()
        slots.take(entry(number))
        assert not slots.can_send_more()  # not written whole
        slots.written()
    assert len(slots) == slots.peak == cap
    with pytest.raises(RuntimeError, match="no slot"):
        slots.take(entry(cap))
    assert slots.answered(0).correlation_id == 0
    assert slots.can_send_more()
    slots.take(entry(cap))
    assert [one.correlation_id for one in slots.clear()] == list(range(1, cap + 1))
    assert len(slots) == 0
    assert slots.peak == cap


def test_the_slot_is_taken_before_the_write() -> None:
    slots = InFlightRequests(1)
    slots.take(entry(0))
    assert (len(slots), slots.can_send_more()) == (1, False)


def test_acks_0_holds_a_slot_until_it_is_written() -> None:
    slots = InFlightRequests(1)
    quiet = entry(0, expects_response=False)
    slots.take(quiet)
    assert (len(slots), slots.can_send_more()) == (1, False)
    assert slots.written() is quiet
    assert (len(slots), slots.can_send_more()) == (0, True)
    slots.take(entry(1))
    assert slots.written() is None
    assert len(slots) == 1


def test_an_answer_out_of_order_gives_nothing_back() -> None:
    slots = InFlightRequests(3)
    for number in range(2):
        slots.take(entry(number))
        slots.written()
    with pytest.raises(CorrelationIdMismatchError, match="an answer to 1 where one to 0 was due"):
        slots.answered(1)
    assert len(slots) == 2
    with pytest.raises(CorrelationIdMismatchError, match="nothing was asked"):
        InFlightRequests().answered(0)


def test_without_a_cap_it_only_counts() -> None:
    slots = InFlightRequests(None)
    for number in range(1000):
        slots.take(entry(number))
        slots.written()
    assert (len(slots), slots.peak, slots.can_send_more()) == (1000, 1000, True)


@pytest.mark.parametrize("cap", [0, -1])
def test_a_cap_below_one_is_refused(cap: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        InFlightRequests(cap)


class Broker(RuleBasedStateMachine):
    """A connection whose broker is the machine: it reads when it likes, answers when it likes, and
    breaks.

    What the broker has received whole or in part, and not answered, never exceeds the cap.
    Callbacks come once each, in order; a request that was never written is raised to its caller and
    never called back.
    """

    loop: asyncio.AbstractEventLoop
    steps: ClassVar[Counter[int]] = Counter()  # by cap
    broken_cap = 0  # for the test that the machine finds a cap that is not kept

    @initialize(cap=st.sampled_from(CAPS))
    def start(self, cap: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.cap = cap
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.connect()

    def connect(self) -> None:
        self.number = 0
        self.called: list[tuple[int, bool]] = []
        self.tasks: deque[tuple[int, asyncio.Task[None]]] = deque()
        self.raised: set[int] = set()
        self.quiet: set[int] = set()
        self.held = b""
        self.unanswered: deque[tuple[int, int]] = deque()
        self.answers = 0

        async def both() -> tuple[Connection, socket.socket]:
            options = connection_options(max_in_flight=self.cap + self.broken_cap)
            opening = asyncio.ensure_future(Connection.open(*self.listener.getsockname(), options))
            peer, _ = await self.loop.sock_accept(self.listener)
            return await opening, peer

        self.connection, self.peer = self.loop.run_until_complete(both())
        self.peer.setblocking(False)

    def turn(self, times: int = 3) -> None:
        async def sleep() -> None:
            for _ in range(times):
                await asyncio.sleep(0)

        self.loop.run_until_complete(sleep())

    @rule(
        size=st.sampled_from([0, 1, 100, 300_000]),
        acks=st.sampled_from([1, 1, 1, 0]),
        count=st.integers(1, 12),
    )
    def produce(self, size: int, acks: int, count: int) -> None:
        for _ in range(count if size < 300_000 else 1):
            number, self.number = self.number, self.number + 1
            if not acks:
                self.quiet.add(number)
            body = struct.pack(">i", number) + bytes(size)

            def callback(response: Any, error: BaseException | None, number: int = number) -> None:
                self.called.append((number, error is None))
                assert (
                    error is not None
                    or number in self.quiet
                    or struct.unpack(">i", response.body) == (number,)
                )

            request = Ask(body, expects_response=bool(acks))
            self.tasks.append(
                (number, self.loop.create_task(self.connection.produce_async(request, callback)))
            )
        self.turn()

    @rule(which=st.integers(0, 3))
    def cancel(self, which: int) -> None:
        waiting = [task for _, task in self.tasks if not task.done()]
        if waiting:
            waiting[min(which, len(waiting) - 1)].cancel()
            self.turn()

    @rule(most=st.sampled_from([1, 7, 20, 70_000, 10_000_000]))
    def read(self, most: int) -> None:
        """The broker takes some bytes in; whatever has begun to arrive is in flight."""
        taken = 0
        while taken < most:
            self.turn(1)
            try:
                data = self.peer.recv(min(most - taken, 1 << 20))
            except BlockingIOError:
                break
            if not data:
                break
            taken += len(data)
            self.held += data
        while len(self.held) >= 4 and len(self.held) >= 4 + struct.unpack_from(">i", self.held)[0]:
            length, _, _, correlation_id = HEADER.unpack_from(self.held)
            (number,) = struct.unpack_from(">i", self.held, HEADER.size)
            self.held = self.held[4 + length :]
            if number not in self.quiet:
                self.unanswered.append((correlation_id, number))

    @rule(count=st.integers(1, 12), cut=st.booleans())
    def answer(self, count: int, cut: bool) -> None:
        """Some answers, in one write or byte by byte."""
        data = b""
        for _ in range(min(count, len(self.unanswered))):
            correlation_id, number = self.unanswered.popleft()
            data += answer(correlation_id, struct.pack(">i", number))
            self.answers += 1
        for piece in [data[i : i + 1] for i in range(len(data))] if cut else [data]:
            self.peer.sendall(piece)
            self.turn(1)
        self.turn()

    @rule()
    def answer_out_of_order(self) -> None:
        if (
            len(self.unanswered) < 2
        ):  # no precondition: what the sockets hold may differ in a second run
            return
        self.settle()
        correlation_id, number = self.unanswered[1]
        self.peer.sendall(answer(correlation_id, struct.pack(">i", number)))
        self.end()

    @rule(how=st.sampled_from(["cut", "reset", "negative", "half a frame", "closed here"]))
    def fault(self, how: str) -> None:
        self.settle()
        if how == "reset":
            reset_on_close(self.peer)
        elif how == "negative":
            self.peer.sendall(struct.pack(">i", -1))
        elif how == "half a frame" and self.unanswered:
            self.peer.sendall(answer(*self.unanswered[0][:1])[:9])
        elif how == "closed here":
            self.connection.close()
        if how != "negative":
            self.peer.close()
        self.end()

    def good(self) -> int:
        return sum(good for number, good in self.called if number not in self.quiet)

    def settle(self) -> None:
        """All answers have come through the kernel, however busy the machine is, and have been
        reported.
        """

        async def notified() -> None:
            while self.good() < self.answers:
                await asyncio.sleep(0)

        self.loop.run_until_complete(asyncio.wait_for(notified(), 10))

    def end(self) -> None:
        """The connection is dead: everything must have ended once, in order."""
        self.loop.run_until_complete(asyncio.wait_for(self.connection.wait_closed(), 10))
        self.turn()
        self.in_order()
        assert len(self.connection.in_flight) == 0
        for number, task in self.tasks:
            assert task.done()
            if task.cancelled() or task.exception() is not None:
                self.raised.add(number)
        called = {number for number, _ in self.called}
        assert called.isdisjoint(self.raised)
        assert called | self.raised == set(range(self.number))
        assert self.good() == self.answers
        self.peer.close()
        self.connect()

    @invariant()
    def never_above_the_cap(self) -> None:
        if not hasattr(self, "cap"):
            return
        Broker.steps[self.cap] += 1
        begun = 0
        if len(self.held) >= HEADER.size + 4:
            begun = struct.unpack_from(">i", self.held, HEADER.size)[0] not in self.quiet
        assert len(self.unanswered) + begun <= self.cap
        assert self.connection.in_flight.peak <= self.cap

    @invariant()
    def in_order(self) -> None:
        if not hasattr(self, "cap"):
            return
        loud = [number for number, _ in self.called if number not in self.quiet]
        assert loud == sorted(set(loud))
        quiet = [number for number, _ in self.called if number in self.quiet]
        assert quiet == sorted(set(quiet))

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.connection.close()
            self.turn()
            for _, task in self.tasks:
                task.cancel()
            self.turn()
            for _, task in self.tasks:
                if not task.cancelled():
                    task.exception()
            self.peer.close()
            self.listener.close()
            self.loop.close()


def machine(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_a_broker_never_sees_more_than_the_cap() -> None:
    run_state_machine_as_test(Broker, settings=machine(25, 50))


@pytest.mark.slow
def test_a_broker_never_sees_more_than_the_cap_in_100_000_steps() -> None:
    before = Broker.steps.copy()
    run_state_machine_as_test(Broker, settings=machine(1_150, 100))
    steps = Broker.steps - before
    assert steps.total() >= 100_000
    assert all(steps[cap] >= 2_000 for cap in CAPS), steps


def test_the_machine_finds_a_cap_that_is_not_kept() -> None:
    class OneTooMany(Broker):
        broken_cap = 1

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            OneTooMany, settings=settings(machine(40, 50), phases=[Phase.generate])
        )


def test_disconnect_errors_say_which_request_timed_out() -> None:
    assert not DisconnectError("gone").timed_out
    assert DisconnectError("late", timed_out=True).timed_out
