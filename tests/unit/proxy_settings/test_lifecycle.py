"""The phases of a gate's process: every phase with every event, and what each does."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from batchval.proxy.life.lifecycle import TRANSITIONS, Life, LifecycleEvent, Phase
from tests.support.network import until


class FakeGate:
    """Notes what it is asked, and drains until a test lets it end."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.drained = asyncio.Event()

    def leave(self) -> None:
        self.asked.append("leave")

    def reload(self) -> None:
        self.asked.append("reload")

    def closed(self) -> None:
        self.asked.append("closed")

    def draining(self) -> None:
        self.asked.append("draining")

    async def stop(self, drain_s: float | None = None) -> None:
        self.asked.append("stop" if drain_s is None else f"stop {drain_s:g}")
        if drain_s is None:
            await self.drained.wait()


async def lived(
    gate: FakeGate, *events: LifecycleEvent, delay_s: float = 60.0
) -> tuple[Life, asyncio.Task[bool]]:
    """Return a life after these events, each of which has been taken."""
    life = Life(gate, lambda: delay_s, gate.reload, gate.closed, gate.draining)
    task = asyncio.ensure_future(life.run())
    for event in events:
        life.events.put_nowait(event)
        await until(life.events.empty)
        await asyncio.sleep(0)
    return life, task


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, LifecycleEvent)))
def test_each_pair_moves_as_the_table_says_or_not_at_all(
    phase: Phase, event: LifecycleEvent
) -> None:
    life = object.__new__(Life)
    life.state = phase
    assert life.move(event) is ((phase, event) in TRANSITIONS)
    assert life.state is TRANSITIONS.get((phase, event), phase)


def test_the_table() -> None:
    # A second signal is the only thing that shortens a phase, and nothing leads back.
    ends = {LifecycleEvent.TERMINATE, LifecycleEvent.INTERRUPT}
    ways = {(Phase.SERVING, LifecycleEvent.TERMINATE): Phase.LEAVING}
    ways |= {
        (Phase.SERVING, LifecycleEvent.INTERRUPT): Phase.DRAINING,
        (Phase.SERVING, LifecycleEvent.HANDED): Phase.HANDED,
    }
    ways |= dict.fromkeys(((Phase.HANDED, one) for one in ends), Phase.DRAINING)
    ways |= {(Phase.HANDED, LifecycleEvent.DRAINED): Phase.ENDED}
    ways |= dict.fromkeys(
        ((Phase.LEAVING, one) for one in ends | {LifecycleEvent.DELAYED}), Phase.DRAINING
    )
    ways |= dict.fromkeys(
        ((Phase.DRAINING, one) for one in ends | {LifecycleEvent.DRAINED}), Phase.ENDED
    )
    assert ways == TRANSITIONS
    order = list(Phase)
    assert all(
        order.index(before) < order.index(after) for (before, _), after in TRANSITIONS.items()
    )


async def test_sigterm_waits_and_then_drains(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")
    gate = FakeGate()
    life, task = await lived(gate, LifecycleEvent.RELOAD, LifecycleEvent.TERMINATE, delay_s=0.05)
    assert life.state is Phase.LEAVING
    life.events.put_nowait(LifecycleEvent.RELOAD)
    await until(lambda: life.state is Phase.DRAINING)
    life.events.put_nowait(LifecycleEvent.RELOAD)
    gate.drained.set()
    assert await task is False
    assert gate.asked == ["reload", "closed", "leave", "reload", "draining", "stop"]
    assert caplog.messages == [
        "this gate stops: /readyz is 503, ports close after 0.05 s",
        "this gate drains: ports are closed, pending answers are delivered",
        "this gate has ended",
    ]


async def test_the_delay_is_that_of_the_settings_at_the_signal() -> None:
    gate, delays = FakeGate(), [60.0]
    life = Life(gate, lambda: delays[0], gate.reload)
    task = asyncio.ensure_future(life.run())
    delays[0] = 0.0
    life.events.put_nowait(LifecycleEvent.TERMINATE)
    await until(lambda: "stop" in gate.asked)
    gate.drained.set()
    assert await task is False


async def test_a_second_signal_skips_the_delay_and_a_third_ends_at_once() -> None:
    gate = FakeGate()
    life, task = await lived(gate, LifecycleEvent.TERMINATE, LifecycleEvent.TERMINATE)
    await until(lambda: "stop" in gate.asked)
    assert life.state is Phase.DRAINING
    life.events.put_nowait(LifecycleEvent.TERMINATE)
    assert await task is True
    assert gate.asked[-1] == "stop 0"


@pytest.mark.parametrize(
    ("event", "is_interrupted"), [(LifecycleEvent.INTERRUPT, True), (LifecycleEvent.HANDED, False)]
)
async def test_sigint_and_a_hand_over_drain_without_a_delay(
    event: LifecycleEvent, is_interrupted: bool
) -> None:
    gate = FakeGate()
    _, task = await lived(gate, event)
    gate.drained.set()
    assert await task is is_interrupted
    assert gate.asked == ["closed", "draining", "stop"]


async def test_the_first_signal_after_a_hand_over_ends_nothing_that_is_under_way() -> None:
    # A service manager sends SIGTERM to the old gate when the new one runs.
    gate = FakeGate()
    life, task = await lived(gate, LifecycleEvent.HANDED, LifecycleEvent.TERMINATE)
    assert life.state is Phase.DRAINING
    gate.drained.set()
    assert await task is False
    assert gate.asked == ["closed", "draining", "stop"]


async def test_the_second_signal_after_a_hand_over_ends_at_once() -> None:
    gate = FakeGate()
    life, task = await lived(gate, LifecycleEvent.HANDED, LifecycleEvent.TERMINATE)
    life.events.put_nowait(LifecycleEvent.TERMINATE)
    assert await task is True
    assert gate.asked == ["closed", "draining", "stop", "stop 0"]


async def test_a_hand_over_while_it_leaves_changes_nothing() -> None:
    gate = FakeGate()
    life, task = await lived(gate, LifecycleEvent.TERMINATE, LifecycleEvent.HANDED)
    assert life.state is Phase.LEAVING
    life.events.put_nowait(LifecycleEvent.DELAYED)
    gate.drained.set()
    assert await task is False


async def test_what_fails_while_it_drains_is_raised() -> None:
    class Failing(FakeGate):
        async def stop(self, drain_s: float | None = None) -> None:
            raise OSError("disk")

    _, task = await lived(Failing(), LifecycleEvent.INTERRUPT)
    with pytest.raises(OSError, match="disk"):
        await task
