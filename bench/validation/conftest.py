"""The pytest-benchmark groups: codec × records × value size, in CPU time, with allocator calls and bytes in extra_info.

pytest bench/validation                        measures
pytest bench/validation --benchmark-disable    runs each statement once
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import batches
import cells
import peers


@pytest.fixture(scope="session")
def folder() -> Path:
    return batches.make(cells.BATCHES)


@pytest.fixture(scope="session")
def counting() -> Generator[peers.Process, None, None]:
    """A process in which every allocator call is counted: the one that takes the time is left alone."""
    import os

    process = peers.counting_worker("batchval", peers.Place(os.sched_getaffinity(0)))
    yield process
    process.stop()


@pytest.fixture
def measure(benchmark: Any, folder: Path, counting: peers.Process) -> Callable[[str, cells.Cell], None]:
    """Times one operation of peer_batchval on one cell."""
    import peer_batchval

    def run(operation: str, cell: cells.Cell) -> None:
        path = cell.path(folder)
        job = peer_batchval.OPERATIONS[operation](path.read_bytes())
        names = dict(job.names)
        exec(f"def call():\n    return {job.statement}", names)
        answer = counting.ask(operation=operation, path=str(path), count_calls=2 if benchmark.enabled else 1)
        assert "error" not in answer, answer["error"]
        # all operations on the same records stand together, both paths side by side
        benchmark.group = f"{cell.codec}, {cell.records} × {cell.value_size} B"
        benchmark.extra_info.update(
            {
                "operation": operation,
                "codec": cell.codec,
                "records": cell.records,
                "value_size": cell.value_size,
                "magic": cell.magic,
                "batches_a_call": job.batches,
                "allocator_calls": answer["allocations"],
                "allocator_bytes": answer["per_call"]["bytes"],
            }
        )
        assert benchmark(names["call"]) is not None
        assert job.facts["records"] == cell.records

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(
                pytest.mark.benchmark(timer=time.thread_time, min_time=0.005, max_time=0.2, min_rounds=5, warmup=False)
            )
