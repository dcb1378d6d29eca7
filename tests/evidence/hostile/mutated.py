"""The targets ``mutated_by_thread`` and ``mutated_by_process``: buffers change while functions run.

Operations (operations.py) take turns with the cases (marked.py) that they are made for. The other
side writes to the case in use without a pause (writers.py). An execution is one call of one
operation. How the two sides meet is chance, so a finding names the operation and the case, and a
replay runs these two for some seconds.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any

from batchval.core.batches.batch import RecordBatch
from batchval.errors import BatchvalError
from tests.evidence.hostile.marked import POISON_FREE, Case, cases, stored
from tests.evidence.hostile.operations import DOCUMENTED, OPERATIONS, Operation
from tests.evidence.hostile.seeds import batch, record
from tests.evidence.hostile.writers import Kind, Scene

if TYPE_CHECKING:
    from tests.evidence.hostile.targets import Run

__all__ = ["KINDS", "describe", "mutated", "replay_mutated"]

KINDS: dict[str, Kind] = {"mutated_by_thread": "thread", "mutated_by_process": "process"}
_BURST_BYTES = 24 << 10  # of a case, before the next has its turn
_MAX_BURST = 24
_MAX_FINDINGS = 5  # of each operation
_REPLAY_S = 5.0
_PATIENCE_S = 60.0  # for the other side's first write: a loaded machine may take long to start it


@cache
def _turns(kind: Kind) -> tuple[tuple[Operation, int, int | None], ...]:
    """Return every operation with the numbers of each case of its kinds and of the second case."""
    number = {case.name: i for i, case in enumerate(cases())}
    return tuple(
        (operation, i, None if operation.second is None else number[operation.second])
        for i, case in enumerate(cases())
        for operation in OPERATIONS.values()
        if case.kind in operation.kinds and (kind == "thread" or not operation.own_memory)
    )


@cache
def _secret() -> bytes:
    """Return a batch of poison, which stays in the memory that later batches are decompressed
    to.
    """
    return batch(b"", 1, 3, payload=stored(3, record(0, None, bytes((POISON_FREE,)) * 4096)))


def _leave_secrets() -> None:
    for one in RecordBatch(_secret()).records():
        assert one.value is not None


def execute(operation: Operation, scene: Scene) -> list[str]:
    """Run one execution and return what is wrong with it."""
    try:
        return operation.run(scene)
    except BatchvalError:
        return []
    except DOCUMENTED.get(operation.name, ()):
        return []
    except Exception as error:
        return [f"exception {type(error).__name__}: {error}"]


def mutated(target: str, run: Run) -> None:
    """Run one of the two targets."""
    scene = Scene(cases(), KINDS[target], run.seed)
    turns = [
        (i, turn)
        for i, turn in enumerate(_turns(KINDS[target]))
        if run.only in (None, turn[0].name)
    ]
    found: dict[str, int] = {}
    done = run.seed % len(turns)
    patience = time.monotonic() + _PATIENCE_S
    with scene.writing():
        while run.going_on() or (not scene.writes and time.monotonic() < patience):
            number, (operation, index, second) = turns[done % len(turns)]
            done += 1
            run.place[0], run.place[1] = number, run.executions
            scene.enter(index, second)
            if done % 8 == 0:
                _leave_secrets()
            burst = max(1, min(_MAX_BURST, _BURST_BYTES // len(scene.case.data)))
            for _ in range(burst):
                scene.turn += 1
                run.executions += 1
                what = execute(operation, scene)
                if what and found.setdefault(operation.name, 0) < _MAX_FINDINGS:
                    found[operation.name] += 1
                    run.found(target, scene.case.data, what, _cfg(operation, scene.case))
    run.writes = scene.writes
    if not scene.writes:
        run.found(target, b"", ["nobody wrote to the buffers"])


def _cfg(operation: Operation, case: Case) -> dict[str, Any]:
    return {"operation": operation.name, "case": case.name}


def describe(target: str, number: int) -> dict[str, Any]:
    """Return the operation and the case that a process was busy with when it ended."""
    operation, index, _ = _turns(KINDS[target])[number]
    case = cases()[index]
    return {"target": target, "cfg": _cfg(operation, case), "batch_hex": case.data.hex()}


def replay_mutated(target: str, cfg: dict[str, Any]) -> list[str]:
    """Run one operation on one case for some seconds; return what goes wrong first."""
    from tests.evidence.hostile.targets import Run

    run = Run(_REPLAY_S, 1)
    scene = Scene(cases(), KINDS[target], run.seed)
    with scene.writing():
        for operation, index, second in _turns(KINDS[target]):
            if (operation.name, cases()[index].name) != (cfg["operation"], cfg["case"]):
                continue
            scene.enter(index, second)
            while run.going_on():
                scene.turn += 1
                if scene.turn % 64 == 0:
                    _leave_secrets()
                    scene.restore()
                if what := execute(operation, scene):
                    return what
    return []
