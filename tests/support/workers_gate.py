"""``batchval proxy`` with several workers, in processes of its own that tests may kill.

with WorkersGate(broker.address) as gate:
    ... gate.bootstrap ...  os.kill(gate.workers()[0], signal.SIGKILL)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.support.ports import free_ports
from tests.support.processes import children, is_alive, until

__all__ = ["WorkersGate"]

LOOPBACK = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[2]
BROKERS = 4  # node ids that are provided for


class WorkersGate:
    """Ports stay through kill and start. ``settings`` are those of a file, as keys and values."""

    def __init__(self, upstream: str, workers: int = 2, **settings: Any) -> None:
        self.port = free_ports(BROKERS + 2)
        self.metrics_port = self.port + BROKERS + 1
        self.bootstrap = f"{LOOPBACK}:{self.port}"
        self.settings = {
            "listeners": [{"address": self.bootstrap, "broker_ports": BROKERS}],
            "upstream": {"bootstrap": upstream},
            "metrics": {"address": f"{LOOPBACK}:{self.metrics_port}"},
            "workers": workers,
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory()
        self.log = Path(self._folder.name) / "log"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    @property
    def parent(self) -> subprocess.Popen[bytes]:
        """The parent process."""
        assert self.process is not None
        return self.process

    def start(self) -> Self:
        """Returns when it listens."""
        config = self._configure()
        command = [sys.executable, "-m", "batchval", "proxy", "--config", str(config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self.process.stdout is not None
        if not self.process.stdout.readline().startswith(b"listening"):
            self.kill()
            raise RuntimeError(f"the gate did not start: {self.log.read_text()}")
        return self

    def _configure(self) -> Path:
        config = Path(self._folder.name) / "gate.yaml"
        config.write_text(json.dumps(self.settings))
        return config

    def reload(self, **settings: Any) -> None:
        """Change settings in the file, and let the gate read it."""
        self.settings |= settings
        self._configure()
        os.kill(self.parent.pid, signal.SIGHUP)

    def kill(self) -> None:
        """kill -9 of the parent; returns when its workers have ended, too."""
        process, self.process = self.process, None
        if process is not None:
            workers = children(process.pid)
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            with contextlib.suppress(ProcessLookupError):
                until("the workers end", lambda: not any(map(is_alive, workers)), 20)

    def kill_worker(self, number: int) -> None:
        """kill -9 of one worker, once all of them serve."""
        count = self.settings["workers"]
        until("all workers serve", lambda: self.metrics()["workers"] == count)
        os.kill(sorted(self.workers())[number % count], signal.SIGKILL)

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        return children(self.parent.pid)

    def get(self, path: str) -> str:
        """Return a page of the metrics port, that of an error too."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.metrics_port}{path}", timeout=20) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def metrics(self) -> dict[str, float]:
        """Return the samples of /metrics by name and labels, as the page has them."""
        lines = [line.rpartition(" ") for line in self.get("/metrics").splitlines() if not line.startswith("#")]
        return {name.removeprefix("batchval_gate_"): float(value) for name, _, value in lines}

    def await_restart(self, restarts: int) -> None:
        """Wait until so many workers were replaced, and all serve."""
        count = self.settings["workers"]

        def is_whole() -> bool:
            found = self.metrics()
            return found["worker_restarts_total"] == restarts and found["workers"] == count

        until(f"{count} workers serve after {restarts} restarts", is_whole)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the parent."""
        os.kill(self.parent.pid, number)
