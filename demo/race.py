"""The same file read by two libraries: interleaved rounds, a process each, medians of ratios.

aiokafka has no validator. What it has that comes nearest is what its consumer does with a fetched
batch: check the checksum, decompress, decode each record (here by its C extension). batchval checks
the checksum, decompresses, and asks every rule of every record. Neither is timed while it starts or
reads the file.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import NamedTuple

from batchval import BatchColumns, LogValidator, scan_batches

ROUNDS = 7
ROUND_NS = 60_000_000
PEER = "aiokafka"
CONTENDERS = (PEER, "check", "scan")

Work = Callable[[bytes], object]
Count = Callable[[bytes], tuple[int, int]]


def _aiokafka() -> tuple[Work, Count]:
    from aiokafka.record.memory_records import MemoryRecords

    def parse(data: bytes) -> tuple[int, int]:
        batches = records = 0
        reader = MemoryRecords(data)
        while reader.has_next():
            batch = reader.next_batch()
            if not batch.validate_crc():
                raise ValueError("wrong checksum")
            batches += 1
            for _ in batch:
                records += 1
        return batches, records

    return parse, parse


def _counted(columns: BatchColumns) -> tuple[int, int]:
    return len(columns), int(columns["records_count"].sum())


def _check() -> tuple[Work, Count]:
    validator = LogValidator(profile="log")

    def check(data: bytes) -> BatchColumns:
        columns = validator.check_batches(data)
        if not columns.ok().all():
            raise ValueError("refused")
        return columns

    return check, lambda data: _counted(check(data))


def _scan() -> tuple[Work, Count]:
    def scan(data: bytes) -> BatchColumns:
        columns = scan_batches(data)
        if not columns["is_valid"].all():
            raise ValueError("wrong checksum")
        return columns

    return scan, lambda data: _counted(scan(data))


def _one_round(work: Work, data: bytes) -> float:
    """Return nanoseconds a pass, over as many passes as fill a round."""
    passes = 0
    start = time.perf_counter_ns()
    while True:
        work(data)
        passes += 1
        elapsed = time.perf_counter_ns() - start
        if elapsed >= ROUND_NS:
            return elapsed / passes


def serve(contender: str) -> None:
    """Serve laps in a contender's process: read a file name a line, print counts and ns a pass."""
    work, count = {PEER: _aiokafka, "check": _check, "scan": _scan}[contender]()
    for line in sys.stdin:
        data = Path(line.rstrip("\n")).read_bytes()
        print(*count(data), _one_round(work, data), flush=True)


class Lap(NamedTuple):
    """One file: counts, median nanoseconds a pass by contender, and each round's ratios to the
    peer.
    """

    file: Path
    batches: int
    records: int
    ns: dict[str, float]
    ratios: dict[str, list[float]]


class Disagreement(Exception):
    """Two contenders counted differently, so their times cannot be compared."""


def race(files: list[Path], rounds: int = ROUNDS) -> list[Lap]:
    """Run every contender on every file, round by round in turn."""
    command = [sys.executable, "-m", "demo.race"]
    runners = {
        name: subprocess.Popen(
            [*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for name in CONTENDERS
    }

    def ask(name: str, file: Path) -> tuple[tuple[int, int], float]:
        runner = runners[name]
        assert runner.stdin is not None
        assert runner.stdout is not None
        print(file.resolve(), file=runner.stdin, flush=True)
        batches, records, ns = runner.stdout.readline().split()
        return (int(batches), int(records)), float(ns)

    laps = []
    try:
        for file in files:
            times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
            counts = set()
            for _ in range(rounds):
                for name in CONTENDERS:
                    counted, ns = ask(name, file)
                    counts.add(counted)
                    times[name].append(ns)
            if len(counts) != 1:
                raise Disagreement(f"{file}: {sorted(counts)} (batches, records)")
            ((batches, records),) = counts
            ratios = {
                name: [p / t for p, t in zip(times[PEER], times[name], strict=True)]
                for name in CONTENDERS
            }
            laps.append(
                Lap(file, batches, records, {n: median(t) for n, t in times.items()}, ratios)
            )
    finally:
        for runner in runners.values():
            runner.communicate()
    return laps


def peer_version() -> str | None:
    """Return aiokafka's version if it is installed with its C extension, else None."""
    if find_spec(PEER) is None:
        return None
    import aiokafka
    from aiokafka.record.memory_records import MemoryRecords

    return str(aiokafka.__version__) if "_crecords" in MemoryRecords.__module__ else None


if __name__ == "__main__":
    serve(sys.argv[1])
