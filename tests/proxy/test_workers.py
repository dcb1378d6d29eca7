"""Parts of a gate with several workers, without processes: states, choice, messages, metrics."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.clients import ClientKey, ClientTable, Served, Software
from batchval.proxy.config import Metrics
from batchval.proxy.discovery import DiscoveryOptions
from batchval.proxy.endpoints import EndpointState
from batchval.proxy.loading import ConfigError, settings_from
from batchval.proxy.metrics import BOUNDS_S, Family
from batchval.proxy.observed import OTHER, ObservedCounts, Row, RowKey
from batchval.proxy.options import Refusal
from batchval.proxy.workers import pool as module
from batchval.proxy.workers.channel import Channel, Pairs, connection_of, encoded, pass_connection
from batchval.proxy.workers.following import Asking, FollowingDiscovery, RemotePorts
from batchval.proxy.workers.messages import (
    AddressFailed,
    AddressReached,
    Closed,
    ClusterNews,
    Drain,
    Failed,
    Heartbeat,
    Learned,
    PassedHeader,
    PortAnswer,
    PortOf,
    Ready,
    Unauthenticated,
)
from batchval.proxy.workers.pool import Accepted, WorkerPool
from batchval.proxy.workers.shares import share_of, usable_cores, workers_of
from batchval.proxy.workers.states import TRANSITIONS, WorkerEvent, WorkerState
from batchval.proxy.workers.summing import SAMPLES_A_PIECE, Totals, packed, unpacked

S, E = WorkerState, WorkerEvent
GATE: dict[str, Any] = {"listeners": [{"address": ":9092"}], "upstream": {"bootstrap": "kafka:9092"}}
MIB = 1 << 20


# ---- states --------------------------------------------------------------------------------------


def test_a_worker_is_replaced_only_after_its_end() -> None:
    reached = {S.DEAD: {E.SPAWN: S.STARTING}}
    for state in (S.STARTING, S.SERVING):
        reached[state] = {E.DRAIN: S.DRAINING, E.EXIT: S.DEAD}
    reached[S.STARTING][E.READY] = S.SERVING
    reached[S.DRAINING] = {E.EXIT: S.DEAD}
    found: dict[S, dict[E, S]] = {state: {} for state in S}
    for (state, event), to in TRANSITIONS.items():
        found[state][event] = to
    assert found == reached


# ---- shares --------------------------------------------------------------------------------------


def test_each_worker_has_its_part() -> None:
    limits = {"max_bytes_held": 300 * MIB, "threads": 2, "max_connections": 50}
    settings = settings_from(GATE | {"workers": 3, "limits": limits, "state_directory": "/tmp/x"})
    assert workers_of(settings) == 3
    share = share_of(settings, 3)
    assert (share.limits.max_bytes_held, share.limits.threads, share.limits.max_connections) == (100 * MIB, 1, 50)
    assert (share.log.refusals_per_second, share.log.connections_per_second, share.workers) == (33, 33, 1)
    assert share.metrics.address is None
    assert share.state_directory is None
    assert pickle.loads(pickle.dumps(share)) == share


def test_auto_is_a_worker_for_each_core_that_has_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchval.proxy.workers.shares.usable_cores", lambda: 16)
    assert workers_of(settings_from(GATE)) == 1
    assert workers_of(settings_from(GATE | {"workers": "auto"})) == 5  # 512 MiB, 100 MiB for each
    limits = {"max_bytes_held": 10_000 * MIB}
    assert workers_of(settings_from(GATE | {"workers": "auto", "limits": limits})) == 16


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000\n", 4), ("150000 100000\n", 2), ("50000 100000\n", 1), ("900000 100000\n", 4), ("odd", 4), (None, 4)],
)
def test_usable_cores(text: str | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    if text is not None:
        (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path / "cpu.max") == cores


@pytest.mark.parametrize("value", [0, 65, -1, "2", "all", True, 1.5, None, [2]])
def test_a_wrong_number_of_workers_is_an_error(value: object) -> None:
    with pytest.raises(ConfigError, match=r"workers: must be a number from 1 to 64, or auto$"):
        settings_from(GATE | {"workers": value})


def test_each_worker_must_be_able_to_hold_the_largest_request() -> None:
    with pytest.raises(ConfigError) as found:
        settings_from(GATE | {"workers": 6})
    (line,) = found.value.problems
    assert "workers: each of 6 has 89478485 bytes of limits.max_bytes_held" in line
    assert line.endswith("set fewer workers, or max_bytes_held to 629145600 or more")


# ---- metrics -------------------------------------------------------------------------------------


def counter(value: float, *labels: str) -> Family:
    return Family("counter", "requests", "Requests.", ("api",) if labels else (), [(labels, value)])


def gauge(value: float, across: Any, name: str = "age") -> Family:
    return Family("gauge", name, "Age.", (), [((), value)], across)


def histogram(counts: list[int], total: float) -> Family:
    return Family("histogram", "latency", "Latency.", (), [((), (counts, total))])


def sample(families: list[Family], name: str, *labels: str) -> Any:
    (family,) = [one for one in families if one.name == name]
    return dict(family.samples)[labels]


def test_counters_never_go_down_and_gauges_are_those_of_running_workers() -> None:
    totals = Totals()
    first, second, third = (0, 1), (1, 1), (0, 2)
    buckets = [1] * (len(BOUNDS_S) + 1)
    answers = {
        first: packed([counter(5), gauge(3, "max"), gauge(3, "sum", "held"), histogram(buckets, 1.5)]),
        second: packed([counter(7), gauge(4, "max"), gauge(4, "sum", "held"), histogram(buckets, 2.0)]),
    }
    found = totals.merged([gauge(1, "sum", "workers")], answers, {}, 1)
    assert [sample(found, name) for name in ("requests", "age", "held", "workers")] == [12, 4, 7, 1]
    assert sample(found, "latency") == ([2] * len(buckets), 3.5)
    found = totals.merged([], {}, {}, 2)  # no worker has answered
    assert [sample(found, name) for name in ("requests", "age", "held")] == [12, 4, 7]
    found = totals.merged([], {third: packed([counter(1), gauge(0, "max"), gauge(1, "sum", "held")])}, {1: 1}, 3)
    assert [sample(found, name) for name in ("requests", "age", "held")] == [13, 3, 4]
    assert sample(found, "latency") == ([2] * len(buckets), 3.5)
    assert sample(totals.merged([], {}, {0: 2, 1: 1}, 4), "requests") == 13
    assert sample(totals.merged([], {}, {0: 2, 1: 1}, 5), "requests") == 13


def test_what_was_asked_before_an_end_and_comes_after_it_is_not_counted_again() -> None:
    totals = Totals()
    first, second = (0, 1), (0, 2)
    found = totals.merged([], {first: packed([counter(5)])}, {0: 1}, 1)  # ended after it
    assert sample(found, "requests") == 5
    assert sample(totals.merged([], {second: packed([counter(2)])}, {0: 1}, 2), "requests") == 7
    late = {first: packed([counter(5), gauge(3, "sum")])}
    found = totals.merged([], late, {0: 0}, 3)
    assert sample(found, "requests") == 7
    assert not [one for one in found if one.kind == "gauge"]
    assert sample(totals.merged([], {second: packed([counter(3)])}, {0: 1}, 4), "requests") == 8


def test_an_answer_that_comes_late_replaces_no_newer_one() -> None:
    totals = Totals()
    worker = (0, 1)
    assert sample(totals.merged([], {worker: packed([counter(7)])}, {}, 2), "requests") == 7
    assert sample(totals.merged([], {worker: packed([counter(5)])}, {}, 1), "requests") == 7
    assert sample(totals.merged([], {}, {}, 3), "requests") == 7
    assert sample(totals.merged([], {}, {0: 1}, 4), "requests") == 7  # what it counted to its end
    assert sample(totals.merged([], {(0, 2): packed([counter(1)])}, {0: 1}, 5), "requests") == 8


def test_labels_are_summed_one_by_one_and_long_families_come_in_pieces() -> None:
    many = Family("counter", "many", "Many.", ("n",), [((str(n),), n) for n in range(3 * SAMPLES_A_PIECE + 1)])
    content = packed([many, counter(1, "Produce")])
    assert len(pickle.loads(content)) == 5
    assert sum(len(list(one.samples)) for one in unpacked(content) if one.name == "many") == 3 * SAMPLES_A_PIECE + 1
    found = Totals().merged([counter(2, "Fetch")], {(0, 1): content, (1, 1): content}, {}, 1)
    assert sample(found, "many", "7") == 14
    assert (sample(found, "requests", "Produce"), sample(found, "requests", "Fetch")) == (2, 2)


def test_topics_and_nodes_are_bounded_over_all_workers() -> None:
    def refusals(*topics: str) -> bytes:
        samples = [((topic, "crc-mismatch"), 1) for topic in topics]
        requests = Family("counter", "requests", "R.", ("api", "node"), [(("Produce", f"{t}"), 1) for t in topics])
        return packed([Family("counter", "refusals", "Refusals.", ("topic", "rule"), samples), requests])

    bound = [Metrics(topics=2, nodes=1)]
    totals = Totals(lambda: bound[0])
    answers = {(0, 1): refusals("a", "b"), (1, 1): refusals("c", "bootstrap", "b", OTHER)}
    (topics, nodes) = totals.merged([], answers, {}, 1)
    rule = "crc-mismatch"
    assert dict(topics.samples) == {("a", rule): 1, ("b", rule): 2, (OTHER, rule): 3}
    assert dict(nodes.samples) == {("Produce", "a"): 1, ("Produce", "bootstrap"): 1, ("Produce", OTHER): 4}
    bound[0] = Metrics(topics=3, nodes=1)
    (topics, _) = totals.merged([], answers, {}, 2)
    assert dict(topics.samples)["c", rule] == 1
    (topics, _) = totals.merged([], {}, {0: 1, 1: 1}, 3)
    assert sum(dict(topics.samples).values()) == 6


def test_what_the_parent_counts_is_not_counted_twice() -> None:
    own = Family("counter", "connections", "Connections.", (), [((), 3)])
    found = Totals().merged([own], {(0, 1): packed([own])}, {}, 1)
    assert sample(found, "connections") == 3


def test_rows_of_refusals_move_to_the_parent() -> None:
    clock = iter(range(10**9, 10**12, 10**9))
    worker = ObservedCounts("enforce", is_known=lambda topic: topic == "known", clock_ns=lambda: next(clock))
    parent = ObservedCounts("enforce", is_known=lambda _: False, most=20)
    for topic in ("known", "known", "new", None):
        worker(Refusal("edge", "10.0.0.1:5", "c", topic, 0, "crc-mismatch", "CORRUPT_MESSAGE", "why", True))
    taken = []
    while rows := worker.take(1):
        taken += rows
    assert {(key.topic, row.batches, is_known) for key, row, is_known in taken} == {
        ("known", 2, True),
        ("new", 1, False),
        (OTHER, 1, False),
    }
    assert worker.snapshot().rows == []
    for key, row, _ in (*taken, *taken):
        parent.merge(key, row)
    rows = {key.topic: row.batches for key, row in parent.snapshot().rows}
    assert rows == {"known": 4, "new": 2, OTHER: 2}
    newest = Row(1, 5, 10**12, "10.0.0.9:1", None, 4, "CORRUPT_MESSAGE", "newest")
    parent.merge(RowKey("known", "User:ANONYMOUS", "crc-mismatch", True), newest)
    merged = dict(parent.snapshot().rows)[RowKey("known", "User:ANONYMOUS", "crc-mismatch", True)]
    assert (merged.batches, merged.first_ms, merged.reason) == (5, 5, "newest")


# ---- sockets -------------------------------------------------------------------------------------


@pytest.fixture
def pairs() -> Iterator[tuple[Pairs, Pairs]]:
    ours, theirs = Pairs.made()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_connection_is_passed_with_its_header(pairs: tuple[Pairs, Pairs]) -> None:
    ours, theirs = pairs
    header = PassedHeader(9, "edge", 3, (9095, ("kafka", 9092)))
    one, other = socket.socketpair()
    with other:
        pass_connection(ours.passing, header, one)
        one.close()
        passed = connection_of(theirs.passing)
        assert passed is not None
        found, connection = passed
        assert found == header
        assert connection is not None
        assert not connection.get_inheritable()
        with connection:
            connection.sendall(b"x")
            assert other.recv(1) == b"x"
    with pytest.raises(BlockingIOError):
        connection_of(theirs.passing)
    ours.passing.close()
    assert connection_of(theirs.passing) is None


def test_a_worker_that_takes_nothing_does_not_block_its_parent(pairs: tuple[Pairs, Pairs]) -> None:
    ours, _ = pairs
    one, other = socket.socketpair()

    def pass_all() -> None:
        for number in range(100_000):
            pass_connection(ours.passing, PassedHeader(number, "edge", None, None), one)

    with one, other, pytest.raises(BlockingIOError):
        pass_all()


async def test_messages_come_whole_and_in_order_however_they_are_cut(pairs: tuple[Pairs, Pairs]) -> None:
    ours, theirs = pairs
    received: list[object] = []
    ended = asyncio.Event()
    channel = Channel(received.append, ended.set)
    await channel.open(ours.control)
    messages = [Drain(1.0), Closed(list(range(50_000))), Heartbeat(3)]
    data = b"".join(map(encoded, messages))
    loop = asyncio.get_running_loop()
    theirs.control.setblocking(False)
    for cut in (data[:3], data[3:9], data[9:100_000], data[100_000:]):
        await loop.sock_sendall(theirs.control, cut)
        await asyncio.sleep(0.001)
    theirs.control.close()
    await asyncio.wait_for(ended.wait(), 10)
    assert received == messages
    channel.send(Heartbeat(4))  # nobody is there


def test_a_late_answer_is_not_taken_for_that_of_the_next_question(pairs: tuple[Pairs, Pairs]) -> None:
    ours, theirs = pairs
    asking = Asking(theirs.asking, timeout_s=0.05)
    with pytest.raises(OSError, match=r"parent process did not answer in 0\.05 s"):
        asking("first")
    asking = Asking(theirs.asking, timeout_s=10)
    asking._number = 1

    def answer() -> None:
        for _ in range(2):
            number, question = pickle.loads(ours.asking.recv(1000))
            ours.asking.send(pickle.dumps((number, question.upper())))

    thread = threading.Thread(target=answer)
    thread.start()
    assert asking("second") == "SECOND"
    thread.join()
    ours.asking.close()
    with pytest.raises(OSError, match=r"(?i)ended|broken pipe"):
        asking("third")


# ---- a worker's view of the cluster --------------------------------------------------------------

KAFKA = ("kafka", 9092)


class Parent:
    """Answers with a port, and keeps what is reported."""

    def __init__(self) -> None:
        self.reported: list[object] = []
        self.asked: list[object] = []
        self.answer: object = PortAnswer({("edge", 1): 9093})

    def __call__(self, question: object) -> object:
        self.asked.append(question)
        return self.answer

    def follower(self) -> FollowingDiscovery:
        options = DiscoveryOptions((KAFKA,))
        report: Any = self.reported.append
        asking: Any = self
        return FollowingDiscovery(options, "instance", report, asking)


def news(**more: Any) -> ClusterNews:
    known: dict[str, Any] = {"brokers": {1: KAFKA}, "cluster_id": "c", "requires_authentication": False}
    known |= {"endpoints": {KAFKA: (EndpointState.SERVING, "")}, "ports": {("edge", 1): 9093}}
    return ClusterNews(**(known | more))


def test_a_worker_follows_its_parent_and_reports_what_is_new(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")
    parent = Parent()
    follower = parent.follower()
    assert follower.unready() is not None
    follower.follow(news())
    assert (follower.unready(), follower.brokers, follower.requires_authentication) == (None, {1: KAFKA}, False)
    follower.reached(KAFKA)
    follower.answered_without_authentication()
    follower.learn(1, *KAFKA)
    assert parent.reported == []
    follower.learn(2, "other", 9092)
    follower.learn(1, "moved", 9092)
    follower.failed(KAFKA, ConnectionRefusedError(111, "refused"))
    follower.failed(KAFKA, ConnectionRefusedError(111, "refused"))
    follower.reached(KAFKA)
    assert parent.reported == [
        Learned(2, "other", 9092),
        Learned(1, "moved", 9092),
        AddressFailed(KAFKA, "Connection refused"),
        AddressReached(KAFKA),
    ]
    assert caplog.messages == []  # the parent writes these lines
    follower.follow(news(requires_authentication=None))
    follower.answered_without_authentication()
    assert parent.reported[4:] == [Unauthenticated()]
    follower.failed(KAFKA, OSError(24, "Too many open files"))  # this process' own matter
    assert len(parent.reported) == 5
    assert "was not tried: Too many open files" in caplog.text


def test_the_parent_is_asked_for_its_own_requests_alone() -> None:
    parent = Parent()
    follower = parent.follower()
    assert not follower.is_own_request("a client")
    assert parent.asked == []
    parent.answer = True
    assert follower.is_own_request("instance-0")
    parent.answer = False
    assert not follower.is_own_request("instance-1")


def test_ports_are_the_parents() -> None:
    parent = Parent()
    ports = RemotePorts(parent, {1: KAFKA, 2: ("two", 1)}.__getitem__)  # type: ignore[arg-type]
    ports.note({("edge", None): 9092})
    assert ports.open(("edge", None), "", [0]) == (9092, None)
    assert parent.asked == []
    for _ in range(2):
        assert ports.open(("edge", 1), "", [9100, 0]) == (9093, None)
    assert parent.asked == [PortOf("edge", 1, KAFKA)]
    parent.answer = PortAnswer({}, (98, "Address already in use"))
    with pytest.raises(OSError, match="Address already in use"):
        ports.open(("edge", 2), "", [0])


# ---- the pool ------------------------------------------------------------------------------------


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


async def test_connections_go_to_the_worker_with_the_fewest(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_connections_wait_while_all_workers_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(1, monkeypatch)
    (worker,) = rig.pool.workers
    rig.pool.received(worker, Heartbeat(5))
    assert rig.pool.judged == 5
    rig.pool.ended(worker, -11)
    assert rig.acceptor.is_held
    rig.connect(1)
    rig.serve(worker)
    assert rig.split() == [1]
    assert not rig.acceptor.is_held
    rig.pool.received(worker, Heartbeat(2))
    assert rig.pool.judged == 7


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


def test_clients_of_all_workers_are_one_table() -> None:
    from batchval.proxy.workers.worker import ROWS_A_TURN, ReportedClients

    keys = [
        ClientKey(f"c{i}", Software("librdkafka", "2"), "10.0.0.1", "User:ANONYMOUS", "edge")
        for i in range(ROWS_A_TURN + 1)
    ]
    parent, worker = ClientTable(), ReportedClients()
    for _ in range(2):  # who changes its client id all the time has one row for each
        for key in keys:
            worker.add(key, {3 << 16: 1}, Served(10, 20, 1, 5, 5, 1))
    worker.add(keys[0], {18 << 16: 1}, Served(1, 1, 1, 7, 7))
    sizes = []
    while taken := worker.take():
        sizes.append(len(taken))
        for client in taken:
            parent.add(*client)
    assert sizes == [ROWS_A_TURN, 1]
    rows = dict(parent.rows())
    assert {key: row.requests for key, row in rows.items()} == {key: 2 + (key is keys[0]) for key in keys}
    assert (rows[keys[0]].request_bytes, rows[keys[0]].answer_bytes, rows[keys[0]].stalls) == (21, 41, 2)
    assert Served(most_ns=5, total_ns=5).plus(Served(most_ns=7, total_ns=7)) == Served(most_ns=7, total_ns=12)


def test_the_clients_that_wait_to_be_reported_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from batchval.proxy.workers import worker as module

    monkeypatch.setattr(module, "MOST_CLIENTS", 10)
    worker = module.ReportedClients()
    for i in range(25):
        worker.add(ClientKey(str(i), Software(), "10.0.0.1", "User:ANONYMOUS", "edge"), {3 << 16: 1})
    assert [key.client_id for key, _, _ in worker.take()] == [str(i) for i in range(15, 25)]
    assert worker.evicted_total == 15
