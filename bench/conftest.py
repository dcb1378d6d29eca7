"""Groups of pytest-benchmark: every row is the CPU time of one batch.

    pytest bench --benchmark-only                        measure
    pytest bench --benchmark-only --benchmark-histogram  and draw a chart for each group
    pytest bench --benchmark-disable                     run each statement once
    pytest bench --benchmark-only -m quick               few shapes of batches: make bench-quick

A group holds what does the same work on the same bytes, other libraries included. A call that takes
many batches is divided by their number, which extra_info has as batches_a_call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol

import pytest

from bench import runs
from bench.validation import batches, cells, peers, worker

HERE = Path(__file__).resolve().parent

#: shapes of the batches of a short run, and their codecs
QUICK_SHAPES = {(1, 100), (100, 1000)}
QUICK_CODECS = {"none", "lz4", "zstd"}


class Measure(Protocol):
    """Time one operation of one peer (worker.py) on the bytes of a file. Return the answer."""

    def __call__(self, group: str, peer: str, operation: str, path: Path, **info: Any) -> Any: ...


@pytest.fixture(scope="session")
def folder() -> Path:
    """Return the folder of the bench batches."""
    return batches.make(cells.BATCHES)


class Counting:
    """Processes in which every allocator call is counted, apart from the one that is timed."""

    def __init__(self) -> None:
        self._processes: dict[str, runs.Child] = {}

    def ask(self, peer: str, **request: Any) -> dict[str, Any]:
        """Return the answer of that peer's process."""
        if peer not in self._processes:
            place = peers.Place(os.sched_getaffinity(0))
            self._processes[peer] = peers.counting_worker(peer, place)
        answer = self._processes[peer].ask(**request)
        assert "error" not in answer, answer["error"]
        return answer

    def stop(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            process.stop()


@pytest.fixture(scope="session")
def counting() -> Generator[Counting, None, None]:
    """Provide the counting processes of the session."""
    found = Counting()
    yield found
    found.stop()


@pytest.fixture
def measure(benchmark: Any, counting: Counting) -> Measure:
    """Return the function that times an operation."""

    def run(group: str, peer: str, operation: str, path: Path, **info: Any) -> Any:
        job = worker.peer_named(peer)[operation](path.read_bytes())
        names = dict(job.names)
        exec(f"def call():\n    return {job.statement}", names)
        calls = 2 if benchmark.enabled else 1
        counted = counting.ask(peer, operation=operation, path=str(path), count_calls=calls)
        benchmark.group = group
        benchmark.extra_info.update(info)
        benchmark.extra_info.update(
            {
                "peer": peer,
                "operation": operation,
                "batches_a_call": job.batches,
                "allocator_calls": counted["allocations"] / job.batches,
                "allocator_bytes": counted["per_call"]["bytes"] / job.batches,
            }
        )
        answer = benchmark(names["call"])
        if benchmark.enabled:
            timed = benchmark.stats.stats
            timed.data[:] = [seconds / job.batches for seconds in timed.data]
        if "cell" in info:
            benchmark.extra_info["cell"] = info["cell"].name
            # a client that reads headers alone counts batches
            counted_records = 1 if operation == "header" else info["cell"].records
            assert job.facts["records"] == counted_records
        return answer

    return run


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and ignore what kafka-python warns of when it is imported."""
    for module in ("kafka", "importlib.resources"):
        config.addinivalue_line("filterwarnings", f"ignore::DeprecationWarning:{module}.*")
    config.addinivalue_line("markers", "quick: few shapes of batches: make bench-quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the timer of all items, and mark those of a short run."""
    timed = pytest.mark.benchmark(
        timer=time.thread_time, min_time=0.005, max_time=0.2, min_rounds=5, warmup=False
    )
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(timed)
        cell = item.callspec.params.get("cell") if hasattr(item, "callspec") else None
        if cell is None or (
            (cell.records, cell.value_size) in QUICK_SHAPES
            and cell.codec in QUICK_CODECS
            and cell.magic != 0
        ):
            item.add_marker(pytest.mark.quick)
