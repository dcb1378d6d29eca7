"""Measure what a reload adds to latencies: seconds with reloads and seconds without, in turns.

    python -m bench reloads [--rounds 10] [--policies 100] [--connections 1000]

A gate with so many topic policies stands between the client and the broker of wire.c. The client
sends requests of 1 kB at a fixed pace on all its connections. In every other part, the file of
settings changes every EACH_S, and the gate gets SIGHUP. The result is the median, over the rounds,
of the differences of p50 and p99, and the number of reloads that were applied.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from bench import runs
from bench.proxy import ends, load
from tests.support.ports import free_ports

EACH_S: Final = 0.25
#: The first request of a connection waits for the one to the broker: first requests have to stay
#: below 1 % of all.
REQUESTS_EACH: Final = 120
LEAST_REQUESTS: Final = 6_000
REQUESTS_A_SECOND: Final = 4_000
FIGURES: Final = ("p50_us", "p99_us")


class Gate:
    """``batchval proxy`` with a file of settings that changes."""

    def __init__(self, folder: Path, broker_port: int, policies: int) -> None:
        self.path = folder / "gate.yaml"
        self.port = free_ports(4)
        self.metrics = self.port + 3
        self.policies = policies
        self.broker_port = broker_port
        self.turn = 0
        self.change()
        command = [sys.executable, "-m", "batchval", "proxy", "--config", str(self.path)]
        self.process = subprocess.Popen(
            command, cwd=runs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def change(self) -> None:
        """Write the file with other policies."""
        self.turn += 1
        lines = ["mode: enforce", "listeners:"]
        lines += [f"  - {{address: '127.0.0.1:{self.port}', broker_ports: 2}}"]
        lines += [
            f"upstream: {{bootstrap: '127.0.0.1:{self.broker_port}'}}",
            "reload: {watch: false}",
        ]
        lines += [f"metrics: {{address: '127.0.0.1:{self.metrics}'}}", "topics:", "  policies:"]
        for n in range(self.policies):
            lines += [
                f"    - match: 'topic-{n}-*'",
                f"      max.message.bytes: {1_000_000 + self.turn}",
            ]
            lines += ["      cleanup.policy: compact"] * (n % 2)
        lines += ["    - match: '*'", f"      max.message.bytes: {2_000_000 + self.turn}"]
        self.path.write_text("\n".join(lines) + "\n")

    def reload(self) -> None:
        """Change the file, and say so."""
        self.change()
        self.process.send_signal(signal.SIGHUP)

    def applied(self) -> int:
        """Return how many reloads were applied."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics") as page:
            for line in page.read().decode().splitlines():
                if line.startswith('batchval_gate_config_reloads_total{result="applied"}'):
                    return int(float(line.rpartition(" ")[2]))
        return 0

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def measured(
    gate: Gate, frames: load.Load, answers: Path, mask: Path, connections: int
) -> dict[str, Any]:
    """Return the latencies of one part."""
    requests = max(LEAST_REQUESTS, REQUESTS_EACH * connections)
    pace = REQUESTS_A_SECOND * frames.frame_bytes
    words = [str(ends.wire()), "paced", str(gate.port), str(frames.path), str(answers), str(mask)]
    words += [str(connections), "8", str(requests), str(pace)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def with_reloads(gate: Gate, *arguments: Any) -> dict[str, Any]:
    """Return the latencies of one part in which the settings change."""
    over = threading.Event()

    def change() -> None:
        while not over.wait(EACH_S):
            gate.reload()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        return measured(gate, *arguments)
    finally:
        over.set()
        thread.join()


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    parser = runs.parser(__doc__, rounds=10, quick="", out="proxy/reloads", is_saved=False)
    add = parser.add_argument
    add("--policies", type=int, default=100, help="Topic policies of the gate (default: 100).")
    add("--connections", type=int, default=1000, help="Connections (default: 1000).")
    options = runs.parse(parser, argv)
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    ends.Place().take()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answers, frames = load.answers(folder / "answers"), load.make(folder, "1 kB")
        mask = folder / "mask"
        mask.write_bytes(b"\xff" * len(load.produce_answer()))
        broker = ends.broker(answers, ends.Place())
        gate = Gate(folder, broker.port, options.policies)
        try:
            rounds = []
            measured(gate, frames, answers, mask, options.connections)
            for _ in range(options.rounds):
                calm = measured(gate, frames, answers, mask, options.connections)
                busy = with_reloads(gate, frames, answers, mask, options.connections)
                rounds.append((calm, busy))
            time.sleep(EACH_S)
            applied = gate.applied()
        finally:
            gate.stop()
            broker.stop()
    found = {**runs.head(), "applied": applied, "rounds": rounds, **medians(rounds)}
    rows = [(what, *found[what]) for what in FIGURES]
    table = runs.columns(("", "without", "with reloads", "added"), *rows)
    runs.finish(options, "", found, f"{table}\nreloads applied: {applied}")
    return 0


def medians(rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, list[float]]:
    """Return the medians without reloads, with them, and of the differences."""
    found = {}
    for what in FIGURES:
        calm, busy = ([one[i][what] for one in rounds] for i in (0, 1))
        added = [b - c for c, b in zip(calm, busy, strict=True)]
        found[what] = [statistics.median(each) for each in (calm, busy, added)]
    return found


if __name__ == "__main__":
    raise SystemExit(main())
