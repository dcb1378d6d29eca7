"""The running gate is killed while it is taken over, at each step; or it refuses at that step."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path

import pytest

from batchval.proxy.life.control import HandoverState
from batchval.proxy.life.handover import TakeOver, taken_over
from batchval.proxy.life.handover_messages import HandOverError, encoded
from tests.unit.proxy_settings.test_control import Running, began, closed

STEPS = ["sockets", "start", "preparing", "ready", "accept"]


class NewGate:
    """A gate during whose ``step`` the running one is killed, or refuses with ``why``."""

    def __init__(self, running: Running, step: str, why: str = "") -> None:
        self.accepts = self.ended = self.succeeds = False
        self._running, self._step, self._why = running, step, why
        self._looks = 0

    def at(self, step: str) -> None:
        if step == self._step:
            taker = self._running.control._taker
            assert taker is not None
            if self._why:
                taker.drop(self._why)
            else:
                taker.close()  # without a message, as the kernel does

    async def start(self) -> None:
        self.at("start")

    async def stop(self, drain_s: float | None = None) -> None:
        self.ended = True

    def preparing(self) -> str | None:
        self._looks += 1
        if self._looks == 1:
            self.at("preparing")
        # nothing but the end of the other one ends this
        never = self._step in ("sockets", "start", "preparing") and not self._why
        return "the cluster is asked" if never or self._looks < 3 else None

    def accept(self) -> None:
        self.accepts = True
        self.at("accept")

    def succeeded(self) -> None:
        """Read the connection from here on: two readers would take each other's messages."""
        assert self.accepts
        self.succeeds = True


async def taken(path: Path, running: Running, step: str, why: str = "") -> tuple[NewGate, TakeOver]:
    """Take over; the transport of a peer closes in the loop's next turns."""
    predecessor, gate = await began(path), NewGate(running, step, why)
    gate.at("sockets")
    if step == "ready":
        send = predecessor.ready

        async def ready() -> None:
            gate.at("ready")
            await asyncio.sleep(0)
            await send()

        predecessor.ready = ready  # type: ignore[method-assign]
    if step == "accept":
        took = predecessor.took

        async def later() -> None:
            await running.until(HandoverState.SERVING)
            await took()

        predecessor.took = later  # type: ignore[method-assign]
    try:
        await taken_over(predecessor, gate)
    finally:
        closed(predecessor)
    return gate, predecessor


@pytest.mark.parametrize("step", STEPS)
async def test_a_new_gate_goes_on_alone(
    step: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(tmp_path / "gate.sock")
    with caplog.at_level(logging.WARNING, "batchval.proxy"):
        gate, _ = await taken(tmp_path / "gate.sock", running, step)
    assert gate.accepts
    assert gate.succeeds
    assert not gate.ended
    assert running.handed == []
    assert (
        f"process {os.getpid()} was killed while it was taken over: this gate goes on alone"
        in caplog.text
    )
    running.end()


@pytest.mark.parametrize("step", STEPS)
async def test_a_new_gate_ends_where_the_running_one_goes_on(step: str, tmp_path: Path) -> None:
    running = Running(tmp_path / "gate.sock")
    with pytest.raises(HandOverError, match="cannot be taken over: it took too long"):
        await taken(tmp_path / "gate.sock", running, step, "it took too long")
    assert running.state is HandoverState.SERVING
    assert running.handed == []
    running.end()


@pytest.mark.parametrize(
    "sent", [b"", encoded("sockets", keys=[], left=1, unready=None, state="{}")[:20]]
)
async def test_a_gate_that_is_killed_before_it_has_sent_its_sockets(
    tmp_path: Path, sent: bytes
) -> None:
    path = tmp_path / "gate.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.setblocking(False)
        beginning = asyncio.create_task(asyncio.to_thread(TakeOver.begin, path))
        sock, _ = await asyncio.get_running_loop().sock_accept(listener)
        before = len(os.listdir("/proc/self/fd"))
        with socket.create_server(("127.0.0.1", 0)) as passed:
            socket.send_fds(sock, [sent], [passed.fileno()] if sent else [])
            sock.close()
            assert await beginning is None
        assert len(os.listdir("/proc/self/fd")) < before
