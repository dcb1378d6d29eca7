"""``batchval proxy`` as a process that new ones take over, one after the other, on the same
ports.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, TextIO

import yaml

from tests.support.ports import free_ports
from tests.support.proxy import eventually

LOOPBACK = "127.0.0.1"
BROKERS = 3  # node ids that are provided for
ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0


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
            "listeners": [{"address": self.bootstrap, "broker_ports": BROKERS}],
            "upstream": {"bootstrap": upstream},
            "metrics": {"address": f"{LOOPBACK}:0"},
            "log": {"format": "json"},
            "state_directory": str(self.folder),
        } | settings
        self.process: subprocess.Popen[str] | None = None
        self._logs: dict[int, TextIO] = {}
        self.facts: dict[str, Any] = {}
        self.err = ""
        self.codes: list[int] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    def start(self, *words: str) -> Self:
        """Returns when it listens. RuntimeError with its messages where it does not."""
        self.config.write_text(yaml.safe_dump(self.settings))
        command = [sys.executable, "-m", "batchval", "proxy", "--config", str(self.config), *words]
        with tempfile.TemporaryFile("w+", dir=self.folder) as log:  # a full pipe stops a gate
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
            self._logs[process.pid] = open(os.dup(log.fileno()))  # noqa: SIM115
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait(60)
            raise RuntimeError(self._log_of(process))
        self.process, self.facts = process, json.loads(line)
        return self

    def _log_of(self, process: subprocess.Popen[str]) -> str:
        with self._logs.pop(process.pid) as log:
            log.seek(0)
            return log.read()

    def take_over(self) -> subprocess.Popen[str]:
        """Start a new gate in place of the one that runs, which is returned: it drains."""
        before = self.process
        assert before is not None
        self.start("--take-over")
        return before

    def hand_over(self) -> None:
        """Replace the gate that runs; returns when it has ended."""
        self.codes.append(self.ended(self.take_over()))

    def worker_pids(self) -> list[int]:
        """Return the processes of its workers."""
        assert self.process is not None
        pid = self.process.pid
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def kill_worker(self) -> None:
        """``kill -9`` one worker; return when another is in its place."""
        before = self.worker_pids()
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: before[0] not in (now := self.worker_pids()) and len(now) == len(before), TIMEOUT_S)

    def reload(self) -> None:
        """Change limits and policies, and send SIGHUP; return when they are applied."""
        before = self._applied()
        limits = self.settings.setdefault("limits", {})
        limits["max_requests_waiting"] = limits.get("max_requests_waiting", 1000) + 1
        match = f"other-{limits['max_requests_waiting']}-*"
        self.settings["topics"] = {"policies": [{"match": match, "max.message.bytes": 1000}]}
        fresh = self.config.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(self.settings))
        fresh.replace(self.config)
        self.signal(signal.SIGHUP)
        eventually(lambda: self._applied() > before, TIMEOUT_S)

    def _applied(self) -> float:
        found = re.search(r'config_reloads_total\{result="applied"\} ([0-9.]+)', self.get("/metrics")[1])
        return float(found[1]) if found else 0.0

    def ended(self, process: subprocess.Popen[str]) -> int:
        """Return the exit code of a gate."""
        process.communicate(timeout=60)
        self.err += self._log_of(process)
        return process.returncode

    def signal(self, number: signal.Signals) -> None:
        """SIGTERM, SIGSTOP, SIGCONT."""
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> int:
        """SIGTERM; return the exit code."""
        self.signal(signal.SIGTERM)
        process, self.process = self.process, None
        assert process is not None
        return self.ended(process)

    def kill(self) -> None:
        """kill -9."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.ended(process)

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection((LOOPBACK, self.port), 10) as sock:
            yield sock

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.facts["metrics"], timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()
