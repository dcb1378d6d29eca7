"""The pool of workers without processes: which gets a connection, what replaces one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.workers import pool as module
from batchval.proxy.workers.control_messages import (
    Closed,
    Failed,
    Heartbeat,
    PassedHeader,
    Ready,
)
from batchval.proxy.workers.pool import Accepted, WorkerPool
from batchval.proxy.workers.worker_states import WorkerEvent

E = WorkerEvent


class FakeAcceptor:
    is_held = False

    def hold(self, is_held: bool) -> None:
        self.is_held = is_held


class FakeOwner:
    def __init__(self) -> None:
        self.messages: list[object] = []

    def parts_of(self, index: int) -> Any:
        return index

    def received(self, message: object) -> None:
        self.messages.append(message)

    def asked(self, question: object) -> object:
        return question


class FakeClient:
    """An admitted client, and its connection."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_released = False
        self.is_closed = False
        self.header = PassedHeader(number, "edge", None, None)

    def release(self) -> None:
        assert not self.is_released
        self.is_released = True

    def close(self) -> None:
        self.is_closed = True

    def accepted(self) -> Accepted:
        return Accepted(self, self.header, self)  # type: ignore[arg-type]


class Rig:
    """A pool whose workers have no processes; ``taken`` has what was passed to each."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch, limit: int = 1000) -> None:
        self.pool = WorkerPool(count, FakeOwner())
        self.pool._started = asyncio.get_running_loop().create_future()
        self.taken: list[list[int]] = [[] for _ in range(count)]
        self.full: set[int] = set()
        self.started: list[int] = []
        for worker in self.pool.workers:
            monkeypatch.setattr(worker, "give", self._give(worker))
        monkeypatch.setattr(self.pool, "_start", self._start)
        self.acceptor = FakeAcceptor()
        self.pool.add_acceptor(self.acceptor)  # type: ignore[arg-type]
        self.clients: list[FakeClient] = []
        for worker in self.pool.workers:
            self.serve(worker, limit)

    def _give(self, worker: Any) -> Any:
        def give(header: PassedHeader, connection: object, admitted: object) -> None:
            if worker.index in self.full:
                raise BlockingIOError
            worker.connections[header.number] = admitted
            self.taken[worker.index].append(header.number)

        return give

    async def _start(self, worker: Any) -> None:
        self.started.append(worker.index)

    def serve(self, worker: Any, limit: int = 1000) -> None:
        worker.move(E.SPAWN)
        self.pool.received(worker, Ready(limit))

    def connect(self, count: int) -> None:
        for _ in range(count):
            client = FakeClient(len(self.clients))
            self.clients.append(client)
            self.pool.take(client.accepted())

    def split(self) -> list[int]:
        return [len(one.connections) for one in self.pool.workers]


async def test_connections_go_to_the_worker_with_the_fewest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(3, monkeypatch)
    rig.connect(7)
    assert rig.taken == [[0, 3, 6], [1, 4], [2, 5]]
    assert all(client.is_closed for client in rig.clients)  # the parent's descriptor
    one, two, _ = rig.pool.workers
    rig.pool.received(two, Closed([1, 4, 99]))
    assert [client.number for client in rig.clients if client.is_released] == [1, 4]
    rig.connect(2)
    assert rig.split() == [3, 2, 2]
    rig.pool.received(one, Closed([0, 3]))
    rig.connect(1)
    assert rig.split() == [2, 2, 2]


async def test_what_no_worker_takes_stays_in_the_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(2, monkeypatch, limit=2)
    rig.full = {0}
    rig.connect(2)
    assert rig.split() == [0, 2]
    assert rig.acceptor.is_held  # one has as many as it can, the other does not take any
    rig.connect(1)
    assert not rig.clients[2].is_closed
    rig.full = set()
    await asyncio.sleep(10 * module.AGAIN_S)
    assert rig.split() == [1, 2]
    assert not rig.acceptor.is_held
    rig.connect(1)
    assert rig.acceptor.is_held
    rig.pool.received(rig.pool.workers[1], Closed([0]))
    assert not rig.acceptor.is_held


async def test_a_worker_that_ends_is_replaced_later_and_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []
    rig = Rig(2, monkeypatch)
    rig.connect(4)

    async def start_later(_: object, wait_s: float) -> None:
        waits.append(wait_s)

    monkeypatch.setattr(rig.pool, "_start_later", start_later)
    first = rig.pool.workers[0]
    rig.pool.ended(first, -9)
    assert [client.number for client in rig.clients if client.is_released] == [0, 2]
    assert rig.split() == [0, 2]
    assert not rig.acceptor.is_held
    for _ in range(7):
        rig.serve(first)
        rig.pool.ended(first, 1)
    await asyncio.sleep(0.01)
    assert waits == [0, 1, 2, 4, 8, 16, 30, 30]
    assert rig.pool.restarts_total == 8
    assert caplog.messages[:2] == [
        "worker 0 was ended by SIGKILL with 2 connections: it is replaced at once",
        "worker 0 ended with exit status 1 with 0 connections: it is replaced in 1 s",
    ]
    monkeypatch.setattr(module, "RECOVERED_S", 0.0)
    rig.serve(first)
    rig.pool.ended(first, 1)
    await asyncio.sleep(0.01)
    assert waits[-1] == 0


async def test_connections_wait_while_all_workers_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(1, monkeypatch)
    (worker,) = rig.pool.workers
    rig.pool.received(worker, Heartbeat(5))
    assert rig.pool.validated == 5
    rig.pool.ended(worker, -11)
    assert rig.acceptor.is_held
    rig.connect(1)
    rig.serve(worker)
    assert rig.split() == [1]
    assert not rig.acceptor.is_held
    rig.pool.received(worker, Heartbeat(2))
    assert rig.pool.validated == 7


@pytest.mark.parametrize(
    ("failed", "kind", "text"),
    [
        (Failed(["tls: wrong"]), ConfigError, "tls: wrong"),
        (Failed([], (24, "Too many open files")), OSError, "Too many open files"),
        (None, OSError, "worker 1 ended with exit status 3 before it served clients"),
    ],
)
async def test_a_gate_whose_worker_cannot_start_does_not_start(
    failed: Failed | None, kind: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(0, monkeypatch)
    pool = WorkerPool(2, FakeOwner())
    monkeypatch.setattr(pool, "_start", rig._start)
    starting = asyncio.ensure_future(pool.start())
    await asyncio.sleep(0)
    one, two = pool.workers
    rig.pool = pool
    rig.serve(one)
    two.move(E.SPAWN)
    if failed is not None:
        pool.received(two, failed)
    pool.ended(two, 3)
    with pytest.raises(kind, match=text):
        await starting
    assert pool.restarts_total == 0
    await pool.stop(0)


async def test_a_worker_whose_loop_stands_still_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    rig = Rig(2, monkeypatch)
    killed: list[int] = []
    loop = asyncio.get_running_loop()
    for worker in rig.pool.workers:
        worker.heard = loop.time()
        monkeypatch.setattr(worker, "kill", lambda index=worker.index: killed.append(index))
    looking = asyncio.ensure_future(rig.pool._look())
    end = loop.time() + 10
    while not killed and loop.time() < end:
        rig.pool.workers[1].heard = loop.time()
        await asyncio.sleep(0.005)
    looking.cancel()
    assert killed == [0]
    assert "worker 0 was silent for 0 s: it is killed" in caplog.text
