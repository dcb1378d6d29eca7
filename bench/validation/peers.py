"""The peers as processes: start them on their cores, and send them requests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import runs
from bench.validation import cells, native
from bench.validation.place import Place

GO_FOLDER = cells.HERE / "go"


class Process:
    """A peer that answers a line of JSON for each request line."""

    def __init__(
        self, command: list[str], place: Place, environment: dict[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [*place.prefix(), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=runs.ROOT,
        )

    def line(self, text: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            _, errors = self.process.communicate()
            return {
                "error": f"process ended with {self.process.returncode}: {errors.strip()[-300:]}"
            }
        return dict(json.loads(answer))

    def ask(self, **request: Any) -> dict[str, Any]:
        return self.line(json.dumps(request))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.communicate()


def worker(peer: str, place: Place, provider: str = "native") -> Process:
    environment = os.environ | {"BATCHVAL_CODECS": provider}
    return Process(runs.program("validation.worker", peer), place, environment)


def counting_worker(peer: str, place: Place, provider: str = "native") -> Process:
    environment = native.counting_environment() | {"BATCHVAL_CODECS": provider}
    return Process(runs.program("validation.worker", peer), place, environment)


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
Starter = Callable[[Place, Place], Process]
STARTERS: dict[str, Starter] = {
    "native": lambda own, many: worker("batchval", own, "native"),
    "packages": lambda own, many: worker("batchval", own, "packages"),
    "decompressors": lambda own, many: worker("decompressors", own),
    "aiokafka": lambda own, many: worker("aiokafka", own),
    "kafka-python": lambda own, many: worker("kafka-python", own),
    "franz-go": lambda own, many: Process([str(go_program())], many),
}


def operations(peer: str, cell: cells.Cell) -> list[str]:
    if cell.magic == 1:
        return {"native": ["validate_messages"], "packages": ["validate_messages"]}.get(
            peer, ["records"] if peer in ("aiokafka", "kafka-python") else []
        )
    return {
        "native": ["check_ranges", "check", "validate_in_place", "scan_batches"],
        "packages": ["check_ranges", "check"],
        "decompressors": []
        if cell.codec == "none"
        else ["decompress"] + (["libdeflate"] if cell.codec == "gzip" else []),
        "aiokafka": ["header", "records"],
        "kafka-python": ["header", "records"],
        "franz-go": ["records"],
    }[peer]


def available(wanted: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the peers that can start on this machine, and why the others cannot."""
    here, missing = [], {}
    for peer in wanted:
        process = None
        try:
            process = STARTERS[peer](Place(os.sched_getaffinity(0)), Place(os.sched_getaffinity(0)))
            process.stop()
            if process.process.returncode:
                raise RuntimeError(f"ended with {process.process.returncode}")
            if peer in ("aiokafka", "kafka-python"):
                __import__({"kafka-python": "kafka"}.get(peer, peer))
            here.append(peer)
        except subprocess.CalledProcessError as error:
            missing[peer] = f"{error.cmd[0]} ended with {error.returncode}; its output is above"
        except (OSError, RuntimeError, ImportError) as error:
            missing[peer] = str(error)
    return here, missing
