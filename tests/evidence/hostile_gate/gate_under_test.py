"""A gate as ``batchval proxy --config`` starts it, watched from outside: CPU, memory, callbacks.

    with GateUnderTest(checkout, folder, settings) as gate:
        gate.address  gate.cpu_s()  gate.peak_bytes()  gate.longest()  gate.metrics()

``checkout`` is any built checkout of the project: only the command line is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.evidence.hostile_gate.watched_gate import COLLECTOR, COLLECTOR_AT, HEAD, SIZE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LOOPBACK = "127.0.0.1"
MAX_BYTES_HELD = 128 << 20
Settings = dict[str, Any]


class Longest(NamedTuple):
    """CPU time of the loop's thread: the longest callback with its name, the longest turn."""

    callback_s: float
    turn_s: float
    name: str


class Child:
    """A process of the harness that prints its first line when it is ready."""

    def __init__(
        self,
        *command: object,
        cwd: Path = ROOT,
        nice: int = 0,
        stderr: Any = None,
        **environment: str,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=os.environ | environment,
            preexec_fn=(lambda: os.nice(nice) and None) if nice else None,  # noqa: PLW1509
        )

    def line(self) -> str:
        """Return its next line; EOFError where it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"{self.process.args!r} ended with {self.process.wait()}")
        return line.strip()

    def ask(self, words: str, timeout_s: float = 60.0) -> Any:
        """Send a line and return the JSON that it prints; it is killed where it prints nothing."""
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        hang = threading.Timer(timeout_s, self.process.kill)
        hang.start()
        try:
            return json.loads(self.line())
        finally:
            hang.cancel()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class GateUnderTest:
    """The gate's process and those of its two brokers: one for attackers, one for the prober."""

    def __init__(self, checkout: Path, folder: Path, settings: Settings) -> None:
        self.checkout, self.folder, self.settings = checkout, folder, settings
        self.shared = folder / "longest"
        self.log = folder / "gate.log"
        self.uses_tls = False

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as running:
            innocent = Child(HERE / "broker.py")
            running.callback(innocent.stop)
            broker = Child(HERE / "broker.py", innocent.line())
            running.callback(broker.stop)
            self.broker = broker
            self._start(int(broker.line()), running)
            self.running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.running.close()

    def _start(self, broker_port: int, running: contextlib.ExitStack) -> None:
        settings: Settings = {
            "mode": "enforce",
            "listeners": [{"address": f"{LOOPBACK}:0", "first_broker_port": 0}],
            "upstream": {"bootstrap": f"{LOOPBACK}:{broker_port}"},
            "metrics": {"address": f"{LOOPBACK}:0"},
            "log": {"format": "json"},
            "limits": {"max_bytes_held": MAX_BYTES_HELD},
        }
        for key, value in self.settings.items():
            is_part = isinstance(value, dict) and isinstance(settings.get(key), dict)
            settings[key] = settings[key] | value if is_part else value
        log_settings = settings["log"]
        self.audit_file = log_settings.get("audit_file")
        self.max_audit_bytes = (
            log_settings["audit_max_bytes"] * log_settings["audit_max_files"]
            if self.audit_file
            else 0
        )
        self.max_bytes_held = settings["limits"].get("max_bytes_held", 512 << 20)
        file = self.folder / "gate.yaml"
        file.write_text(json.dumps(settings))
        file.chmod(0o600)
        self.shared.write_bytes(bytes(SIZE))
        program = HERE / "watched_gate.py"
        with self.log.open("wb") as log:
            self.gate = Child(
                *(program, self.shared, "proxy", "--config", file),
                cwd=self.folder,
                stderr=log,
                PYTHONPATH=f"{self.checkout}:{self.folder}",  # with rules of a test
                PYTHONDONTWRITEBYTECODE="1",
            )
        running.callback(self.gate.stop)
        self.pid = self.gate.process.pid
        try:
            announced = json.loads(self.gate.line())
        except EOFError as error:
            raise RuntimeError(f"the gate did not start: {self.log.read_text()[-2000:]}") from error
        host, _, port = announced["listeners"]["default"].rpartition(":")
        self.address = (host, int(port))
        self.metrics_at = announced["metrics"]
        self._clock = (~self.pid << 3) | 2  # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)

    @property
    def is_alive(self) -> bool:
        return self.gate.process.poll() is None

    @property
    def is_broker_alive(self) -> bool:
        """Return whether the broker of attackers has got no request that must not come."""
        return self.broker.process.poll() is None

    def cpu_s(self) -> float:
        """Return user and system time of all threads so far."""
        return time.clock_gettime(self._clock)

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
        return int(found[1]) << 10 if found else 0

    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """Return the most memory that was resident since `forget`."""
        return self._status("VmHWM")

    def forget(self) -> None:
        """Start to measure the peak and the longest callback again."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        with self.shared.open("r+b") as shared:
            shared.write(bytes(SIZE))

    def longest(self) -> Longest:
        """Return the longest callback and turn since `forget`."""
        data = self.shared.read_bytes()
        callback, turn, size = HEAD.unpack_from(data)
        return Longest(
            callback / 1e9, turn / 1e9, data[HEAD.size : HEAD.size + size].decode(errors="replace")
        )

    def collector(self) -> tuple[float, float]:
        """Return the CPU seconds of the cycle collector since `forget`, and of its longest run."""
        total, most = COLLECTOR.unpack_from(self.shared.read_bytes(), COLLECTOR_AT)
        return total / 1e9, most / 1e9

    def metrics(self, timeout_s: float = 30.0) -> str:
        """Return the text of /metrics."""
        with urllib.request.urlopen(
            f"http://{self.metrics_at}/metrics", timeout=timeout_s
        ) as answer:
            return str(answer.read().decode())

    def audit_bytes(self) -> int:
        """Return the bytes of log.audit_file and of its renamed files."""
        if not self.audit_file:
            return 0
        return sum(path.stat().st_size for path in self.folder.glob(f"{self.audit_file}*"))

    def status_for(self, host: str, timeout_s: float = 30.0) -> int:
        """Return the status of /clients for a web page of this host."""
        url = f"http://{self.metrics_at}/clients"
        try:
            asked = urllib.request.Request(url, headers={"Host": host})
            with urllib.request.urlopen(asked, timeout=timeout_s) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def bytes_held(self) -> int:
        found = re.search(r"^batchval_gate_bytes_held (\S+)$", self.metrics(), re.MULTILINE)
        assert found is not None
        return int(float(found[1]))

    def settle(self, share: float, seconds: float = 12.0) -> bool:
        """Wait until the gate takes at most this share of a core over 0.25 s; False if never."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.is_alive:
            before, began = self.cpu_s(), time.monotonic()
            time.sleep(0.25)
            if self.cpu_s() - before <= share * (time.monotonic() - began) + 0.03:
                return True
        return False
