"""What several workers cost: CPU for each GB of Produce requests, and how fast they are together.

    wire client → batchval proxy with 1, 2, … workers → wire broker

CPU is user and system time of all processes of the gate. Rounds are interleaved; the median of each
number is printed, with the connections of each worker. Needs a C compiler.

    python -m bench workers [--workers 1,2] [--rounds 5] [--seconds 3] [--size "64 kB"]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench import runs
from bench.proxy import load
from tests.support.gate_command import GateCommand

CONNECTIONS, WINDOW = 16, 8


def built(folder: Path) -> Path:
    """Return the program of wire.c."""
    program = folder / "wire"
    source = Path(__file__).with_name("wire.c")
    subprocess.run(["cc", "-O2", "-o", str(program), str(source), "-lm", "-lpthread"], check=True)
    return program


def measured(
    wire: Path, gate: GateCommand, requests: load.Load, answers: Path, seconds: float
) -> dict[str, Any]:
    """Run one round; CPU is in seconds for each GB."""
    before = gate.metrics()
    command = [
        str(wire),
        "client",
        str(gate.port),
        str(requests.path),
        str(answers),
        str(CONNECTIONS),
        str(WINDOW),
    ]
    client = subprocess.Popen([*command, str(seconds)], stdout=subprocess.PIPE)
    split = [0.0]
    while client.poll() is None:
        split = max(split, connections(gate.metrics()), key=sum)
        with_timeout(client)
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


def with_timeout(client: subprocess.Popen[bytes]) -> None:
    try:
        client.wait(1)
    except subprocess.TimeoutExpired:
        return


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", default="64 kB", choices=load.SIZES)
    parser.add_argument("--codec", default="none")
    options = parser.parse_args()
    counts = [int(word) for word in options.workers.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wire, answers = built(folder), load.answers(folder / "answers")
        requests = load.make(folder, options.size, options.codec)
        broker = subprocess.Popen(
            [str(wire), "broker", str(answers)], stdout=subprocess.PIPE, text=True
        )
        assert broker.stdout is not None
        port = broker.stdout.readline().split()[1]
        gates = {count: GateCommand(f"127.0.0.1:{port}", workers=count) for count in counts}
        rounds: dict[int, list[dict[str, Any]]] = {count: [] for count in counts}
        try:
            for gate in gates.values():
                gate.start()
            for _ in range(options.rounds):
                for count, gate in gates.items():
                    rounds[count].append(measured(wire, gate, requests, answers, options.seconds))
        finally:
            for gate in gates.values():
                gate.kill()
            broker.kill()
    print(f"{options.size} {options.codec}, {os.cpu_count()} cores, load {runs.load():.1f}")
    for count, found in rounds.items():
        cpu, rate = (
            statistics.median(one[key] for one in found) for key in ("cpu_s_per_gb", "gb_per_s")
        )
        print(
            f"workers {count}: {cpu:.3f} s/GB, {rate:.2f} GB/s, connections {found[-1]['connections']}"
        )


if __name__ == "__main__":
    main()
