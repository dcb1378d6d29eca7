"""``batchval proxy`` as a process, with its workers, that tests may kill, reload and let new ones
take over, on the same ports.

with GateCommand(broker.address, workers=2) as gate:
    ... gate.bootstrap ...  gate.hand_over()  os.kill(gate.workers()[0], signal.SIGKILL)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import yaml

from tests.support.health import page
from tests.support.ports import free_ports
from tests.support.processes import children, is_alive, until

LOOPBACK = "127.0.0.1"
BROKERS = 3  # node ids that are provided for
ROOT = Path(__file__).resolve().parents[2]


class GateCommand:
    """Ports stay through hand-overs, kill and start.

    ``settings``  of the file, besides listener and upstream
    ``facts``     of the line on standard output;  ``err``  what gates have logged that have ended
    ``codes``     exit codes of gates that were taken over
    """

    def __init__(self, upstream: str, **settings: Any) -> None:
        self.port = free_ports(BROKERS + 2)
        self.bootstrap = f"{LOOPBACK}:{self.port}"
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.config = self.folder / "gate.yaml"
        self.settings: dict[str, Any] = {
            "mode": "enforce",
            "listeners": [{"address": self.bootstrap, "broker_ports": BROKERS}],
            "upstream": {"bootstrap": upstream},
            "metrics": {"address": f"{LOOPBACK}:0"},
            "log": {"format": "json"},
            "state_directory": str(self.folder),
        } | settings
        self.process: subprocess.Popen[str] | None = None
        self._logs: dict[int, int] = {}  # process id -> descriptor
        self.facts: dict[str, Any] = {}
        self.err = ""
        self.codes: list[int] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    def start(self, *words: str) -> Self:
        """Start the proxy; return when it listens. Raises RuntimeError with its messages if it does
        not.
        """
        self.config.write_text(yaml.safe_dump(self.settings))
        command = [sys.executable, "-m", "batchval", "proxy", "--config", str(self.config), *words]
        with tempfile.TemporaryFile("w+", dir=self.folder) as log:  # a full pipe stops a gate
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            self._logs[process.pid] = os.dup(log.fileno())
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait(60)
            raise RuntimeError(self._log_of(process))
        self.process, self.facts = process, json.loads(line)
        return self

    def log(self) -> str:
        """Return what the gate that runs has logged."""
        file = self._logs[self.running.pid]
        return os.pread(file, os.fstat(file).st_size, 0).decode()  # the gate writes at its end

    def _log_of(self, process: subprocess.Popen[str]) -> str:
        with open(self._logs.pop(process.pid)) as log:
            log.seek(0)
            return log.read()

    @property
    def running(self) -> subprocess.Popen[str]:
        """Return the process that serves, the parent of the workers."""
        assert self.process is not None
        return self.process

    def take_over(self) -> subprocess.Popen[str]:
        """Start a new gate in place of the one that runs, which is returned: it drains."""
        before = self.running
        self.start("--take-over")
        return before

    def hand_over(self) -> None:
        """Replace the gate that runs; returns when it has ended."""
        self.codes.append(self.ended(self.take_over()))

    def workers(self) -> list[int]:
        """Return the processes of its workers."""
        return children(self.running.pid)

    def kill_worker(self) -> None:
        """Kill one worker with ``kill -9``; return when a new one serves in its place."""
        before, restarts = self.workers(), self.metrics()["worker_restarts_total"]
        os.kill(before[0], signal.SIGKILL)

        def is_whole() -> bool:
            found = self.metrics()
            return found["worker_restarts_total"] > restarts and found["workers"] == len(before)

        until(f"{len(before)} workers serve again", is_whole)

    def reload(self, **settings: Any) -> None:
        """Change settings in the file, and send SIGHUP; return when they are applied."""
        before = self._applied()
        self.settings |= settings
        fresh = self.config.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(self.settings))
        fresh.replace(self.config)
        self.signal(signal.SIGHUP)
        until("the settings are applied", lambda: self._applied() > before)

    def _applied(self) -> float:
        return self.metrics().get('config_reloads_total{result="applied"}', 0.0)

    def ended(self, process: subprocess.Popen[str]) -> int:
        """Return the exit code of a gate."""
        process.communicate(timeout=60)
        self.err += self._log_of(process)
        return process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process that serves."""
        self.running.send_signal(number)

    def end(self) -> int:
        """Send SIGTERM and return the exit code."""
        process = self.running
        self.signal(signal.SIGTERM)
        self.process = None
        return self.ended(process)

    def kill(self) -> None:
        """kill -9 of the process that serves; returns when its workers have ended, too."""
        process, self.process = self.process, None
        if process is not None:
            workers = children(process.pid)
            process.kill()
            until("the workers end", lambda: not any(map(is_alive, workers)), 20)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.ended(process)

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection((LOOPBACK, self.port), 10) as sock:
            yield sock

    def metrics(self) -> dict[str, float]:
        """Return the samples of /metrics by name and labels, as the page has them."""
        lines = [
            line.rpartition(" ")
            for line in self.get("/metrics")[1].splitlines()
            if not line.startswith("#")
        ]
        return {name.removeprefix("batchval_gate_"): float(value) for name, _, value in lines}

    def get(self, path: str) -> tuple[int, str]:
        return page(self.facts["metrics"], path)
