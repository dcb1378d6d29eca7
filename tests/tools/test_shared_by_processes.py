"""Test what processes share on one machine: ports, and registries that fail once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fetching as module
from tests.support.fetching import fetching
from tests.support.ports import BLOCK, RANGE, free_port, free_ports

ROOT = Path(__file__).resolve().parents[2]
PRINT = (
    "from tests.support.ports import free_port; print(*(free_port() for _ in range(200))); input()"
)


def test_no_port_is_returned_twice_by_any_process() -> None:
    command = [sys.executable, "-c", PRINT]
    others = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        ports = [free_port() for _ in range(200)]
        for other in others:
            assert other.stdout is not None
            ports += map(int, other.stdout.readline().split())
    finally:
        for other in others:
            other.communicate("\n")
    assert len(ports) == len(set(ports)) == 800
    assert all(port in RANGE for port in ports)


def test_ports_in_a_row_are_free() -> None:
    first = free_ports(5)
    for port in range(first, first + 5):
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_port_that_is_taken_is_passed_over() -> None:
    first = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 2))
        assert free_port() != first + 2


@pytest.mark.parametrize("count", [0, BLOCK])
def test_more_ports_than_a_block_has(count: int) -> None:
    with pytest.raises(ValueError, match=f"count is {count}: expected 1 to {BLOCK - 1}"):
        free_ports(count)


@pytest.mark.parametrize(("failures", "code", "runs"), [(0, 0, 1), (2, 0, 3), (3, 1, 3)])
def test_what_fetches_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, code: int, runs: int
) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0))
    script = (
        f"from pathlib import Path; p = Path('runs'); p.write_text((p.read_text() if p.exists() else '') + '.'); \
raise SystemExit(len(p.read_text()) <= {failures})"
    )
    done = fetching([sys.executable, "-c", script], cwd=tmp_path, environment=os.environ)
    assert (done.returncode, len((tmp_path / "runs").read_text())) == (code, runs)
