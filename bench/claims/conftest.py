"""The pytest-benchmark groups of claims: codec × size, in CPU time, with allocator calls and bytes in extra_info.

pytest bench/claims                        measures
pytest bench/claims --benchmark-disable    runs each statement once
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "validation"))
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
    process = peers.counting_worker("claims", peers.Place(os.sched_getaffinity(0)))
    yield process
    process.stop()


@pytest.fixture
def measure(benchmark: Any, folder: Path, counting: peers.Process) -> Callable[[str, str, cells.Cell, str], None]:
    """Times one way of judging the records of a cell; all ways of one codec and size stand in one group."""
    import peer_claims

    def run(way: str, operation: str, cell: cells.Cell, group: str) -> None:
        path = cell.path(folder)
        job = peer_claims.OPERATIONS[operation](path.read_bytes())
        names = dict(job.names)
        exec(f"def call():\n    return {job.statement}", names)
        answer = counting.ask(operation=operation, path=str(path), count_calls=2 if benchmark.enabled else 1)
        assert "error" not in answer, answer["error"]
        benchmark.group = group
        benchmark.extra_info.update(
            {
                "way": way,
                "batch": cell.name,
                "allocator_calls": answer["allocations"],
                "allocator_bytes": answer["per_call"]["bytes"],
            }
        )
        result = benchmark(names["call"])
        assert result.path == way.partition(" ")[0]
        assert result.records_count == job.facts["records"] == cell.records

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).resolve().parent in item.path.parents:
            item.add_marker(
                pytest.mark.benchmark(timer=time.thread_time, min_time=0.005, max_time=0.2, min_rounds=5, warmup=False)
            )
