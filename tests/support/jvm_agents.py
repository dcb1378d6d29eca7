"""The agents of ``broker/`` for brokers and producers, built from their sources.

Built by Maven once for each state of the sources, into the cache of the conformance oracle. The
build runs the JUnit tests of ``broker/``: a jar is there only if they pass.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.evidence.conformance import oracle
from tests.support.fetching import locked, maven
from tests.system.interop.kafka_broker import find_java

__all__ = ["broker_agent", "counters", "producer_agent"]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "broker"
VECTORS = ROOT / "fixtures" / "claims"


class AgentsNotBuilt(RuntimeError):
    """Maven could not build the agents, or a JUnit test failed."""


def broker_agent() -> Path:
    """Return the jar of the agent for brokers."""
    return _built() / "batchval-broker-agent.jar"


def producer_agent() -> Path:
    """Return the jar of the agent for producers."""
    return _built() / "batchval-producer-agent.jar"


def counters(pid: int) -> dict[str, int | str]:
    """Return the counters of the agent in the broker of this process; ``Status`` is text."""
    command = [find_java(), "-jar", str(broker_agent()), str(pid)]
    lines = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    ).stdout.splitlines()
    pairs = [line.split("=", 1) for line in lines]
    return {name: value if name == "Status" else int(value) for name, value in pairs}


def _source_files() -> list[Path]:
    files = [path for path in SOURCES.rglob("*") if path.is_file() and "target" not in path.parts]
    return sorted([*files, *VECTORS.glob("*.jsonl")])


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for file in _source_files():
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@functools.cache
def _built() -> Path:
    """Return the folder of the jars, built where this state of the sources was not built before."""
    folder = oracle.cache_folder() / f"agents-{_fingerprint()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            _build(folder)
    return folder


def _build(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as name:
        copy = Path(name)
        for file in _source_files():
            to = copy / file.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
        java = Path(os.path.realpath(find_java()))
        done = maven("package", java=java, cwd=copy / "broker")
        if done.returncode:
            raise AgentsNotBuilt(f"mvn package failed:\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
        jars = copy / "jars"
        jars.mkdir()
        for jar in (copy / "broker").glob("*/target/batchval-*-agent.jar"):
            shutil.copyfile(jar, jars / jar.name)
        jars.rename(folder)
