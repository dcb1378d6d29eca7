"""``batchval proxy`` is replaced: by --take-over on the same ports, or after
limits.stop_delay_ms.
"""

from __future__ import annotations

import signal
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.watch.observed_batches import NAME, read_observed
from tests.support.gate_command import LOOPBACK, GateCommand
from tests.support.ports import free_ports
from tests.support.proxy import (
    BAD,
    GOOD,
    ScriptedBroker,
    answered,
    eventually,
    other_frame,
    produce_frame,
    read_frame,
)


def served(gate: GateCommand, n: int = 1) -> bool:
    """Return whether a new client gets an answer."""
    with gate.connected() as sock:
        sock.sendall(other_frame(n))
        return read_frame(sock) == struct.pack(">i", n)


class Connecting:
    """Clients that come one after the other, each with a request; ``failed`` are those without an
    answer.
    """

    def __init__(self, gate: GateCommand) -> None:
        self.count, self.failed = 0, []
        self._gate = gate
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Connecting:
        self._thread.start()
        eventually(lambda: self.count)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._over.is_set():
            self.count += 1
            try:
                served(self._gate)
            except EOFError:
                pass  # the gate that drains had accepted it: the client comes again
            except OSError as error:
                self.failed.append(error)


@pytest.mark.long
def test_a_new_gate_serves_and_the_old_one_delivers_what_is_under_way() -> None:
    go = threading.Event()

    def answer(frame: bytes) -> bytes | None:
        if frame[:2] == b"\0\0":
            go.wait(20)
        return answered(frame)

    with ScriptedBroker(answer) as broker, GateCommand(broker.address) as gate:
        eventually(lambda: gate.get("/readyz")[0] == 200)
        facts = gate.facts
        with gate.connected() as sock, Connecting(gate) as clients:
            sock.sendall(produce_frame(1, ("orders", 0, GOOD)))
            eventually(lambda: any(frame[:2] == b"\0\0" for frame in broker.frames))
            old = gate.take_over()
            assert gate.facts == facts
            count = clients.count
            eventually(lambda: clients.count > count + 5)
            assert gate.get("/readyz") == (200, "ok\n")
            assert old.poll() is None
            go.set()
            assert read_frame(sock)[:4] == struct.pack(">i", 1)
            assert sock.recv(1) == b""
        assert clients.failed == []
        assert gate.ended(old) == 0
        assert f"process {gate.process.pid} has taken over" in gate.err  # type: ignore[union-attr]
        assert served(gate)
        assert gate.end() == 0
        assert not (gate.folder / "gate.sock").exists()


@pytest.mark.long
def test_a_new_gate_that_cannot_start_changes_nothing() -> None:
    with (
        ScriptedBroker() as broker,
        GateCommand(broker.address) as gate,
        socket.create_server((LOOPBACK, 0)) as taken,
    ):
        eventually(lambda: gate.get("/readyz")[0] == 200)
        other = {"name": "a", "address": f"{LOOPBACK}:{taken.getsockname()[1]}", "broker_ports": 1}
        gate.settings["listeners"].append(other)
        with pytest.raises(RuntimeError, match="Address already in use"):
            gate.start("--take-over")
        assert served(gate)
        assert gate.get("/readyz") == (200, "ok\n")
        assert gate.end() == 0
        (line,) = [line for line in gate.err.splitlines() if "does not take over" in line]
        assert "does not take over: cannot listen on" in line
        assert "Address already in use; this gate goes on" in line


@pytest.mark.long
def test_changed_addresses_and_the_files_of_the_state_directory() -> None:
    with ScriptedBroker() as broker, GateCommand(broker.address) as gate:
        eventually(lambda: gate.get("/readyz")[0] == 200)
        old_port, gate.port = gate.port, free_ports(5)
        with socket.create_connection((LOOPBACK, old_port), 10) as sock:
            sock.sendall(produce_frame(1, ("orders", 0, BAD), ("orders", 1, BAD)))
            read_frame(sock)
        gate.settings["listeners"] = [
            {"address": f"{LOOPBACK}:{gate.port}", "name": "other", "broker_ports": 3}
        ]
        gate.hand_over()
        assert served(gate)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, old_port), 10).close()
        with gate.connected() as sock:
            sock.sendall(produce_frame(1, ("orders", 0, BAD)))
            read_frame(sock)
        assert gate.end() == 0
        observed = read_observed(gate.folder / NAME)
        assert observed.judged == 3
        assert {key.topic: row.batches for key, row in observed.rows} == {"orders": 3}


def test_take_over_without_a_gate_starts_one() -> None:
    with ScriptedBroker() as broker, GateCommand(broker.address) as gate:
        assert gate.end() == 0
        gate.start("--take-over")
        assert served(gate)
        assert gate.end() == 0
        assert "there is nothing to take over" in gate.err


def test_the_ports_stay_open_for_the_stop_delay() -> None:
    limits: dict[str, Any] = {"stop_delay_ms": 600_000}
    with ScriptedBroker() as broker, GateCommand(broker.address, limits=limits) as gate:
        eventually(lambda: gate.get("/readyz")[0] == 200)
        gate.signal(signal.SIGTERM)
        eventually(lambda: gate.get("/readyz") == (503, "draining\n"))
        assert gate.get("/livez") == (200, "ok\n")
        assert served(gate)
        assert not Path(gate.folder / "gate.sock").exists()
        assert gate.end() == 0
