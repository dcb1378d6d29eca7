"""A gate that may open few files: clients beyond are refused, and health always answers."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchval.proxy.kit.open_files import (
    MAX_DESCRIPTORS,
    SpareFiles,
    connections_allowed,
    raise_limit,
    reserve_for,
)
from tests.support.calibration import slowness
from tests.support.health import page
from tests.support.processes import HANGS_S
from tests.support.proxy import ScriptedBroker, eventually, other_frame, read_frame

ROOT = Path(__file__).parents[3]
OPEN_FILES = 256
CLIENTS = 1000


def test_connections_that_open_files_allow() -> None:
    assert connections_allowed(1024, 10_000, 200) == 412
    assert connections_allowed(1024, 10, 200) == 10
    assert connections_allowed(128, 10_000, 200) < 1
    assert reserve_for(listening=101, threads=2, health=32) == 64 + 101 + 2 + 65
    assert reserve_for(listening=1, threads=1, health=0) == 66


def test_the_soft_limit_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.__setitem__(slice(2), new))
    assert (raise_limit(), limits) == (4096, [4096, 4096])
    assert (raise_limit(), limits) == (4096, [4096, 4096])
    limits[:] = [1024, 1 << 30]
    assert (raise_limit(), limits) == (MAX_DESCRIPTORS, [MAX_DESCRIPTORS, 1 << 30])
    limits[:] = [1024, resource.RLIM_INFINITY]
    assert raise_limit() == MAX_DESCRIPTORS
    limits[:] = [1024, 4096]

    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == 1024


def test_spare_files_are_taken_and_filled_up() -> None:
    spare = SpareFiles(3)
    spare.take()
    spare.take()
    assert len(spare) == 1
    spare.fill()
    assert len(spare) == 3
    spare.close()
    assert len(spare) == 0
    spare.take()


# ---- the gate's process --------------------------------------------------------------------------


@contextlib.contextmanager
def limited_gate(
    settings: dict[str, Any], folder: Path, open_files: int = OPEN_FILES
) -> Iterator[Any]:
    path = folder / "gate.yaml"
    path.write_text(yaml.safe_dump(settings))
    command = f"ulimit -n {open_files}; exec {sys.executable} -m batchval proxy --config {path} --log-format json"
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)


@pytest.mark.alone
def test_health_answers_however_many_clients_come(tmp_path: Path) -> None:
    # 1,000 clients at once: the first are served, others are hung up on, and nothing runs out of
    # files.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    listeners = [{"address": "127.0.0.1:0", "broker_ports": 100, "first_broker_port": 20100}]
    settings = {"listeners": listeners, "metrics": {"address": "127.0.0.1:0"}}
    with ScriptedBroker() as broker, contextlib.ExitStack() as held:
        gate = held.enter_context(
            limited_gate(settings | {"upstream": {"bootstrap": broker.address}}, tmp_path)
        )
        facts = json.loads(gate.stdout.readline())
        eventually(lambda: page(facts["metrics"], "/readyz")[0] == 200)
        host, _, port = facts["listeners"]["default"].rpartition(":")
        clients, served = [], 0
        for n in range(CLIENTS):
            sock = held.enter_context(socket.create_connection((host, int(port)), 20))
            clients.append(sock)
            with contextlib.suppress(OSError):
                sock.sendall(other_frame(n))
            if n % 100 == 99:
                for path in ("/livez", "/readyz", "/metrics"):
                    assert page(facts["metrics"], path)[0] == 200
        for sock in clients[:5]:
            assert read_frame(sock)
            sock.sendall(other_frame(7))
            assert read_frame(sock)[:4] == (7).to_bytes(4, "big")
            served += 1
        assert served == 5
        # idle connections to health cannot keep others out either
        idle = [
            socket.create_connection(tuple(facts["metrics"].rsplit(":", 1)), 20) for _ in range(20)
        ]
        assert page(facts["metrics"], "/livez")[0] == 200
        for sock in idle:
            sock.close()
        for sock in clients:
            sock.close()

        def free_again() -> bool:
            with socket.create_connection((host, int(port)), 20) as sock:
                sock.sendall(other_frame(9))
                try:
                    return sock.recv(1) == b"\0"
                except OSError:
                    return False

        eventually(free_again)
    log = (tmp_path / "log").read_text()
    assert "limits.max_connections is 12 here, not 10000: at most 256 open files are allowed" in log
    assert "Too many open files" not in log
    assert "Traceback" not in log


def test_too_few_open_files_to_start(tmp_path: Path) -> None:
    settings = {
        "listeners": [{"address": "127.0.0.1:0"}],
        "upstream": {"bootstrap": "127.0.0.1:1"},
        "metrics": {"address": None},
    }
    with limited_gate(settings, tmp_path, 160) as gate:
        assert gate.wait(HANGS_S) == 3
    words = (
        "at most 160 open files are allowed, and the gate keeps 167 for itself: raise it (ulimit -n"
    )
    assert words in (tmp_path / "log").read_text()


@pytest.mark.alone
def test_a_listener_that_runs_out_of_files_goes_on_later(tmp_path: Path) -> None:
    # Something else may use up all files: the loop is not kept busy, and accepts when there are
    # files again.
    program = """
import asyncio, resource, socket, sys, os, time
from batchval.proxy.cluster.listening_sockets import Acceptor, OpeningConnections

async def main():
    sock = socket.create_server(("127.0.0.1", 0))
    made = asyncio.Event()
    class Made(asyncio.Protocol):
        def connection_made(self, transport): made.set(); transport.abort()
    opening = OpeningConnections()
    acceptor = Acceptor(sock, lambda connection: opening.open(connection, Made()))
    client = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    files = []
    try:
        while True: files.append(os.open(os.devnull, os.O_RDONLY))
    except OSError: pass
    client.setblocking(False)
    client.connect_ex(sock.getsockname())
    began = time.process_time()
    await asyncio.sleep(0.5)
    assert not made.is_set()
    assert time.process_time() - began < CEILING
    for file in files: os.close(file)
    await asyncio.wait_for(made.wait(), 20)
    acceptor.close()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program.replace("CEILING", str(0.2 * slowness()))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
