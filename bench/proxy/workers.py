"""Measure a gate with several workers: CPU for each GB of Produce requests, and throughput.

    wire client → batchval proxy with 1, 2, … workers → wire broker

CPU is user and system time of all processes of the gate. Rounds are interleaved; the median of each
number is printed, with the connections of each worker. Needs a C compiler.

    python -m bench workers [--workers 1 2] [--rounds 5] [--seconds 3] [--size "64 kB"]
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench import runs
from bench.proxy import ends, load
from bench.validation import cells
from tests.support.gate_command import GateCommand

CONNECTIONS, WINDOW = 16, 8


def measured(
    gate: GateCommand, requests: load.Load, answers: Path, seconds: float
) -> dict[str, Any]:
    """Run one round; CPU is in seconds for each GB."""
    before = gate.metrics()
    words = [gate.port, requests.path, answers, CONNECTIONS, WINDOW, seconds]
    client = subprocess.Popen(
        [str(ends.wire()), "client", *map(str, words)], stdout=subprocess.PIPE
    )
    split = [0.0]
    while client.poll() is None:
        split = max(split, connections(gate.metrics()), key=sum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.wait(1)
    assert client.stdout is not None
    json.loads(client.stdout.read())
    after = gate.metrics()
    gigabytes = (after["request_bytes_total"] - before["request_bytes_total"]) / 1e9
    cpu_s = after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
    return {
        "cpu_s_per_gb": cpu_s / gigabytes,
        "gb_per_s": gigabytes / seconds,
        "connections": split,
    }


def connections(found: dict[str, float]) -> list[float]:
    """Return the connections of each worker; those of the gate where it is one process."""
    split = [value for name, value in found.items() if name.startswith("worker_connections")]
    return split or [found["connections_open"]]


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    parser = runs.parser(__doc__, rounds=5, quick="", out="proxy/workers", is_saved=False)
    add = parser.add_argument
    add("--workers", type=int, nargs="+", default=[1, 2], help="Workers of each gate.")
    add("--seconds", type=float, default=3.0, help="Seconds of a round (default: 3).")
    add("--size", default="64 kB", choices=load.SIZES, help="Bytes of a request.")
    add("--codec", default="none", choices=cells.CODECS, help="Compression codec.")
    options = runs.parse(parser, argv)
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        answers = load.answers(folder / "answers")
        requests = load.make(folder, options.size, options.codec)
        broker = ends.broker(answers, ends.Place())
        stack.callback(broker.stop)
        gates = {
            count: GateCommand(f"127.0.0.1:{broker.port}", workers=count)
            for count in options.workers
        }
        samples: dict[int, list[dict[str, Any]]] = {count: [] for count in gates}
        for gate in gates.values():
            gate.start()
            stack.callback(gate.kill)
        for _ in range(options.rounds):
            for count, gate in gates.items():
                samples[count].append(measured(gate, requests, answers, options.seconds))
    rows = [
        (
            count,
            *(statistics.median(one[key] for one in found) for key in ("cpu_s_per_gb", "gb_per_s")),
            " ".join(f"{number:g}" for number in found[-1]["connections"]),
        )
        for count, found in samples.items()
    ]
    found = {**runs.head(), "samples": samples}
    title = f"{options.size} {options.codec}, load {runs.load():.1f}; {runs.source(found)}"
    table = runs.columns(("workers", "CPU s/GB", "GB/s", "connections"), *rows)
    runs.finish(options, "", found, f"{title}\n\n{table}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
