"""The control socket: every state with every event, new gates that fail, and strangers."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from batchval.proxy.cluster.state_file import StoredCluster as Brokers
from batchval.proxy.life import control as module
from batchval.proxy.life.control import (
    CONTROL,
    MAX_PEERS,
    SOCKETS_AT_ONCE,
    TRANSITIONS,
    Control,
    HandoverEvent,
    HandoverState,
    Offer,
)
from batchval.proxy.life.file_checks import file_faults
from batchval.proxy.life.handover import TakeOver
from batchval.proxy.life.handover_messages import (
    MAX_NEW_GATE_BYTES,
    VERSION,
    HandOverError,
    Incoming,
    encoded,
)
from batchval.proxy.settings.loading import settings_from
from batchval.yaml_settings.faults import path_of

LOOPBACK = "127.0.0.1"
HELLO = encoded("hello", version=VERSION, pid=1)


class Running:
    """A control socket on the loop of the test, with so many sockets to hand over."""

    def __init__(self, path: Path, sockets: int = 3) -> None:
        self.sockets = {("edge", n): socket.create_server((LOOPBACK, 0)) for n in range(sockets)}
        self.brokers = Brokers(("kafka:9092",), brokers={7: ("kafka", 9092)})
        self.refusal = ""
        self.handed: list[int] = []
        self.control = Control(path, self.offer, self.handed.append)
        self.control.open()
        self.control.start()

    def offer(self) -> Offer:
        if self.refusal:
            raise HandOverError(self.refusal)
        state = self.brokers.encode().decode()
        return Offer(dict(self.sockets), state, None)  # type: ignore[arg-type]

    @property
    def state(self) -> HandoverState:
        return self.control.state

    async def until(self, state: HandoverState) -> None:
        while self.state is not state:
            await asyncio.sleep(0.001)

    def end(self) -> None:
        self.control.stop()
        self.control.ended()
        for sock in self.sockets.values():
            sock.close()


def running(test: Callable[[Path, Running], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Give a test a control socket, which is closed afterwards."""

    async def run(tmp_path: Path) -> None:
        one = Running(tmp_path / "gate.sock")
        try:
            await test(tmp_path / "gate.sock", one)
        finally:
            one.end()

    run.__name__ = test.__name__
    return run


async def began(path: Path) -> TakeOver:
    taken = await asyncio.to_thread(TakeOver.begin, path)
    assert taken is not None
    return taken


def closed(taken: TakeOver) -> None:
    taken.close()
    for sock in (taken.control, *taken.sockets.values()):
        sock.close()


async def spoken(path: Path, *data: bytes) -> bytes:
    """Return what the gate says to these bytes, up to its end."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        for one in data:
            writer.write(one)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def messages(data: bytes) -> list[dict[str, Any]]:
    return Incoming(1 << 20).feed(data)


# ---- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "event"), list(itertools.product(HandoverState, HandoverEvent)))
def test_each_pair_moves_as_the_table_says_or_not_at_all(
    state: HandoverState, event: HandoverEvent
) -> None:
    control = object.__new__(Control)
    control.state = state
    assert control.move(event) is ((state, event) in TRANSITIONS)
    assert control.state is TRANSITIONS.get((state, event), state)


def test_the_table() -> None:
    steps = [
        HandoverState.SERVING,
        HandoverState.OFFERED,
        HandoverState.STARTING,
        HandoverState.HANDED,
    ]
    ways = dict(
        zip(
            zip(
                steps, (HandoverEvent.HELLO, HandoverEvent.READY, HandoverEvent.TOOK), strict=False
            ),
            steps[1:],
            strict=True,
        )
    )
    ways |= {
        (state, HandoverEvent.LOST): HandoverState.SERVING
        for state in (HandoverState.OFFERED, HandoverState.STARTING)
    }
    ways |= {(state, HandoverEvent.STOP): HandoverState.STOPPED for state in steps[:3]}
    assert ways == TRANSITIONS


# ---- a hand-over ---------------------------------------------------------------------------------


@running
async def test_all_steps(path: Path, gate: Running) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    taken = await began(path)
    assert gate.state is HandoverState.OFFERED
    assert taken.pid == os.getpid()
    assert taken.state == gate.brokers
    assert taken.unready is None
    names = {key: sock.getsockname() for key, sock in gate.sockets.items()}
    assert {key: sock.getsockname() for key, sock in taken.sockets.items()} == names
    assert not any(sock.get_inheritable() for sock in taken.sockets.values())
    await taken.ready()
    assert gate.state is HandoverState.STARTING
    assert gate.handed == []
    await taken.took()
    await gate.until(HandoverState.HANDED)
    assert gate.handed == [os.getpid()]
    gate.control.stop()
    assert path.exists()
    following = asyncio.create_task(taken.ended())
    await asyncio.sleep(0.02)
    assert not following.done()
    gate.control.ended()
    await following
    closed(taken)


async def test_more_sockets_than_one_message_takes(tmp_path: Path) -> None:
    gate = Running(tmp_path / "gate.sock", 2 * SOCKETS_AT_ONCE + 1)
    gate.brokers = Brokers(("kafka:9092",), brokers=dict.fromkeys(range(3000), ("k" * 200, 9092)))
    taken = await began(tmp_path / "gate.sock")
    assert len(taken.sockets) == 2 * SOCKETS_AT_ONCE + 1
    assert {key: sock.getsockname() for key, sock in taken.sockets.items()} == {
        key: sock.getsockname() for key, sock in gate.sockets.items()
    }
    assert taken.state == gate.brokers
    closed(taken)
    gate.end()


@running
async def test_a_second_one_is_refused_until_the_first_has_failed(
    path: Path, gate: Running
) -> None:
    first = await began(path)
    with pytest.raises(HandOverError, match=f"process {os.getpid()} takes over already"):
        await began(path)
    first.fail("no memory")
    await gate.until(HandoverState.SERVING)
    second = await began(path)
    closed(second)
    closed(first)


@running
async def test_a_new_gate_that_leaves_or_is_late_changes_nothing(path: Path, gate: Running) -> None:
    taken = await began(path)
    await taken.ready()
    closed(taken)
    await gate.until(HandoverState.SERVING)
    module.PREPARE_S, before = 0.05, module.PREPARE_S  # type: ignore[misc]
    try:
        taken = await began(path)
        await gate.until(HandoverState.SERVING)
    finally:
        module.PREPARE_S = before  # type: ignore[misc]
    with pytest.raises(HandOverError, match=r"cannot be taken over: it sent nothing for 0.05 s"):
        await taken.ready()
    closed(taken)
    assert gate.handed == []


@running
async def test_a_gate_that_cannot_be_taken_over_says_why(path: Path, gate: Running) -> None:
    gate.refusal = "it ends"
    with pytest.raises(HandOverError, match="the running gate cannot be taken over: it ends"):
        await began(path)
    assert gate.state is HandoverState.SERVING


@running
async def test_a_gate_that_ends_is_not_taken_over(path: Path, gate: Running) -> None:
    taken = await began(path)
    gate.control.stop()
    assert gate.state is HandoverState.STOPPED
    assert not path.exists()
    with pytest.raises(HandOverError, match="the gate ends"):
        await taken.ready()
    assert await asyncio.to_thread(TakeOver.begin, path) is None
    closed(taken)


async def test_where_no_gate_runs(tmp_path: Path) -> None:
    path = tmp_path / "gate.sock"
    assert TakeOver.begin(path) is None
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    assert TakeOver.begin(path) is None
    gate = Running(path)  # in place of the file of the one that was killed
    closed(await began(path))
    gate.end()


def test_a_file_in_place_of_the_socket_is_a_fault_of_the_settings(tmp_path: Path) -> None:
    def faults(**values: Any) -> list[str]:
        gate = {
            "listeners": [{"address": "127.0.0.1:1"}],
            "upstream": {"bootstrap": "127.0.0.1:999"},
        }
        return [
            f"{path_of(fault.loc)}: {fault.text}"
            for fault in file_faults(settings_from(gate | values), None)
        ]

    path = tmp_path / "gate.sock"
    keys = {
        "control": {"control": str(path)},
        "state_directory": {"state_directory": str(tmp_path)},
    }
    for key, values in keys.items():
        assert faults(**values) == []
        path.touch()
        assert faults(**values) == [
            f"{key}: {path}: is not a socket: remove it, or set control to another path"
        ]
        path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)
    assert faults(control=str(path)) == []


async def test_a_socket_that_another_gate_has_and_a_file(tmp_path: Path) -> None:
    gate = Running(tmp_path / "gate.sock")
    with pytest.raises(OSError, match=r"gate.sock cannot be opened: a running gate has it"):
        Running(tmp_path / "gate.sock")
    assert gate.state is HandoverState.SERVING
    gate.end()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="it is not a socket: remove it, or"):
        Running(tmp_path / "file")
    with pytest.raises(OSError, match="No such file or directory"):
        Running(tmp_path / "none" / "gate.sock")


async def test_a_path_longer_than_a_socket_address(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    gate = Running(folder / "gate.sock")
    closed(await began(folder / "gate.sock"))
    gate.end()
    assert list(folder.iterdir()) == []


# ---- strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "begins no message of a hand-over"),
        (b"\x16\x03\x01", "begins no message"),
        (
            struct.pack(">4sI", b"BVGH", MAX_NEW_GATE_BYTES + 1),
            f"expected 1 to {MAX_NEW_GATE_BYTES}",
        ),
        (struct.pack(">4sI", b"BVGH", 0xFFFFFFFF), "4294967295 bytes"),
        (struct.pack(">4sI", b"BVGH", 0), "0 bytes"),
        (struct.pack(">4sI", b"BVGH", 3) + b"abc", "is not JSON"),
        (struct.pack(">4sI", b"BVGH", 4000) + b"[" * 4000, "is not JSON"),
        (struct.pack(">4sI", b"BVGH", 2) + b"[]", "is not a JSON object with a kind"),
        (encoded("ready"), "it sent 'ready', expected hello"),
        (encoded("took"), "it sent 'took', expected hello"),
        (
            encoded("hello", version=VERSION + 1),
            f"speaks version {VERSION} of the hand-over, the new one {VERSION + 1}",
        ),
        (encoded("hello"), "the new one None"),
        (HELLO + encoded("took"), "which is out of turn: the hand-over is offered"),
        (HELLO + HELLO, "takes over already"),
        (HELLO + encoded("failed", why="no memory"), "no memory"),
        (HELLO + b"\0", "begins no message"),
    ],
)
async def test_strangers_are_closed(
    tmp_path: Path, data: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Running(tmp_path / "gate.sock")
    with caplog.at_level(logging.INFO, "batchval.proxy"):
        await spoken(tmp_path / "gate.sock", data)
        while gate.control.peers:
            await asyncio.sleep(0.001)
    assert gate.state is HandoverState.SERVING
    assert why in caplog.text
    assert gate.handed == []
    taken = await began(tmp_path / "gate.sock")
    closed(taken)
    gate.end()


@running
async def test_a_refusal_reaches_the_new_gate(path: Path, gate: Running) -> None:
    (refused,) = messages(await spoken(path, encoded("hello", version=99)))
    assert refused["kind"] == "refused"
    assert "version 1" in refused["why"]


@running
async def test_sockets_that_cannot_be_sent_are_a_refusal(path: Path, gate: Running) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "batchval.proxy.life.control.os.dup",
            Mock(side_effect=OSError(errno.EMFILE, "Too many open files")),
        )
        with pytest.raises(HandOverError, match="the sockets cannot be sent: Too many open files"):
            await began(path)
    assert gate.state is HandoverState.SERVING
    assert gate.handed == []


async def test_the_silent_and_the_slow_are_closed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HELLO_S", 0.05)
    gate = Running(tmp_path / "gate.sock")
    for data in ((), (HELLO[:-1],)):
        assert await spoken(tmp_path / "gate.sock", *data) == b""
    assert gate.state is HandoverState.SERVING
    gate.end()


@running
async def test_there_are_only_so_many_connections(path: Path, gate: Running) -> None:
    some = [await asyncio.open_unix_connection(path) for _ in range(MAX_PEERS)]
    while len(gate.control.peers) < MAX_PEERS:
        await asyncio.sleep(0.001)
    assert await spoken(path, b"") == b""
    for _, writer in some:
        writer.close()
    while gate.control.peers:
        await asyncio.sleep(0.001)
    closed(await began(path))


@running
async def test_descriptors_of_strangers_are_not_kept(path: Path, gate: Running) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX) as sock, open(os.devnull, "rb") as file:
        sock.connect(str(path))
        socket.send_fds(sock, [b"x"], [file.fileno()] * 50)
        sock.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    while gate.control.peers:
        await asyncio.sleep(0.001)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


async def test_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "credentials", lambda _: (4711, os.geteuid() + 1))
    gate = Running(tmp_path / "gate.sock")
    (refused,) = messages(await spoken(tmp_path / "gate.sock", HELLO))
    assert (
        refused["why"] == f"user {os.geteuid() + 1} may not take over a gate of user {os.geteuid()}"
    )
    assert gate.state is HandoverState.SERVING
    gate.end()


async def test_a_running_gate_that_sends_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "gate.sock"
    for answer, why in (
        (b"HTTP/1.1 400\r\n", "begins no message"),
        (encoded("go"), "sent 'go', expected sockets"),
        (encoded("sockets"), "something unexpected: 'keys'"),
        (
            encoded("sockets", keys=[["edge", 1], list(CONTROL)], left=0),
            "sent 0 sockets, expected 2",
        ),
        (encoded("sockets", keys=[], left=0, unready=None, state="{}"), "format is None"),
    ):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            beginning = asyncio.create_task(began(path))
            listener.setblocking(False)
            sock, _ = await asyncio.get_running_loop().sock_accept(listener)
            await asyncio.get_running_loop().sock_sendall(sock, answer)
            sock.shutdown(socket.SHUT_WR)
            with pytest.raises(HandOverError, match=why):
                await beginning
            sock.close()
        path.unlink()
