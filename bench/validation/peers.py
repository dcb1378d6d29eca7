"""The peers as processes: start them on their cores."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench import runs
from bench.runs import Child
from bench.validation import cells, native
from bench.validation.place import Place

GO_FOLDER = cells.HERE / "go"


def worker(peer: str, place: Place, provider: str = "native") -> Child:
    """Start a process that times the operations of a peer (worker.py)."""
    environment = os.environ | {"BATCHVAL_CODECS": provider}
    return Child([*place.prefix(), *runs.program("validation.worker", peer)], environment)


def counting_worker(peer: str, place: Place, provider: str = "native") -> Child:
    """Start a process that counts the allocator calls of a peer's operations."""
    environment = native.counting_environment() | {"BATCHVAL_CODECS": provider}
    return Child([*place.prefix(), *runs.program("validation.worker", peer)], environment)


def go_program() -> Path:
    """Build franz-go's main with the versions in go.mod and go.sum."""
    target = runs.BUILD / "franz-go"
    newest = max(path.stat().st_mtime for path in GO_FOLDER.iterdir())
    if not target.exists() or target.stat().st_mtime < newest:
        go = shutil.which("go")
        if go is None:
            raise RuntimeError("no go on the path")
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [go, "build", "-mod=readonly", "-o", str(target), "."],
            cwd=GO_FOLDER,
            check=True,
            capture_output=True,
        )
    return target


# How a peer is started, and the operations that are timed on every cell. The order is the order
# within a round.
Starter = Callable[[Place, Place], Child]
STARTERS: dict[str, Starter] = {
    "native": lambda own, many: worker("batchval", own, "native"),
    "packages": lambda own, many: worker("batchval", own, "packages"),
    "aiokafka": lambda own, many: worker("aiokafka", own),
    "kafka-python": lambda own, many: worker("kafka-python", own),
    "franz-go": lambda own, many: Child([*many.prefix(), go_program()]),
}


def operations(peer: str, cell: cells.Cell) -> list[str]:
    if cell.magic == 1:
        return {"native": ["validate_messages"], "packages": ["validate_messages"]}.get(
            peer, ["records"] if peer in ("aiokafka", "kafka-python") else []
        )
    return {
        "native": ["check_ranges", "check", "validate_in_place", "scan_batches"],
        "packages": ["check_ranges", "check"],
        "aiokafka": ["header", "records"],
        "kafka-python": ["header", "records"],
        "franz-go": ["records"],
    }[peer]


def available(wanted: dict[str, Starter]) -> tuple[dict[str, Starter], dict[str, str]]:
    """Return the peers that can start on this machine, and why the others cannot."""
    here, missing = {}, {}
    place = Place(os.sched_getaffinity(0))
    for peer, start in wanted.items():
        try:
            process = start(place, place)
            process.stop()
            if process.process.returncode:
                raise RuntimeError(f"ended with {process.process.returncode}")
            if peer in ("aiokafka", "kafka-python"):
                __import__({"kafka-python": "kafka"}.get(peer, peer))
            here[peer] = start
        except subprocess.CalledProcessError as error:
            missing[peer] = f"{error.cmd[0]} ended with {error.returncode}; its output is above"
        except (OSError, RuntimeError, ImportError) as error:
            missing[peer] = str(error)
    return here, missing
