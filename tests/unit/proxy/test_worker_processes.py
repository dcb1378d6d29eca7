"""Workers as processes: how connections are split, limits, kills, and their parent's end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator

import pytest

from batchval.protocol.messages.find_coordinator import FindCoordinatorResponse
from tests.support.gate_command import GateCommand
from tests.support.processes import is_alive, until
from tests.support.proxy import (
    LOOPBACK,
    ScriptedBroker,
    answered,
    batch,
    damaged,
    other_frame,
    produce_frame,
    read_frame,
)

pytestmark = pytest.mark.alone


def connect(gate: GateCommand, port: int | None = None) -> socket.socket:
    return socket.create_connection((LOOPBACK, port or gate.port), timeout=20)


def ask(client: socket.socket, frame: bytes) -> bytes:
    client.sendall(frame)
    return read_frame(client)


def is_served(client: socket.socket) -> bool:
    """Return whether the gate answers; it closes a connection that it refuses."""
    try:
        return bool(ask(client, produce_frame(1, ("t", 0, batch(b"x")))))
    except (EOFError, ConnectionError):
        return False


def answers(frame: bytes) -> bytes | None:
    """Send FindCoordinator, whose answer names a broker that no Metadata answer has."""
    if frame[:2] != b"\0\x0a":
        return answered(frame)
    answer = FindCoordinatorResponse(node_id=7, host="broker7.example.com", port=9777)
    return b"".join(answer.encode(int.from_bytes(frame[4:8], "big"), 0))


@contextlib.contextmanager
def clients(gate: GateCommand, count: int) -> Iterator[list[socket.socket]]:
    opened = [connect(gate) for _ in range(count)]
    try:
        yield opened
    finally:
        for one in opened:
            one.close()


def by_worker(found: dict[str, float]) -> list[float]:
    return [found['worker_connections{worker="0"}'], found['worker_connections{worker="1"}']]


def test_connections_limits_kills_and_the_end_of_the_parent() -> None:
    # One gate for all of it: its start takes longest.
    limits = {"max_connections": 100}
    with (
        ScriptedBroker(answers) as broker,
        GateCommand(broker.address, workers=2, limits=limits) as gate,
    ):
        the_split_is_even_and_limits_are_exact(gate)
        a_broker_that_traffic_names_is_at_one_port_for_all(gate)
        a_worker_is_killed(gate)
        all_workers_take_other_settings(gate)
        a_stopped_worker_does_not_hold_up_the_page(gate)
        workers = gate.workers()
        assert len(workers) == 2
        with clients(gate, 4) as open_ones:
            assert all(map(is_served, open_ones))
            os.kill(gate.running.pid, signal.SIGKILL)
            until("the workers end with their parent", lambda: not any(map(is_alive, workers)), 20)


def test_a_signal_to_all_processes_ends_a_gate_once_all_is_answered() -> None:
    # As systemd and terminals send it.
    with (
        ScriptedBroker() as broker,
        GateCommand(broker.address, workers=2) as gate,
        clients(gate, 2) as several,
    ):
        assert all(map(is_served, several))
        broker.reading.clear()
        for one in several:
            one.sendall(produce_frame(2, ("t", 0, batch(b"x"))))
        os.killpg(gate.running.pid, signal.SIGTERM)
        until("the gate drains", lambda: gate.get("/readyz") == (503, "draining\n"), 20)
        broker.reading.set()
        assert [read_frame(one)[:4] for one in several] == [b"\0\0\0\2"] * 2
        assert gate.running.wait(120) == 0
        assert gate.workers() == []
        assert "ERROR" not in gate.log()


def the_split_is_even_and_limits_are_exact(gate: GateCommand) -> None:
    with clients(gate, 110) as several:
        assert sum(map(is_served, several)) == 100
        found = gate.metrics()
        assert by_worker(found) == [50, 50]
        assert found["connections_open"] == 100
        assert found['connections_refused_by_total{reason="max_connections"}'] == 10
    until("the clients are gone", lambda: gate.metrics()["connections_open"] == 0, 20)
    with clients(gate, 1) as (client,):
        assert ask(client, produce_frame(1, ("t", 0, damaged(batch(b"x")))))
        found = gate.metrics()
    assert found["produce_partitions_total"] == 101
    assert found['partitions_refused_total{rule="crc-mismatch"}'] == 1
    (row,) = json.loads(gate.get("/clients")[1])["clients"]
    assert (row["client_id"], row["requests"]) == ("test", 101)
    (line,) = [
        line for line in map(json.loads, gate.log().splitlines()) if line["event"] == "refused"
    ]
    assert (line["level"], line["worker"] in (0, 1)) == ("WARNING", True)


def a_worker_is_killed(gate: GateCommand) -> None:
    first = gate.workers()[0]
    with clients(gate, 8) as several:
        assert all(map(is_served, several))
        before = gate.metrics()
        gate.kill_worker()
        assert sorted(map(is_served, several)) == [False] * 4 + [True] * 4
        with clients(gate, 4) as new:
            assert all(map(is_served, new))
            found = gate.metrics()
            assert by_worker(found) == [4, 4]
    down = {
        name: (before[name], found[name])
        for name in before
        if is_counter(name) and found[name] < before[name]
    }
    assert down == {}
    assert found["requests_total"] == before["requests_total"] + 8
    assert "was ended by SIGKILL with 4 connections: it is replaced at once" in gate.log()
    assert first not in gate.workers()


def all_workers_take_other_settings(gate: GateCommand) -> None:
    with clients(gate, 2) as several:
        assert all(map(is_served, several))
        refused = 'partitions_refused_total{rule="crc-mismatch"}'
        before = gate.metrics().get(refused)
        gate.reload(mode="observe")
        assert "settings reloaded: mode" in gate.log()
        for one in several:
            ask(one, produce_frame(1, ("t", 0, damaged(batch(b"x")))))
        found = gate.metrics()
        assert found['partitions_observed_total{rule="crc-mismatch"}'] == 2
        assert found.get(refused) == before


def is_counter(name: str) -> bool:
    return name.partition("{")[0].endswith("_total")


def a_stopped_worker_does_not_hold_up_the_page(gate: GateCommand) -> None:
    before = gate.metrics()
    stopped = gate.workers()[0]
    os.kill(stopped, signal.SIGSTOP)
    try:
        found = gate.metrics()  # with its last values
        assert found["requests_total"] == before["requests_total"]
        assert gate.get("/readyz") == (200, "ok\n")
    finally:
        os.kill(stopped, signal.SIGCONT)


def a_broker_that_traffic_names_is_at_one_port_for_all(gate: GateCommand) -> None:
    frame = other_frame(5, key=10, body=b"\0\1g")
    with clients(gate, 4) as several:
        named = [FindCoordinatorResponse.decode(ask(one, frame), 0) for one in several]
        assert by_worker(gate.metrics()) == [2, 2]
    assert {(answer.node_id, answer.host) for answer in named} == {(7, LOOPBACK)}
    (port,) = {answer.port for answer in named}
    with contextlib.closing(connect(gate, port)) as client:  # the parent listens there
        client.sendall(other_frame(1))
    assert gate.log().count("broker 7 (broker7.example.com:9777) is at port") == 1
    until("the clients are gone", lambda: gate.metrics()["connections_open"] == 0, 20)
