"""Settings and connections of workers that start, end or do not answer. No process is created."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections.abc import Iterable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from batchval.proxy.cluster.discovery import ClusterNews
from batchval.proxy.cluster.listeners import ListeningPort
from batchval.proxy.life.gate import Gate
from batchval.proxy.life.reload import NotPrepared
from batchval.proxy.settings.loading import ConfigError, settings_from
from batchval.proxy.watch.metrics import Family
from batchval.proxy.workers import worker as module
from batchval.proxy.workers.channel import Channel, Pairs, encoded, pass_connection, read_message
from batchval.proxy.workers.control_messages import (
    Apply,
    Begin,
    Closed,
    Drain,
    Failed,
    PassedHeader,
    PortAnswer,
    Question,
    Ready,
    Reopen,
    WorkerConfiguration,
)
from batchval.proxy.workers.metric_totals import packed
from batchval.proxy.workers.parent import Parent
from batchval.proxy.workers.worker import WorkerGate, _serve, _Worker
from batchval.proxy.workers.worker_process import Worker
from batchval.proxy.workers.worker_reload import Outcome, Preparing
from batchval.proxy.workers.worker_states import WorkerEvent
from tests.support.network import until

GATE: dict[str, Any] = {
    "listeners": [{"address": "127.0.0.1:9092"}],
    "upstream": {"bootstrap": "127.0.0.1:1"},
    "metrics": {"address": None},
}
TLS = {"certificate": "missing.pem", "key": "missing.key"}
KAFKA = ("127.0.0.1", 1)
MIB = 1 << 20


def settings(**limits: int) -> Any:
    return settings_from(GATE | {"limits": limits})


# ---- the parent ----------------------------------------------------------------------------------


class Rig:
    """A parent that has started; ``outcomes`` are what its workers answer to other settings."""

    def __init__(self, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parent = Parent(settings(max_connections=100), workers)
        self.gate = Gate(settings(max_connections=100), workers=self.parent)
        self.pool = self.parent.pool
        self.pool._started = asyncio.get_running_loop().create_future()
        self.outcomes: dict[int, Outcome] = {}
        monkeypatch.setattr(self.pool, "ask", self._ask)
        for index in range(workers):
            self.serve(index, 60)
        self.parent._capacity = self.pool.capacity

    def serve(self, index: int, connections: int) -> None:
        worker = self.pool.workers[index]
        worker.move(WorkerEvent.SPAWN)
        self.pool.received(worker, Ready(connections))

    def end(self, index: int) -> None:
        self.pool.workers[index].move(WorkerEvent.EXIT)

    async def _ask(self, *_: object) -> dict[tuple[int, int], bytes]:
        answering = [one for one in self.pool.serving if one.index in self.outcomes]
        return {one.key: pickle.dumps(self.outcomes[one.index]) for one in answering}

    async def reload(self, **limits: int) -> int:
        """Return how many clients the gate admits then."""
        (await self.gate.prepare(settings(**limits))).apply()
        return self.gate.shared.budget.max_connections


async def test_workers_that_start_are_counted_as_those_that_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(3, monkeypatch)
    rig.end(0)
    rig.outcomes = {1: Outcome([], 40), 2: Outcome([], 40)}
    assert await rig.reload(max_connections=1_000) == 120
    rig.end(1), rig.end(2)
    assert await rig.reload(max_connections=1_000) == 120  # nobody answers: as before
    for index in range(3):
        rig.serve(index, 200)
    assert rig.gate.shared.budget.max_connections == 600
    rig.pool.received(rig.pool.workers[0], Ready(100))
    assert rig.gate.shared.budget.max_connections == 500


async def test_the_later_of_two_scrapes_wins_whichever_is_merged_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(1, monkeypatch)
    counts = iter((5, 7, 9))

    async def ask(*_: object) -> dict[tuple[int, int], bytes]:
        family = Family("counter", "requests", "Requests.", (), [((), next(counts))])
        return {(0, 1): packed([family])}

    def requests(families: Iterable[Family]) -> object:
        return next(one.samples for one in families if one.name == "requests")

    monkeypatch.setattr(rig.pool, "ask", ask)
    monkeypatch.setattr(rig.pool, "ended_starts", dict)
    older, newer = await rig.gate.pages.families(), await rig.gate.pages.families()
    assert [requests(newer()), requests(older())] == [[((), 7)], [((), 7)]]
    newest = await rig.gate.pages.families()
    assert requests(newest()) == [((), 9)]


async def test_all_workers_open_their_audit_files_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    # SIGHUP reaches the parent alone, which writes no row.
    rig = Rig(2, monkeypatch)
    sent: dict[int, list[object]] = {0: [], 1: []}
    for one in rig.pool.workers:
        monkeypatch.setattr(one, "send", sent[one.index].append)
    rig.gate.reopen_files()
    assert sent == {0: [Reopen()], 1: [Reopen()]}
    ends, theirs = Pairs.made()
    try:
        worker = _Worker(parts(), theirs)
        worker.gate = Mock()
        worker._received(Reopen())
        worker.gate.reopen_files.assert_called_once_with()
    finally:
        ends.close(), theirs.close()


async def test_a_reload_that_is_refused_leaves_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(2, monkeypatch)
    rig.outcomes = {0: Outcome([], 1)}
    with pytest.raises(NotPrepared, match="worker 1 did not prepare the settings"):
        await rig.reload(max_connections=1)
    rig.outcomes[1] = Outcome(["topics: wrong"], 0)
    with pytest.raises(ConfigError, match="topics: wrong"):
        await rig.reload(max_connections=1)
    rig.serve(0, 60)
    assert rig.gate.shared.budget.max_connections == 100


async def test_the_largest_request_must_fit_into_the_workers_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(2, monkeypatch)
    with pytest.raises(ConfigError) as found:
        await rig.reload(max_bytes_held=10 * MIB, max_frame_bytes=6 * MIB)
    (line,) = found.value.problems
    assert line.startswith(
        "workers: each of 2 has 5242880 bytes of limits.max_bytes_held, which is below"
    )


async def test_a_parent_leaves_validation_to_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Rig(1, monkeypatch).gate
    monkeypatch.setattr(gate.record_parts, "start", started := Mock())
    topics: Any = Mock(is_awaited=True)
    gate.cluster_topics = topics
    gate.start_validation(), gate.read_topics_anew()
    started.assert_not_called(), topics.run.assert_not_called()
    assert gate.preparing() == gate.unready()  # workers read topics before they are ready


async def test_a_parent_without_a_worker_is_unready(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(1, monkeypatch)
    assert str(rig.gate.unready()).startswith("no broker can be reached")
    rig.end(0)
    assert rig.gate.unready() == "no worker serves clients"
    rig.gate.leave()
    assert rig.gate.unready() == "draining"


async def test_a_connection_that_waits_is_passed_when_a_worker_can_serve_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(1, monkeypatch)
    (worker,) = rig.pool.workers
    passed: list[object] = []
    monkeypatch.setattr(worker, "give", lambda header, *_: passed.append(header))
    rig.pool.received(worker, Ready(0))
    with socket.socket() as connection:
        rig.pool.take((connection, "header", None))  # type: ignore[arg-type]
        assert passed == []
        rig.pool.received(worker, Ready(1))
        assert passed == ["header"]


# ---- a process that is being created -------------------------------------------------------------


def passed_connection() -> Mock:
    return Mock(**{"getpeername.return_value": ("127.0.0.1", 50_000)})


async def test_a_connection_to_the_port_of_a_forgotten_broker_is_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(1, monkeypatch)
    headers: list[PassedHeader] = []
    monkeypatch.setattr(rig.pool.workers[0], "give", lambda header, *_: headers.append(header))
    listener = ListeningPort(2, None, "127.0.0.1", 9094, ("127.0.0.1", 9094))
    for brokers in ({2: KAFKA}, {}):
        rig.gate.discovery.brokers = brokers
        rig.gate.proxies["default"].take(passed_connection(), listener)
    assert [header[1:] for header in headers] == [
        ("default", 2, (9094, KAFKA)),
        ("default", 2, None),
    ]


async def test_a_connection_that_a_defect_keeps_from_the_workers_frees_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(1, monkeypatch)
    proxy, budget = rig.gate.proxies["default"], rig.gate.shared.budget
    listener = ListeningPort(None, None, "127.0.0.1", 9092, ("127.0.0.1", 9092))
    free = budget.free_connections()
    broken = passed_connection()
    with monkeypatch.context() as patch:
        patch.setattr(rig.pool.workers[0], "give", Mock(side_effect=ZeroDivisionError))
        with pytest.raises(ZeroDivisionError):
            proxy.take(broken, listener)
    assert budget.free_connections() == free
    broken.close.assert_called_once()
    monkeypatch.setattr(rig.pool.workers[0], "give", taken := Mock())
    proxy.take(passed_connection(), listener)
    taken.assert_called_once()  # it does not wait for the other one


class Process:
    """One that runs until ``ended``."""

    pid = 1

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def wait(self) -> int:
        await self.ended.wait()
        return 0


class Owner:
    def received(self, *_: object) -> None: ...
    def asked(self, _: object) -> object: ...
    def ended(self, *_: object) -> None: ...


async def test_what_changes_while_a_process_is_created_reaches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, process = Worker(0, Owner()), Process()
    current = ["old"]
    theirs: list[socket.socket] = []

    async def create(*_: object, pass_fds: list[int], **__: object) -> Process:
        theirs.append(socket.socket(fileno=os.dup(pass_fds[0])))
        current[:] = ["new"]
        worker.send(Apply(b"new"))
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create)
    await worker.spawn(lambda: current)  # type: ignore[arg-type, return-value]
    worker.send(Apply(b"newer"))
    (control,) = theirs
    begin, apply = [await asyncio.to_thread(read_message, control) for _ in range(2)]
    assert isinstance(begin, Begin)
    assert pickle.loads(begin.parts) == ["new"]
    assert apply == Apply(b"newer")
    control.close()
    process.ended.set()
    await worker.wait_ended()


# ---- a worker ------------------------------------------------------------------------------------


def parts(**news: Any) -> WorkerConfiguration:
    known = {"brokers": {}, "cluster_id": None, "requires_authentication": None, "endpoints": {}}
    known |= {"ports": {("default", None): 9092}}
    return WorkerConfiguration(0, settings(), "", "instance", b"", ClusterNews(**known | news))


async def test_a_worker_opens_the_listener_that_a_connection_has_come_by() -> None:
    def no_port(_: object) -> PortAnswer:
        return PortAnswer({}, (98, "Address already in use"))

    worker = WorkerGate(parts(brokers={1: KAFKA}), no_port, lambda _: None)  # type: ignore[arg-type]
    await worker.gate.start()
    cluster = worker.gate.proxies["default"].cluster
    assert 1 not in cluster.brokers
    one, other = socket.socketpair()
    gone: list[int] = []
    with other:
        worker.adopt(PassedHeader(1, "default", 1, (9093, KAFKA)), one, lambda: gone.append(1))
        assert cluster.brokers[1].port == 9093
        assert gone == []
    await worker.gate.stop(0)


async def test_a_worker_leaves_lines_about_settings_to_its_parent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = WorkerGate(parts(), Mock(), lambda _: None).gate
    await gate.start()
    await gate.stop(0)
    assert "no mode is set" not in caplog.text


async def test_a_connection_to_a_forgotten_broker_waits_for_its_news() -> None:
    worker = WorkerGate(parts(), Mock(), lambda _: None)
    gate = worker.gate
    await gate.start()
    gone = asyncio.Event()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        one, _ = server.accept()
        worker.adopt(PassedHeader(1, "default", 7, None), one, gone.set)
        proxy = gate.proxies["default"]
        async with asyncio.timeout(10):
            while not proxy.connections:
                await asyncio.sleep(0.001)
        (session,) = proxy.connections
        assert session.listener.node_id == 7
    await asyncio.wait_for(gone.wait(), 10)
    assert gate.shared.budget.counters.connections_open == 0
    await gate.stop(0)


async def test_a_connection_that_cannot_be_served_holds_up_no_other(
    pairs: tuple[Pairs, Pairs], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = pairs
    worker = _Worker(parts(), theirs)
    sent: list[object] = []
    monkeypatch.setattr(worker._channel, "send", sent.append)
    clients = []
    for number in (1, 2):
        one, client = socket.socketpair()
        pass_connection(ours.passing, PassedHeader(number, "unknown", None, None), one)
        one.close()
        clients.append(client)
    worker._take_connections()
    await asyncio.sleep(0)
    assert sent == [Closed([1, 2])]
    assert "a connection could not be served" in caplog.text
    for client in clients:
        with client:
            assert client.recv(1) == b""


async def test_settings_that_fail_are_reported_whatever_comes_meanwhile(
    pairs: tuple[Pairs, Pairs],
) -> None:
    ours, theirs = pairs
    wrong = settings_from(GATE | {"listeners": [GATE["listeners"][0] | {"tls": TLS}]})
    received: list[object] = []
    parent = Channel(received.append, lambda: None)
    await parent.open(ours.control)
    for message in (parts().news, Apply(pickle.dumps(wrong)), Question(1, "families"), Drain(1.0)):
        parent.send(message)
    assert await _serve(parts()._replace(settings=wrong), theirs) == 1
    assert received == [Failed(["missing.pem: No such file or directory"])]


async def test_what_a_worker_sends_last_is_read_although_its_parent_still_sends(
    pairs: tuple[Pairs, Pairs],
) -> None:
    ours, theirs = pairs
    channel = Channel(lambda _: None, lambda: None)
    await channel.open(theirs.control)
    channel.send(Closed([1]))
    finishing = asyncio.ensure_future(channel.finish())
    await asyncio.sleep(0.01)
    channel.send(Closed([2]))
    for _ in range(3):
        ours.control.sendall(encoded(parts().news))  # EPIPE where the worker has closed
        await asyncio.sleep(0)
    assert read_message(ours.control) == Closed([1])
    assert ours.control.recv(1) == b""
    assert not finishing.done()
    ours.control.close()
    await finishing


async def test_a_worker_is_ready_once_it_serves_and_after_each_reload(
    pairs: tuple[Pairs, Pairs], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pairs
    monkeypatch.setattr(module, "Watchdog", Mock())
    monkeypatch.setattr(module, "calm_collector", Mock())
    topics = Mock(is_awaited=True, run=AsyncMock())
    always = property(lambda _: topics, lambda *_: None)
    monkeypatch.setattr(Gate, "cluster_topics", always, raising=False)
    received: list[object] = []
    parent = Channel(received.append, lambda: None)
    await parent.open(ours.control)

    def ready() -> list[object]:
        return [one for one in received if isinstance(one, Ready)]

    worker = _Worker(parts(), theirs)
    running = asyncio.ensure_future(worker.run())
    parent.send(Apply(pickle.dumps(settings(max_connections=7))))
    await until(lambda: worker.gate.settings.limits.max_connections == 7)
    assert ready() == []
    topics.is_awaited = False
    await until(ready)
    parent.send(Apply(pickle.dumps(settings(max_connections=5))))
    await until(lambda: len(ready()) == 2)
    parent.send(Drain(0.0))
    assert await running == 0
    assert ready() == [Ready(7), Ready(5)]


async def test_a_worker_that_cannot_apply_settings_ends(
    pairs: tuple[Pairs, Pairs], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = _Worker(parts(), pairs[1])
    worker._serves = True
    worker.gate = WorkerGate(parts(), Mock(), Mock()).gate
    worker._preparing = Preparing(worker.gate)
    sent: list[object] = []
    monkeypatch.setattr(worker._channel, "send", sent.append)
    await worker._apply(pickle.dumps(settings(drain_timeout_ms=7_000)))
    worker._parent_ended()
    assert (worker._code, worker._drain.get_nowait(), len(sent)) == (0, 7, 1)  # Ready
    monkeypatch.setattr(
        worker.gate, "prepare", Mock(side_effect=ConfigError(["certificate: cannot be read"]))
    )
    await worker._apply(pickle.dumps(settings(drain_timeout_ms=8_000)))
    assert (worker._code, worker._drain.get_nowait(), len(sent)) == (1, 0, 1)
    assert "certificate: cannot be read" in caplog.text


async def test_a_defect_of_preparing_is_answered() -> None:
    class Broken:
        async def prepare(self, _: object) -> Any:
            raise ZeroDivisionError

    preparing = Preparing(Broken())  # type: ignore[arg-type]
    assert await preparing.prepare(pickle.dumps(None)) == Outcome(["ZeroDivisionError"], 0)
